"""The exact model: what the hardware is known to do, case by case, and the array form against the single element."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mmulator.errors import OperandError, UnsupportedError
from mmulator.isa.targets import DEVICES
from mmulator.isa.types import TYPES
from mmulator.matrix.numerics import DotKey, profile_for
from mmulator.matrix.numerics.dot import Rounding, dot
from mmulator.matrix.numerics.formats import container, element_type
from mmulator.matrix.numerics.profiles import ROWS
from mmulator.matrix.twin.matrices import twin_matmul
from tests.support.matrix_model import model_matmul
from tests.support.numerics_cases import DISTRIBUTIONS, operands

NAN32, NAN16, INF32 = 0x7FFFFFFF, 0x7FFF, 0x7F800000


def key_of(family: str, t: str, d: str = "f32", k: int = 0, c: str | None = None, **options: Any) -> DotKey:
    k = k or {"tf32": 8, "f16": 16, "bf16": 16, "e2m1": 64, "f64": 4}.get(t, 32)
    return DotKey(family, t, t, c or d, d, k, **options)


def bits(kind: str, *values: float) -> list[int]:
    t = TYPES[kind]
    dtype: Any = np.dtype(t.numpy) if t.numpy.startswith("float") and t.bits > 8 else None
    if dtype is None:
        import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, t.numpy))
    return [int(x) for x in np.array(values).astype(dtype).view(container(t))]


def run(key: DotKey, device: str, a: list[float], b: list[float], c: float) -> float:
    """One element from numbers; operands are padded with zeros; f32 or f16 result as a number."""
    n = key.products
    (C,) = bits(key.ctype, c)
    D = dot(key, device, bits(key.atype, *a, *[0.0] * (n - len(a))), bits(key.btype, *b, *[0.0] * (n - len(b))), C)
    return float(np.array(D, container(TYPES[key.dtype])).view(np.float16 if key.dtype == "f16" else np.float32))


# Published probe (arXiv 2511.10909): 2**23 - 2**23 - 0.5 - 0.25 - 0.125 shows how many bits survive alignment.
PROBE = [2.0**12, -(2.0**12), -0.5, -0.25, -0.125]
FACTORS = [2.0**11, 2.0**11, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("device", "family", "expected"),
    [("sm_75", "mma", -0.5), ("sm_80", "mma", -0.5), ("sm_90", "mma", -0.75), ("sm_90", "wgmma", -0.75)],
)
def test_bits_that_survive_alignment(device: str, family: str, expected: float) -> None:
    assert run(key_of(family, "f16"), device, PROBE, FACTORS, 0.0) == expected


def test_volta_fuses_four_products_and_keeps_23_bits() -> None:
    key = key_of("mma", "f16", k=4)
    assert run(key, "sm_70", PROBE[:4], FACTORS[:4], 0.0) == 0.0


def test_fp8_wgmma_keeps_13_bits() -> None:
    key = key_of("wgmma", "e5m2")
    a, b = [2.0**6, -(2.0**6), 2.0**-2], [2.0**6, 2.0**6, 1.0]
    assert run(key, "sm_90", a, b, 0.0) == 0.0
    assert run(key, "sm_90", [*a[:2], 0.5], b, 0.0) == 0.5
    assert run(key, "sm_90", [1.0], [1.0], 2.0**-13) == 1 + 2.0**-13
    assert run(key, "sm_90", [1.0], [1.0], 2.0**-14) == 1.0  # and the result has 13 fraction bits as well
    assert run(key, "sm_90", [1.0, 1.0, 1.0], [1.0, 1.0, 1.0], 2.0**-13) == 3.0


@pytest.mark.parametrize("family", ["mma", "wgmma"])
def test_floor_of_the_exponent_shows_in_f16_results(family: str) -> None:
    key = key_of(family, "f16", "f16")
    assert run(key, "sm_90", [2.0**-12, 2.0**-23], [2.0**-13, 2.0**-24], 0.0) == 0.0
    assert run(key, "sm_90", [2.0**-12, 2.0**-22], [2.0**-13, 2.0**-24], 0.0) == 2.0**-24


def test_results_of_zero_are_positive() -> None:
    for d in ("f32", "f16"):
        key = key_of("mma", "f16", d)
        (zero,) = bits(d, -0.0)
        n = key.products
        assert dot(key, "sm_90", bits("f16", *[-0.0] * n), bits("f16", *[1.0] * n), zero) == 0
        assert dot(key, "sm_90", bits("f16", *[0.0] * n), bits("f16", *[0.0] * n), zero) == 0
    tiny = run(key_of("mma", "f16", "f16"), "sm_90", [-(2.0**-24)], [2.0**-24], 0.0)
    assert tiny == 0.0 and not np.signbit(tiny)


def test_truncation_rounding_and_overflow() -> None:
    key = key_of("mma", "f16")
    assert run(key, "sm_90", [1.0], [1.0], -(2.0**-25)) == 1 - 2.0**-24
    assert run(key, "sm_90", [1.0], [2.0**-20], 1.0) == 1 + 2.0**-20
    assert run(key, "sm_90", [1.0, 2.0**-12, 2.0**-12], [1.0, 2.0**-12, 2.0**-12], 0.0) == 1 + 2.0**-23
    # f32 results toward zero, infinite from 2**128 on
    big = key_of("mma", "bf16")
    assert run(big, "sm_90", [2.0**64], [2.0**64], 0.0) == np.inf
    assert run(big, "sm_90", [2.0**64, 2.0**60], [2.0**63, 2.0**67 * (1 - 2.0**-8)], 0.0) < np.inf
    # f16 results to nearest even
    half = key_of("mma", "f16", "f16")
    assert run(half, "sm_90", [1.0], [2.0**-11], 1.0) == 1.0
    assert run(half, "sm_90", [1.0], [3 * 2.0**-11], 1.0) == 1 + 2.0**-9
    assert run(half, "sm_90", [1.0], [16.0], 65504.0) == np.inf


def test_products_have_no_exponent_range() -> None:
    key = key_of("wgmma", "bf16")
    assert run(key, "sm_90", [2.0**100, -(2.0**100)], [2.0**100, 2.0**100], 3.0) == 0.0
    assert run(key, "sm_90", [2.0**-100], [2.0**-100], 2.0**-149) == 2.0**-149


def test_special_values() -> None:
    key = key_of("mma", "f16")
    n = key.products
    one, inf, nan, zero = (bits("f16", x)[0] for x in (1.0, np.inf, np.nan, 0.0))
    ones = [one] * n
    assert dot(key, "sm_90", [inf, *ones[1:]], [zero, *ones[1:]], 0) == NAN32
    assert dot(key, "sm_90", [nan, *ones[1:]], ones, 0) == NAN32
    assert dot(key, "sm_90", [inf, *ones[1:]], ones, 0xFF800000) == NAN32
    assert dot(key, "sm_90", [inf | 0x8000, *ones[1:]], ones, 0) == INF32 | 1 << 31
    assert dot(key, "sm_90", ones, ones, INF32 | 1) == NAN32
    assert dot(key_of("mma", "f16", "f16"), "sm_90", [nan, *ones[1:]], ones, 0) == NAN16


def test_wmma_tf32_runs_as_two_chunks() -> None:
    a, b = [1.0, 2.0**-12, 0, 0, -1.0], [1.0, 2.0**-13, 0, 0, 1.0]
    assert run(key_of("mma", "tf32"), "sm_90", a, b, 0.0) == 2.0**-25
    assert run(key_of("wmma", "tf32"), "sm_90", a, b, 0.0) == 0.0


def test_fp8_mma_on_sm_90_is_two_f16_instructions_and_an_addition() -> None:
    key = key_of("mma", "e4m3")
    # C joins last, by an ordinary addition: in one fused sum its small part would survive
    assert run(key, "sm_90", [256.0, 0.0, -256.0], [256.0, 0.0, 256.0], 2.0**-30) == 2.0**-30
    # k mod 4 in {0, 1} first, rounded to f32; then {2, 3}
    first = run(key, "sm_90", [256.0, 2.0**-9, -256.0], [256.0, 2.0**-9, 256.0], 0.0)
    assert first == 0.0


def hardware(key: DotKey, a: str, b: str, c: int) -> int:
    return dot(key, "sm_90", [int(x, 16) for x in a.split()], [int(x, 16) for x in b.split()], c)


def test_fp8_operands_become_f16_numbers_first() -> None:
    """Subnormals of e4m3 are normal f16 numbers, with exponents of their own (vectors of an NVIDIA H200)."""
    key = DotKey("mma", "e5m2", "e4m3", "f32", "f32", 16)
    a, b = "97 78 9d 85 50 89 ad 94 72 a7 0f e5 c0 9d 12 90", "6d 81 2f c6 0a 16 97 9b 84 0b c3 89 a6 b4 a3 be"
    assert hardware(key, a, b, 0) == 0xC3089C27
    a, b = "cd 96 a7 cc e2 85 af d8 60 fb 95 88 c2 39 ae 94", "94 4b 2f 8b 11 c5 a1 4b 29 02 04 1b 15 34 e9 63"
    assert hardware(key, a, b, 0xA2C21F37) == 0xC448ACD5


def test_m8n8k4_is_f32_arithmetic_where_it_is_not_native() -> None:
    """Vectors of an NVIDIA H200."""
    key = DotKey("mma", "f16", "f16", "f32", "f32", 4)
    assert hardware(key, "2c36 bf8b bc39 38c3", "bccb b583 3f80 bea4", 0x3FAAAC16) == 0xBF881CC2
    assert hardware(key, "5bfb 152f c8c6 1822", "bbcb 54fd 3365 d4c4", 0x06F0D734) == 0xC37B066F
    half = DotKey("mma", "f16", "f16", "f16", "f16", 4)
    assert hardware(half, "b85a ba5a 3cde 3e56", "b813 3cab 3415 b913", 0x573D) == 0x5728
    assert hardware(half, "08c7 0640 0e60 8521", "0558 87c6 85e8 8dac", 0) == 0x8000
    mixed = DotKey("mma", "f16", "f16", "f16", "f32", 4)
    assert hardware(mixed, "b349 2e46 be33 a4e7", "ba3b bd79 b622 366d", 0xB9E8) == 0xBDDEB188


@pytest.mark.parametrize("place", range(3))
def test_f64_nan_is_the_first_of_b_c_a_made_quiet(place: int) -> None:
    one, nans = 0x3FF0000000000000, [0xFFF0000000000001, 0x7FF0000000000002, 0x7FF8000000000003]
    key = DotKey("mma", "f64", "f64", "f64", "f64", 4)
    operands = [nans[i] if i >= place else one for i in range(3)]  # b, c, a
    b, c, a = operands
    assert dot(key, "sm_90", [a, 0, 0, 0], [b, 0, 0, 0], c) == nans[place] | 1 << 51
    inf = 0x7FF0000000000000
    assert dot(key, "sm_90", [inf, 0, 0, 0], [0, 0, 0, 0], 0) == 0xFFF8000000000000


def test_wmma_f16_result_from_f32_accumulator_rounds_twice() -> None:
    key = DotKey("wmma", "f16", "f16", "f32", "f16", 16)
    got = dot(key, "sm_90", [0] * 16, [0] * 16, bits("f32", -(2.0**-40))[0])
    assert got == 0x8000  # an ordinary conversion at the end keeps the sign


def test_sparse_does_not_read_what_is_not_selected() -> None:
    key = DotKey("mma", "f16", "f16", "f32", "f32", 32, sparse=True)
    A = np.full((16, 16), bits("f16", 1.0)[0], np.uint16)
    B = np.full((32, 8), bits("f16", np.nan)[0], np.uint16)
    B[::2] = bits("f16", 2.0)[0]
    index = np.tile(np.arange(16) * 2, (16, 1))
    D = model_matmul(key, "sm_90", A, B, np.zeros((16, 8), np.uint32), indices=index)
    assert (D.view(np.float32) == 32.0).all()


def test_integer_sums_wrap_or_clamp_once_an_instruction() -> None:
    full = np.full((1, 32), 0x7F, np.uint8)
    C = np.array([[0x7FFFFFFF]], np.uint32)
    wrap = model_matmul(DotKey("mma", "s8", "s8", "s32", "s32", 32), "sm_90", full, full.T, C)
    clamp = model_matmul(DotKey("mma", "s8", "s8", "s32", "s32", 32, satfinite=True), "sm_90", full, full.T, C)
    assert wrap[0, 0] == 0x7FFFFFFF + 32 * 127 * 127 and clamp[0, 0] == 0x7FFFFFFF
    # two instructions: the clamped sum is the next one's C
    both = np.concatenate([full, np.full_like(full, 0x81)], axis=1)
    chained = model_matmul(
        DotKey("mma", "s8", "s8", "s32", "s32", 32, satfinite=True), "sm_90", both, np.full((64, 1), 0x7F, np.uint8), C
    )
    assert chained[0, 0] == 0x7FFFFFFF - 32 * 127 * 127


@pytest.mark.parametrize(("mode", "expected"), [("rn", 1.0), ("rz", 1.0), ("rm", 1.0), ("rp", 1.0 + 2.0**-52)])
def test_f64_is_a_chain_in_the_rounding_mode(mode: str, expected: float) -> None:
    key = DotKey("mma", "f64", "f64", "f64", "f64", 4, rounding=mode)
    a, b = (np.array([[x, 0, 0, 0]]).view(np.uint64) for x in (2.0**-30, 2.0**-30))
    D = model_matmul(key, "sm_90", a, b.T.copy(), np.array([[1.0]]).view(np.uint64))
    assert D.view(np.float64)[0, 0] == expected


def test_scale_d_zero_and_negation() -> None:
    key = key_of("wgmma", "f16")
    A = np.full((1, 16), bits("f16", 1.5)[0], np.uint16)
    C = np.full((1, 1), NAN32, np.uint32)
    assert model_matmul(key, "sm_90", A, A.T, None).view(np.float32)[0, 0] == 36.0
    assert model_matmul(key, "sm_90", A, A.T, None, imm_scale_a=-1).view(np.float32)[0, 0] == -36.0
    assert model_matmul(key, "sm_90", A, A.T, None, imm_scale_a=-1, imm_scale_b=-1).view(np.float32)[0, 0] == 36.0
    assert model_matmul(key, "sm_90", A, A.T, C, imm_scale_a=-1)[0, 0] == NAN32


def test_groups_of_mxf4_are_aligned_on_scale_exponents() -> None:
    key = DotKey("mma", "e2m1", "e2m1", "f32", "f32", 64, kind="mxf4nvf4", scale_vec="4X", stype="ue4m3")
    one, six = 0x2, 0x7
    scales = [0x38] * 4  # 1.0
    assert dot(key, "sm_120", [six] * 64, [one] * 64, 0, scale_a=scales, scale_b=scales) == bits("f32", 384.0)[0]
    nan = [0x7F, *scales[1:]]
    assert dot(key, "sm_120", [six] * 64, [one] * 64, 0, scale_a=nan, scale_b=scales) == NAN32
    signed = [0x38 | 0x80, *scales[1:]]  # the sign bit of ue4m3 is ignored
    assert dot(key, "sm_120", [six] * 64, [one] * 64, 0, scale_a=signed, scale_b=scales) == bits("f32", 384.0)[0]


def test_mxf8f6f4_scales_shift_the_exponents() -> None:
    key = DotKey("mma", "e4m3", "e4m3", "f32", "f32", 32, kind="mxf8f6f4", scale_vec="1X", stype="ue8m0")
    one = [0x38] * 32
    assert dot(key, "sm_120", one, one, 0, scale_a=[130], scale_b=[126]) == bits("f32", 128.0)[0]
    assert dot(key, "sm_120", one, one, 0, scale_a=[255], scale_b=[127]) == NAN32
    assert dot(key, "sm_120", one, one, 0, scale_a=[254], scale_b=[254]) == INF32


# The array form against single elements ---------------------------------------------------------------------------
def sampled_keys() -> Iterator[tuple[DotKey, str]]:
    for row in ROWS:
        for device in row.devices[:1]:
            for d in ("f32", "f16") if row.floor_f16 is not None else ("f32",):
                for t, u in dict.fromkeys(((row.types[0], row.types[-1]), (row.types[-1], row.types[0]))):
                    kind = row.kinds[-1]
                    k = {4: 4, 8: 8, 16: 16}.get(row.chunk, 32) * (2 if row.method == "halves" else 1)
                    options: dict[str, Any] = {"kind": kind}
                    if kind == "mxf8f6f4":
                        options.update(scale_vec="1X", stype="ue8m0")
                    elif kind in ("mxf4", "mxf4nvf4"):
                        k, options = row.chunk, {"kind": kind, "scale_vec": "4X", "stype": "ue4m3"}
                    yield DotKey(row.families[-1], t, u, d, d, k, **options), device
                    if row.families[-1] in ("mma", "wgmma", "tcgen05") and k >= 8:
                        yield DotKey(row.families[-1], t, u, d, d, 2 * k, sparse=True, **options), device
    yield DotKey("wmma", "f16", "f16", "f16", "f32", 16), "sm_90"
    yield DotKey("wmma", "f16", "f16", "f32", "f16", 16), "sm_90"
    for t in ("s8", "u8", "s4", "u4"):
        yield DotKey("mma", t, t, "s32", "s32", 32, satfinite=t[0] == "s"), "sm_90"
    yield DotKey("tcgen05", "u8", "s8", "s32", "s32", 64, satfinite=True, sparse=True), "sm_100"
    yield DotKey("mma", "b1", "b1", "s32", "s32", 128, bit_op="xor"), "sm_90"
    yield DotKey("mma", "f64", "f64", "f64", "f64", 8, rounding="rm"), "sm_90"


def name_of(x: Any) -> str:
    return x if isinstance(x, str) else f"{x.family}-{x.kind or x.dtype}-{x.atype}-{x.btype}{'-sp' * x.sparse}"


@pytest.mark.parametrize(("key", "device"), list(sampled_keys()), ids=name_of)
def test_arrays_are_single_elements(key: DotKey, device: str) -> None:
    for seed, name in enumerate(DISTRIBUTIONS):
        (A, B, C), options = operands(key, 2, 8, 2 * key.k, seed, (name, name, "wide" if seed % 2 else name))
        D = model_matmul(key, device, A, B, C, **options)
        for i, j in np.ndindex(2, 4):
            assert int(D[i, j]) == _chained(key, device, A, B, C, i, j, options), (name, i, j)


def _chained(key: DotKey, device: str, A: Any, B: Any, C: Any, i: int, j: int, options: dict[str, Any]) -> int:
    c, ctype, p, s = int(C[i, j]), key.ctype, key.products, key.scale_blocks
    for n in range(B.shape[0] // key.k):
        from dataclasses import replace

        here = slice(n * p, n * p + p)
        rows = options["indices"][i, here] if key.sparse else np.arange(n * p, n * p + p)
        scales = {}
        if s:
            scales = {
                "scale_a": options["scale_a"][i, n * s : n * s + s].tolist(),
                "scale_b": options["scale_b"][n * s : n * s + s, j].tolist(),
            }
        signs = {k: options[k] for k in ("imm_scale_a", "imm_scale_b") if k in options}
        step = key
        if ctype != key.ctype:  # D of another type than C
            if key.dtype == "f16":  # f32 C next: widen D
                c = int(np.array(c, np.uint16).view(np.float16).astype(np.float32).view(np.uint32))
            else:
                step = replace(key, ctype=ctype)
        c = dot(step, device, A[i, here].tolist(), B[rows, j].tolist(), c, **signs, **scales)
        ctype = key.dtype
    return c


# Profiles -------------------------------------------------------------------------------------------------------------
def test_rows_name_known_devices_and_types() -> None:
    for row in ROWS:
        assert set(row.devices) <= set(DEVICES)
        assert set(row.types) <= set(TYPES)


def test_what_a_device_lacks_is_said() -> None:
    with pytest.raises(
        UnsupportedError, match=r"wgmma \.f32\.f16\.f16\.f32 with k 16 has no known arithmetic on sm_80(.|\n)*sm_90"
    ):
        profile_for(key_of("wgmma", "f16"), "sm_80")
    with pytest.raises(UnsupportedError, match=r"unknown device 'sm_42'(.|\n)*sm_70"):
        profile_for(key_of("mma", "f16"), "sm_42")
    with pytest.raises(UnsupportedError, match=r"does not run on sm_75(.|\n)*sm_80"):
        profile_for(key_of("mma", "f64", "f64"), "sm_75")
    assert profile_for(DotKey("mma", "f16", "f16", "f32", "f32", 32, sparse=True), "sm_80").confidence == "inferred"
    assert profile_for(key_of("wgmma", "f16"), "sm_90").confidence == "measured"


def test_tcgen05_is_published_on_sm_100_and_inferred_elsewhere() -> None:
    mx = {"kind": "mxf4", "scale_vec": "2X", "stype": "ue8m0"}
    for key in (key_of("tcgen05", "f16"), key_of("tcgen05", "e2m3", k=64, sparse=True), key_of("tcgen05", "e2m1", **mx)):
        assert profile_for(key, "sm_100").confidence == "published"
        assert all(profile_for(key, device).confidence == "inferred" for device in ("sm_103", "sm_107"))
    longer = profile_for(key_of("tcgen05", "e2m1", k=96, **mx), "sm_103")
    assert "six groups" in longer.note and key_of("tcgen05", "e2m1", k=96, **mx).scale_blocks == 3
    assert key_of("tcgen05", "f16", kind="f16") == key_of("tcgen05", "f16")  # one key of one arithmetic
    with pytest.raises(UnsupportedError, match="devices with this arithmetic: sm_103"):
        profile_for(key_of("tcgen05", "e2m1", k=96, **mx), "sm_100")
    integers = DotKey("tcgen05", "s8", "u8", "s32", "s32", 32)
    assert profile_for(integers, "sm_100").confidence == "published"
    with pytest.raises(UnsupportedError, match=r"does not run on sm_103(.|\n)*devices with this arithmetic: sm_100"):
        profile_for(integers, "sm_103")
    with pytest.raises(UnsupportedError, match="no device of the tables has it"):
        profile_for(key_of("tcgen05", "f64", "f64"), "sm_100")


def test_element_types_may_stand_for_their_names() -> None:
    t = element_type("f16")
    assert DotKey("mma", t, t, element_type("f32"), element_type("f32"), 16) == key_of("mma", "f16")  # type: ignore[arg-type]


def test_shapes_that_do_not_fit_are_said() -> None:
    key = key_of("mma", "f16")
    A, B, C = np.zeros((16, 16), np.uint16), np.zeros((16, 8), np.uint16), np.zeros((16, 8), np.uint32)
    with pytest.raises(OperandError, match=r"K a multiple of 16"):
        twin_matmul(key, "sm_90", A[:, :8], B[:8], C)
    with pytest.raises(OperandError, match=r"A is float16(.|\n)*raw elements of \.f16 come as uint16"):
        twin_matmul(key, "sm_90", A.view(np.float16), B, C)
    with pytest.raises(OperandError, match=r"indices come with sparse"):
        twin_matmul(key, "sm_90", A, B, C, indices=np.zeros((16, 16), int))
    with pytest.raises(OperandError, match=r"scale_a and scale_b come with block-scaled"):
        twin_matmul(key, "sm_90", A, B, C, scale_a=np.zeros((16, 1), np.uint8), scale_b=np.zeros((1, 8), np.uint8))


@pytest.mark.parametrize(("dtype", "mode", "two", "sign"), [("f32", "rz", 0x40000000, 1 << 31), ("f16", "rn", 0x4000, 1 << 15)])
def test_sums_that_vanish_have_the_sign_of_the_rounding(dtype: str, mode: str, two: int, sign: int) -> None:
    """A negative sum that is too small becomes -0 or +0; no other number becomes 0."""
    for signed in (False, True):
        rounding = Rounding(dtype, mode, signed_zero=signed)
        totals = ((2, 0), (-2, 0), (0, 0), (1, -400), (-1, -400))
        assert [rounding.bits(*each) for each in totals] == [two, two | sign, 0, 0, sign if signed else 0]
