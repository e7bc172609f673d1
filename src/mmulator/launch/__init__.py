"""Grids: arguments, limits, memory, workers, faults as sentences, the report."""
