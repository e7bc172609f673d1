"""CUDA's driver library, libcuda.so.1, as programs load it, with the driver of this package behind it.

Cython modules of other libraries call the driver from C, so it cannot be replaced function by function in Python. Instead a
shared library of that name is made here without a compiler (elf.py), whose functions are Python's (abi.py, and a file for each
chapter: device, memory, modules, launches). It is loaded before any other library asks for the driver, and the dynamic loader
then gives it to all.
"""
