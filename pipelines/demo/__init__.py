"""The demo: real pixels, made-up days, and faults put in on purpose."""
