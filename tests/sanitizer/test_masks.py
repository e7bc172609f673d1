"""Shuffles under a full member mask: what is found does not depend on whether the mask is a constant or comes in a register."""

from itertools import product

import numpy as np
import pytest

import mmulator as mm

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 mask, .param .u32 most) {
  .reg .b32 t, half, u, v, i, n, m; .reg .b64 q; .reg .pred P, Q, L;
  ld.param.u64 q, [out]; ld.param.u32 m, [mask]; ld.param.u32 n, [most];
  mov.u32 t, %tid.x; mul.wide.u32 q, t, 4; mov.u32 u, t; mov.u32 i, 0; shr.u32 half, t, 4;
  { .reg .b64 p; ld.param.u64 p, [out]; add.u64 q, p, q; }
  setp.gt.u32 P, half, 0; setp.gt.u32 Q, n, 2;
"""
# What lanes do before the shuffle, and how often it is executed: by all alike, or by some of them.
BEFORE = {
    "together": "", "half leaves": "@P bra over;", "none leaves": "@!Q bra over;",
    "half skips": "@P bra past; add.u32 u, u, 1; past:",
}  # fmt: skip
ROUNDS = {
    "once": ("", ""), "as often": ("more:", "add.u32 i, i, 1; setp.lt.u32 L, i, n; @L bra more;"),
    "half more often": ("add.u32 n, n, half; more:", "add.u32 i, i, 1; setp.lt.u32 L, i, n; @L bra more;"),
    "from the middle": ("more: add.u32 i, i, 1; setp.gt.u32 L, i, n; @L bra over;", "@P bra over; bra more;"),
}
LANE = {"other half": "bfly.b32 v, u, 16, 31", "neighbour": "bfly.b32 v, u, 1, 31", "first": "idx.b32 v, u, 0, 31"}


@pytest.mark.parametrize("before, rounds, lane", [*product(BEFORE, ROUNDS, LANE)])
def test_a_constant_mask_is_like_a_register(before: str, rounds: str, lane: str) -> None:
    found = []
    for mask in ("0xffffffff", "m"):
        begin, end = ROUNDS[rounds]
        shuffle = f"shfl.sync.{LANE[lane]}, {mask}; add.u32 u, u, v; st.global.u32 [q], u;"
        module = mm.Module.load("\n".join((HEAD, BEFORE[before], begin, shuffle, end, "over: ret; }")))
        report = module["k"].launch(1, 32, [np.zeros(32, np.uint32), 0xFFFFFFFF, 3], sanitize="strict")
        found.append({(f.rule, f.threads, f.count) for f in report.findings})
    assert found[0] == found[1]
    if not {before, rounds} & {"half leaves", "half more often", "from the middle"}:
        assert not found[0]
    elif lane == "other half":
        assert {rule for rule, *_ in found[0]} == {"membermask-lacks-source"}
