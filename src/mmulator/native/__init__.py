"""The native part of the machine, written in the house's own small language (codegen/lang.py)."""
