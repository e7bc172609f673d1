"""Questions about a run: what a launch did, why an element has its value, where time went, and the debugger.

`record/` follows steps and values of a launch, `debug/` stops one between two instructions.
"""
