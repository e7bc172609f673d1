"""Strictness of tests: a test is run with changed kernels, and what it does not notice is told."""
