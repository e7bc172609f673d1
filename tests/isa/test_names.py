"""Mnemonics of the matrix instructions: every form, and what is said about wrong ones."""

import itertools
import random

import pytest

from mmulator.base.source import Source, Span
from mmulator.errors import InvalidInstructionError
from mmulator.isa.form import forms_of
from mmulator.isa.matrix import FAMILIES, MATRIX_ROWS, matrix_forms
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.isa.row import Requirement
from mmulator.isa.targets import PTX_VERSIONS, TARGETS, Target

FORMS = list(matrix_forms())
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"


def test_print_then_parse_gives_every_form_back() -> None:
    texts = [f.mnemonic for f in FORMS]
    assert len(set(texts)) == len(FORMS) > 2000
    assert [parse_mnemonic(t) for t in texts] == FORMS


def test_every_form_is_available_exactly_where_its_row_says() -> None:
    picked = [next(iter(forms_of(row))) for row in MATRIX_ROWS]
    versions = sorted(PTX_VERSIONS)
    cases = []
    for form in picked:
        first = versions.index(form.requires.ptx)
        edges = {versions[0], versions[max(first - 1, 0)], versions[first], versions[-1]}
        newest = [t for t in TARGETS if form.requires.admits(t)][-1]
        cases += [(form, t, ptx) for t, ptx in itertools.product(TARGETS, versions) if ptx in edges or t == newest]
    for form, target, ptx in cases:
        if form.family == "wmma" and ptx < (6, 3):
            continue
        ok = form.requires.admits(target) and ptx >= form.requires.ptx
        try:
            assert parse_mnemonic(form.mnemonic, target=target, ptx=ptx) == form
            assert ok, (form.mnemonic, target, ptx)
        except InvalidInstructionError:
            assert not ok, (form.mnemonic, target, ptx)


def test_qualifiers_of_different_categories_come_in_any_order() -> None:
    generator = random.Random(1)
    for form in generator.sample(FORMS, 300):
        opcode = form.family if form.op == form.family else f"{form.family}.{form.op}"
        words = form.mnemonic[len(opcode) + 1 :].split(".")
        free = {
            c
            for row in FAMILIES[form.family]
            for s in row.slots
            if s.category not in ("type", "layout", "bit_op", "format")
            for c in s.choices
        }
        moving = [w for w in words if w in free]
        generator.shuffle(moving)
        order = iter(moving)
        shuffled = ".".join(next(order) if w in free else w for w in words)
        assert parse_mnemonic(f"{opcode}.{shuffled}") == form, shuffled


def test_types_keep_their_order() -> None:
    with pytest.raises(InvalidInstructionError, match=r"\.f32` cannot be the"):
        parse_mnemonic("mma.sync.aligned.m16n8k16.row.col.f16.f32.f16.f32")


def test_wgmma_does_without_aligned_but_not_without_sync() -> None:
    assert parse_mnemonic(WGMMA.replace(".aligned", "")) == parse_mnemonic(WGMMA)
    with pytest.raises(InvalidInstructionError, match="sync"):
        parse_mnemonic(WGMMA.replace(".sync", ""))


def test_wmma_before_ptx_6_3_has_aligned_implied() -> None:
    text = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
    bare = text.replace(".aligned", "")
    assert parse_mnemonic(bare, ptx=(6, 0)) == parse_mnemonic(text, ptx=(6, 3))
    for wrong, ptx in ((text, (6, 2)), (bare, (6, 3))):
        with pytest.raises(InvalidInstructionError, match="aligned"):
            parse_mnemonic(wrong, ptx=ptx)


def test_default_scale_vec_is_that_of_the_kind() -> None:
    for kind, size in (("mxf8f6f4", 1), ("mxf4", 2)):
        k, t = (32, "e4m3.e4m3") if size == 1 else (64, "e2m1.e2m1")
        text = f"mma.sync.aligned.m16n8k{k}.row.col.kind::{kind}.block_scale.f32.{t}.f32.ue8m0"
        form = parse_mnemonic(text)
        assert form.scale_vec == size
        assert parse_mnemonic(text.replace(".block_scale", f".block_scale.scale_vec::{size}X")) == form


@pytest.mark.parametrize(
    ("text", "target", "ptx", "word", "says"),
    [
        (MMA.replace("k16", "k99"), None, None, "m16n8k99", "shape may be"),
        (MMA, "sm_80", (6, 5), MMA, "requires .version 7.0"),
        ("add.s32", None, None, "add", "known: mma"),
    ],
)
def test_errors_point_and_advise(text: str, target: str | None, ptx: tuple[int, int] | None, word: str, says: str) -> None:
    with pytest.raises(InvalidInstructionError) as caught:
        parse_mnemonic(text, target=Target.parse(target) if target else None, ptx=ptx)
    error = caught.value
    assert error.span is not None
    assert error.span.text == word
    assert says in (error.hint or "")
    assert error.rule or text.startswith("add")


def test_errors_point_into_the_source_they_come_from() -> None:
    line = "  mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 d, a, b, c;"
    source = Source("k.ptx", f".version 8.0\n{line}\n")
    start = source.text.index("mma")
    with pytest.raises(InvalidInstructionError) as caught:
        parse_mnemonic(line.split()[0], span=Span(source, start, start + len(line.split()[0])))
    assert str(caught.value.span) == f"k.ptx:2:{line.index('.row.f32') + 2}"
    assert "^^^" in str(caught.value)


def test_operand_lists_of_the_specification() -> None:
    def shown(text: str) -> list[list[str]]:
        return [[f"{o.name}:{o.count}" for o in s] for s in parse_mnemonic(text).signatures]

    assert shown(MMA) == [["d:4", "a:4", "b:2", "c:4"]]
    assert shown("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16") == [["d:8", "a:2", "b:2", "c:4"]]
    assert shown("mma.sp.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16") == [["d:2", "a:4", "b:4", "c:2", "e:1", "f:1"]]
    assert shown("wgmma.mma_async.sync.aligned.m64n24k16.f16.f16.f16") == [
        [
            "d:6",
            "a-desc:1",
            "b-desc:1",
            "scale-d:1",
            "imm-scale-a:1",
            "imm-scale-b:1",
            "imm-trans-a:1",
            "imm-trans-b:1",
        ],
        ["d:6", "a:4", "b-desc:1", "scale-d:1", "imm-scale-a:1", "imm-scale-b:1", "imm-trans-b:1"],
    ]
    assert shown("wgmma.wait_group.sync.aligned") == [["N:1"]]
    assert shown("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16") == [["r:8", "p:1"], ["r:8", "p:1", "stride:1"]]
    assert shown("ldmatrix.sync.aligned.m16n16.x2.trans.b8") == [["r:4", "p:1"]]
    scaled = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e2m1.e4m3.f32.ue8m0"
    (operands,) = parse_mnemonic(scaled).signatures
    assert [o.name for o in operands[4:]] == ["scale-a-data", "selector-a", "scale-b-data", "selector-b"]
    assert [p.key for p in operands[5].parts] == ["byte_id_a", "thread_id_a"]


def test_a_requirement_knows_families_and_suffixes() -> None:
    hopper = Requirement((8, 0), 90, "a", (90,))
    assert [str(t) for t in hopper.targets()] == ["sm_90a"]
    family = Requirement((8, 7), 120, "af", (120,))
    assert [str(t) for t in family.targets()] == ["sm_120a", "sm_120f", "sm_121a", "sm_121f"]
    assert family.first_ptx(Target(121, "f")) == (8, 8)
    assert Requirement((7, 0), 80).describe_targets() == "sm_80 or higher"


def test_opcodes_dispatch_by_first_word() -> None:
    assert {f.mnemonic.split(".")[0] for f in FORMS} == {*FAMILIES}
