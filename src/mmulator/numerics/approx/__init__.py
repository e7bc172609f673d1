"""Approximate functions, exact to the bit: rcp, rsqrt, sqrt, lg2, ex2, sin, cos, tanh, div.approx, div.full.

tables.py      the coefficients of a chip, and which chip a device computes with
unit.py        the special-function unit in plain integers
operations.py  the instructions in plain integers: the unit, with what ptxas puts around it
vector.py      the unit on vectors of Values
native.py      the instructions as native functions
arrays.py      the instructions on NumPy arrays
captures.py    the format in which a GPU's outputs are kept
"""

from mmulator.numerics.approx.arrays import evaluate
from mmulator.numerics.approx.native import APPROX, ARRAYS, KEYS, array_functions, lane_functions, value_of, word_of
from mmulator.numerics.approx.operations import BINARY, UNARY, Key
from mmulator.numerics.approx.tables import Tables, tables_for

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
