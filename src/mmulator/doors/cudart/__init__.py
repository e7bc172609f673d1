"""CUDA's runtime library, libcudart.so, with the driver of this package behind it.

A C++ program that nvcc compiled registers its kernels there before `main`, and calls it for everything else. The library is a
file that doors/library makes; its functions are Python's, a file for each chapter, and each translates to the driver API of
doors/libcuda. rows.py has a row for each function: what it does, or why it is refused.
"""
