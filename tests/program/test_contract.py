"""Which products and sums are fused (docs/explanation/arithmetic.md); tests/kernels compares with hardware."""

import sys

import numpy as np
import pytest

from mmulator.base.source import Source
from mmulator.host.module import Module
from mmulator.isa.effects import Effects, Ptxas
from mmulator.isa.matrix import FAMILIES
from mmulator.isa.table import ROWS
from mmulator.matrix.twin.sfu.arrays import evaluate
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.as_ptxas.contract import contract
from mmulator.ptx.program.as_ptxas.fold import fold
from mmulator.ptx.tree import Immediate
from tests.support.ptx_text import kernel

LOAD = "  ld.global.f32 %f1, [%rd0];\n  ld.global.f32 %f2, [%rd0+4];\n  ld.global.f32 %f3, [%rd0+8];\n"
STORE = "  st.global.f32 [%rd0], %f9;\n"

SPLIT = ".reg .pred %p;\n  setp.gt.f32 %p, %f1, 0f00000000;\n  "

CASES = {
    "mul.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;": 1,
    "mul.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f3, %f4;": 1,
    "mul.f32 %f4, %f1, %f2;\n  sub.f32 %f9, %f3, %f4;": 1,
    "mul.rn.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;": 0,
    "mul.f32 %f4, %f1, %f2;\n  add.rn.f32 %f9, %f4, %f3;": 0,
    "mul.ftz.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;": 0,
    "mul.ftz.f32 %f4, %f1, %f2;\n  add.ftz.f32 %f9, %f4, %f3;": 1,
    "mul.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;\n  st.global.f32 [%rd0+4], %f4;": 0,
    "mul.f32 %f4, %f1, %f2;\n  mul.f32 %f5, %f2, %f3;\n  add.f32 %f9, %f4, %f5;": 1,
    "mul.f32 %f4, %f1, %f2;\n  neg.f32 %f5, %f4;\n  add.f32 %f9, %f5, %f3;": 1,
    "mul.f32 %f4, %f1, %f2;\n  mov.f32 %f5, %f4;\n  add.f32 %f9, %f5, %f3;": 1,
    "mul.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f4;": 0,
    "add.f32 %f9, %f1, %f2;": 0,
    # all readers are sums: the product is fused into each of them
    "mul.f32 %f4, %f1, %f2;\n  add.f32 %f5, %f4, %f3;\n  sub.f32 %f9, %f5, %f4;": 2,
    "mul.f32 %f4, %f1, %f2;\n  add.f32 %f5, %f4, %f3;\n  fma.rn.f32 %f9, %f5, %f1, %f4;": 1,  # the one written
    # of two products a sum takes the one that is read less often; the other is then added, so it is not fused elsewhere
    "mul.f32 %f4, %f1, %f2;\n  mul.f32 %f5, %f2, %f3;\n  add.f32 %f6, %f4, %f5;\n  add.f32 %f9, %f4, %f6;": 1,
    "mul.sat.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;": 0,
    "mul.f32 %f4, %f1, %f2;\n  add.sat.f32 %f9, %f4, %f3;": 1,
    "mul.f32 %f4, %f1, 0f3f800000;\n  add.f32 %f9, %f4, %f3;": 0,  # times 1: a copy
    "mul.f32 %f4, %f1, %f2;\n  neg.ftz.f32 %f5, %f4;\n  add.f32 %f9, %f5, %f3;": 0,
    "mul.f32 %f4, %f1, %f2;\n  abs.f32 %f5, %f4;\n  add.f32 %f9, %f5, %f3;": 0,
    "mul.f32 %f4, %f1, %f1;\n  abs.f32 %f5, %f4;\n  add.f32 %f9, %f5, %f3;": 1,  # a square is its magnitude
    # .ftz does nothing to a product that is .ftz; kept or not, it is fused behind a change of sign with .ftz
    "mul.ftz.f32 %f4, %f1, %f2;\n  neg.ftz.f32 %f5, %f4;\n  add.ftz.f32 %f9, %f5, %f3;": 1,
    "mul.ftz.f32 %f4, %f1, %f2;\n  neg.ftz.f32 %f5, %f4;\n  add.ftz.f32 %f9, %f5, %f3;\n  st.global.f32 [%rd0+8], %f5;": 1,
    "mul.ftz.f32 %f4, %f1, %f2;\n  neg.ftz.f32 %f5, %f4;\n  sub.ftz.f32 %f9, %f3, %f5;": 0,
    "mul.f32 %f4, %f1, %f2;\n  neg.f32 %f5, %f4;\n  sub.f32 %f9, %f3, %f5;": 1,
    "mul.f32 %f4, %f1, %f2;\n  neg.f32 %f5, %f4;\n  add.f32 %f9, %f5, %f3;\n  st.global.f32 [%rd0+8], %f5;": 0,
    # approximate divisions end in a product, and so does rcp without .ftz
    "div.full.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;": 1,
    "div.approx.f32 %f4, %f1, %f2;\n  sub.f32 %f9, %f3, %f4;": 1,
    "div.full.ftz.f32 %f4, %f1, %f2;\n  add.ftz.f32 %f9, %f4, %f3;": 1,
    "div.full.ftz.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;": 0,
    "div.full.f32 %f4, %f1, %f2;\n  add.rn.f32 %f9, %f4, %f3;": 0,
    "div.rn.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;": 0,
    "div.full.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;\n  st.global.f32 [%rd0+8], %f4;": 0,
    "div.full.f32 %f4, %f1, %f2;\n  add.f32 %f5, %f4, %f3;\n  sub.f32 %f9, %f5, %f4;": 2,
    "rcp.approx.f32 %f4, %f1;\n  add.f32 %f9, %f4, %f3;": 1,
    "rcp.approx.ftz.f32 %f4, %f1;\n  add.ftz.f32 %f9, %f4, %f3;": 0,
    "div.approx.ftz.f32 %f4, 0f3F800000, %f1;\n  add.ftz.f32 %f9, %f4, %f3;": 0,  # the unit's reciprocal alone
    "div.approx.ftz.f32 %f4, 0f40400000, %f1;\n  add.ftz.f32 %f9, %f4, %f3;": 1,
    "div.full.f32 %f4, %f1, 0f40400000;\n  add.f32 %f9, %f4, %f3;": 1,
    "div.full.f32 %f4, %f1, 0f3F800000;\n  add.f32 %f9, %f4, %f3;": 0,
    SPLIT + "div.full.f32 %f4, %f1, 0f40400000;\n  @%p st.global.f32 [%rd0+8], %f1;\n  add.f32 %f9, %f4, %f3;": 1,
    SPLIT + "div.full.f32 %f4, %f1, %f2;\n  @%p st.global.f32 [%rd0+8], %f1;\n  add.f32 %f9, %f4, %f3;": 0,
    # a branch of the machine code between them, seen or not
    "mul.f32 %f4, %f1, %f2;\n  fence.acq_rel.gpu;\n  add.f32 %f9, %f4, %f3;": 0,
    "mul.f32 %f4, %f1, %f2;\n  bar.sync 0;\n  add.f32 %f9, %f4, %f3;": 1,
    "mul.f32 %f4, %f1, %f2;\n  div.rn.f32 %f5, %f3, %f1;\n  add.f32 %f9, %f4, %f5;": 0,
    "mul.f32 %f4, %f1, %f2;\n  div.approx.f32 %f5, %f3, %f1;\n  add.f32 %f9, %f4, %f5;": 1,
    "mul.f32 %f4, %f1, %f2;\n  bra L;\nL:\n  add.f32 %f9, %f4, %f3;": 1,
    SPLIT + "mul.f32 %f4, %f1, %f2;\n  @%p bra L;\n  st.global.f32 [%rd0+8], %f1;\nL:\n  add.f32 %f9, %f4, %f3;": 0,
    SPLIT + "mul.f32 %f4, %f1, %f2;\n  @%p st.global.f32 [%rd0+8], %f1;\n  add.f32 %f9, %f4, %f3;": 0,
    SPLIT + "mul.f32 %f4, %f1, 0f40400000;\n  @%p st.global.f32 [%rd0+8], %f1;\n  add.f32 %f9, %f4, %f3;": 1,
    # through a region that leaves it as it is, of a register that is written again
    SPLIT + "mul.f32 %f4, %f1, 0f40400000;\n" + 2 * "  @%p st.global.f32 [%rd0+8], %f1;\n" + "  add.f32 %f9, %f4, %f3;\n"
    "  mov.f32 %f4, %f1;\n  st.global.f32 [%rd0+12], %f4;": 1,
    SPLIT + "mul.f32 %f4, %f1, %f2;\n  mov.f32 %f9, %f1;\n  @%p add.f32 %f9, %f4, %f3;": 1,
    SPLIT + "mov.f32 %f4, %f3;\n  @%p mul.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;": 0,
    # a factor that is written in between is kept in a register of its own
    "mul.f32 %f4, %f1, %f2;\n  mov.f32 %f1, %f3;\n  add.f32 %f9, %f4, %f1;": 1,
}

# what ptxas removes, since nothing reads its result, keeps no product and ends no region
PRODUCT = "mul.f32 %f4, %f1, %f2;\n  mov.b32 %r1, %f4;\n  mov.b64 %rd1, {%r1, %r1};\n  mov.b64 %d1, %rd1;\n  "
SUM = "\n  add.f32 %f9, %f4, %f3;"
DEAD = {
    "mul24.lo.u32 %r2, %r1, %r1;": 1, "mad24.hi.s32 %r2, %r1, %r1, %r1;": 1, "sad.u32 %r2, %r1, %r1, %r1;": 1,
    "fns.b32 %r2, %r1, %r1, %r1;": 1, "szext.wrap.s32 %r2, %r1, %r1;": 1, "bmsk.clamp.b32 %r2, %r1, %r1;": 1,
    "dp4a.u32.s32 %r2, %r1, %r1, %r1;": 1, "dp2a.lo.u32.u32 %r2, %r1, %r1, %r1;": 1, "vadd.u32.u32.u32 %r2, %r1.h1, %r1;": 1,
    "vset4.u32.u32.lt %r2, %r1, %r1, %r1;": 1, "add.cc.u32 %r2, %r1, %r1;": 1, "addc.u32 %r2, %r1, %r1;": 1,
    "madc.hi.cc.u32 %r2, %r1, %r1, %r1;": 1, "add.cc.u32 %r2, %r1, %r1;\n  addc.u32 %r3, %r1, %r1;": 1,
    "add.cc.u32 %r2, %r1, %r1;\n  addc.u32 %r3, 0, 0;\n  st.global.u32 [%rd0+8], %r3;": 0,
    "isspacep.shared %p2, %rd1;": 1, "mapa.u64 %rd2, %rd1, %r1;": 1, "createpolicy.cvt.L2.b64 %rd2, %rd1;": 1,
    "ldu.global.b32 %r2, [%rd1];": 1, "ld.volatile.global.b32 %r2, [%rd1];": 0, "atom.global.add.u32 %r2, [%rd1], 1;": 0,
    "shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;": 1, "redux.sync.add.u32 %r2, %r1, -1;": 1, "vote.sync.any.pred %p2, %p3, %r1;": 1,
    "match.any.sync.b32 %r2, %r1, -1;": 1, "elect.sync %r2|%p2, %r1;": 1,
    "bfind.u64 %r2, %rd1;": 1, "div.s32 %r2, %r1, %r1;": 1, "@%p ld.global.b32 %r2, [%rd1];": 1,
    "@%p shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;": 1, "@%p add.cc.u32 %r2, %r1, %r1;": 1,
    "add.u32 %r2, %r2, %r1;": 1, "mov.u32 %r2, 0;\n  @%p add.u32 %r2, %r2, %r1;": 1,  # read by itself alone
    # expanded before anything is removed
    "div.rn.f32 %f5, %f4, %f1;": 0, "rcp.rn.f64 %d2, %d1;": 0, "div.u64 %rd2, %rd1, %rd1;": 0, "@%p sqrt.rn.f32 %f5, %f4;": 0,
}  # fmt: skip
# guarded, and its result is read
GUARDED = {
    "vadd.u32.u32.u32 %r1, %r2.h1, %r3;": 1, "vabsdiff4.u32.u32.u32.add %r1, %r2, %r3, %r1;": 1, "stacksave.u32 %r1;": 1,
    "alloca.u32 %r1, %r2, 4;": 1, "sad.u32 %r1, %r2, %r3, %r4;": 1, "addc.u32 %r1, %r2, %r3;": 1,
    "add.cc.u32 %r1, %r2, %r3;": 0, "subc.cc.u32 %r1, %r2, %r3;": 0, "mad.lo.cc.u32 %r1, %r2, %r3, %r4;": 0,
    "activemask.b32 %r1;": 0, "shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;": 0,
}  # fmt: skip
CASES |= {SPLIT + PRODUCT + statement + SUM: fused for statement, fused in DEAD.items()}
CASES |= {
    f"{SPLIT}{PRODUCT[:PRODUCT.index('mov')]}@%p {statement}\n  st.global.u32 [%rd0+12], %r1;{SUM}": fused
    for statement, fused in GUARDED.items()
}


@pytest.mark.parametrize(("body", "fused"), CASES.items())
def test_fused_as_ptxas_fuses(body: str, fused: int) -> None:
    module = parse_module(Source("test.ptx", kernel(LOAD + "  " + body + "\n" + STORE)))
    before = fold(module.entries[0])
    after = contract(before)
    assert sum(str(i.form).startswith(("fma", "quotient.sum")) for i in after.instructions) == fused
    if not fused:
        assert after.body == before.body


# Supported opcodes that are a branch when guarded, if anything reads what they do: none is a function of a lane's registers.
NOT_SELECTED = {
    "control": "bra brx call exit ret trap brkpt pmevent nanosleep griddepcontrol setmaxnreg stackrestore",
    "memory": "ld ldu st atom red cp prefetch prefetchu applypriority discard fence membar tensormap clusterlaunchcontrol",
    "tensor memory": "tcgen05",
    "lanes of the warp or block": "activemask bar barrier elect match redux shfl vote",
}


def test_each_opcode_is_known_to_be_selected_or_a_branch() -> None:
    rows = [row for opcode in ROWS.keys() - FAMILIES.keys() for row in ROWS[opcode]]
    supported = {row.opcode for row in rows if row.status.runs}
    selected = {row.opcode for row in rows if _is_selected(row.effects)}
    branches = " ".join(NOT_SELECTED.values()).split()
    assert supported - selected == set(branches)
    assert supported >= selected and len(branches) == len(set(branches))


def _is_selected(effects: Effects) -> bool:
    """Is any form? Of `bfind` and its like others are branches."""
    return any(e.ptxas is Ptxas.SELECTED for e in (effects, *(e for _, e in effects.variants)))


RCP = "rcp.approx.ftz.f32 %f4, %f1;\n"
AGAIN = "  rcp.approx.ftz.f32 %f9, %f4;"
COMPARE = "  setp.gt.f32 %p1, %f2, %f3;\n"
FOLDED = {
    "div.full.f32 %f9, %f1, 0f43FA0000;": "mul.f32 0x3b03126f",  # 500: the nearest to 1/500
    "div.full.f32 %f9, %f1, 0f3F800000;": "mov.f32",
    "div.approx.f32 %f9, %f1, 0f7E800001;": "mul.f32 0x0",  # the unit flushes
    "div.full.f32 %f9, %f1, 0f7E800001;": "mul.f32 0x3e800000, mul.f32 0x17ffffe",
    "div.full.ftz.f32 %f9, %f1, 0f00400000;": "mul.ftz.f32 0x7f800000",
    "div.full.f32 %f9, %f1, 0f00400000;": "mul.f32 0x4b800000, mul.f32 0x73000000",
    "div.full.f32 %f9, 0f3F800000, 0f40400000;": "mov.f32 0x3eaaaaab",
    "mov.b32 %r1, 1077936128;\n  mov.b32 %f4, %r1;\n  div.full.f32 %f9, %f1, %f4;": "mul.f32 0x3eaaaaab",
    "div.full.f32 %f9, 0f40400000, %f1;": "div.full.f32 0x40400000",
    "div.rn.f32 %f9, %f1, 0f40400000;": "div.rn.f32 0x40400000",
    "div.full.f32 %f9, %f1, 0f7FC00000;": "div.full.f32 0x7fc00000",
    "div.approx.ftz.f32 %f9, 0f3F800000, %f1;": "rcp.approx.ftz.f32",
    "rcp.approx.ftz.f32 %f4, %f1;\n  rcp.approx.ftz.f32 %f9, %f4;": "mov.f32",
    "ex2.approx.ftz.f32 %f4, %f1;\n  rcp.approx.ftz.f32 %f9, %f4;": "neg.f32, ex2.approx.ftz.f32, mov.f32",
    "ex2.approx.f32 %f4, %f1;\n  rcp.approx.ftz.f32 %f9, %f4;": "rcp.approx.ftz.f32",
    "sqrt.approx.f32 %f9, 0f40400000;": "mov.f32 0x3fddb3d7",
    "mul.f32 %f9, %f1, 0f3F800000;": "mov.f32",
    "div.full.f32 %f4, 0f40000000, 0f40000000;\n  mul.f32 %f9, %f1, %f4;": "mov.f32 0x3f800000, mov.f32",
    # the sign of a constant NaN, which becomes a quiet one
    "abs.ftz.f32 %f9, 0fFFA12345;": "mov.f32 0x7fe12345",
    "neg.ftz.f32 %f9, 0f7FC12345;": "mov.f32 0xffc12345",
    "neg.f32 %f9, 0f7FA12345;": "mov.f32 0xffe12345",
    "mul.rn.f32 %f9, %f1, 0f3F800000;": "mul.rn.f32 0x3f800000",
    "neg.f32 %f4, %f1;\n  neg.f32 %f9, %f4;": "mov.f32",
    "neg.f32 %f4, %f1;\n" + COMPARE + "  selp.f32 %f9, %f2, %f4, %p1;": "xor.b32 0x80000000, selp.f32",
    # what was made of a register before it is written again, or on another way, is not what it holds
    "rcp.approx.ftz.f32 %f4, %f1;\n  mov.f32 %f1, %f2;\n  rcp.approx.ftz.f32 %f9, %f4;": "rcp.approx.ftz.f32",
    "neg.f32 %f4, %f60;\n  ld.global.f32 %f60, [%rd0+16];\n  neg.f32 %f9, %f4;": "ld.global.f32, neg.f32",
    "neg.f32 %f4, %f1;\n  mov.f32 %f4, %f2;\n  neg.f32 %f9, %f4;": "mov.f32, neg.f32",
    COMPARE + "L:\n  " + RCP + "  @%p1 bra L;\nM:\n" + AGAIN + "\n  @%p1 bra M;": "rcp.approx.ftz.f32, bra",
    RCP + COMPARE + "  @%p1 bra L;\n  mov.f32 %f5, %f2;\nL:\n" + AGAIN: "mov.f32, mov.f32",
    "tanh.approx.f32 %f9, 0f40400000;": "tanh.approx.f32 0x40400000",
}


@pytest.mark.parametrize(("body", "expected"), FOLDED.items())
def test_constants_are_folded_as_ptxas_folds_them(body: str, expected: str) -> None:
    """The last instructions before the store, with their constants."""
    function = fold(parse_module(Source("test.ptx", kernel(LOAD + "  " + body + "\n" + STORE))).entries[0])
    count = expected.count(", ") + 1
    instructions = [i for i in function.instructions if i.opcode not in ("st", "ret")][-count:]
    shown = []
    for ins in instructions:
        constants = [f" {o.bits('f32'):#x}" for o in ins.operands if isinstance(o, Immediate)]
        shown.append(".".join((ins.opcode, *ins.modifiers)) + "".join(constants))
    assert ", ".join(shown) == expected


@pytest.mark.parametrize("body", [*CASES, *FOLDED])
def test_what_was_written_is_kept(body: str) -> None:
    """Each instruction of a rewritten function knows one of the text, and stands where that stands."""
    function = parse_module(Source("test.ptx", kernel(LOAD + "  " + body + "\n" + STORE))).entries[0]
    written = {id(i) for i in function.instructions}
    for ins in contract(fold(function)).instructions:
        assert id(ins.original) in written and ins.original.span == ins.span


PAIRS = np.random.default_rng(3).integers(0, 1 << 32, (2, 4096), dtype=np.uint32)
PAIRS[:, ::3] = PAIRS[:, ::3] & 0x87FFFFFF | np.uint32(0x3C000000)  # ordinary numbers
PAIRS[1, ::7] = PAIRS[1, ::7] & 0x81FFFFFF | np.uint32(0x7E000000)  # divisors about 2**126
PAIRS[1, 1::7] &= 0x80FFFFFF  # and about 2**-126

EXPANSION = """.version 8.0
.target sm_90a{debug}
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{
.reg .f32 %f<9>; .reg .b64 %d<5>; .reg .b32 %r;
ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b]; ld.param.u64 %d2, [c]; mov.u32 %r, %tid.x; mul.wide.u32 %d3, %r, 4;
add.s64 %d0, %d0, %d3; add.s64 %d1, %d1, %d3; add.s64 %d2, %d2, %d3; ld.global.f32 %f1, [%d0]; ld.global.f32 %f2, [%d1];
{body}
st.global.f32 [%d2], %f4; ret; }}
"""


def launch(body: str, debug: str = "") -> np.ndarray:
    kernel = Module.load(EXPANSION.format(body=body, debug=debug))["k"]
    out = np.zeros_like(PAIRS[0])
    for n in range(0, out.size, 1024):
        part = slice(n, n + 1024)
        kernel.launch(1, 1024, [PAIRS[0, part].copy(), PAIRS[1, part].copy(), out[part]], device="sm_90")
    return out


@pytest.mark.parametrize("ftz", [False, True])
@pytest.mark.parametrize("operation", ["div.full", "div.approx", "rcp"])
def test_a_fused_quotient_plus_nothing_is_the_quotient(operation: str, ftz: bool) -> None:
    """The factors that a sum takes apart are those of the division itself: their product plus -0 has its bits."""
    z = ".ftz" if ftz else ""
    sources = PAIRS if operation != "rcp" else PAIRS[1:]
    statement = f"{operation}{z}.f32 %f3, %f1, %f2;" if operation != "rcp" else f"rcp.approx{z}.f32 %f3, %f2;"
    got = launch(f"{statement} add{z}.f32 %f4, %f3, 0f80000000;")
    np.testing.assert_array_equal(got, evaluate(operation, *sources, ftz=ftz))


def test_a_debug_build_divides() -> None:
    """33 is a number whose reciprocal the unit does not round to nearest."""
    divide = "div.full.f32 %f4, %f1, 0f42040000;"
    divisor = np.full_like(PAIRS[0], 0x42040000)
    got = launch(divide, ", debug")
    np.testing.assert_array_equal(got, evaluate("div.full", PAIRS[0], divisor))
    assert (got != launch(divide)).any()


def steps_of(branches: int) -> int:
    """Calls of C functions while products are looked for in a text with so many branches, around each of which another register
    gets another product, and which are all added up at the end.
    """
    names = [f"%g{n}" for n in range(branches)]
    first = "".join(f"  mul.f32 {name}, %f1, %f2;\n" for name in names)
    around = "".join(f"  @%p bra $A{n};\n  mul.f32 {name}, %f2, %f3;\n$A{n}:\n" for n, name in enumerate(names))
    sums = "".join(f"  add.f32 %f9, %f9, {name};\n" for name in names)
    text = kernel(f".reg .f32 %g<{branches}>;\n{LOAD}{SPLIT}mov.f32 %f9, %f1;\n{first}{around}{sums}{STORE}")
    (function,) = parse_module(Source("k.ptx", text)).entries
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "c_call"

    sys.setprofile(count)
    try:
        contract(function)
    finally:
        sys.setprofile(None)
    return calls


def test_many_branches_are_walked_over_once() -> None:
    """Each register passes each branch once, so twice as many of both take four times the steps, and not eight."""
    assert steps_of(120) < 5 * steps_of(60)
