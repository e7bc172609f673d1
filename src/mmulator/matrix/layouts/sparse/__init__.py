"""Structured sparsity: the elements of A that are kept, their metadata, the lanes that hold it, and PyTorch's layouts.

s = compress(prune(A, i), i)     # s.values, s.metadata; expand(s) is the dense matrix
t = s.tiles()                    # cut into the instruction's shape
t.registers(selector=0)          # the metadata operands
packed, meta = to_torch(s)       # as torch.sparse.to_sparse_semi_structured has them
"""

from mmulator.matrix.layouts.sparse.compress import Compressed, compress, compress_rows, expand, operand, prune, too_dense
from mmulator.matrix.layouts.sparse.metadata import (
    Granularity,
    allowed,
    check,
    form_of,
    from_registers,
    granularity,
    indices,
    meaning,
    mixed,
    places,
    selectors,
    to_registers,
    undefined,
    where,
)
from mmulator.matrix.layouts.sparse.pytorch import from_torch, to_torch

__all__ = [
    "Compressed", "Granularity", "allowed", "check", "compress", "compress_rows", "expand", "form_of", "from_registers",
    "from_torch", "granularity", "indices", "meaning", "mixed", "operand", "places", "prune", "selectors", "to_registers",
    "to_torch", "too_dense", "undefined", "where",
]  # fmt: skip
