"""Faults and deadlocks in words."""
