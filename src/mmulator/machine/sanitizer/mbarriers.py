"""Rules of mbarriers and clusters (rules/mbarriers.py)."""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.types import ptr_to, u32, u64
from mmulator.machine.runtime.accounts import account_of
from mmulator.machine.sanitizer.found import find_against
from mmulator.machine.state import Warp
from mmulator.rules.mbarriers import INIT_IN_USE

_IN_USE = INIT_IN_USE.number


@native
def made(w: ptr_to(Warp), lane: u32, barrier: u64, count: u64, site: u32) -> None:
    """An mbarrier that is already one is made again."""
    entry = account_of(w.cta.cluster, barrier)
    if u64(entry) != 0:
        if entry.valid != 0:
            who = entry.made
            one = u32(1)
            find_against(
                w, u32(_IN_USE), site, one << lane, barrier, u32(8), who.site, w.cta.linear,
                who.warp % w.cta.launch.warps, one << who.lane,
            )  # fmt: skip


HOOKS = {"mbarrier_made": made}
