"""An instrument for launches whose lanes Python sends another way at branches (record/detours.py)."""

from mmulator.codegen.lang import Instrument, native
from mmulator.codegen.types import ptr_to, u32
from mmulator.native.hooks.steps import call_host, count_step
from mmulator.native.memory.screens import leave_out
from mmulator.native.state import Warp


@native
def steer(w: ptr_to(Warp), mask: u32, taken: ptr_to(u32), site: u32) -> None:
    steps = w.cta.launch.steps
    if steps.stops[site] != 0:
        call_host(steps.steered, w, mask, taken, site)


DETOURS = Instrument("detours", {"stepped": count_step, "steered": steer, "screened": leave_out})
