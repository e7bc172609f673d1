"""Bank conflicts of shared-memory accesses.

The model: 32 banks of 4 bytes; the bank of an address is (address / 4) % 32. A warp's access is cut into phases: all 32
lanes for up to 4 bytes a lane, half-warps for 8, quarter-warps for 16; a phase moves at most 128 bytes. Within a phase
lanes that touch the same 4-byte word share it; different words of one bank take one wavefront each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmulator.base.errors import OperandError
from mmulator.matrix.inspect.answer import Answer
from mmulator.matrix.inspect.descriptors.tile import Placed

BANKS = 32
SIZES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Phase:
    """Lanes that are served together. conflicts: (bank, lanes) for each bank that needs several wavefronts."""

    lanes: tuple[int, ...]
    wavefronts: int
    conflicts: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class WarpAccess:
    """One instruction of a warp: lane i touches `bytes` bytes at addresses[i]. label: place in the tile."""

    label: str
    addresses: tuple[int, ...]
    bytes: int

    @property
    def phases(self) -> tuple[Phase, ...]:
        lanes = min(32, 128 // self.bytes)
        return tuple(
            _phase(range(first, min(first + lanes, len(self.addresses))), self.addresses, self.bytes)
            for first in range(0, len(self.addresses), lanes)
        )

    @property
    def wavefronts(self) -> int:
        return sum(p.wavefronts for p in self.phases)

    @property
    def least(self) -> int:
        """Wavefronts without conflicts: one for each phase."""
        return len(self.phases)

    @property
    def ways(self) -> int:
        """The worst phase's wavefronts: `8-way`; 1 is free of conflicts."""
        return max(p.wavefronts for p in self.phases)


@dataclass(frozen=True)
class BankConflicts(Answer):
    """The accesses of one kind to a tile."""

    kind: str
    accesses: tuple[WarpAccess, ...]

    @property
    def wavefronts(self) -> int:
        return sum(a.wavefronts for a in self.accesses)

    @property
    def least(self) -> int:
        return sum(a.least for a in self.accesses)

    @property
    def worst(self) -> WarpAccess:
        return max(self.accesses, key=lambda a: (a.ways, a.wavefronts))

    @property
    def ways(self) -> int:
        return self.worst.ways

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "accesses": len(self.accesses),
            "wavefronts": self.wavefronts,
            "least": self.least,
            "ways": self.ways,
            "worst": {
                "label": self.worst.label,
                "bytes": self.worst.bytes,
                "addresses": list(self.worst.addresses),
                "phases": [
                    {
                        "lanes": list(p.lanes),
                        "wavefronts": p.wavefronts,
                        "conflicts": [{"bank": b, "lanes": list(lanes)} for b, lanes in p.conflicts],
                    }
                    for p in self.worst.phases
                ],
            },
        }

    def verdict(self) -> str:
        """The result in words: `4-way bank conflicts; 16 accesses, 64 wavefronts, 16 without conflicts`."""
        found = "no bank conflicts" if self.ways == 1 else f"{self.ways}-way bank conflicts"
        accesses = "1 access" if len(self.accesses) == 1 else f"{len(self.accesses)} accesses"
        wavefronts = "1 wavefront" if self.wavefronts == 1 else f"{self.wavefronts} wavefronts"
        return f"{found}; {accesses}, {wavefronts}, {self.least} without conflicts"


def _phase(lanes: range, addresses: Sequence[int], size: int) -> Phase:
    words: dict[int, dict[int, list[int]]] = {}  # bank -> word -> lanes
    for lane in lanes:
        for word in range(addresses[lane] // 4, (addresses[lane] + size - 1) // 4 + 1):
            words.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
    crowded = {bank: here for bank, here in sorted(words.items()) if len(here) > 1}
    conflicts = tuple((bank, tuple(sorted({x for ls in here.values() for x in ls}))) for bank, here in crowded.items())
    return Phase(tuple(lanes), max(map(len, words.values())), conflicts)


def bank_conflicts(kind: str, accesses: Sequence[WarpAccess]) -> BankConflicts:
    """Count the wavefronts of accesses.

    Raises OperandError for addresses that are not multiples of the bytes a lane touches, for another number of bytes than 1, 2,
    4, 8
    or 16, more than 32 lanes, or no access at all.
    """
    if not accesses:
        raise OperandError(f"{kind}: there is no access")
    for a in accesses:
        if a.bytes not in SIZES or not 1 <= len(a.addresses) <= 32:
            raise OperandError(f"{kind}: {len(a.addresses)} lanes of {a.bytes} bytes; 1 to 32 lanes of {SIZES} are needed")
        for address in a.addresses:
            if address < 0 or address % a.bytes:
                raise OperandError(f"{kind}: address {address:#x} is no multiple of {a.bytes} bytes")
    return BankConflicts(kind, tuple(accesses))


def address_accesses(addresses: Sequence[int], size: int) -> tuple[str, tuple[WarpAccess, ...]]:
    """Addresses in order, 32 to a warp's access of `size` bytes a lane."""
    groups = [tuple(addresses[i : i + 32]) for i in range(0, len(addresses), 32)]
    return f"{size} bytes a lane", tuple(WarpAccess(f"access {i}", g, size) for i, g in enumerate(groups))


def tile_accesses(placed: Placed, access: str, at: tuple[int, int] | None = None) -> tuple[str, tuple[WarpAccess, ...]]:
    """The accesses of a kind that go over the whole tile once.

    placed: the tile at its descriptor.
    access: the kind.
        `ldmatrix`: eight rows of 16 bytes, one 8x8 matrix (`stmatrix` alike).
        `k:BYTES`, `mn:BYTES`: 32 lanes of 1 to 16 bytes that step along k, or along m or n; where the tile ends they go on with
        the
        next row. A lane's bytes always run along the contiguous dimension.
    at: only the access whose first element is (row, col) of the matrix.

    Raises OperandError for another kind, or elements that are no multiple of bytes wide.
    """
    tile = placed.tile
    inner, outer = tile.contiguous[1], tile.strided[1]
    table = placed.addresses.T if tile.mn_major else placed.addresses  # [strided, contiguous]
    kind, _, text = access.partition(":")
    size = 16 if access == "ldmatrix" else int(text) if kind != "ldmatrix" and text.isdigit() else 0
    if kind not in ("ldmatrix", "k", "mn") or size not in SIZES or size * 8 < tile.element.bits:
        raise OperandError(
            f"no access {access!r} to elements of {tile.element}",
            hint="ldmatrix, k:BYTES or mn:BYTES with 1, 2, 4, 8 or 16 bytes a lane, at least an element",
        )
    step = size * 8 // tile.element.bits  # elements of a lane
    across, down = np.meshgrid(np.arange(0, inner, step), np.arange(outer))  # [outer, inner / step]
    lanes = 32
    if kind == "ldmatrix":
        lanes = 8
        order = np.argsort((down // 8 * across.shape[1] * 8 + across // step * 8 + down % 8).reshape(-1))
    elif (kind == "k") != tile.mn_major:
        order = np.arange(across.size)
    else:
        order = np.argsort((across // step * outer + down).reshape(-1), kind="stable")
    down, across = down.reshape(-1)[order], across.reshape(-1)[order]
    found = []
    for first in range(0, len(down), lanes):
        i, j = down[first : first + lanes], across[first : first + lanes]
        start = tile.matrix(*_mn_k(tile.mn_major, int(i[0]), int(j[0])))
        if at is None or at == start:
            label = tile.name(*_mn_k(tile.mn_major, int(i[0]), int(j[0])))
            found.append(WarpAccess(label, tuple(int(x) for x in table[i, j]), size))
    if not found:
        raise OperandError(f"no {access} access to {tile} begins at element {at}", hint="leave the position out for all")
    return f"{access} on {tile}", tuple(found)


def _mn_k(mn_major: bool, strided: int, contiguous: int) -> tuple[int, int]:
    return (contiguous, strided) if mn_major else (strided, contiguous)
