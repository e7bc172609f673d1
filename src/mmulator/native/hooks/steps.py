"""An instrument for the steps of a launch: it counts them, and calls Python between two instructions where Python wants it."""

from mmulator.codegen.lang import Instrument, native
from mmulator.codegen.types import ptr, ptr_to, u32, u64, void
from mmulator.codegen.values import Builder, Value
from mmulator.native.memory.screens import leave_out
from mmulator.native.state import Warp


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
