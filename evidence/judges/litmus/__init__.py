"""Litmus tests: a few threads with a few accesses each, and an outcome that the memory model permits or forbids."""
