"""What may be known of the operands of matrix and warp instructions while a kernel runs: hooks, as those in events.py."""

from __future__ import annotations

from enum import IntEnum

from mmulator.codegen.lang import hook
from mmulator.codegen.types import i64, ptr_to, u32, u64
from mmulator.native.state import Warp


class UniformOperand(IntEnum):
    """Operands that all threads give alike; names as the specification has them are in OPERAND_NAMES."""

    A_DESC = 0
    B_DESC = 1
    P = 2
    STRIDE = 3
    BYTE_ID_A = 4
    THREAD_ID_A = 5
    BYTE_ID_B = 6
    THREAD_ID_B = 7


OPERAND_NAMES = ("a-desc", "b-desc", "p", "stride", "byte-id-a", "thread-id-a", "byte-id-b", "thread-id-b")


@hook
def operand_given(w: ptr_to(Warp), mask: u32, values: ptr_to(u64), operand: u32, allowed: u64, site: u32) -> None:
    """An operand (UniformOperand) that lanes of `mask` must give alike, each lane's value. allowed: a bit for each value that it
    may have, or 0 for any."""


@hook
def fragment_placed(
    w: ptr_to(Warp), at: u64, stride: i64, default: i64, bits: u32, aligned: u32, generic: u32, site: u32
) -> None:
    """wmma.load or .store at p, both as the warp's first lane has them. stride, default: in elements of `bits`. aligned: bytes
    that every line begins at a multiple of. generic: whether p is a generic address."""


@hook
def fragment_used(w: ptr_to(Warp), misuse: u32, number: u32, site: u32) -> None:
    """wmma.mma or .store of a fragment that is known to be another (program/fragments.py): the number of the Misuse, and of
    what is wrong with the instruction."""


@hook
def fragment_operated(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """Lanes of `mask` operate on an element of a fragment, under a condition that depends on the lane."""


@hook
def fragment_scaled(w: ptr_to(Warp), mask: u32, values: ptr_to(u64), site: u32) -> None:
    """Lanes operate on an element of a fragment with an operand that depends on the lane: each lane's value."""


@hook
def metadata_given(w: ptr_to(Warp), words: ptr_to(u32), lanes: u32, undefined: u32, unordered: u32, site: u32) -> None:
    """Sparsity metadata: the words of all lanes, of which those of `lanes` are used. undefined, unordered: a bit for each of the
    16 values that a nibble must not have, and for those of them that only ::ordered_metadata excludes."""


@hook
def members_given(w: ptr_to(Warp), mask: u32, members: ptr_to(u32), site: u32) -> None:
    """Lanes of `mask` execute an instruction with a member mask, which each gives."""


CLUSTER_ARRIVE, CLUSTER_WAIT, BARRIERS = 16, 17, 18  # of `barrier_here`, behind the barriers of a CTA


@hook
def barrier_here(w: ptr_to(Warp), mask: u32, number: u32, aligned: u32, kind: u32, site: u32) -> None:
    """Lanes come to a barrier, by its number, before they arrive. aligned: 1: it asks for the whole warp, and waits for no
    lane. kind: of program/skips.py, a bit."""


@hook
def barrier_passed(w: ptr_to(Warp), mask: u32, kinds: u32, site: u32) -> None:
    """Lanes are about to do something where no way leads to aligned barriers of these kinds any more."""


@hook
def warps_missing(w: ptr_to(Warp), site: u32) -> None:
    """A warp is at a wgmma that another warp of its group will never execute, which is a fault; before it. What is found of it
    already may be told in fault_words[0]: 1."""


@hook
def resized(w: ptr_to(Warp), site: u32) -> None:
    """A warp has executed a setmaxnreg that has an effect."""
