"""An instrument for the steps of a launch: it counts them, and calls Python between two instructions where Python wants it."""

from mmulator.base.codegen.lang import Instrument, native
from mmulator.base.codegen.types import boolean, ptr, ptr_to, u32, u64, void
from mmulator.base.codegen.values import Builder, Value
from mmulator.runtime.native.memory.locate import leave_out
from mmulator.runtime.native.state import Steps, Warp


def call_host(function: Value, *args: Value) -> Value:
    """Macro: a host function without a result."""
    return Builder.current().call_pointer(ptr(function), void, list(args))


@native
def count_step(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    steps = w.cta.launch.steps
    count = steps.count
    steps.count = count + 1
    if count >= steps.next or steps.stops[site] != 0:
        call_host(steps.stepped, w, mask, site)


@native
def tell_of_operands(first: ptr_to(Warp), number: u64, site: u32) -> None:
    call_host(first.cta.launch.steps.reads, first, number, site)


@native
def tell_of_work(w: ptr_to(Warp), work: ptr_to(ptr), count: u32) -> None:
    call_host(w.cta.launch.steps.carried, w, work, count)


STEPS = Instrument(
    "steps",
    {"stepped": count_step, "wgmma_reads": tell_of_operands, "tensor_carried": tell_of_work, "screened": leave_out},
)


# detours -------------------------------------------------------------------------------------------------------------
@native
def steer(w: ptr_to(Warp), mask: u32, taken: ptr_to(u32), site: u32) -> None:
    steps = w.cta.launch.steps
    if steps.stops[site] != 0:
        call_host(steps.steered, w, mask, taken, site)


DETOURS = Instrument("detours", {"stepped": count_step, "steered": steer, "screened": leave_out})


# the debugger --------------------------------------------------------------------------------------------------------
STOP_MARK, STEP_MARK = 1, 2  # marks of an instruction


@native
def cells_changed(steps: ptr_to(Steps)) -> u32:
    """Whether the bytes of a watched cell are others than at the step before; they are marked, and known from now on."""
    changed = u32(0)
    for i in range(steps.cell_count):
        cell = steps.cells + i
        value = cell.at[0] & cell.mask
        if value != cell.old:
            cell.old = value
            cell.changed = 1
            changed = 1
    return changed


@native
def debugged(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    steps = w.cta.launch.steps
    count = steps.count
    steps.count = count + 1
    entry = steps.log + (count & (steps.room - 1))
    entry.site = site
    entry.lanes = mask
    entry.block = w.cta.linear
    entry.warp = w.index
    entry.frame = w.frame
    mark = u32(steps.stops[site])
    stops = boolean(count >= steps.next) or (mark & STOP_MARK) != 0
    if (mark & STEP_MARK) != 0:
        at = u64(w)
        if at >= steps.low and at < steps.high and w.frame <= steps.deepest:
            if (mask & steps.lanes) != 0 or (w.live & steps.lanes) == 0:
                stops = boolean(True)
    if steps.cell_count != 0:
        if cells_changed(steps) != 0:
            stops = boolean(True)
    if stops:
        call_host(steps.stepped, w, mask, site)


DEBUGGER = Instrument("debugger", {"stepped": debugged})
