"""tcgen05.mma from its name, shape and types: products of matrices, and what must hold between instructions."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import InvalidInstructionError, MmulatorError, OperandError, UnsupportedError
from mmulator.matrix.layouts import sparse
from mmulator.matrix.numerics.formats import from_raw, numpy_dtype, to_raw
from mmulator.matrix.numerics.profiles import dot_key
from tests.support.matrix_model import model_matmul
from tests.support.numerics_cases import elements

F16 = "tcgen05.mma.cta_group::1.kind::f16"
# Every kind and what decides its sum, from words.
WORDS = [
    "f16", "bf16", "f16 f16 f16", "tf32", "e4m3 e5m2", "f16 e2m1 e3m2", "u8 s8", "s8 satfinite", "mxf8f6f4 e2m3 e4m3", "mxf4",
    "mxf4nvf4 2x", "mxf4nvf4 4x ue8m0", "nvfp4",
]  # fmt: skip


def drawn(i: mm.Instruction, seed: int, k: int = 0, distribution: str = "wide") -> dict[str, Any]:
    """Operands of an instruction: values, of any bits but those of NaN."""
    rng, f = np.random.default_rng(seed), i.form
    k, blocks = k or f.k, dot_key(f).scale_blocks

    def matrix(t: Any, *shape: int, how: str = distribution) -> Any:
        return from_raw(t, elements(str(t), how, shape, rng))

    found = {"A": matrix(f.atype, f.m, k), "B": matrix(f.btype, k, f.n), "C": matrix(f.dtype, f.m, f.n)}
    if f.sparse:
        found["A"] = sparse.prune(found["A"], i)
    if blocks:
        s = k // f.k * blocks
        found |= {"scale_a": matrix(f.stype, f.m, s, how="normal"), "scale_b": matrix(f.stype, s, f.n, how="normal")}
    return found


def bits(array: Any) -> Any:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("sp", ["", " sp"])
def test_every_kind_is_the_model(words: str, sp: str) -> None:
    i = mm.Instruction.parse(f"tcgen05 m128n32 {words}{sp}", target="sm_100a")
    assert mm.Instruction.parse(str(i)).form == i.form
    given = drawn(i, 3)
    d = i.compute(**given)
    f, key, options = i.form, dot_key(i.form), {}
    a = to_raw(f.atype, given["A"])
    if sp:
        kept = sparse.compress(given["A"], i)
        a, options["indices"] = to_raw(f.atype, kept.values), sparse.indices(kept.metadata, f)
        assert (bits(i.compute(**given | {"A": kept})) == bits(d)).all()
        assert (bits(i.compute(**given | {"A": kept.values}, metadata=kept.metadata)) == bits(d)).all()
    options |= {name: to_raw(f.stype, given[name]) for name in ("scale_a", "scale_b") if name in given}
    model = model_matmul(key, "sm_100", a, to_raw(f.btype, given["B"]), bits(given["C"]), **options)
    assert d.dtype == numpy_dtype(f.dtype) and (bits(d) == model).all()


@pytest.mark.parametrize("words", [*WORDS, "f16 sp", "nvfp4 sp"])
def test_matmul_chains_instructions(words: str) -> None:
    i = mm.Instruction.parse(f"tcgen05 m128n32 {words}")
    given = drawn(i, 5, 3 * i.form.k, "normal")
    d = given["C"]
    s = dot_key(i.form).scale_blocks
    for step in range(3):
        along = slice(step * i.form.k, (step + 1) * i.form.k)
        factors = slice(step * s, (step + 1) * s)
        part = {"scale_a": given["scale_a"][:, factors], "scale_b": given["scale_b"][factors]} if s else {}
        d = i.compute(given["A"][:, along], given["B"][along], d, **part)
    whole = mm.matmul(**given, instruction=i)
    assert (bits(whole) == bits(d)).all()
    assert (bits(mm.matmul(**given, instruction=f"tcgen05 {words}")) == bits(d)).all()


def test_the_name_shape_and_types_of_an_instruction() -> None:
    i = mm.Instruction.parse(F16, m=128, n=64, dtype="f32", atype="f16", btype="f16", target="sm_100a")
    assert (i.form.m, i.form.n, i.form.k) == (128, 64, 16) and str(i) == f"{F16} m128n64k16 f32.f16.f16"
    assert mm.Instruction.parse("tcgen05 m128n64 f16").form == i.form
    assert mm.Instruction.parse(f"{F16} bf16", n=8).form.btype.name == "bf16"
    assert mm.Instruction.parse("tcgen05 m256n128 bf16").form["cta_group"] == "cta_group::2"
    assert mm.Instruction.parse("tcgen05.mma.ws m32n64 e5m2").form.op == "mma.ws"
    scaled = mm.Instruction.parse("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16", stype="ue4m3", n=8)
    assert str(scaled).endswith("m128n8k64 f32.e2m1.e2m1.ue4m3") and dot_key(scaled.form).scale_blocks == 4
    longer = mm.Instruction.parse("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 k96", target="sm_103a")
    assert dot_key(longer.form).scale_blocks == 3
    assert longer.compute(**drawn(longer, 1)).shape == (128, 64)
    assert mm.Instruction.parse("tcgen05 s8", saturate=True).form.satfinite
    far = mm.Instruction.parse("tcgen05 u8", target="sm_110a")
    assert far.compute(**drawn(far, 1)).dtype == np.int32
    assert i.operands == () and "128 x 64 x 16" in i._repr_html_()


REFUSED: list[tuple[str, dict[str, Any], type[MmulatorError], str]] = [
    (F16, {}, OperandError, "leaves open the type of A"),
    (F16, {"atype": "f16", "m": 96}, OperandError, r"m is 96 .*takes 64, 128"),
    (F16, {"atype": "e4m3"}, OperandError, r"atype is 'e4m3'.*takes f16, bf16"),
    (f"{F16} sp", {"atype": "f16"}, InvalidInstructionError, "`sp` stands behind a name"),
    ("tcgen05 m128n64", {}, InvalidInstructionError, "words must give the type of A"),
    ("tcgen05 e2m1 ue8m0", {}, InvalidInstructionError, "or .kind"),
    ("tcgen05 f16 f16 f16 f16", {}, InvalidInstructionError, "types of D, A and B"),
    ("tcgen05 fp8", {}, InvalidInstructionError, "`fp8` says nothing about tcgen05.mma"),
    ("tcgen05 mxf4 ue4m3", {}, OperandError, "stype is 'ue4m3'"),
    ("tcgen05 s8", {"target": "sm_103a"}, InvalidInstructionError, "not available for .target sm_103a"),
    ("tcgen05.ld.sync.aligned.32x32b.x8.b32 m128", {}, OperandError, "multiplies no matrices"),
    ("wgmma m64n64 f16", {"m": 64}, OperandError, "has m in its name"),
]


@pytest.mark.parametrize(("text", "given", "error", "says"), REFUSED)
def test_parse_refuses(text: str, given: dict[str, Any], error: type[MmulatorError], says: str) -> None:
    with pytest.raises(error, match=says):
        mm.Instruction.parse(text, **given)


def test_what_an_instruction_in_tensor_memory_cannot_do() -> None:
    i, s = mm.Instruction.parse("tcgen05 f16"), mm.Instruction.parse("tcgen05 sp f16")
    kept = sparse.compress(drawn(s, 1)["A"], s)
    with pytest.raises(UnsupportedError, match="operands in tensor memory"):
        i.execute(device="sm_100", a=0)
    with pytest.raises(UnsupportedError, match="sm_90 has no"):
        i.compute(**drawn(i, 1), device="sm_90")
    with pytest.raises(OperandError, match="takes no metadata"):
        i.compute(**drawn(i, 1), metadata=kept.metadata)
    with pytest.raises(OperandError, match="its own metadata"):
        s.compute(**drawn(s, 1) | {"A": kept}, metadata=kept.metadata)
    with pytest.raises(OperandError, match="metadata in tensor memory"):
        kept.registers()
    for nibble, ok in ((0b0110, True), (0b0001, False), (0b0101, False)):  # 6 names its two elements in the other order
        assert sparse.undefined(np.array([nibble]), s.form)[0] != ok
    with pytest.raises(OperandError, match="no register fragment"):
        i.layout("d")


@pytest.mark.parametrize("text", ["mma.sp m16n8k32 f16", "wgmma.sp m64n8 bf16", "mma.sp m16n8k16 tf32"])
def test_metadata_beside_values_for_other_families(text: str) -> None:
    i = mm.Instruction.parse(text)
    given = drawn(i, 2)
    kept = sparse.compress(given["A"], i)
    d = i.compute(**given)
    assert (bits(i.compute(**given | {"A": kept.values}, metadata=kept.metadata)) == bits(d)).all()
    assert (bits(mm.matmul(kept.values, given["B"], given["C"], instruction=i, metadata=kept.metadata)) == bits(d)).all()


@pytest.mark.full
def test_chunks_of_dask() -> None:
    da = pytest.importorskip("dask.array")
    i = mm.Instruction.parse("tcgen05 m128n32 mxf8f6f4 e4m3 e2m1")
    given = drawn(i, 4, 64, "normal")
    lazy = {name: da.from_array(x, chunks=(x.shape[0] // 2, -1)) if name == "A" else x for name, x in given.items()}
    d = mm.matmul(**lazy, instruction=i)
    assert (bits(d.compute(scheduler="sync")) == bits(mm.matmul(**given, instruction=i))).all()


# Laws ----------------------------------------------------------------------------------------------------------------
SAME = [
    ("tcgen05 f16", "mma m16n8k16 f16", "sm_100"),
    ("tcgen05 f16 f16 f16", "mma m16n8k16 f16 f16 f16 f16", "sm_100"),
    ("tcgen05 bf16", "mma m16n8k16 bf16", "sm_100"),
    ("tcgen05 f16", "wgmma m64n64 f16", "sm_90"),
    ("tcgen05 bf16", "wgmma m64n64 bf16", "sm_90"),
    ("tcgen05 tf32", "mma m16n8k8 tf32", "sm_100"),
    ("tcgen05 tf32", "wgmma m64n64 tf32", "sm_90"),
    ("tcgen05 e4m3 e5m2", "mma m16n8k32 f8f6f4 e4m3 e5m2", "sm_120"),
    ("tcgen05 mxf8f6f4 e4m3 e5m2", "mma m16n8k32 mxf8f6f4 e4m3 e5m2", "sm_120"),
    ("tcgen05 mxf4", "mma m16n8k64 mxf4", "sm_120"),
    ("tcgen05 nvfp4", "mma m16n8k64 nvfp4", "sm_120"),
    ("tcgen05 s8 satfinite", "mma m16n8k32 s8 satfinite", "sm_90"),
]


@pytest.mark.parametrize(("one", "other", "device"), SAME)
@pytest.mark.parametrize("distribution", ["normal", "wide", "special", "tiny"])
def test_chunks_of_one_size_give_equal_sums(one: str, other: str, device: str, distribution: str) -> None:
    """The same products, as many in a sum, as many bits below the largest: whatever the family, the bits are equal."""
    i = mm.Instruction.parse(one)
    given = drawn(i, 7, 4 * i.form.k, distribution)
    expected = mm.matmul(**given, instruction=other, device=device)
    assert (bits(mm.matmul(**given, instruction=i)) == bits(expected)).all()


@pytest.mark.parametrize("words", WORDS)
def test_shape_and_cta_group_change_no_bit(words: str) -> None:
    i = mm.Instruction.parse(f"tcgen05 m128n64 {words}")
    given = drawn(i, 8, 2 * i.form.k)
    d = bits(mm.matmul(**given, instruction=i))
    scaled = "scale_a" in given
    names = ["m256n64", *(() if scaled else ("m64n16", "ws m32n64", "ws m64n128"))]
    for name in names:
        assert (bits(mm.matmul(**given, instruction=f"tcgen05 {name} {words}")) == d).all()


@pytest.mark.parametrize("words", WORDS)
def test_order_within_an_instruction_and_sides_change_no_bit(words: str) -> None:
    """Products of one sum have no order; groups of 16, whose sums are exact, go together."""
    i = mm.Instruction.parse(f"tcgen05 m128n128 {words}")
    given, rng = drawn(i, 9), np.random.default_rng(9)
    d = bits(i.compute(**given))
    order = rng.permutation(i.form.k)
    if i.form.kind in ("mxf4", "mxf4nvf4"):
        order = np.concatenate([16 * g + rng.permutation(16) for g in range(4)])
    turned = given | {"A": given["A"][:, order], "B": given["B"][order]}
    assert (bits(i.compute(**turned)) == d).all()
    if i.form.atype is i.form.btype:
        swapped = {"A": given["B"].T, "B": given["A"].T, "C": given["C"].T}
        if "scale_a" in given:
            swapped |= {"scale_a": given["scale_b"].T, "scale_b": given["scale_a"].T}
        assert (d == bits(i.compute(**swapped)).T).all()


@pytest.mark.parametrize("words", ["f16", "bf16", "tf32", "e5m2", "f16 e3m2 e4m3", "u8 s8", "mxf8f6f4 e2m1 e5m2"])
def test_a_sparse_product_is_the_dense_one_of_what_is_kept(words: str) -> None:
    """Each row of A is kept from columns of its own; B elsewhere is NaN if its type has one."""
    i, s = (mm.Instruction.parse(f"tcgen05 m128n32 {sp} {words}") for sp in ("", "sp"))
    given = drawn(s, 10)
    kept = sparse.compress(given["A"], s)
    at = sparse.indices(kept.metadata, s.form)
    d = bits(s.compute(**given))
    for row in (0, 5, 77):
        dense = given | {"A": np.repeat(kept.values[row : row + 1], 128, axis=0), "B": given["B"][at[row]]}
        assert (bits(i.compute(**dense))[row] == d[row]).all()
        if given["B"].dtype.kind != "i" and not words.endswith(("e4m3", "s8")):
            nan = given["B"].copy()
            nan[np.setdiff1d(np.arange(s.form.k), at[row])] = np.nan
            assert (bits(s.compute(**given | {"B": nan}))[row] == d[row]).all()


def test_factors_of_a_power_of_two_are_shifts() -> None:
    plain, scaled = mm.Instruction.parse("tcgen05 e4m3 e5m2"), mm.Instruction.parse("tcgen05 mxf8f6f4 e4m3 e5m2")
    given = drawn(plain, 11, distribution="normal")
    one = {"scale_a": np.full((128, 1), 127, np.uint8), "scale_b": np.full((1, 64), 127, np.uint8)}
    assert (bits(scaled.compute(**given, **one)) == bits(plain.compute(**given))).all()
    three = one | {"scale_a": np.full((128, 1), 130, np.uint8)}
    times = given | {"C": given["C"] * np.float32(8)}
    assert (scaled.compute(**times, **three) == 8 * plain.compute(**given)).all()
    # two factors that are equal are one of twice the size, and ue4m3's powers of two are ue8m0's
    mxf4, wide, small = (mm.Instruction.parse(f"tcgen05 {w}") for w in ("mxf4", "mxf4nvf4 4x ue8m0", "nvfp4"))
    given = drawn(mxf4, 12, distribution="bits")
    given |= {name: np.clip(bits(given[name]), 122, 132) for name in ("scale_a", "scale_b")}
    twice = given | {"scale_a": given["scale_a"].repeat(2, 1), "scale_b": given["scale_b"].repeat(2, 0)}
    d = bits(mxf4.compute(**given))
    assert (bits(wide.compute(**twice)) == d).all()
    ue4m3 = {n: np.exp2(twice[n].astype(np.float32) - 127).astype(ml_dtypes.float8_e4m3fn) for n in ("scale_a", "scale_b")}
    assert (bits(small.compute(**twice | ue4m3)) == d).all()


@pytest.mark.parametrize("words", ["f16", "f16 f16 f16", "tf32", "f16 e2m1 e3m2", "mxf8f6f4 e5m2", "mxf4", "nvfp4"])
def test_a_sign_belongs_to_either_side(words: str) -> None:
    """The bits that negate A and B in an instruction descriptor."""
    i = mm.Instruction.parse(f"tcgen05 {words}")
    given = drawn(i, 13)
    less = bits(i.compute(**given, imm_scale_a=-1))
    assert (bits(i.compute(**given | {"A": -given["A"]})) == less).all()
    assert (bits(i.compute(**given, imm_scale_b=-1)) == less).all()
    assert (bits(i.compute(**given, imm_scale_a=-1, imm_scale_b=-1)) == bits(i.compute(**given))).all()
