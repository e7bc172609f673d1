"""Launches as files and options: which kernel, which arguments, what to compare with."""
