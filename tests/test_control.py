"""Control flow: guarded calls and barriers, divergent calls, long blocks, each against what a single thread would do."""

from __future__ import annotations

import numpy as np
import pytest

from mmulator.machine.module import Module
from ptx_text import STORE_R1, kernel

LANES = np.arange(32, dtype=np.uint32)


def run(body: str, top: str = "", block: int = 32, **options: object) -> np.ndarray:
    out = np.zeros(block, np.uint32)
    Module.load(kernel(body, top=top), name="test.ptx")["k"].launch(1, block, [out], timeout=20, **options)  # type: ignore[arg-type]
    return out


# results of guarded calls and barriers ------------------------------------------------------------------------------
ADD_ONE = """
.func (.reg .b32 %o) by_register (.reg .b32 %a) { add.u32 %o, %a, 1; ret; }
.func (.param .b32 o) by_param (.param .b32 a)
{ .reg .b32 %x; ld.param.b32 %x, [a]; add.u32 %x, %x, 1; st.param.b32 [o], %x; ret; }
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 v);
.global .align 1 .b8 text[2] = {46, 0};
"""
GUARDED = {
    "call, .reg": ("", "call (%r1), by_register, (%r2);", "", 6),
    "call, .param": (
        ".param .b32 pa; .param .b32 pr; st.param.b32 [pa], %r2; st.param.b32 [pr], %r1;",
        "call (pr), by_param, (pa);", "ld.param.b32 %r1, [pr];", 6,
    ),
    "call through a pointer": (
        "proto: .callprototype (.reg .b32 _) _ (.reg .b32 _); mov.u64 %rd1, by_register;",
        "call (%r1), %rd1, (%r2), proto;", "", 6,
    ),
    "printf": (
        ".param .b64 f; .param .b64 v; .param .b32 pr; mov.u64 %rd1, text; cvta.global.u64 %rd1, %rd1;"
        " st.param.b64 [f], %rd1; st.param.b64 [v], 0; st.param.b32 [pr], %r1;",
        "call (pr), vprintf, (f, v);", "ld.param.b32 %r1, [pr];", 0,
    ),
    "red.popc": ("", "barrier.red.popc.u32 %r1, 3, {n}, %p2;", "", None),
    "red.and": ("", "barrier.red.and.pred %p3, 3, {n}, %p2;", "selp.u32 %r1, 1, 77, %p3;", 1),
    "red.or": ("setp.ne.u32 %p3, 0, 0;", "barrier.red.or.pred %p3, 3, {n}, %p2;", "selp.u32 %r1, 1, 77, %p3;", 1),
}  # fmt: skip


WHO = (0x00000000, 0xFFFFFFFF, 0x0000FFFF, 0x80000001)


@pytest.mark.parametrize(
    ("name", "who"), [(n, w) for n in GUARDED for w in WHO if "red" not in n or w.bit_count() % 16 == 0]
)
def test_lanes_that_skip_a_call_or_a_barrier_keep_their_registers(name: str, who: int) -> None:
    before, guarded, after, result = GUARDED[name]
    lanes = who.bit_count()
    body = f"""
  mov.u32 %r1, 77; mov.u32 %r2, 5; setp.eq.u32 %p2, 0, 0; setp.ne.u32 %p3, 0, 0;
  mov.u32 %r3, %laneid; mov.u32 %r4, {who}; shr.u32 %r4, %r4, %r3; and.b32 %r4, %r4, 1; setp.ne.u32 %p1, %r4, 0;
  {before}
  @%p1 {guarded.replace("{n}", str(max(lanes, 16) * 2))}
  {after}
"""
    got = run(body + STORE_R1, ADD_ONE, block=64).reshape(2, 32)
    chosen = (who >> LANES & 1).astype(bool)
    want = np.where(chosen, 2 * lanes if result is None else result, 77)
    assert (got == want).all()
