"""printf of device code: the call of the host (launch/printing.py)."""

from mmulator.codegen.lang import native
from mmulator.codegen.types import ptr, ptr_to, u32, u64
from mmulator.codegen.values import Builder, Value
from mmulator.native.hooks.faults import fault
from mmulator.native.state import FaultKind, Warp


def call_print(function: Value, *args: Value) -> Value:
    """Macro: the host function that prints; returns 1 + the lane that failed, or 0."""
    return Builder.current().call_pointer(ptr(function), u32, args)


@native
def device_print(w: ptr_to(Warp), mask: u32, formats: ptr_to(u64), values: ptr_to(u64), results: ptr_to(u32), site: u32) -> None:
    """Execute vprintf: each lane's format and argument buffer, by generic address."""
    if w.cta.fault == 0:
        failed = call_print(w.cta.launch.print, w, mask, formats, values, results)
        if failed != 0:
            fault(w, FaultKind.PRINT, site, failed - 1, 0, 0)
