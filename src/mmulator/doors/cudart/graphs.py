"""Graphs of launches and copies."""
