"""Bits of element types, a device's arithmetic, and the dot product, exactly. `twin/` has the same bits, fast.

formats.py    bits <-> sign, significand, exponent
profiles.py   `DotKey` -> a device's arithmetic, as a table
dot.py        one output element in plain integers: the exact model
arrays.py     the same for whole matrices, in NumPy
sfu/          approximate functions
"""

from mmulator.numerics.arrays import model_matmul
from mmulator.numerics.profiles import DotKey, Profile, profile_for

__all__ = ["DotKey", "Profile", "model_matmul", "profile_for"]
