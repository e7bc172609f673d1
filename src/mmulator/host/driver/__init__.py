"""The driver: device memory, modules, functions, streams and launches, as CUDA's driver has them, on this machine.

Other people's programs come in through doors (Triton, torch, Numba, CuPy, cuda.core), and all doors lead here. Device
memory is memory of the host at the host's own addresses, so that a pointer that a program has taken, stored or computed
means the same to a kernel. A kernel may touch what the door says it was given, and what the program has the address of.
"""

from mmulator.base.lazy import face

__getattr__, __dir__, __all__ = face(__name__)
