"""Suites that others wrote, run without a GPU: what passes, and why the rest does not."""
