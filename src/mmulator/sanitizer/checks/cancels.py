"""The rule of a block that asks for another cluster after it has seen that there was none (rules/mbarriers.py)."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.codegen.lang import Native, native
from mmulator.codegen.ops import cast_ptr, trailing_zeros
from mmulator.codegen.types import ptr_to, u32, u64
from mmulator.native.asynchrony.accounts import warp_number
from mmulator.native.hooks.events import PayloadShape
from mmulator.native.state import Transfer, Warp
from mmulator.rules.mbarriers import CANCEL_AGAIN
from mmulator.sanitizer.checks.mbarriers import REFUSALS, mbarriers_of
from mmulator.sanitizer.found import find_against
from mmulator.sanitizer.order.clocks import agent_of, knows, now

_AGAIN = CANCEL_AGAIN.number


@native
def answer_refused(w: ptr_to(Warp), lanes: u32, site: u32) -> None:
    """Record the first answer of a warp that is no."""
    s = mbarriers_of(w.cta.cluster)
    if lanes == 0 or u64(s) == 0:
        return
    r = s.refusals + (warp_number(w) & (REFUSALS - 1))
    if r.lanes == 0:
        r.lanes = lanes
        r.warp = warp_number(w)
        r.clock = now(w)
        r.site = site


@native
def asked_again(t: ptr_to(Transfer), shape: u32) -> None:
    """Judge a request that is issued: no thread of its block may have seen such an answer before."""
    if shape != PayloadShape.RESPONSE:
        return
    w = cast_ptr(Warp, t.warp)
    warps = w.cta.launch.warps
    s = mbarriers_of(w.cta.cluster)
    for n in range(u32(REFUSALS)):
        r = s.refusals + n
        if r.lanes != 0 and r.warp // warps == w.cta.rank:
            other = cast_ptr(Warp, w.cta.warps) + r.warp % warps
            lane = trailing_zeros(r.lanes)
            if r.warp == warp_number(w) or knows(w, t.lane, agent_of(other, lane), r.clock) != 0:
                one = u32(1)
                find_against(w, _AGAIN, t.site, one << t.lane, 0, 0, r.site + 1, w.cta.linear, other.index, r.lanes)
                return


HOOKS: Mapping[str, Native] = {"cancel_refused": answer_refused, "transfer_filled": asked_again}
