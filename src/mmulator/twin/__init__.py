"""The compiled twin of the exact model: native functions with the same bits.

twin.py       `twin_for`: whole tiles; `fast_matmul`: whole matrices; batch.py: many of them
plan.py, pack.py, tile.py, slow.py, fused.py, exact.py, groups.py, software.py: its parts
places.py     registers -> product -> registers, from `layouts`; product.py: its native code; registers.py: batches of it
sfu/          approximate functions
"""
