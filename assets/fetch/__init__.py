"""Content from an address of any scheme into a local file, within limits. Knows no pipeline."""
