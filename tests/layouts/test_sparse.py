"""mm.sparse on whole matrices: pruning, laws over all sparse forms, PyTorch's layouts, and what is refused."""

import itertools
import re
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import OperandError, UnsupportedError
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.matrix.layouts import operand_addresses, sparse
from tests.support.places import DATA
from tests.support.torch_stub import Tensor

SPARSE = [f for f in matrix_forms() if f.sparse]
# one form for every type of A, shape and kind
TYPES: list[Form] = list(
    {(f.family, f.k, f.atype, f.kind, f.scale_vec, f.ordered_metadata): f for f in reversed(SPARSE)}.values()
)
RUNS = [f for f in TYPES if not f.kind]  # on sm_90
F16 = mm.Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
FORMS = {
    "f16": F16,
    "bf16": mm.Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32"),
    "tf32": mm.Instruction.parse("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32"),
    "s8": mm.Instruction.parse("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32"),
    "s4": mm.Instruction.parse("mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"),
}


def dtype_of(form: Form, name: str = "atype") -> np.dtype[Any]:
    element = getattr(form, name)
    return np.dtype(getattr(ml_dtypes, element.numpy, None) or element.numpy)


def numbers(form: Form, shape: tuple[int, ...], seed: int, name: str = "atype") -> Any:
    """Small integers that every type holds, zeros among them."""
    lowest = -3 if getattr(form, name).has_sign else 0
    return np.random.default_rng(seed).integers(lowest, 4, shape).astype(dtype_of(form, name))


def same(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# laws ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", TYPES, ids=str)
def test_what_is_pruned_survives_compression_and_registers(form: Form) -> None:
    """For rows and columns that fill no tile; batches; every selector."""
    g = sparse.granularity(form)
    a = numbers(form, (2, form.m + 5, form.k + g.chunk), 1)
    pruned = sparse.prune(a, form)
    kept = sparse.prune(pruned, form)
    assert same(kept, pruned)
    s = sparse.compress(pruned, form)
    assert same(sparse.expand(s), pruned) and s.shape == a.shape
    t = s.tiles()
    assert t.shape == (2, 2, 2, form.m, form.k)
    whole = np.swapaxes(sparse.expand(t), -2, -3).reshape(2, 2 * form.m, 2 * form.k)
    assert same(np.ascontiguousarray(whole[:, : a.shape[1], : a.shape[2]]), pruned)
    assert not (whole[:, a.shape[1] :] != 0).any() and not (whole[:, :, a.shape[2] :] != 0).any()
    a_layout = mm.Instruction(form).layout("a")
    for selector in sparse.selectors(form):
        nibbles = sparse.from_registers(t.registers(selector), form, selector)
        values = a_layout.to_matrix(a_layout.to_registers(t.values))
        assert same(sparse.expand(sparse.Compressed(values, nibbles, form)), sparse.expand(t))


@pytest.mark.parametrize("form", RUNS, ids=str)
def test_tiles_executed_on_sm_90_are_the_dense_product(form: Form) -> None:
    i = mm.Instruction(form)
    a = sparse.prune(numbers(form, (form.m + 3, 2 * form.k), 2), form)
    b = numbers(form, (2 * form.k, form.n), 3, "btype")
    exact = a.astype(np.float64) @ b.astype(np.float64)
    t = sparse.compress(a, form).tiles()
    a_registers = i.layout("a").to_registers(t.values)
    for selector in sparse.selectors(form):
        e = t.registers(selector)
        d = i.layout("d").to_registers(np.zeros((2, form.m, form.n), dtype_of(form, "dtype")))
        for step in range(2):
            tile = b[step * form.k : (step + 1) * form.k]
            if form.family == "mma":
                operands = {"b": i.layout("b").to_registers(tile), "c": d, "e": e[:, step], "f": selector}
            else:
                operands = {**shared(tile), "d": d, "sp_meta": e[:, step], "sp_sel": selector}
            d = i.execute(a=a_registers[:, step], **operands)
        product = i.layout("d").to_matrix(d).reshape(-1, form.n)[: a.shape[0]]
        assert np.array_equal(product.astype(np.float64), exact)
    for given in (a, sparse.compress(a, form)):
        assert np.array_equal(mm.matmul(given, b, instruction=i).astype(np.float64), exact)


def shared(b: Any) -> dict[str, Any]:
    """B as K-major rows in shared memory, without swizzle."""
    rows = np.ascontiguousarray(b.T)
    d = mm.MatrixDescriptor(0, 128, 128 * (rows.shape[1] * rows.itemsize // 16), 0, "none")
    image = np.zeros(rows.nbytes, np.uint8)
    address = operand_addresses(d, *rows.shape, 8 * rows.itemsize)
    image[address[..., None] + np.arange(rows.itemsize)] = rows.view(np.uint8).reshape(*rows.shape, rows.itemsize)
    return {"b_desc": d, "shared": image}


# pruning ------------------------------------------------------------------------------------------------------------
def best(values: list[float], group: int, room: int) -> list[int]:
    """Columns to keep, by trying all: largest sum of magnitudes, then lowest columns."""
    groups = range(len(values) // group)

    def size(one: int) -> float:
        part = values[one * group : (one + 1) * group]
        return float("inf") if any(v != v for v in part) else sum(abs(v) for v in part)

    chosen = max(itertools.combinations(groups, room), key=lambda c: (sum(map(size, c)), [-i for i in c]))
    return [one * group + i for one in chosen for i in range(group)]


@pytest.mark.parametrize("form", TYPES, ids=str)
def test_pruning_keeps_the_largest(form: Form) -> None:
    g = sparse.granularity(form)
    a = numbers(form, (form.m, 8 * g.chunk), 4)
    pruned = sparse.prune(a, form)
    for row, chunk in np.ndindex(form.m, 8):
        at = slice(chunk * g.chunk, (chunk + 1) * g.chunk)
        values = a[row, at].astype(float).tolist()
        keep = best(values, g.group, g.kept // g.group)
        want = [v if i in keep else 0.0 for i, v in enumerate(values)]
        assert pruned[row, at].astype(float).tolist() == want


def test_pruning_of_special_values() -> None:
    a = np.array([[np.inf, np.nan, -np.inf, 1.0], [-0.0, 0.0, 0.0, -0.0], [2.0, -2.0, 2.0, -3.0]], np.float16)
    pruned = sparse.prune(a, F16)
    assert pruned[0].tolist()[0] == np.inf and np.isnan(pruned[0, 1]) and pruned[0].tolist()[2:] == [0, 0]
    assert np.signbit(pruned[1]).tolist() == [True, False, False, False]
    assert pruned[2].tolist() == [2.0, 0.0, 0.0, -3.0]
    for instruction, x in ((FORMS["s8"], np.array([[-128, 127, 126, -127]], np.int8)), (F16, a)):
        raw = x.view(f"u{x.itemsize}")
        assert sparse.prune(raw, instruction).tobytes() == sparse.prune(x, instruction).tobytes()
    s4 = np.array([[-8, 0, 3, 4, 7, 0, -4, -4]]).astype(ml_dtypes.int4)
    assert sparse.prune(s4, FORMS["s4"]).astype(int).tolist() == [[-8, 0, 0, 0, 0, 0, -4, -4]]
    bits = (s4.astype(np.int64) & 15).astype(np.uint8)
    assert sparse.prune(bits, FORMS["s4"]).tolist() == [[8, 0, 0, 0, 0, 0, 12, 12]]


def test_raw_zeros_of_either_sign_are_zeros() -> None:
    a = np.array([[-0.0, 1.0, -0.0, 2.0] * 8] * 16, np.float16)
    s = sparse.compress(a.view(np.uint16), F16)
    assert np.array_equal(sparse.expand(s).view(np.float16), a)


# PyTorch ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "s8"])
def test_the_layout_of_pytorch_bit_for_bit(name: str) -> None:
    """tests/data/sparse_pytorch.npz: PyTorch's own conversion."""
    data = np.load(DATA / "sparse_pytorch.npz")
    i = FORMS[name]
    dense, packed = (data[f"{name}.{x}"].astype(dtype_of(i.form)) for x in ("dense", "packed"))
    words = data[f"{name}.meta"]
    own, meta = sparse.to_torch(sparse.compress(dense, i))
    assert meta is not None
    assert same(own, packed) and same(meta, words)
    assert same(sparse.expand(sparse.from_torch(packed, words, instruction=i)), dense)
    tensor = SimpleNamespace(packed=packed, meta=words, shape=dense.shape)
    assert same(sparse.expand(sparse.from_torch(tensor, instruction=i)), dense)


def test_a_group_of_metadata_words_is_a_metadata_operand() -> None:
    """32 bits of reordered words are the operand of mma.sp.m16n8k32, of lanes 0, 4, 8, ... and 1, 5, 9, ..."""
    s = sparse.compress(sparse.prune(numbers(F16.form, (32, 32), 5), F16), F16)
    words = sparse.to_torch(s)[1]
    assert words is not None
    pairs = words.reshape(8, 2, 2, 2).view(np.uint32)[..., 0]  # g, sixteen rows, columns 0 to 15 and 16 to 31
    e = s.tiles().registers(selector=0)[:, 0]  # [sixteen rows, lanes]
    assert np.array_equal(pairs, e.reshape(2, 8, 4)[..., :2].transpose(1, 0, 2))


def test_metadata_as_pytorchs_own_pruning_writes_it() -> None:
    """Three dimensions; indices out of order, or twice where the second value is a zero."""
    dense = np.zeros((32, 64), np.float16)
    dense[:, 1::4] = 5
    s = sparse.compress(dense, F16)
    nibbles = np.where(np.arange(16) % 2 == 0, 0b0001, 0b0101).astype(np.uint8)  # (1, 0) and (1, 1)
    values = np.tile(np.array([5, 0], np.float16), (32, 16))
    words = sparse.to_torch(sparse.Compressed(values, np.tile(nibbles, (32, 1)), F16.form))[1]
    assert words is not None
    three = words.reshape(2, 32, 2).transpose(1, 2, 0)
    back = sparse.from_torch(values, three, instruction=F16)
    assert same(sparse.expand(back), dense)
    assert set(np.unique(back.metadata)) <= set(sparse.granularity(F16.form).nibbles) and same(s.values, values)
    values[3, 5] = 7  # chunk 2 has indices 1 and 0: out of order, but not the same
    assert same(sparse.expand(sparse.from_torch(values, three, instruction=F16))[3, 8:12], np.array([7, 5, 0, 0], np.float16))
    values[3, 3] = 7
    with pytest.raises(OperandError, match=r"0b0101 at row 3, columns 4 to 7 \(chunk 1\): it names element 1 twice"):
        sparse.from_torch(values, three, instruction=F16)


def test_tensors_whose_dtype_numpy_lacks() -> None:
    i = FORMS["bf16"]
    a = sparse.prune(numbers(i.form, (32, 64), 7), i)
    packed, words = sparse.to_torch(sparse.compress(a, i))
    back = sparse.from_torch(Tensor.of(packed, device="cuda:0"), Tensor.of(words), instruction=i)
    assert same(sparse.expand(back), a)


# refusals -----------------------------------------------------------------------------------------------------------
def test_refusals_name_row_columns_and_chunk() -> None:
    a = np.zeros((40, 64), np.float16)
    a[37, 12:16] = [1, 2, 0, -3]
    a[39, 0:4] = 1
    with pytest.raises(OperandError) as caught:
        sparse.compress(a, F16)
    text = str(caught.value)
    assert "3 elements are not zero in row 37, columns 12 to 15 (chunk 3): 1.0, 2.0, 0.0, -3.0" in text
    assert "2 of every 4 elements may be non-zero" in text and "prune" in text and "2 chunks" in text
    assert np.argwhere(sparse.too_dense(a, F16)).tolist() == [[37, 3], [39, 0]]
    with pytest.raises(OperandError, match="matrix 1, row 37"):
        sparse.compress(np.stack([0 * a, a]), F16)
    s = sparse.compress(0 * a, F16)
    wrong = s.metadata.copy()
    wrong[5, 2] = 0b0110
    ordered = mm.Instruction.parse("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    same_a = sparse.Compressed(s.values, wrong, ordered.form)
    for use in (
        lambda: sparse.expand(same_a),
        lambda: mm.matmul(same_a, np.zeros((64, 8), np.float16), instruction=ordered),
    ):
        with pytest.raises(OperandError, match=r"0b0110 at row 5, columns 8 to 11 \(chunk 2\): it names elements 2 and 1 out"):
            use()


def test_other_refusals() -> None:
    s = sparse.compress(np.zeros((48, 64), np.float16), F16)
    wide = sparse.compress(np.zeros((48, 64), np.float32), F16)
    b = np.zeros((64, 8), np.float16)
    dense = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    cases: list[tuple[type[Exception], str, Any]] = [
        (OperandError, r"tiles\(\)", lambda: s.registers()),
        (OperandError, "multiple|whole chunks of 4", lambda: sparse.prune(np.zeros((3, 6)), F16)),
        (OperandError, "no sparse operand", lambda: sparse.prune(np.zeros((3, 8)), mm.Instruction.parse(dense))),
        (OperandError, "nibble for every 2 values", lambda: sparse.Compressed(s.values, s.metadata[:3], F16.form)),
        (OperandError, "0 to 15", lambda: sparse.Compressed(s.values, s.metadata + 16, F16.form)),
        (OperandError, "2 of 4; .* keeps 1 of 2", lambda: mm.matmul(wide, b.astype(np.float32), instruction=FORMS["tf32"])),
        (OperandError, "is dense", lambda: mm.matmul(s, b, instruction=dense)),
        (OperandError, r"\[\.\.\., 16, 32\] is needed", lambda: F16.compute(s, b[:32])),
        (OperandError, "M must be a multiple of 32", lambda: sparse.to_torch(s)),
        (OperandError, "no backend", lambda: sparse.to_torch(s, "triton")),
        (UnsupportedError, "does not document", lambda: sparse.to_torch(s, "cusparselt")),
        (UnsupportedError, "no .s4", lambda: sparse.to_torch(sparse.compress(np.zeros((16, 64), np.int8), FORMS["s4"]))),
        (OperandError, r"shape=\(M, K\)", lambda: sparse.from_torch(s.values, instruction=F16)),
        (OperandError, "takes 9216", lambda: sparse.from_torch(b[0], instruction=F16, shape=(128, 128))),
        (OperandError, "int8.*float16", lambda: sparse.from_torch(s.values.astype(np.int8), b, instruction=F16)),
        (OperandError, "meta of float16", lambda: sparse.from_torch(s.values[:32], b[:32], instruction=F16)),
        (OperandError, r"meta of shape \(2, 2\)",
         lambda: sparse.from_torch(s.values[:32], np.zeros((2, 2), np.int16), instruction=F16)),
    ]  # fmt: skip
    for kind, text, use in cases:
        with pytest.raises(kind) as caught:
            use()
        assert re.search(text, str(caught.value)), (text, str(caught.value))
