"""Mutants of kernels: each kind where a row has its effect, each a text of its own, none where nothing can be wrong."""

import pytest

import mmulator as mm
from mmulator.errors import MmulatorError
from mmulator.host.text import verified
from mmulator.ptx.program.mutants import KINDS, Mutant, mutants, useless
from tests.support.places import ROOT
from tests.support.ptx_text import kernel

# a statement, and the kinds of its mutants
STATEMENTS = {
    "bar.sync 0;": ["order"], "fence.acq_rel.gpu;": ["order"], "fence.proxy.async;": ["order"], "cp.async.wait_all;": ["order"],
    "cp.async.commit_group;": ["order"], "bar.warp.sync 0xffffffff;": ["order"],
    "setp.lt.s32 p, r, 7;": ["bound", "bound"], "setp.eq.u32 p, r, 7;": ["bound"], "setp.ltu.f32 p, f, g;": [],
    "@p st.shared.b32 [r], r;": ["mask"], "@p st.global.b32 [d], r;": ["mask", "zero"], "@p ret;": ["mask"],
    "st.global.v2.f32 [d], {f, g};": ["operand", "zero"], "st.global.v2.f32 [d], {f, f};": ["zero"],
    "sub.f32 f, f, g;": ["operand"], "div.rn.f32 f, f, f;": [], "add.f32 f, f, g;": [],
    "mul.f32 f, f, 0f3F000000;": ["scale"], "mul.f32 f, f, g;": ["scale"], "mul.lo.u32 r, r, 3;": [],
    "fma.rn.f32 f, f, g, h;": ["operand", "stale", "type"],
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r}, [r];": ["transposed"],
    "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {r}, [r];": ["transposed"],
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {f,g,h,k}, {r,s}, {r}, {f,g,h,k};":
        ["operand", "operand", "stale", "transposed", "transposed", "type"],
    "mov.u32 r, %tid.x;": [], "ld.global.b32 r, [d];": [], "add.u32 r, r, s;": [],
}  # fmt: skip
_REGISTERS = ".reg .b32 r, s; .reg .b64 d; .reg .f32 f, g, h, k; .reg .pred p;"


def of(body: str) -> list[Mutant]:
    module = mm.Module.load(kernel(f"{_REGISTERS}\n{body}"))
    return mutants([next(iter(module.values())).function])


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_has_the_kinds_of_its_effects(statement: str) -> None:
    assert sorted(m.kind for m in of(statement)) == STATEMENTS[statement]


def test_every_kind_is_made_of_some_kernel_and_stands_alone() -> None:
    seen = set()
    for name in ("gemm_f16_tn_sm90", "gemm_f16_tn_sm80", "layernorm"):
        module = mm.Module.load(ROOT / f"tests/kernels/ptx/{name}.ptx")
        first = next(iter(module.values()))
        found = mutants([first.function])
        seen |= {m.kind for m in found}
        for mutant in found[:40]:
            source = mutant.source
            assert source.text != module.source.text and source.text.count("\n") >= module.source.text.count("\n")
            try:
                verified(source)
            except MmulatorError:
                assert mutant.kind == "transposed"  # not every instruction has both
    assert seen == set(KINDS)


def test_an_instruction_that_nothing_depends_on_is_useless() -> None:
    module = mm.Module.load(kernel(
        f"{_REGISTERS}\nmov.u32 r, 3;\nadd.u32 s, r, 1;\nmul.lo.u32 s, s, s;\nmov.f32 f, 0f00000000;\nst.global.f32 [d], f;"
    ))  # fmt: skip
    function = next(iter(module.values())).function
    assert [useless([function], i) for i in function.instructions[1:6]] == [True, True, True, False, False]


