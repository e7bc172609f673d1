"""The places where cuSPARSELt keeps the metadata of a compressed matrix: nibble by nibble, behind the values.

NVIDIA does not document them. They were measured: cuSPARSELt 0.8.0, called by PyTorch 2.11 on an H100 (sm_90), wrote buffers
for random patterns, and every nibble of these was identified. The metadata are tiles of 64 rows and 8 or 16 chunks; tiles of
the same rows are adjacent. Rows and chunks beyond the matrix hold 0b1110. In a tile the bits of row and chunk form the place of
a nibble (`_TILE`). For 32-bit types, the same nibbles follow a second time in the order in which PyTorch's own packer
(torch._sparse_semi_structured_tile) writes them for cuSPARSELt, which is also the order of CUTLASS: tiles of 128 rows (fewer at
the end) and 16 chunks; tiles of the same chunks are adjacent.
"""

from dataclasses import dataclass

import numpy as np

from mmulator.base.errors import UnsupportedError
from mmulator.matrix.layouts.sparse.metadata import Index

# What the place of a nibble in its tile consists of, low bit first: bits of the row (r) and of the chunk (c).
_TILE = {
    8: ("c0", "r3", "c3", "c1", "c2", "r0", "r1", "r2", "r4", "r5"),
    16: ("r3", "c2", "c0", "c1", "r0", "r1", "r2", "r4", "r5"),
}
# Element types that were measured -> (bits, elements of a chunk, key of _TILE)
_TYPES = {"s8": (8, 4, 8), "e4m3": (8, 4, 8), "f16": (16, 4, 16), "bf16": (16, 4, 16), "tf32": (32, 2, 16)}
_RULE = "NVIDIA does not document the layout; "


@dataclass(frozen=True)
class CompressedBuffer:
    """The layout of a buffer's metadata.

    places: int64 [copies, M, chunks], places of nibbles, counted from the end of the values (the low half of byte 0 first).
    written: number of bytes that the layout defines.
    size: number of bytes that cuSPARSELt requires.
    """

    places: Index
    written: int
    size: int


def compressed(m: int, k: int, element: str) -> CompressedBuffer:
    """The layout that torch._cslt_compress writes. Raises UnsupportedError for types and shapes that were not measured."""
    if element not in _TYPES:
        raise UnsupportedError(
            f"where cuSPARSELt puts the metadata of .{element} is not known",
            rule=_RULE + f"{', '.join(f'.{t}' for t in _TYPES)} were measured",
        )
    _check(m, k, element, 32, "measured were shapes with M and K multiples of 32")
    _, chunk, tile = _TYPES[element]
    row, column = _grid(m, k // chunk)
    across = 1 << sum(name[0] == "c" for name in _TILE[tile])  # chunks of a tile
    tiles = -(-k // chunk // across)
    place = sum((_bit(row, column, name) << n for n, name in enumerate(_TILE[tile])), 0 * (row + column))
    place = place + 64 * across * (column // across + row // 64 * tiles)
    count = -(-m // 64) * tiles * 64 * across
    if element != "tf32":
        return CompressedBuffer(place[None], count // 2, count // 2)
    return CompressedBuffer(np.stack([place, count + _packer_places(m, k // chunk)]), (count + m * k // chunk) // 2, count)


def packed(m: int, k: int, element: str) -> CompressedBuffer:
    """The layout that torch._sparse_semi_structured_tile writes for cuSPARSELt. Raises UnsupportedError for types that it does
    not support.
    """
    if element not in ("f16", "bf16"):
        raise UnsupportedError(f"PyTorch's own packer has no .{element}", hint="it has .f16 and .bf16")
    _check(m, k, element, 128, "PyTorch's own packer has M and K that are multiples of 128")
    return CompressedBuffer(_packer_places(m, k // 4)[None], m * k // 8, m * k // 8)


def _packer_places(m: int, chunks: int) -> Index:
    row, chunk = _grid(m, chunks)
    names = ("c0", "c1", "r3", "c2", "r4", "r0", "r1", "r2")  # in 32 rows of 8 chunks
    place = sum((_bit(row, chunk, name) << n for n, name in enumerate(names)), 0 * (row + chunk))
    rows = np.minimum(128, m - row // 128 * 128)  # of the tile
    return place + row % 128 // 32 * 256 + chunk // 8 % 2 * rows * 8 + row // 128 * 2048 + chunk // 16 * m * 16


def _grid(m: int, chunks: int) -> tuple[Index, Index]:
    return np.arange(m, dtype=np.int64)[:, None], np.arange(chunks, dtype=np.int64)[None, :]


def _bit(row: Index, chunk: Index, name: str) -> Index:
    return (row if name[0] == "r" else chunk) >> int(name[1]) & 1


def _check(m: int, k: int, element: str, multiple: int, reason: str) -> None:
    if 0 in (m, k) or m % multiple or k % multiple:
        raise UnsupportedError(
            f"where cuSPARSELt's metadata of a {m} x {k} matrix of .{element} lie is not known",
            rule=_RULE + reason,
            hint="`Compressed.padded(M, K)` fills up with zeros; the CUTLASS backend has more shapes",
        )
