"""Being written by helper E (see ADDENDUM in the contract): use it, do not write it."""
