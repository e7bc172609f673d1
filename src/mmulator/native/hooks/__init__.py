"""Hooks: calls that are there only under an instrument, which says what is called; and faults."""
