"""Where cuSPARSELt keeps the metadata of a compressed matrix: nibble by nibble, behind the values.

NVIDIA does not document it. Measured: what cuSPARSELt 0.8.0, called by PyTorch 2.11 on an H100 (sm_90), wrote for random
patterns, of which every nibble was identified. The metadata are tiles of 64 rows and 8 or 16 chunks, those of the same
rows one after the other; rows and chunks that the matrix lacks have 0b1110. In a tile the bits of row and chunk make
the place of a nibble (`_TILE`). 32-bit types have that and behind it the same nibbles once more, in the order in which
PyTorch's own packer (torch._sparse_semi_structured_tile) writes them for cuSPARSELt, which is also CUTLASS' order:
tiles of 128 rows (or those that are left) and 16 chunks, those of the same chunks one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmulator.errors import UnsupportedError
from mmulator.layouts.sparse.metadata import Index

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
    """Metadata of a buffer: places int64 [copies, M, chunks] of nibbles, counted from the end of the values (byte 0's
    low half first); written: bytes that the layout defines; size: bytes that cuSPARSELt asks for."""

    places: Index
    written: int
    size: int


def compressed(m: int, k: int, element: str) -> CompressedBuffer:
    """As torch._cslt_compress has it. Raises UnsupportedError for types and shapes that were not measured."""
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
    """As torch._sparse_semi_structured_tile writes it for cuSPARSELt. Raises UnsupportedError for what it has not."""
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
