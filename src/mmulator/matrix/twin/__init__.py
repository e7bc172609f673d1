"""The compiled twin of the exact model: native functions with the same bits.

twin.py       `twin_for`: native functions for whole tiles
matrices.py   whole matrices and batches of them; registers.py: batches of registers; threads.py: division of work
plan.py, pack.py, tile.py, slow.py, fused.py, exact.py, groups.py, software.py: its parts
shared.py     matrices in shared memory that a descriptor selects; moves.py: moves of fragments; both generated from `layouts`
doors.py      the interface to memory: from an address to a pointer; images.py: the interface to arrays, for `Instruction`
places.py     registers -> product -> registers, from `layouts`; product.py: its native code
sfu/          approximate functions
"""
