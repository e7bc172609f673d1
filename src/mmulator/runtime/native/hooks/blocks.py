"""Hooks for the way of warps through a kernel's blocks of code, and for what they wait for."""

from mmulator.base.codegen.lang import hook
from mmulator.base.codegen.types import i32, ptr, ptr_to, u32
from mmulator.runtime.native.state import Cluster, Transfer, Warp


@hook
def block_begins(w: ptr_to(Warp), mask: u32, block: i32, size: u32) -> None:
    """Called when lanes of a warp begin a block of code, whenever its executions are counted. size: its instructions."""


@hook
def block_again(w: ptr_to(Warp), mask: u32, block: i32, left: u32) -> None:
    """Called when lanes wait that will begin their block again.

    w, mask, block: the warp, the lanes that began the block, and the block.
    left: lanes among them that wait. If all do, the execution no longer counts.
    """


@hook
def guarded(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """Called for an instruction with a guard that is no branch. mask: lanes of the block whose guard is false."""


@hook
def branched(w: ptr_to(Warp), mask: u32, taken: u32, site: u32) -> None:
    """Called at the end of a block where lanes may part. taken: lanes of `mask` whose guard is true."""


@hook
def steered(w: ptr_to(Warp), mask: u32, taken: ptr_to(u32), site: u32) -> None:
    """Called before lanes may part. taken: taken[0] are the lanes of `mask` whose guard is true; the hook may change them."""


@hook
def mbarrier_asked(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), parities: u32, out: ptr_to(u32), site: u32) -> None:
    """Called when lanes (each at host[lane]) ask whether the phase of their parity is complete. out: out[0] = 1 makes the answer
    no.
    """


@hook
def mbarrier_slept(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), parities: u32, site: u32) -> None:
    """Called when lanes (each at host[lane]) begin to sleep until the phase of their parity is complete."""


@hook
def group_closed(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """Called at cp.async.commit_group."""


@hook
def transfer_over(t: ptr_to(Transfer)) -> None:
    """Called when a bulk operation is complete, before its mbarriers hear of its last bytes."""


@hook
def grid_waited(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """Called at griddepcontrol.wait."""


@hook
def turn_awaited(w: ptr_to(Warp), mask: u32, out: ptr_to(u32)) -> None:
    """Called when lanes come to an access before which they wait for their turn. out: out[0] = 1 says that they have it."""


@hook
def group_chosen(w: ptr_to(Warp), out: ptr_to(u32)) -> None:
    """Called when the lanes out[0], all at one place, are about to go on; the hook may leave some out."""


@hook
def work_asked(w: ptr_to(Warp), lane: u32, out: ptr_to(u32)) -> None:
    """Called when a request of a lane for the work of another cluster is answered. out: out[0] = 1 makes the answer no."""


@hook
def all_wait(cluster: ptr_to(Cluster), out: ptr_to(u32)) -> None:
    """Called when no lane of a cluster can go on and nothing is pending. out: out[0] is Stop.BLOCKED; BUDGET says that a lane
    has its turn now, ASLEEP that another cluster is next.
    """
