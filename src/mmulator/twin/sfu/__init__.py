"""Approximate functions, compiled: rcp, rsqrt, sqrt, lg2, ex2, sin, cos, tanh, div.approx, div.full.

short.py       the datapath in 32 bits, where that is enough
vector.py      the unit on vectors of Values
native.py      the instructions as native functions
arrays.py      the instructions on NumPy arrays
"""

from mmulator.numerics.sfu.operations import BINARY, UNARY, Key
from mmulator.numerics.sfu.tables import Tables, tables_for
from mmulator.twin.sfu.arrays import evaluate
from mmulator.twin.sfu.native import APPROX, ARRAYS, KEYS, array_functions, lane_functions, value_of, word_of

__all__ = [
    "APPROX",
    "ARRAYS",
    "BINARY",
    "KEYS",
    "UNARY",
    "Key",
    "Tables",
    "array_functions",
    "evaluate",
    "lane_functions",
    "tables_for",
    "value_of",
    "word_of",
]
