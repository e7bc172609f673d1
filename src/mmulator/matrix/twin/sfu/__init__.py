"""Approximate functions, compiled: rcp, rsqrt, sqrt, lg2, ex2, sin, cos, tanh, div.approx, div.full.

short.py       the datapath in 32 bits, where that is enough
vector.py      the unit on vectors of Values
native.py      the instructions as native functions
arrays.py      the instructions on NumPy arrays
"""

from mmulator.matrix.twin.sfu.arrays import evaluate as evaluate
