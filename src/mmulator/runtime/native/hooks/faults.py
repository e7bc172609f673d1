"""The record of the first fault of a CTA, which sanitizer/diagnostics/faults/describe.py turns into a sentence."""

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.types import ptr_to, u32, u64
from mmulator.runtime.native.state import Warp


@native
def fault(w: ptr_to(Warp), kind: u32, site: u32, lane: u32, at: u64, bytes: u32) -> None:
    """Record the first fault of the CTA; from now on its memory operations do nothing."""
    cta = w.cta
    if cta.fault == 0:
        cta.fault = kind
        cta.fault_site = site
        cta.fault_lane = lane
        cta.fault_warp = w.index
        cta.fault_address = at
        cta.fault_bytes = bytes
