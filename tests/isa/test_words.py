"""Words are taken wherever an instruction is: the form that `inspect` would show, or an error that lists what is open."""

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import InvalidInstructionError
from mmulator.inspect import find_forms, layout

WORDS = {
    "mma m16n8k16 f16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "m16n8k16, bf16;": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma m16n8k16 f16 f16 f16 f16": "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    "mma m16n8k32 s8": "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    "mma m16n8k32 e4m3 f16": "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16",
    "mma.sp m16n8k32 f16": "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "wgmma m64n128 bf16": "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16",
    "wmma m16n16k16 f16": "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
    "wmma load a m16n16k16 f16": "wmma.load.a.sync.aligned.row.m16n16k16.f16",
    "ldmatrix x4 trans": "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
    "stmatrix x2": "stmatrix.sync.aligned.m8n8.x2.shared.b16",
    "ldmatrix x4": "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
    "SM80_16x8x16_F32F16F16F32_TN": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "hopper wgmma m64n128 bf16": "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16",
    "commit wgmma": "wgmma.commit_group.sync.aligned",
    "mma nvfp4": "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
}


@pytest.mark.parametrize("words", WORDS)
def test_words_name_the_form_that_a_search_puts_first(words: str) -> None:
    assert str(mm.Instruction.parse(words)) == WORDS[words] == find_forms(words)[0].mnemonic
    assert repr(mm.Instruction.parse(words)) == f"Instruction({WORDS[words]!r})"


OPEN = {
    "mma f16": ["m16n8k16.row.col.f32.f16", "m16n8k8.row.col.f32.f16", "m8n8k4"],
    "mma m16n8k32 fp8": ["e4m3.e4m3", "e5m2.e5m2"],
    "mma m16n8k32 f16": ["mma.sp::ordered_metadata", "e4m3.e4m3"],  # f16 is the accumulator of the dense ones alone
    "wgmma bf16": ["m64n128k16", "and 26 more"],
    "mma": ["m16n8k16.row.col.f32.bf16"],
    "ldmatrix": ["x4", "x2", "x1"],
}


@pytest.mark.parametrize("words", OPEN)
def test_what_words_leave_open_is_listed_by_names_that_work(words: str) -> None:
    with pytest.raises(InvalidInstructionError, match="leaves open") as caught:
        mm.Instruction.parse(words)
    hint = caught.value.hint or ""
    assert all(part in hint for part in OPEN[words])
    for name in hint.removeprefix("one of ").split(", and ")[0].split(", "):
        assert str(mm.Instruction.parse(name)) == name


def test_targets_narrow_what_words_mean() -> None:
    assert str(mm.Instruction.parse("mma m16n8k16 f16", target="sm_80")) == WORDS["mma m16n8k16 f16"]
    with pytest.raises(InvalidInstructionError, match="sm_90"):
        mm.Instruction.parse("mma m16n8k64 e2m1", target="sm_90")
    with pytest.raises(InvalidInstructionError, match="`f99` is no part"):
        mm.Instruction.parse("mma m16n8k16 f99")
    with pytest.raises(InvalidInstructionError, match="no qualifier"):  # a name with its operands is no list of words
        mm.Instruction.parse(WORDS["mma m16n8k16 f16"] + " {%f0}, {%r0}, {%r1}, {%f0};")


def test_words_in_matmul_sparse_and_inspect() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((16, 32), (32, 8)))
    for words in ("mma m16n8k16 f16", "wgmma m64n128 f16"):
        name = mm.Instruction.parse(words)
        assert (mm.matmul(a, b, instruction=words) == mm.matmul(a, b, instruction=name)).all()
    sp = "mma.sp m16n8k32 f16"
    pruned = mm.sparse.prune(a, sp)
    kept = mm.sparse.compress(pruned, sp)
    assert (mm.sparse.expand(kept) == pruned).all() and not mm.sparse.too_dense(pruned, sp).any()
    whole = kept.padded(32, 64)
    assert (mm.sparse.from_torch(*mm.sparse.to_torch(whole), instruction=sp).metadata == whole.metadata).all()
    assert layout("mma m16n8k16 f16", "a").instruction == WORDS["mma m16n8k16 f16"]
    with pytest.raises(mm.errors.OperandError, match="no sparse operand"):
        mm.sparse.prune(a, "mma m16n8k16 f16")
