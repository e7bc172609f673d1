"""Tensor memory: registers of tcgen05.ld and st against the places of layouts/, allocation, and what goes wrong."""

import numpy as np
import pytest

from mmulator import Module
from mmulator.matrix.layouts.tensor_memory import MOVES, columns_of, moved

HEAD = """.version 8.8
.target sm_103a
.address_size 64
.entry k(.param .u64 a, .param .u64 b, .param .u64 c)
{
  .reg .b64 %a, %b, %o, %desc; .reg .b32 %t, %at, %quarter, %x<129>; .reg .pred %p; .shared .align 16 .b32 where[4];
  .shared .align 8 .b64 bar;
  ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; mov.u32 %t, %tid.x;
"""
ALLOC = "  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where], {};\n"
TAKE = """  setp.ge.u32 %p, %t, 32; @%p bra TAKEN;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where], 512;
TAKEN: bar.sync 0; ld.shared.u32 %at, [where]; and.b32 %quarter, %t, 96; shl.b32 %quarter, %quarter, 16;
  add.u32 %at, %at, %quarter;
"""


def launch(body: str, *arrays: np.ndarray, threads: int = 128) -> None:
    given = [*arrays, *[np.zeros(1, np.uint32)] * (3 - len(arrays))]
    Module.load(HEAD + body + "  ret;\n}\n")["k"].launch(1, threads, given)


def loads(count: int, to: str = "%x") -> str:
    """Each thread's words of an array, to registers."""
    move = f"  mul.wide.u32 %o, %t, {4 * count}; add.u64 %o, %o, %a;\n"
    return move + "".join(f"  ld.global.u32 {to}{n}, [%o + {4 * n}];\n" for n in range(count))


def stores(count: int) -> str:
    move = f"  mul.wide.u32 %o, %t, {4 * count}; add.u64 %o, %o, %b;\n"
    return move + "".join(f"  st.global.u32 [%o + {4 * n}], %x{n};\n" for n in range(count))


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("lane", [0, 16])
@pytest.mark.parametrize("shape", MOVES)
def test_moves_use_the_places_of_the_layouts(shape: str, lane: int, half: bool) -> None:
    """st of a shape, then ld of whole rows: each register is in its cell; then ld of the shape: as it was."""
    if lane and shape == "32x32b":
        return
    num = 4
    count, columns = MOVES[shape][0] * num, columns_of(shape, num)
    split, wide = 16, 2 if half else 1
    rng = np.random.default_rng(1)
    given = rng.integers(0, 1 << 32, (128, count)).astype(np.uint32)
    apart = f", {split}" if shape == "16x32bx2" else ""
    names = ", ".join(f"%x{n}" for n in range(count))
    rows = ", ".join(f"%x{n}" for n in range(64))
    pack, unpack = (".pack::16b", ".unpack::16b") if half else ("", "")
    zeros = "".join(f"  mov.u32 %x{n}, 0;\n" for n in range(64))
    body = TAKE + zeros + f"  tcgen05.st.sync.aligned.32x32b.x64.b32 [%at], {{{rows}}};\n" + loads(count)
    body += f"  add.u32 %t, %at, {lane << 16};\n"
    body += f"  tcgen05.st.sync.aligned.{shape}.x{num}{unpack}.b32 [%t]{apart}, {{{names}}};\n  tcgen05.wait::st.sync.aligned;\n"
    body += f"  tcgen05.ld.sync.aligned.{shape}.x{num}{pack}.b32 {{{names}}}, [%t]{apart};\n  tcgen05.wait::ld.sync.aligned;\n"
    body += "  mov.u32 %t, %tid.x;\n" + stores(count)
    body += f"  tcgen05.ld.sync.aligned.32x32b.x64.b32 {{{rows}}}, [%at];\n  ld.param.u64 %b, [c];\n" + stores(64)
    again, cells = np.zeros_like(given), np.zeros((128, 64), np.uint32)
    launch(body, given, again, cells)
    want = np.zeros((4, 32, 64), np.uint32)
    for warp in range(4):
        for t in range(32):
            for r in range(count):
                row, column = moved(shape, t, r, split, wide)
                word = int(given[32 * warp + t, r])
                parts = (word & 0xFFFF, word >> 16) if half else (word,)
                for n, part in enumerate(parts):
                    want[warp, lane + row, column + n] = part
    assert columns * wide <= 64 and np.array_equal(cells.reshape(want.shape), want)
    assert np.array_equal(again, given)


@pytest.mark.parametrize("shape", MOVES)
def test_every_repetition_moves_the_same_cells(shape: str) -> None:
    """ld of cells that 32x32b has stored; then st of other words elsewhere, and ld again."""
    apart = ", 128" if shape == "16x32bx2" else ""
    some = ", ".join(f"%x{n}" for n in range(128))
    body = TAKE
    for half in (0, 128):  # a word has its lane and column
        body += "".join(f"  shl.b32 %x{n}, %t, 16; add.u32 %x{n}, %x{n}, {half + n};\n" for n in range(128))
        body += f"  tcgen05.st.sync.aligned.32x32b.x128.b32 [%at + {half}], {{{some}}};\n"
    body += "  tcgen05.wait::st.sync.aligned; mul.wide.u32 %o, %t, 2048; add.u64 %a, %a, %o; add.u64 %b, %b, %o;\n"
    counts = [MOVES[shape][0] << n for n in range(8) if MOVES[shape][0] << n <= 128]
    for count in counts:
        names, num = ", ".join(f"%x{n}" for n in range(count)), count // MOVES[shape][0]
        move, wait = f"{shape}.x{num}.b32", "  tcgen05.wait::{}.sync.aligned;\n"
        for at, to in (("%at", "%a"), ("%at + 256", "%b")):
            if to == "%b":
                body += "".join(f"  mad.lo.u32 %x{n}, %t, 77, {count + n};\n" for n in range(count))
                body += f"  tcgen05.st.sync.aligned.{move} [{at}]{apart}, {{{names}}};\n" + wait.format("st")
            body += f"  tcgen05.ld.sync.aligned.{move} {{{names}}}, [{at}]{apart};\n" + wait.format("ld")
            body += "".join(f"  st.global.u32 [{to} + {4 * (count + n)}], %x{n};\n" for n in range(count))
    loaded, again = np.zeros((2, 128, 512), np.uint32)
    launch(body, loaded, again)
    t = np.arange(128)
    for count in counts:
        for r in range(count):
            row, column = moved(shape, t % 32, r, 128)
            assert np.array_equal(loaded[:, count + r], (t // 32 * 32 + row) << 16 | column)
            assert np.array_equal(again[:, count + r], t * 77 + count + r)


@pytest.mark.parametrize(("op", "kind"), [("min", "u32"), ("max", "s32"), ("max", "f32"), ("min", "f32")])
def test_loads_that_reduce(op: str, kind: str) -> None:
    given = np.random.default_rng(2).standard_normal((128, 8)).astype(np.float32)
    given[0, :2], given[1, 3] = (0.0, -0.0), np.nan
    words = given.view(np.uint32)
    names = ", ".join(f"%x{n}" for n in range(8))
    body = TAKE + loads(8) + f"  tcgen05.st.sync.aligned.32x32b.x8.b32 [%at], {{{names}}};\n  tcgen05.wait::st.sync.aligned;\n"
    body += "".join(f"  mov.b32 %x{n}, 0;\n" for n in range(8))  # what is loaded is what was stored, and no register's old value
    body += f"  tcgen05.ld.red.sync.aligned.32x32b.x8.{op}.{kind} {{{names}}}, %x8, [%at];\n  tcgen05.wait::ld.sync.aligned;\n"
    got = np.zeros((128, 9), np.uint32)
    launch(body + stores(9), words, got)
    typed = words.view({"u32": np.uint32, "s32": np.int32, "f32": np.float32}[kind])
    want = (np.nanmin if op == "min" else np.nanmax)(typed, axis=1)
    assert np.array_equal(got[:, :8], words)
    assert np.array_equal(got[1:, 8], want.astype(typed.dtype).view(np.uint32)[1:])


def test_columns_are_free_again() -> None:
    """The first free columns are taken, in multiples of their number; a warp that waits goes on when others free columns."""
    free = "  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %x{}, {};\n"
    body = "".join(ALLOC.format(n) + f"  ld.shared.u32 %x{i}, [where];\n" for i, n in enumerate((128, 64, 32)))
    body += free.format(1, 64) + ALLOC.format(32) + "  ld.shared.u32 %x3, [where];\n"
    body += "".join(free.format(n, size) for n, size in ((0, 128), (2, 32), (3, 32))) + stores(4)
    got = np.zeros((32, 4), np.uint32)
    launch(body, got, got, threads=32)
    assert got[5].tolist() == [0, 128, 192, 128]


@pytest.mark.parametrize("space", ["", ".shared::cta"])
@pytest.mark.parametrize("place", ["mov.u32 %at, where;", "{} cvt.u32.u64 %at, %o;", "{}"])
def test_allocations_take_half_an_address(place: str, space: str) -> None:
    """Chips take the lower 32 bits of a generic address, in a register of 32 or 64 bits, with a state space, too. The second
    block of a pair has the bits of its rank in them.
    """
    made = "  " + place.format("cvta.shared.u64 %o, where;")
    name = "%at" if "%at" in place else "%o"
    body = made + f"\n  tcgen05.alloc.cta_group::2.sync.aligned{space}.b32 [{name}], 64;\n  ld.shared.u32 %x0, [where];\n"
    body += "  tcgen05.dealloc.cta_group::2.sync.aligned.b32 %x0, 64;\n  mov.u32 %x1, %cluster_ctarank;\n"
    body += "  mad.lo.u32 %t, %x1, 32, %t;\n"
    got = np.full((64, 1), 7, np.uint32)
    module = Module.load(HEAD.replace("{", ".reqnctapercluster 2, 1, 1 {", 1) + body + stores(1) + "  ret;\n}\n")
    module["k"].launch(2, 32, [got, got, got])
    assert not got.any()


def test_commits_take_half_an_address() -> None:
    """Of tcgen05.commit's generic address a register of 32 bits holds enough."""
    body = "  cvta.shared.u64 %o, bar; cvt.u32.u64 %at, %o;\n"
    body += "  setp.ne.u32 %p, %t, 0; @%p bra WAIT; mbarrier.init.shared.b64 [bar], 1;\n"
    body += "  tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%at];\nWAIT: bar.warp.sync -1; mov.u32 %x0, 0;\n"
    body += "AGAIN: mbarrier.try_wait.parity.shared.b64 %p, [bar], 0; @!%p bra AGAIN;\n"
    got = np.full((32, 1), 7, np.uint32)
    launch(body + stores(1), got, got, threads=32)
    assert not got.any()


def test_commits_that_nobody_waits_for() -> None:
    """Under seed 0 a commit behind products that are done arrives soon, as on an idle chip: its mbarrier may go."""
    commit = "  @%p tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];\n"
    turn = "  @%p mbarrier.init.shared::cta.b64 [bar], 2;\n" + commit + "  bar.sync 0;\n"
    turn += "  @%p mbarrier.inval.shared::cta.b64 [bar];\n"
    launch(TAKE + "  setp.eq.u32 %p, %t, 0;\n" + turn * 8)
