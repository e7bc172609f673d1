"""CUDA's driver library, libcuda.so.1, as programs load it, with the driver of this package behind it.

Cython modules of other libraries call the driver from C, so Python cannot take its place function by function. What can: a
shared library of that name, made here without a compiler (elf.py), whose functions are Python's (abi.py and the files of
chapters: device, memory, modules, launches). It is loaded before anyone asks for the driver, and the dynamic loader gives
it to all who do.
"""
