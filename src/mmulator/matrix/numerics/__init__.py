"""Bits of element types, the arithmetic of a device, and the exact dot product. `matrix/twin/` computes the same bits, fast.

formats.py    bits <-> sign, significand, exponent
profiles.py   `DotKey` -> a device's arithmetic, as a table
dot.py        one output element in plain integers, step by step: the exact model
element.py    the record of one output element, of one instruction or a chain
telling.py    that record as text and HTML
mbarrier.py   the 64 bits of an mbarrier
sfu/          approximate functions
"""

from mmulator.matrix.numerics.profiles import DotKey, Profile, profile_for

__all__ = ["DotKey", "Profile", "profile_for"]
