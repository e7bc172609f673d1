"""A Numba kernel that launches more threads than there are elements."""

import numpy as np
from numba import cuda


def doubling():
    @cuda.jit
    def doubled(scale, x):
        i = cuda.grid(1)
        x[i] = scale * x[i]  #~ memory-out-of-bounds

    return doubled


try:
    doubling()[2, 64](2, np.zeros(100))
except Exception as fault:
    print(type(fault).__name__, *[line for line in str(fault).splitlines() if "launch: " in line])
