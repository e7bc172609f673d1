"""Objects of a host program: modules, kernels, variables, the backends that run them, and their reports.

backend.py says what a backend does, cpu.py is the CPU as one; evaluation/spread/ runs a launch on a Dask cluster.
"""
