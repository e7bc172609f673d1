"""Hooks for bytes that copies take from one place of memory to another."""

from mmulator.base.codegen.lang import hook
from mmulator.base.codegen.types import ptr_to, u32, u64
from mmulator.runtime.native.state import Transfer, Warp


@hook
def bytes_moved(w: ptr_to(Warp), lane: u32, source: u64, target: u64, bytes: u32, site: u32) -> None:
    """Called behind the `accessed_one` of a copy's write to shared memory, for bytes that it takes from another place.

    w, lane, site: the issuing lane and instruction.
    source, target: generic addresses.
    bytes: contiguous on both sides.
    """


@hook
def row_moved(t: ptr_to(Transfer), rank: u32, at: u64, source: u64) -> None:
    """Called for a row of a box that a CTA's shared memory gets from `at` on; the bytes of the tensor lie from `source` on."""


@hook
def lanes_moved(
    w: ptr_to(Warp), mask: u32, source: ptr_to(u64), target: ptr_to(u64), bytes: u32, valid: ptr_to(u32), site: u32
) -> None:
    """Called after the `accessed` of a cp.async of `bytes` by lanes of `mask`, of which valid[lane] come from source[lane], the
    rest zeros. target: addresses of the shared window.
    """


# registers -----------------------------------------------------------------------------------------------------------
READ, WRITTEN, LOADED = range(3)


@hook
def value_moves(w: ptr_to(Warp), lanes: u32, number: u32, how: u32) -> None:
    """Called before lanes of a warp read or write such registers.

    w, lanes: the warp and lanes.
    number: number of the registers.
    how: READ, WRITTEN by another instruction, or LOADED.
    """
