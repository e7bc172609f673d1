"""CuPy's own kernels on this machine: `install()` before a program uses cupy, or `mmulator exec`.

CuPy's extension modules contain NVIDIA's CUDA runtime, which talks only to NVIDIA's driver. So the names of cupy are replaced:
arrays are host memory; kernels that the program brings (RawKernel, RawModule, ElementwiseKernel) are compiled by NVRTC, as CuPy
does, and run here; every other function raises UnsupportedError with its name.
"""

from mmulator.doors.cupy.install import install as install
