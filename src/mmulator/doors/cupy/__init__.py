"""CuPy's own kernels on this machine: `install()` before a program uses cupy, or `mmulator exec`.

CuPy's extension modules contain NVIDIA's CUDA runtime, which talks to no driver but NVIDIA's. So what a program finds under
the names of cupy is replaced: arrays are host memory, kernels that the program brings (RawKernel, RawModule,
ElementwiseKernel) are compiled by NVRTC as CuPy does and run here, and what else there is raises UnsupportedError by name.
"""

from __future__ import annotations

from mmulator.doors.cupy.install import install as install
