"""Shared libraries in place of CUDA's own: libcudart.so and libcuda.so as files, made without a compiler.

A program loads them as it would load NVIDIA's. Each exported function jumps through a slot of a table (elf.py). The first call
of any of them starts Python in the process, or enters the Python that runs there already (boot.py), which fills the table with
functions of the door behind the library. So programs that never call CUDA never start Python.
"""
