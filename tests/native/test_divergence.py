"""Control flow: guarded calls and barriers, divergent calls, long blocks, each against what a single thread would do."""

import threading

import numpy as np
import pytest

from mmulator.host.module import Module
from mmulator.ptx.program.blocks import build
from tests.support.ptx_text import STORE_R1, kernel

LANES = np.arange(32, dtype=np.uint32)


def run(body: str, top: str = "", block: int = 32, **options: object) -> np.ndarray:
    out = np.zeros(block, np.uint32)
    Module.load(kernel(body, top=top), name="test.ptx")["k"].launch(1, block, [out], timeout=600, **options)  # type: ignore[arg-type]
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


@pytest.mark.parametrize(("name", "who"), [(n, w) for n in GUARDED for w in WHO if "red" not in n or w.bit_count() % 16 == 0])
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
    want = np.where(chosen, (2 * lanes if lanes == 32 else lanes) if result is None else result, 77)
    assert (got == want).all()


# long blocks --------------------------------------------------------------------------------------------------------
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
MULTIPLY = f"{MMA} {{%f0,%f1,%f2,%f3}}, {{%r4,%r5,%r6,%r7}}, {{%r8,%r9}}, {{%f0,%f1,%f2,%f3}};"


def long_block(n: int) -> str:
    """Straight-line code of every kind, in which products meet sums across any cut."""
    rng = np.random.default_rng(n)
    kinds = (
        "mul.f32 %f{a}, %f{b}, %f{c};", "add.f32 %f{a}, %f{b}, %f{c};", "ld.global.f32 %f{a}, [%rd1];",
        "cvt.u32.u64 %r{a}, %rd{a};", "shfl.sync.bfly.b32 %r{a}, %r{b}, 5, 31, -1;", "mad.lo.u32 %r{a}, %r{b}, %r{c}, %r{a};",
        "mov.b32 %f{a}, %r{b};", "@%p2 add.u32 %r{a}, %r{a}, 3;", MULTIPLY.replace("{", "{{").replace("}", "}}"),
        "setp.gt.u32 %p2, %r{a}, %r{b};", "vote.sync.ballot.b32 %r{a}, %p2, -1;", "add.cc.u32 %r{a}, %r{b}, %r{c};",
        "addc.u32 %r{a}, %r{b}, %r{c};",
    )  # fmt: skip
    lines = [str(rng.choice(kinds)).format(a=rng.integers(10), b=rng.integers(10), c=rng.integers(10)) for _ in range(n)]
    start = "mov.u32 %r62, %tid.x; mul.wide.u32 %rd1, %r62, 4; add.u64 %rd1, %rd0, %rd1; setp.eq.u32 %p2, %r62, 7;"
    start += "".join(f"mad.lo.u32 %r{k}, %r62, {k + 5}, {k}; mov.b32 %f{k}, %r{k};" for k in range(10))
    total = "mov.b32 %r1, 0;" + "".join(
        f"mad.lo.u32 %r1, %r1, 31, %r{k}; mov.b32 %r60, %f{k}; mad.lo.u32 %r1, %r1, 31, %r60;" for k in range(10)
    )
    return start + "\n".join(lines) + total + STORE_R1


def test_cutting_a_block_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    from mmulator.ptx.program import blocks as program

    whole = run(long_block(400))
    for limit in (0, 7, 100):
        monkeypatch.setattr(program, "LONGEST", limit)
        assert (run(long_block(400)) == whole).all()


def test_the_stack_that_a_block_takes_does_not_grow_with_its_length() -> None:
    """Workers here have 192 KB. 400 mma took 700 KB when each had stack memory of its own."""
    body = "mov.b32 %r1, 1;" + MULTIPLY * 400
    old = threading.stack_size(192 * 1024)
    try:
        assert (run(body + STORE_R1) == 1).all()
    finally:
        threading.stack_size(old)


def test_long_blocks_are_cut() -> None:
    """Compile time is then linear in the length: the time of a piece is bounded."""
    text = kernel("".join(f"ld.global.u64 %rd{1 + i % 50}, [%rd0];\n" for i in range(6000)))
    module = Module.load(text)
    blocks = build(module.tree, module.tree.functions[0]).blocks
    assert len(blocks) > 4 and max(len(b.body) for b in blocks) < 1500


def test_a_branch_with_many_targets() -> None:
    n = 40
    body = f"mov.u32 %r2, %tid.x; mul.lo.u32 %r2, %r2, 3; rem.u32 %r2, %r2, {n};\n"
    body += f"ts: .branchtargets {', '.join(f'T{k}' for k in range(n))};\nbrx.idx %r2, ts;\n"
    body += "".join(f"T{k}: mov.b32 %r1, {k * 7};\nbra E;\n" for k in range(n)) + "E:" + STORE_R1
    assert (run(body) == LANES * 3 % n * 7).all()


def test_a_call_with_many_parameters() -> None:
    """Each takes its stack memory in turn."""
    n = 400
    names = ", ".join(f"%a{k}" for k in range(n))
    top = f".func (.reg .b32 %o) f ({', '.join(f'.reg .b32 %a{k}' for k in range(n))})\n{{ mov.b32 %o, 0;\n"
    top += "".join(f"add.u32 %o, %o, %a{k};\n" for k in range(n)) + "ret; }\n"
    body = f".reg .b32 %a<{n}>; mov.u32 %r2, %tid.x;\n" + "".join(f"add.u32 %a{k}, %r2, {k};\n" for k in range(n))
    old = threading.stack_size(160 * 1024)
    try:
        got = run(f"{body} call (%r1), f, ({names});\n{STORE_R1}", top)
    finally:
        threading.stack_size(old)
    assert (got == n * LANES + n * (n - 1) // 2).all()


