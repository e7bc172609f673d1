"""Backends besides the CPU."""
