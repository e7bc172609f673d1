"""The debugger's instrument: it counts steps, keeps the newest in a ring, and calls Python where the debugger wants to stop.

A byte for each instruction says when it calls: STOPS always, STEPS for the warps in range. It also calls at the first step after
the bytes of a watched cell have changed, by a thread or by an asynchronous operation.
"""

from mmulator.codegen.lang import Instrument, native
from mmulator.codegen.types import boolean, ptr_to, u32, u64
from mmulator.native.hooks.steps import call_host
from mmulator.native.state import Steps, Warp

STOPS, STEPS = 1, 2  # marks of an instruction


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
    stops = boolean(count >= steps.next) or (mark & STOPS) != 0
    if (mark & STEPS) != 0:
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
