"""Warpgroups: when results arrive, accumulators that meet in flight as on the chip, any number of operations and groups, and
who takes part."""

import hashlib
import re
import struct
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from mmulator.compiler.meaning import wgmma
from mmulator.errors import ExecutionFault
from mmulator.host.driver import Driver, Region, Settings
from mmulator.host.module import Module
from mmulator.isa.matrix import matrix_forms
from mmulator.matrix.twin.twin import twin_of
from mmulator.runtime.native.state import WgmmaScratch
from tests.support import places
from tests.support.ptx_text import kernel

DATA = places.DATA / "wgmma_in_flight"
HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 shared, .param .u64 c, .param .u64 out)
{
  .shared .align 1024 .b8 tile[32768];
  .reg .b64 %rd<32>; .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b32 %t<4>; .reg .b32 %d<64>;
  ld.param.u64 %rd0, [shared]; ld.param.u64 %rd1, [c]; ld.param.u64 %rd2, [out];
  mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mov.u32 %r2, %r0; mov.u32 %r5, %ntid.x;
FILL:
  mad.wide.u32 %rd3, %r2, 16, %rd0;
  ld.global.v4.b32 {%t0, %t1, %t2, %t3}, [%rd3];
  mad.lo.u32 %r3, %r2, 16, %r1;
  st.shared.v4.b32 [%r3], {%t0, %t1, %t2, %t3};
  add.u32 %r2, %r2, %r5;
  setp.lt.u32 %p1, %r2, 2048;
  @%p1 bra FILL;
  fence.proxy.async;
  bar.sync 0;
  shr.u32 %r4, %r1, 4; cvt.u64.u32 %rd4, %r4; or.b64 %rd10, %rd4, 0x0000001000080000;
"""
K = {"f16": 16, "bf16": 16, "tf32": 8, "s8": 32, "e4m3": 32}
PLAIN = {
    "fence": "  wgmma.fence.sync.aligned;\n",
    "commit": "  wgmma.commit_group.sync.aligned;\n",
    "set0": "  mov.b32 %d0, 7;\n",
    "set8": "  mov.b32 %d8, 7;\n",
    "(": "  mov.u32 %r20, 0;\nLOOP:\n",
    ")": "  add.u32 %r20, %r20, 1;\n  setp.lt.u32 %p3, %r20, 3;\n  @%p3 bra LOOP;\n",
}


def registers(text: str) -> str:
    """`0-3` or `1,0,3,2` as operand."""
    first, _, last = text.partition("-")
    numbers = range(int(first), int(last) + 1) if last else map(int, text.split(","))
    return "{" + ", ".join(f"%d{n}" for n in numbers) + "}"


def ptx(step: str) -> str:
    """A word of the notation (tests/data/README.md) as PTX; other text stays."""
    if step in PLAIN:
        return PLAIN[step]
    if found := re.fullmatch(r"wait(\d+)", step):
        return f"  wgmma.wait_group.sync.aligned {found[1]};\n"
    if not re.match(r"n\d+:", step):
        return step
    n, d, b, *more = step.split(":")
    types = next((x for x in more if "." in x), "f32.f16.f16")
    a = next((registers(x[1:]) for x in more if x[0] == "A"), "%rd10")
    scale = next((x[1:] for x in more if x[0] == "S"), "1")
    kind = types.split(".")[1]
    signs = "" if types[:3] == "s32" else ", 1, 1"
    major = "" if kind not in ("f16", "bf16") else ", 0, 0" if a[0] == "%" else ", 0"
    at = int(b[1:]) + 12
    return (
        f"  add.u64 %rd{at}, %rd10, {256 * (at - 11)};\n"
        f"  wgmma.mma_async.sync.aligned.m64{n}k{K[kind]}.{types} {registers(d)}, {a}, %rd{at}, {scale}{signs}{major};\n"
    )


def text(steps: str | list[str], count: int) -> str:
    body = "".join(map(ptx, steps.split() if isinstance(steps, str) else steps))
    place = f"  mul.lo.u32 %r6, %r0, {4 * count}; cvt.u64.u32 %rd5, %r6; add.u64 %rd6, %rd1, %rd5; add.u64 %rd7, %rd2, %rd5;\n"
    loads = "".join(f"  ld.global.b32 %d{n}, [%rd6+{4 * n}];\n" for n in range(count))
    stores = "".join(f"  st.global.b32 [%rd7+{4 * n}], %d{n};\n" for n in range(count))
    return HEAD + place + loads + body + "END:\n" + stores + "  ret;\n}\n"


@cache
def inputs() -> dict[str, np.ndarray]:
    with np.load(DATA.with_suffix(".npz")) as file:
        return {name: file[name] for name in file.files}


def run(steps: str | list[str], count: int = 8, threads: int = 128, seed: int = 0) -> np.ndarray:
    """What the registers %d0 up to `count` hold at the end, in each thread."""
    shared = inputs()["shared"].astype(np.float16)
    start = inputs().get(f"c_{count}_{threads}", np.ones((threads, count))).astype(np.float32)
    out = np.zeros((threads, count), np.uint32)
    Module.load(text(steps, count))["k"].launch(1, threads, [shared, start, out], seed=seed, timeout=600)
    return out


def fault(steps: str | list[str], threads: int = 128, seed: int = 0) -> str:
    with pytest.raises(ExecutionFault) as error:
        run(steps, 8, threads, seed)
    return str(error.value)


# accumulators in flight ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", DATA.with_suffix(".txt").read_text().splitlines())
def test_registers_in_flight_are_those_of_the_chip(case: str) -> None:
    digest, count, threads, steps = case.split(maxsplit=3)
    for seed in range(3):
        words = run(steps, int(count), int(threads), seed)
        assert hashlib.sha256(words.tobytes()).hexdigest()[:16] == digest, seed


# several at once ----------------------------------------------------------------------------------------------------
CHAINS = {
    "one tile": "n8:0-3:B0 n8:0-3:B1 n8:0-3:B2 n8:0-3:B3 n8:0-3:B0 n8:0-3:B1 n8:0-3:B2",
    "two tiles": "n8:0-3:B0 n8:0-3:B1 n8:4-7:B0 n8:4-7:B1 n8:0-3:B2 n8:4-7:B2",
    "begins anew": "n8:0-3:B0 n8:0-3:B1 n8:0-3:B2:S0 n8:0-3:B3",
    "A of both kinds": "n8:0-3:B0 n8:0-3:B1:A8-11 n8:0-3:B2:A8-11 n8:0-3:B3",
    "other types": "n8:0-3:B0 n8:0-3:B1:f32.bf16.bf16 n8:0-3:B2:f32.bf16.bf16 n8:0-3:B1:f32.tf32.tf32",
    "other widths": "n16:0-7:B0 n8:0-3:B1 n16:0-7:B2 n16:0-7:B3",
}


@pytest.mark.parametrize("chain", CHAINS)
def test_what_is_one_product_is_one_product_after_the_other(chain: str) -> None:
    """All in a line, with something computed in between, and each by itself."""
    steps = CHAINS[chain].split()
    alone = run([w for s in steps for w in ("fence", s, "commit", "wait0")], 12)
    for seed in range(6):
        for between in ([], ["  add.u32 %r21, %r5, 1;\n"], ["fence"], ["commit"], ["  st.global.b32 [%rd7], %r0;\n"], ["set8"]):
            if between == ["set8"] and "A8" in CHAINS[chain]:
                continue
            words = run(["fence", *(w for s in steps for w in (s, "fence", *between)), "commit", "wait0"], 12, seed=seed)
            columns = slice(None) if between != ["set8"] else slice(0, 8)
            np.testing.assert_array_equal(words[:, columns], alone[:, columns], f"{between} {seed}")


SPARSE = "  wgmma.mma_async.sp.sync.aligned.m64n8k{}.{} {{%d{}, %d{}, %d{}, %d{}}}, {}, %rd{}, %r{}, {}{};\n"


def sparse(k: int, types: str, tile: int, b: int, metadata: int, selector: int, a: str = "%rd10") -> str:
    d = range(4 * tile, 4 * tile + 4)
    immediates = ", 1" if types[:3] == "s32" else ", 1, 1, 1"
    if types.endswith("16"):
        immediates += ", 0" if a[0] == "{" else ", 0, 0"
    return f"  add.u64 %rd{b + 12}, %rd10, {256 * (b + 1)};\n" + SPARSE.format(
        k, types, *d, a, b + 12, metadata, selector, immediates
    )


# metadata: 22 and 23 of any type, 24 of .tf32, halves of two elements
METADATA = "  mov.b32 %r22, 0x4E4EE44E; mov.b32 %r23, 0xEE44E4E4; mov.b32 %r24, 0x94E8D4CE;\n"
OTHERS = {
    "f16": [sparse(32, "f32.f16.f16", *x) for x in ((0, 0, 22, 0), (0, 1, 23, 1), (1, 0, 22, 0), (0, 1, 22, 0))],
    "A in registers": [sparse(32, "f32.f16.f16", 0, b, 22, 0, a) for b, a in ((0, "%rd10"), (1, "{%d8, %d9, %d10, %d11}"))],
    "s8": [sparse(64, "s32.s8.s8", tile, b, m, 0) for tile, b, m in ((0, 0, 22), (0, 1, 23), (1, 1, 22), (1, 0, 22))],
    "tf32": [sparse(16, "f32.tf32.tf32", tile, b, m, 0) for tile, b, m in ((0, 0, 22), (0, 1, 24), (1, 1, 24), (0, 0, 23))],
    "b1": [f"  wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {registers(d)}, %rd10, %rd10, 1;\n"
           for d in ("0-3", "0-3", "4-7", "0-3")],
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_sparse_products_and_single_bits_together(name: str) -> None:
    """In a line, or each by itself."""
    steps = OTHERS[name]
    alone = run([METADATA, *(w for s in steps for w in ("fence", s, "commit", "wait0"))], 12)
    for seed in range(6):
        np.testing.assert_array_equal(run([METADATA, "fence", *steps, "commit", "wait0"], 12, seed=seed), alone)
    assert len(np.unique(alone[:, :8])) > 100


A_AND_B = (0, 2, 1022, 2046, 4096, 4224, 4350)  # first and last bytes of A, 2048 of them, and of B0, and some between


@pytest.mark.parametrize("byte", A_AND_B)
def test_an_operand_that_has_changed_is_packed_again(byte: int) -> None:
    """Two bytes of what an operation has read before, in shared memory, are others when the next one reads it."""
    change = f"  bar.sync 0;\n  st.shared.b16 [tile+{byte}], 16968;\n  fence.proxy.async;\n  bar.sync 0;\n"
    again = ["fence", "n8:0-3:B0:S0", "n8:4-7:B0:S0", "commit", "wait0"]
    for seed in range(3):
        changed = run([change, *again], seed=seed)
        np.testing.assert_array_equal(run([*again, change, *again], seed=seed), changed)
        assert (run(again, seed=seed) != changed).any()


def test_a_fault_of_a_later_step_is_its_own() -> None:
    """Its line, and what it said when each operation was by itself."""
    beyond = "  add.u64 %rd12, %rd10, 0x3f00;\n" + ptx("n8:0-3:B0").splitlines()[1] + "\n"
    before, behind = ["fence", "n8:0-3:B1", "n8:0-3:B2"], ["n8:0-3:B3", "commit", "wait0"]
    said = {fault([*before, "// commit\n", "// wait\n", beyond, *behind], seed=seed) for seed in range(4)}
    assert said == {fault([*before, "commit", "wait0", beyond, *behind])} and "matrix descriptor outside" in said.pop()


# how much is in flight ----------------------------------------------------------------------------------------------
ONE = "n8:0-3:B0"
OTHER = "n8:4-7:B1"


def one_by_one(steps: str) -> str:
    return " ".join(f"fence {s} commit wait0 fence" if s[:2] == "n8" else s for s in steps.split())


@pytest.mark.parametrize("times", [63, 64, 65, 200])
@pytest.mark.parametrize("between", ["", " commit"])
def test_any_number_of_operations_and_groups_in_flight(times: int, between: str) -> None:
    steps = "fence" + f" {ONE}{between} {OTHER}{between}" * (times // 2) + " commit wait0"
    assert (run(steps, threads=256, seed=times) == run(one_by_one(steps), threads=256)).all()


@pytest.mark.parametrize("seed", range(3))
def test_a_warp_that_runs_far_ahead_waits_for_the_others(seed: int) -> None:
    """Warp 0 comes to the loop after the others, which issue 300 operations each, two a turn, without a wait."""
    late = "  mov.u32 %r21, 0;\n  setp.ge.u32 %p4, %r0, 32;\n  @%p4 bra GO;\nLATE:\n  add.u32 %r21, %r21, 1;\n" + (
        "  setp.lt.u32 %p5, %r21, 5000;\n  @%p5 bra LATE;\nGO:\n")  # fmt: skip
    loop = [PLAIN["("], ptx(ONE), ptx(ONE), PLAIN["commit"], PLAIN[")"].replace("3;", "150;", 1)]
    assert "150" in loop[-1]
    expected = run(one_by_one(f"{ONE} " * 300), 4)
    assert (run([late, PLAIN["fence"], *loop, ptx("wait0")], 4, seed=seed) == expected).all()


# (steps, whether %d0-3 and %d4-7 have their products)
WAITS = [
    (f"{ONE} commit" + " commit" * 99 + " wait70", (True, False)),
    (f"{ONE} commit" + " commit" * 99 + " wait99", (True, False)),
    (f"{ONE} commit" + " commit" * 99 + " wait100", (False, False)),
    (f"{ONE} commit" + " commit" * 64 + " wait63", (True, False)),
    (f"{ONE} commit" + " commit" * 64 + " wait64", (True, False)),
    (f"{ONE} commit {OTHER} commit" + " commit" * 200 + " wait201", (True, False)),
    (f"{ONE} commit {OTHER} commit" + " commit" * 200 + " wait200", (True, True)),
    (f"commit {ONE} commit wait4611686018427387904", (False, False)),
    (f"{ONE} commit" + f" {OTHER} commit" * 70 + " wait70", (True, False)),
    (f"{ONE} commit" + f" {OTHER} commit" * 70 + " wait71", (False, False)),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "done"), WAITS)
def test_wait_group_leaves_exactly_n_groups(steps: str, done: tuple[bool, bool]) -> None:
    start = run("")
    for seed in range(2):
        changed = (run(f"fence {steps}", seed=seed) != start).reshape(128, 2, 4)
        assert tuple(changed.any(axis=(0, 2))) == done


UNPACKED = """  .reg .b16 %h<4>; .reg .b32 %w<4>;
  mov.b32 {%h0, %h1}, %d0; mov.b32 {%h2, %h3}, %d1;
  cvt.u32.u16 %w0, %h0; cvt.u32.u16 %w1, %h1; cvt.s32.s16 %w2, %h2; cvt.u32.u16 %w3, %h3;
"""
PACKED = """  cvt.u16.u32 %h0, %w0; cvt.u16.u32 %h1, %w1; cvt.u16.u32 %h2, %w2; cvt.u16.u32 %h3, %w3;
  mov.b32 %d0, {%h0, %h1}; mov.b32 %d1, {%h2, %h3};
"""


@pytest.mark.parametrize("seed", range(3))
def test_halves_taken_out_before_the_wait_are_those_behind_it(seed: int) -> None:
    """f16 accumulators widened to registers of 32 bits, for an asm that waits for whole registers."""
    step = ["fence", "n8:0-1:b0:f16.f16.f16", "commit"]
    plain = run([*step, "wait0"], seed=seed)
    assert plain[:, :2].any()
    np.testing.assert_array_equal(run([*step, UNPACKED, "wait0", PACKED], seed=seed), plain)


def test_groups_without_any_multiplication() -> None:
    """There is no queue then: nothing may be written where it would be."""
    assert (run("fence" + " commit" * 300 + " wait0", threads=1024) == run("", threads=1024)).all()


# who takes part -----------------------------------------------------------------------------------------------------
ALL = f"fence {ONE} commit wait0"


def test_memory_behind_the_warps_is_not_taken_for_warps() -> None:
    """The fifth warp of 160 threads would find accumulators, which the kernel chooses, where warps 5 to 7 would lie."""
    pattern = "".join(f"  mov.b32 %d{n}, 0x41414141;\n" for n in range(32))
    wide = "n64:0-31:B0"
    first = f"{ptx('fence')}{ptx(wide)}{ptx('commit')}{ptx('wait0')}  bar.sync 0;\n  bra END;\n"
    last = f"FIFTH:\n  bar.sync 0;\n{ptx(wide) * 3}{ptx('commit')}{ptx('wait0')}"
    said = fault([pattern, "  setp.ge.u32 %p4, %r0, 128;\n  @%p4 bra FIFTH;\n", first, last], 160)
    assert "warpgroup 1 of a block of 160 threads has 32 of 128 threads" in said


def test_whole_warpgroups_of_an_odd_block() -> None:
    """Warp 4 issues nothing."""
    skip = "  setp.ge.u32 %p4, %r0, 128;\n  @%p4 bra END;\n"
    words = run([skip, *map(ptx, ALL.split())], threads=160)
    one = np.float32(1).view(np.uint32)
    assert (words[:128] != one).any() and (words[128:] == one).all()


def test_a_warp_that_exits_while_others_wait() -> None:
    late = "  mov.u32 %r21, 0;\n  setp.lt.u32 %p4, %r0, 96;\n  @%p4 bra GO;\nLATE:\n  add.u32 %r21, %r21, 1;\n" + (
        "  setp.lt.u32 %p5, %r21, 5000;\n  @%p5 bra LATE;\n  exit;\nGO:\n")  # fmt: skip
    assert "warp 3 has exited" in fault([late, *map(ptx, ALL.split())])


MMA = "  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %rd10, %rd20, %p5, 1, 1, 0, 0;\n"
ISSUE = [ptx("fence"), MMA, ptx("commit"), ptx("wait0")]


def test_a_fault_names_the_place_of_its_instruction() -> None:
    """The same wgmma twice; the second finds its descriptor changed."""
    steps = [ptx("fence"), MMA, ptx("commit"), ptx("wait0"), "  mov.b64 %rd20, 0x3fff;\n", *ISSUE]
    source = text(["  mov.b64 %rd20, %rd10;\n  setp.eq.u32 %p5, %r0, %r0;\n", *steps], 8)
    lines = [n for n, line in enumerate(source.splitlines(), 1) if "mma_async" in line]
    said = fault(["  mov.b64 %rd20, %rd10;\n  setp.eq.u32 %p5, %r0, %r0;\n", *steps])
    assert said.startswith(f"<ptx>:{lines[1]}:") and "outside of shared memory" in said


# when results arrive -------------------------------------------------------------------------------------------------
# A block of 128 threads; 8 KB of shared memory are filled with f16 ones. Descriptor %rd10: no swizzle, LBO 128, SBO 256.
FILLED = """
  .shared .align 128 .b8 tile[8192];
  mov.u32 %r40, %tid.x;
  mov.u32 %r41, tile;
  mad.lo.u32 %r42, %r40, 4, %r41;
  mov.u32 %r43, 0;
FILL:
  st.shared.b32 [%r42], 0x3C003C00;
  add.u32 %r42, %r42, 512;
  add.u32 %r43, %r43, 1;
  setp.lt.u32 %p1, %r43, 16;
  @%p1 bra FILL;
  fence.proxy.async;
  bar.sync 0;
  shr.u32 %r44, %r41, 4;
  cvt.u64.u32 %rd10, %r44;
  or.b64 %rd10, %rd10, 0x0000001000080000;
  mov.f32 %f1, 0f40A00000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
  mov.f32 %f5, %f1; mov.f32 %f6, %f1; mov.f32 %f7, %f1; mov.f32 %f8, %f1;
"""
ACCUMULATE = "  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f{0},%f{1},%f{2},%f{3}}}, %rd10, %rd10, {4}, 1, 1, 0, 0;\n"
FIRST, SECOND = ACCUMULATE.format(1, 2, 3, 4, "1"), ACCUMULATE.format(5, 6, 7, 8, "1")
FENCE, COMMIT = "  wgmma.fence.sync.aligned;\n", "  wgmma.commit_group.sync.aligned;\n"
STORE_BOTH = """
  mad.wide.u32 %rd20, %r40, 8, %rd0;
  st.global.v2.f32 [%rd20], {%f1, %f5};
"""


def wait(n: int) -> str:
    return f"  wgmma.wait_group.sync.aligned {n};\n"


def products(body: str, seed: int = 0, block: int = 128) -> np.ndarray:
    out = np.zeros((block, 2), np.float32)
    Module.load(kernel(FILLED + body))["k"].launch(1, block, [out], seed=seed, timeout=600)
    return out


SEEDS = range(12)
START, DONE = 5.0, 21.0  # the accumulator's first value, and with 16 products of 1


TURNED = ACCUMULATE.format(1, 2, 3, 4, "0"), ACCUMULATE.format(5, 6, 7, 8, "0")
NAN = "  mov.f32 %f1, 0f7FC00000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n"
ADD = "  add.f32 %f9, %f9, %f{};\n"
# what is done; the two values that each thread stores
ARRIVALS: dict[str, tuple[str, tuple[float, float]]] = {
    "wait_group brings the result": (FIRST + COMMIT + wait(0), (DONE, START)),
    "without a wait the registers keep their value": (FIRST + COMMIT, (START, START)),
    "without a commit the wait covers nothing": (FIRST + wait(0), (START, START)),
    "wait_group n leaves n groups pending": (FIRST + COMMIT + SECOND + COMMIT + wait(1), (DONE, START)),
    "one group holds all that was issued before its commit": (FIRST + SECOND + COMMIT + wait(0), (DONE, DONE)),
    "accumulation goes on in flight": (FIRST + FIRST + COMMIT + FIRST + COMMIT + wait(0), (START + 48, START)),
    "scale-d off does not read the accumulator": (NAN + FENCE + TURNED[0] + COMMIT + wait(0), (16, START)),
    # ptxas renames; compilers rely on it
    "a copy before the wait means the value after it": (
        FIRST + COMMIT + "  mov.f32 %f9, %f1;\n" + wait(0) + "  mov.f32 %f5, %f9;\n", (DONE, DONE)),
    # compilers add up products of FP8 in f32 so, before the commit; ptxas waits (C7517)
    "sums before the wait are those after it": (
        "  mov.f32 %f9, 0f3F800000;\n" + FENCE + TURNED[0] + ADD.format(1) + TURNED[1] + ADD.format(5) + COMMIT + wait(0)
        + "  mov.f32 %f1, %f9;\n", (1 + 16 + 16, 16)),
}  # fmt: skip


@pytest.mark.parametrize("what", ARRIVALS)
@pytest.mark.parametrize("seed", SEEDS)
def test_when_results_arrive(what: str, seed: int) -> None:
    body, values = ARRIVALS[what]
    assert (products(FENCE + body + STORE_BOTH, seed) == values).all()


def test_operands_are_read_between_issue_and_wait() -> None:
    """Shared memory overwritten too early: one outcome a seed, both outcomes among seeds."""
    overwrite = "  bar.sync 0;\n" + "".join(f"  st.shared.b32 [%r41+{4 * n}], 0;\n" for n in range(16)) + "  bar.sync 0;\n"
    body = FENCE + FIRST + COMMIT + overwrite + wait(0) + STORE_BOTH
    results = {seed: products(body, seed).tobytes() for seed in range(16)}
    assert len(set(results.values())) == 2
    assert all(products(body, seed).tobytes() == results[seed] for seed in range(4))


def test_a_seed_means_the_same_for_operations_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due of a row is carried out before A is read that an operation in flight adds to."""
    one = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
    steps = [
        one + "{%d8, %d9, %d10, %d11}, %rd10, %rd10, 1, 1, 1, 0, 0;\n",
        one + "{%d0, %d1, %d2, %d3}, {%d10, %d11, %d12, %d13}, %rd10, 1, 1, 1, 0;\n",
        one + "{%d4, %d5, %d6, %d7}, %rd10, %rd10, 1, 1, 1, 0, 0;\n",
        one + "{%d4, %d5, %d6, %d7}, {%d10, %d11, %d12, %d13}, %rd10, 1, 1, 1, 0;\n",
        "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n",
    ]
    together = [run(steps, 16, seed=seed) for seed in range(40)]
    monkeypatch.setattr(wgmma, "_goes_on", lambda e, ins: False)
    for seed, found in enumerate(together):
        np.testing.assert_array_equal(found, run(steps, 16, seed=seed))
    assert len({found.tobytes() for found in together}) > 1


# used before the wait -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("steps", ["fence n8:0-3:b0 commit", "fence n8:0-3:b0"])
def test_a_driver_waits_where_ptxas_would(steps: str) -> None:
    """A store of D without any wait: a launch shows what the registers held, a driver what a chip has, and says so."""
    shared, start = inputs()["shared"].astype(np.float16), inputs()["c_8_128"].astype(np.float32)
    out = np.zeros((128, 8), np.uint32)
    params = b"".join(struct.pack("<Q", x.ctypes.data) for x in (shared, start, out))
    regions = [Region(x.ctypes.data, x.nbytes, "memory") for x in (shared, start, out)]
    driver = Driver(Settings())
    report = driver.launch(driver.load(text(steps, 8)).function("k"), 1, 128, params, regions)
    np.testing.assert_array_equal(out, run(f"{steps} commit wait0"))
    assert any("C7517" in note for note in report.notes)
    np.testing.assert_array_equal(run(steps), start.view(np.uint32))


def test_parts_of_the_scratch_memory_do_not_overlap() -> None:
    """Of every form; and each has room for what native/matrix/ puts there."""
    found = [form for form in matrix_forms("wgmma") if form.k]
    assert len(found) > 100
    for form in found:
        packed = twin_of(form, "sm_90").b_bytes(form.n, form.k)
        parts = wgmma.scratch_parts(form, packed)
        assert tuple(parts) == tuple(WgmmaScratch.fields)
        places = [part for part in parts.values() if part]
        assert all(a.stop <= b.start and b.start % 64 == 0 for a, b in pairwise(places)), form
        assert len(parts["plain"]) * 8 == max(form.m, form.n) * form.k * form.btype.bits, form
        if form.atype.bits == 1:
            assert len(parts["unpacked"]) >= max(form.m, form.n) * form.k
        if form.atype.bits == 16:
            assert len(parts["unpacked"]) >= form.m * form.k * 2
        if form.sparse:
            assert len(parts["metadata"]) == 512 and len(parts["packed"]) == packed
            assert form.atype.name != "tf32" or len(parts["own"]) == form.n * form.k * 4
