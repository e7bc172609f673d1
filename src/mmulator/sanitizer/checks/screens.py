"""Impossible accesses in a launch that continues after faults: each becomes a finding, and its lane is left out
(compiler/lowering/screened.py). Faults of the memory windows are found here too; other faults end the launch as usual.
"""

from collections.abc import Mapping

from mmulator.codegen.lang import Native, native
from mmulator.codegen.ops import trailing_zeros
from mmulator.codegen.types import ptr_to, u32, u64
from mmulator.native.memory.locate import impossible
from mmulator.native.state import FaultKind, Warp
from mmulator.rules.operands import ALIGNMENT, BOUNDS, SPACES
from mmulator.sanitizer.found import find

_BOUNDS, _ALIGNMENT, _SPACES = BOUNDS.number, ALIGNMENT.number, SPACES.number


@native
def left_out(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, site: u32, rule: u32, kind: u32) -> None:
    """Report a lane that is left out. words of the finding: the kind of the fault."""
    entry = find(w, rule, site, 1 << lane, at, bytes)
    if u64(entry) != 0:
        if entry.count == 1:
            entry.words[0] = u64(kind)


@native
def screen_lanes(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, only: u32, access: u32, site: u32, out: ptr_to(u32)
) -> None:
    out[0] = 0
    left = mask
    while left != 0 and w.cta.fault == 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        one = 1 << lane
        kind = impossible(w, lane, at[lane], base, bytes, only, access, site)
        if kind != 0:
            out[0] = out[0] | one
            rule = u32(_BOUNDS)
            if kind == FaultKind.MISALIGNED:
                rule = _ALIGNMENT
            if kind == FaultKind.BEYOND_SPACE or kind == FaultKind.OTHER_CTA or kind == FaultKind.WRONG_SPACE:
                left_out(w, lane, at[lane], bytes, site, _SPACES, kind)
            else:
                left_out(w, lane, at[lane] | base, bytes, site, rule, kind)


HOOKS: Mapping[str, Native] = {"screened": screen_lanes}
