"""Tables to which instructions of a kernel point."""

from dataclasses import field
from typing import Any

import numpy as np

from mmulator.classes import dataclass


@dataclass
class MatrixTables:
    """The tables of matrix instructions, in the order of their use. compiler/meaning/ fills them."""

    tables: list[np.ndarray] = field(default_factory=list)
    index: dict[Any, int] = field(default_factory=dict)
    # tiles of wgmma: (function, n, bits of an element, register slots) of the accumulator
    tiles: dict[tuple[str, int, int, tuple[int, ...]], int] = field(default_factory=dict)
    wgmma: list[np.ndarray] = field(default_factory=list)
    tile_bytes: int = 0
    a_pack: tuple[int, int] = (0, 0)  # bytes of the largest plain and packed A, of those that are kept
    b_pack: tuple[int, int] = (0, 0)
    scratch_bytes: int = 0
    tensor: str = ""  # the device, if the kernel uses tensor memory
    keep: list[Any] = field(default_factory=list)

    def kept(self, product: Any) -> np.ndarray:
        """The table of a product of twin/, which is kept, with room for its scratch memory."""
        self.scratch_bytes = max(self.scratch_bytes, product.scratch)
        self.keep.append(product)
        table: np.ndarray = product.table
        return table
