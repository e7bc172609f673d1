"""Hooks for the operands of matrix and warp instructions, like those of events.py for accesses."""

from enum import IntEnum

from mmulator.base.codegen.lang import hook
from mmulator.base.codegen.types import i64, ptr_to, u32, u64
from mmulator.runtime.native.state import Warp


class UniformOperand(IntEnum):
    """Operands that must be equal in all threads; OPERAND_NAMES has their names in the specification."""

    A_DESC = 0
    B_DESC = 1
    P = 2
    STRIDE = 3
    BYTE_ID_A = 4
    THREAD_ID_A = 5
    BYTE_ID_B = 6
    THREAD_ID_B = 7
    TADDR = 8  # from here on of tcgen05
    COLUMNS = 9
    DESTINATION = 10


OPERAND_NAMES = (
    "a-desc", "b-desc", "p", "stride", "byte-id-a", "thread-id-a", "byte-id-b", "thread-id-b",
    "taddr", "nCols", "dst",
)


@hook
def operand_given(w: ptr_to(Warp), mask: u32, values: ptr_to(u64), operand: u32, allowed: u64, site: u32) -> None:
    """Called with each lane's value of an operand (Operand) that lanes of `mask` must give alike. allowed: a bit for each legal
    value, or 0 for any.
    """


@hook
def matrix_described(w: ptr_to(Warp), lanes: u32, words: ptr_to(u64), shapes: ptr_to(u32), operand: u32, site: u32) -> None:
    """Called with each lane's matrix descriptor of a product. shapes: of wgmma 1 where M or N is contiguous, of tcgen05.mma the
    instruction descriptors. operand: A_DESC or B_DESC.
    """


@hook
def fragment_placed(
    w: ptr_to(Warp), at: u64, stride: i64, default: i64, bits: u32, aligned: u32, generic: u32, site: u32
) -> None:
    """Called for wmma.load or .store at p, with the values of the warp's first lane.

    w, site: the warp and instruction.
    at: p.
    stride, default: distance of lines, and its least value, in elements.
    bits: bits of an element.
    aligned: required alignment of every line, in bytes.
    generic: whether p is a generic address.
    """


@hook
def cancel_refused(w: ptr_to(Warp), lanes: u32, site: u32) -> None:
    """Called at clusterlaunchcontrol.query_cancel.is_canceled for lanes whose response says that no cluster was cancelled."""


@hook
def fragment_used(w: ptr_to(Warp), misuse: u32, number: u32, site: u32) -> None:
    """Called for wmma.mma or .store with a fragment of another kind (ptx/program/fragments.py). misuse: number of the Misuse.
    number: index of the error of this instruction.
    """


@hook
def fragment_operated(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """Called when only some lanes operate on an element of a fragment, under a condition that depends on the lane."""


@hook
def fragment_scaled(w: ptr_to(Warp), mask: u32, values: ptr_to(u64), site: u32) -> None:
    """Called when lanes operate on an element of a fragment with an operand that depends on the lane. values: of each lane."""


@hook
def metadata_given(
    w: ptr_to(Warp), words: ptr_to(u32), lanes: u32, undefined: u32, unordered: u32, unlisted: u32, site: u32
) -> None:
    """Called with the sparsity metadata of an instruction.

    w, site: the warp and instruction.
    words: the words of all lanes.
    lanes: lanes whose words are used.
    undefined: mask of the nibbles that are illegal.
    unordered: mask of those that only ::ordered_metadata excludes.
    unlisted: mask of legal ones that the list of nibbles for FP8 does not have.
    """


class WrongOperand(IntEnum):
    """Operands that lanes give an instruction which does not take them."""

    SOURCE_SIZE = 0  # of cp.async, beyond its cp-size
    ROW = 1  # an address that ldmatrix does not use, which chips before sm_80 read all the same
    LARGE = 2  # of any instruction, beyond the bound that its row gives


@hook
def operand_refused(w: ptr_to(Warp), lanes: u32, values: ptr_to(u64), what: u32, site: u32) -> None:
    """Called with lanes whose operand an instruction does not take. values: of each lane. what: WrongOperand."""


@hook
def members_given(w: ptr_to(Warp), mask: u32, members: ptr_to(u32), meets: u32, site: u32) -> None:
    """Called when lanes of `mask` execute an instruction with a member mask, which each lane gives. meets: 1 for
    bar.warp.sync.
    """


CLUSTER_ARRIVE, CLUSTER_WAIT, BARRIERS = 16, 17, 18  # of `barrier_here`, behind the barriers of a CTA


@hook
def barrier_here(w: ptr_to(Warp), mask: u32, number: u32, aligned: u32, kind: u32, site: u32) -> None:
    """Called when lanes reach a barrier, before they arrive.

    w, mask, site: the warp, lanes and instruction.
    number: number of the barrier.
    aligned: 1 if it requires the whole warp, and waits for no lane.
    kind: bit of its kind in ptx/program/skips.py.
    """


@hook
def barrier_passed(w: ptr_to(Warp), mask: u32, kinds: u32, site: u32) -> None:
    """Called before lanes act at a place from which aligned barriers of these kinds can no longer be reached."""


@hook
def warps_missing(w: ptr_to(Warp), site: u32) -> None:
    """Called before the fault of a warp at a wgmma that another warp of its group never executes. An instrument that reports it
    sets fault_words[0] to 1.
    """


@hook
def resized(w: ptr_to(Warp), site: u32) -> None:
    """Called when a warp has executed a setmaxnreg that has an effect."""
