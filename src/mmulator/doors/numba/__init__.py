"""Numba-CUDA's kernels on this machine: `install()` before `from numba import cuda`, or `mmulator exec`."""

from mmulator.doors.numba.install import install as install
