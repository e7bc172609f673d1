"""Hooks of tensor memory: allocation, loads and stores, operations of the pipe, and what orders them."""

from enum import IntEnum

from mmulator.base.codegen.lang import hook
from mmulator.base.codegen.types import ptr, ptr_to, u32, u64
from mmulator.runtime.native.state import Transfer, Warp


class TensorStep(IntEnum):
    """An instruction that orders accesses to tensor memory."""

    WAIT_LOADS = 0
    WAIT_STORES = 1
    BEFORE = 2  # tcgen05.fence::before_thread_sync
    AFTER = 3


class TensorTask(IntEnum):
    """An operation of tensor memory's pipe."""

    MMA = 0
    COPY = 1
    SHIFT = 2


@hook
def tensor_allocated(w: ptr_to(Warp), column: u32, columns: u32, site: u32) -> None:
    """Called when tcgen05.alloc has got columns of tensor memory."""


@hook
def tensor_freed(w: ptr_to(Warp), column: u32, columns: u32, site: u32) -> None:
    """Called when tcgen05.dealloc is about to free the columns of an allocation."""


@hook
def tensor_moved(w: ptr_to(Warp), address: u32, rows: u32, columns: u32, split: u32, store: u32, site: u32) -> None:
    """Called before tcgen05.ld or tcgen05.st accesses tensor memory.

    w, site: the warp and instruction.
    address: the address, as the instruction has it.
    rows: mask of the lanes of the warp's quarter that it accesses.
    columns, split: columns of a row; from the first columns to the others of its second half, or 0.
    store: 1 for tcgen05.st.
    """


@hook
def tensor_ordered(w: ptr_to(Warp), mask: u32, step: u32, site: u32) -> None:
    """Called at tcgen05.wait and tcgen05.fence. step: a TensorStep."""


@hook
def tensor_issued(t: ptr_to(Transfer), task: u32, columns: u32) -> None:
    """Called when tcgen05.mma, cp or shift is filled in and about to be started. task: a TensorTask. columns: of cp, shift."""


@hook
def tensor_committed(t: ptr_to(Transfer)) -> None:
    """Called when tcgen05.commit is filled in and about to be started."""


@hook
def tensor_multiplied(w: ptr_to(Warp), macs: u64, site: u32) -> None:
    """Called when tcgen05.mma is issued. macs: its multiply-accumulates."""


@hook
def tensor_carried(w: ptr_to(Warp), work: ptr_to(ptr), count: u32) -> None:
    """Called when tcgen05.mma, cp or shift is about to read its operands.

    w: a warp of the CTA that issued it.
    work: a Transfer of each of `count` instructions that are carried out together, in the order of their issue.
    """
