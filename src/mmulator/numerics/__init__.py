"""Bits of element types, a device's arithmetic, and the dot product: exactly, and fast.

formats.py    bits <-> sign, significand, exponent; packing
profiles.py   `DotKey` -> a device's arithmetic, as a table
dot.py        one output element in plain integers: the exact model
arrays.py     the same for whole matrices, in NumPy
twin.py       the compiled twin: whole tiles, the same bits; `twin_for` for native callers, `fast_matmul` for Python
twin_*.py     its parts: plan and layouts, packing, the fast tile, the slow path, loops; exact sums; groups; m8n8k4
approx/       approximate functions
"""

from mmulator.numerics.arrays import matmul
from mmulator.numerics.profiles import DotKey, Profile, profile_for

__all__ = ["DotKey", "Profile", "matmul", "profile_for"]
