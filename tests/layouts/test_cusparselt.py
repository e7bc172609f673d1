"""Buffers of cuSPARSELt against what cuSPARSELt 0.8.0 and PyTorch 2.11 wrote on an H100: tests/data/sparse_cusparselt.npz."""

import re
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import OperandError, UnsupportedError
from mmulator.matrix.layouts import sparse
from tests.support import places

DATA = dict(np.load(places.DATA / "sparse_cusparselt.npz"))
FORMS = {
    "f16": mm.Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"),
    "bf16": mm.Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32"),
    "s8": mm.Instruction.parse("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32"),
    "e4m3": mm.Instruction.parse("mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32"),
    "tf32": mm.Instruction.parse("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32"),
    "e5m2": mm.Instruction.parse("mma.sp.sync.aligned.m16n8k64.row.col.f32.e5m2.e4m3.f32"),
}
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "s8": np.int8, "e4m3": ml_dtypes.float8_e4m3fn, "tf32": np.float32}
F16 = FORMS["f16"]


def captures(kind: str) -> list[str]:
    return [key.removesuffix(kind) for key in DATA if re.fullmatch(rf"\w+\.\d+x\d+{re.escape(kind)}", key)]


def parts(name: str) -> tuple[str, int, int]:
    kind, m, k = re.fullmatch(r"(\w+)\.(\d+)x(\d+)", name).groups()  # type: ignore[union-attr]
    return kind, int(m), int(k)


def written(kind: str, m: int, k: int) -> int:
    """Bytes of metadata that do not depend on what the memory held before; chunks of whole tiles, twice for tf32."""
    whole = -(-m // 64) * 64 * (-(-k // 64) * 64 if kind in ("s8", "e4m3") else k)
    return (whole + m * k) // 4 if kind == "tf32" else whole // 8


@pytest.mark.parametrize("name", captures(".packed"))
def test_whole_buffers(name: str) -> None:
    kind, m, k = parts(name)
    dense = DATA[f"{name}.dense"].astype(np.float32).astype(DTYPES[kind])
    packed = DATA[f"{name}.packed"].view(dense.dtype)
    own, nothing = sparse.to_torch(sparse.compress(dense, FORMS[kind]), "cusparselt")
    sure = m * k // 2 * own.itemsize + written(kind, m, k)
    assert nothing is None and own.shape == packed.shape and own.dtype == packed.dtype
    assert own.tobytes()[:sure] == packed.tobytes()[:sure] and not any(own.tobytes()[sure:])
    for buffer in (packed, packed.reshape(m, -1), SimpleNamespace(packed=packed, meta=None, shape=(m, k))):
        back = sparse.expand(sparse.from_torch(buffer, instruction=FORMS[kind], shape=(m, k)))
        assert back.dtype == dense.dtype and back.tobytes() == dense.tobytes()


@pytest.mark.parametrize("name", captures(".metadata"))
def test_metadata(name: str) -> None:
    kind, m, k = parts(name)
    for nibbles, metadata in zip(DATA[f"{name}.nibbles"], DATA[f"{name}.metadata"], strict=True):
        values = (np.arange(m * k // 2).reshape(m, k // 2) % 15 + 1).astype(DTYPES[kind])
        own = sparse.to_torch(sparse.Compressed(values, nibbles, FORMS[kind].form), "cusparselt")[0]
        half = m * k // 2 * own.itemsize
        sure = written(kind, m, k)
        assert own.nbytes - half == metadata.size
        assert own.view(np.uint8)[half:][:sure].tobytes() == metadata[:sure].tobytes()
        buffer = own.copy()
        buffer.view(np.uint8)[half:] = metadata
        back = sparse.from_torch(buffer, instruction=FORMS[kind], shape=(m, k))
        assert back.values.tobytes() == values.tobytes() and back.metadata.tobytes() == nibbles.tobytes()


@pytest.mark.parametrize("backend", ["cutlass", "cusparselt_tile"])
def test_pytorchs_own_pruning(backend: str) -> None:
    """torch._sparse_semi_structured_tile of a 256 x 256 matrix, with use_cutlass True and False."""
    columns = DATA["tile.columns"].astype(np.int64)  # in the chunk; 4: a zero (or one of two equal values)
    chunk = np.arange(128)[None, :] // 2 * 4
    row, place = np.nonzero(columns < 4)
    assert row.size > 32000
    at = (row, (chunk + columns)[row, place])
    dense = np.zeros((256, 256), np.float16)
    dense[at] = at[1] % 251 + 1
    values = np.zeros((256, 128), np.float16)
    values[row, place] = dense[at]
    if backend == "cutlass":
        back = sparse.from_torch(values, DATA["tile.cutlass"], instruction=F16)
    else:
        metadata = DATA["tile.cusparselt"].view(np.float16)
        buffer = np.concatenate([values.reshape(-1), metadata])
        back = sparse.from_torch(buffer, instruction=F16, shape=(256, 256), backend=backend)
        pruned = SimpleNamespace(packed=buffer.reshape(256, -1), meta=metadata.reshape(2, 8, 256), shape=(256, 256))
        assert sparse.from_torch(pruned, instruction=F16).metadata.tobytes() == back.metadata.tobytes()
    assert np.array_equal(sparse.expand(back), dense)
    again = sparse.to_torch(back, backend)
    assert np.array_equal(sparse.expand(sparse.from_torch(*again, instruction=F16, shape=(256, 256), backend=backend)), dense)


def test_the_order_of_pytorchs_own_packer() -> None:
    """Words of 16 bits, in tiles of 128 x 64 elements."""
    m, k = 256, 384
    i = FORMS["bf16"]
    a = sparse.prune(np.random.default_rng(6).standard_normal((m, k)).astype(ml_dtypes.bfloat16), i)
    s = sparse.compress(a, i)
    buffer, nothing = sparse.to_torch(s, "cusparselt_tile")
    assert nothing is None and buffer.shape == (m * k * 9 // 16,) and buffer.dtype == a.dtype
    assert buffer[: m * k // 2].tobytes() == s.values.tobytes()
    order = [
        (rows + 32 * tile + 16 * sixteen + 8 * half + g, columns + 32 * right + 16 * word)
        for columns in range(0, k, 64)
        for rows in range(0, m, 128)
        for right in range(2)
        for tile in range(4)
        for g in range(8)
        for sixteen in range(2)
        for word in range(2)
        for half in range(2)
    ]
    words = buffer[m * k // 2 :].view(np.uint16)
    nibbles = s.metadata.astype(int)
    for word, (row, column) in zip(words.tolist(), order, strict=True):
        assert word == sum(int(n) << 4 * j for j, n in enumerate(nibbles[row, column // 4 : column // 4 + 4]))


def test_float32_values_have_half_a_unit_more() -> None:
    dense = np.zeros((32, 32), np.float32)
    dense[:, 1::2] = 31
    buffer = sparse.to_torch(sparse.compress(dense, FORMS["tf32"]), "cusparselt")[0]
    assert set(buffer[: 32 * 16].tolist()) == {31.0078125}  # as captured; tf32 is the upper 19 bits
    assert np.array_equal(sparse.expand(sparse.from_torch(buffer, instruction=FORMS["tf32"], shape=(32, 32))), dense)
    broken = buffer.copy()
    broken.view(np.uint8)[32 * 16 * 4] ^= 0x0A
    with pytest.raises(OperandError, match="two copies of the metadata differ"):
        sparse.from_torch(broken, instruction=FORMS["tf32"], shape=(32, 32))


def test_float32_values_are_stored_as_captured() -> None:
    """Both signs, any mantissa, subnormals, infinities and NaN."""
    given, stored = DATA["tf32.given"], DATA["tf32.stored"]
    own = sparse.to_torch(sparse.compress(given.view(np.float32), FORMS["tf32"]), "cusparselt")[0]
    assert np.array_equal(own[: stored.size].view(np.uint32), stored.reshape(-1))


def test_chunks_with_few_non_zeros_are_filled_up_as_captured() -> None:
    dense, packed = DATA["few.dense"].astype(np.float16), DATA["few.packed"]
    own = sparse.to_torch(sparse.compress(dense, F16), "cusparselt")[0]
    assert own.tobytes() == packed.tobytes()
    assert np.array_equal(sparse.expand(sparse.from_torch(own, instruction=F16, shape=(64, 64))), dense)


def zeros(kind: str, m: int, k: int) -> Any:
    return sparse.compress(np.zeros((m, k), DTYPES.get(kind, ml_dtypes.float8_e5m2)), FORMS[kind])


@pytest.mark.parametrize(
    ("error", "text", "use"),
    [
        (UnsupportedError, "does not document.*measured", lambda: sparse.to_torch(zeros("e5m2", 64, 64), "cusparselt")),
        (UnsupportedError, "48 x 64.*multiples of 32", lambda: sparse.to_torch(zeros("f16", 48, 64), "cusparselt")),
        (UnsupportedError, "64 x 48.*multiples of 32", lambda: sparse.to_torch(zeros("s8", 64, 48), "cusparselt")),
        (UnsupportedError, "multiples of 128", lambda: sparse.to_torch(zeros("f16", 64, 128), "cusparselt_tile")),
        (UnsupportedError, "no .s8", lambda: sparse.to_torch(zeros("s8", 128, 128), "cusparselt_tile")),
        (OperandError, "float32.*float16",
         lambda: sparse.to_torch(sparse.compress(np.zeros((64, 64), np.float32), F16), "cusparselt")),
        (OperandError, "takes 5920", lambda: sparse.from_torch(np.zeros(5887, np.float16), instruction=F16, shape=(160, 64))),
        (OperandError, "takes 5920", lambda: sparse.from_torch(np.zeros(5921, np.float16), instruction=F16, shape=(160, 64))),
        (OperandError, "no backend", lambda: sparse.from_torch(np.zeros(8, np.float16), instruction=F16, backend="x")),
        (OperandError, "without its meta",
         lambda: sparse.from_torch(np.zeros((32, 32), np.float16), instruction=F16, backend="cutlass")),
        (OperandError, "two dimensions",
         lambda: sparse.from_torch(np.zeros(8, np.float16), instruction=F16, shape=(1, 32, 32))),  # type: ignore[arg-type]
        (OperandError, "two dimensions",
         lambda: sparse.to_torch(sparse.compress(np.zeros((2, 32, 32), np.float16), F16), "cusparselt")),
    ],
)  # fmt: skip
def test_refusals(error: type[Exception], text: str, use: Any) -> None:
    with pytest.raises(error) as caught:
        use()
    assert re.search(text, str(caught.value), re.DOTALL), str(caught.value)
