"""Hooks, which are calls that exist only under an instrument that provides the called functions; and faults."""
