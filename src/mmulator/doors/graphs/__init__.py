"""Graphs of CUDA's driver and runtime: operations of streams as values, graphs of them, and streams that are captured.

The driver of doors/libcuda does the work. operations.py has what a node does, model.py graphs, captures.py what a captured stream
records, calls.py and structs.py the functions, which doors/cudart takes over with the runtime's structs.
"""
