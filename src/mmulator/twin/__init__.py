"""The compiled twin of the exact model: native functions with the same bits.

twin.py       `twin_for`: native functions for whole tiles
matrices.py   whole matrices and batches of them; registers.py: batches of registers; threads.py: who does which part
plan.py, pack.py, tile.py, slow.py, fused.py, exact.py, groups.py, software.py: its parts
shared.py     matrices in shared memory that a descriptor names; moves.py: fragments moved as they are; both from `layouts`
doors.py      who turns an address into a pointer for them; images.py: arrays, for `Instruction`
places.py     registers -> product -> registers, from `layouts`; product.py: its native code
sfu/          approximate functions
"""
