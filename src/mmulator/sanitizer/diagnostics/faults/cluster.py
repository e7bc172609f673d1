"""Faults of clusters as sentences: shared memory of other blocks, and the barrier of a cluster."""

from typing import Any

import numpy as np

from mmulator.base.rules import execution, mbarriers, waits
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.ptx.tree import Instruction
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.limits import MAX_CLUSTER
from mmulator.runtime.launch.resident import Resident, ResidentCta
from mmulator.runtime.native.state import LANES, FaultKind
from mmulator.runtime.native.threads.cluster import ARRIVE

_BARRIER = "(PTX ISA 9.1, Parallel Synchronization and Communication Instructions: barrier.cluster)"
_EXISTS = (
    "the blocks of a cluster must exist while others access their shared memory (CUDA C++ Programming Guide, Distributed Shared "
    "Memory)"
)

RULES = {
    FaultKind.NO_SUCH_RANK: "ranks of a cluster are 0 to %cluster_nctarank - 1 (PTX ISA 9.1, Data Movement and Conversion "
    "Instructions: mapa)",
    FaultKind.OTHER_CTA: ".shared::cta is the shared memory of the block itself, .shared::cluster that of all blocks of its "
    "cluster (PTX ISA 9.1, State Spaces: Shared State Space)",
    FaultKind.CTA_EXITED: _EXISTS,
    FaultKind.REGISTERS: "setmaxnreg: .dec takes at most what a thread has, .inc at least (PTX ISA 9.1, Miscellaneous "
    "Instructions: setmaxnreg)",
    FaultKind.CLUSTER_BARRIER: f"barrier.cluster: every thread arrives once, then waits {_BARRIER}",
}
HINTS = {
    FaultKind.NO_SUCH_RANK: "check the rank that mapa was given against %cluster_nctarank",
    FaultKind.OTHER_CTA: "name .shared::cluster, or use a generic address; a wait at an mbarrier is for one of the own block",
    FaultKind.CTA_EXITED: "let all threads of the cluster meet at barrier.cluster (cluster.sync()) before the first returns",
    FaultKind.REGISTERS: execution.RESIZE.hint, FaultKind.CLUSTER_BARRIER: mbarriers.BARRIER_UNPAIRED.hint,
}  # fmt: skip

MULTICAST = "clear the bits of the multicast mask of ranks that the cluster does not have: they are 0 to %cluster_nctarank - 1"
# Rule and hint of a wait for other blocks of the cluster, for registers (Effects.resizes), and for columns (Effects.holds).
WAITS = {
    (False, False): (
        f"barrier.cluster.wait: all threads of the cluster that have not exited must arrive {_BARRIER}",
        waits.AT_CLUSTER_BARRIER.hint,
    ),
    (False, True): (
        "tcgen05.alloc waits until so many columns are free, and of a pair until a warp of the other CTA allocates, too "
        "(PTX ISA 9.1, TensorCore 5th Generation Family Instructions: Tensor Memory Allocation and Management Instructions)",
        waits.AT_ALLOCATION.hint,
    ),
    (True, False): (
        "setmaxnreg.inc waits until the registers that it asks for are free in the block's pool (PTX ISA 9.1, Miscellaneous "
        "Instructions: setmaxnreg)",
        waits.AT_SETMAXNREG.hint,
    ),
}


def waits_text(resident: Resident, cta: ResidentCta) -> str:
    """`; 96 of 128 threads of the cluster have arrived at barrier.cluster, missing: 32 of block (1, 0, 0)`, and how many
    registers are left in the block's pool.
    """
    said = ""
    if resident.grid.kernel.registers:
        said = f"; {int(cta.state['register_pool']) * LANES} registers are free in the block's pool"
    arrived = int(resident.cluster["arrived"][0])
    if not arrived:
        return said
    ctas = resident.each()
    missing = {str(c): int(c.state["live_threads"]) - arrivals(c, int(resident.cluster["generation"][0])) for c in ctas}
    live = sum(int(c.state["live_threads"]) for c in ctas)
    lacks = ", ".join(f"{n} of {name}" for name, n in missing.items() if n)
    return f"{said}; {arrived} of {live} threads of the cluster have arrived at barrier.cluster, missing: {lacks}"


def arrived_lanes(w: Any, generation: int) -> int:
    """Mask of the lanes of a warp that have arrived at a generation of the cluster's barrier. w: its `Warp`."""
    lanes = 1 << np.arange(LANES)
    return int(w["cluster_came"]) & int(lanes[w["cluster_generation"] == generation].sum())


def arrivals(cta: ResidentCta, generation: int) -> int:
    """Number of threads of a block that have arrived at a generation of the cluster's barrier."""
    return sum(arrived_lanes(w, generation).bit_count() for w in cta.warps)


def texts(ins: Instruction, access: str, address: int, size: int) -> dict[FaultKind, str]:
    """The message for each kind of fault in a cluster.

    ins: the instruction that failed.
    access: `ld.shared::cluster.b32 of 4 bytes at address ...`.
    address: the address of the access.
    size: number of bytes, or the wrong value.
    """
    has, count = address & 0xFFFFFFFF, address >> 32
    return {
        FaultKind.REGISTERS: f"{ins.mnemonic} {count} by a thread that has {has} registers",
        FaultKind.CTA_EXITED: f"access after exit: {access}, all threads of which have exited",
        FaultKind.CLUSTER_BARRIER: "barrier.cluster.arrive by a thread that has arrived, and has not waited since"
        if size == ARRIVE else "barrier.cluster.wait by a thread that has not arrived",
    }  # fmt: skip


def describe_shared(grid: Grid, offset: int, cta: ResidentCta | None) -> str:
    """`byte 16 of the shared memory of block (1, 0, 0), rank 1 of the cluster`. offset: within the shared window, in bytes."""
    size, bytes = grid.shape.cluster_size, grid.shared
    rank, byte = offset >> RANK_SHIFT, (offset & ((1 << RANK_SHIFT) - 1)) - SHARED_BASE
    if size == 1 and 0 < rank < MAX_CLUSTER and 0 <= byte < bytes:
        return f"byte {byte} of the shared memory of rank {rank}, and the block is alone in its cluster"
    if size == 1 or cta is None:
        return f"byte {offset - SHARED_BASE} of shared memory, of which the block has {bytes}"
    if rank >= size:
        return f"byte {byte} of the shared memory of rank {rank}, and the cluster has {size} blocks"
    if rank == cta.rank:
        return f"byte {byte} of shared memory, of which the block has {bytes}"
    owner = cta.resident.each()[rank]
    return f"byte {byte} of the shared memory of {owner}, rank {rank} of the cluster, which has {bytes}"
