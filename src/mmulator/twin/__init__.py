"""The compiled twin of the exact model: native functions with the same bits.

twin.py       `twin_for`: native functions for whole tiles
matrices.py   whole matrices and batches of them; registers.py: batches of registers; threads.py: who does which part
plan.py, pack.py, tile.py, slow.py, fused.py, exact.py, groups.py, software.py: its parts
places.py     registers -> product -> registers, from `layouts`; product.py: its native code
sfu/          approximate functions
"""
