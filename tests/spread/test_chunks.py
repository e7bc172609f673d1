"""Products of Dask's arrays: the bits of the whole, whatever the chunks."""

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import OperandError
from mmulator.matrix.numerics.formats import numpy_dtype
from mmulator.matrix.twin import matrices

F16 = "mma m16n8k16 f16"


@pytest.fixture(autouse=True)
def _here() -> Any:
    with dask.config.set(scheduler="synchronous"):
        yield


def matrix(dtype: Any, *shape: int, seed: int = 1) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape) * 9
    return values.astype(dtype)


def same(lazy: Any, whole: np.ndarray) -> bool:
    assert isinstance(lazy, da.Array) and (lazy.shape, lazy.dtype) == (whole.shape, whole.dtype)
    got = lazy.compute()
    return got.dtype == whole.dtype and got.tobytes() == whole.tobytes()


CHUNKS = {
    "as they come": ((33, 27), (50, 40), (30, 30)), "whole": ((70, 100), (100, 90), (70, 90)),
    "thin": ((7, 16), (3, 90), (70, 5)),
}  # fmt: skip
NAMES = ["wgmma m64n128 bf16", F16, "mma m16n8k32 s8", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
         "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
def test_any_chunks(name: str, chunks: tuple[Any, Any, Any]) -> None:
    """M, N, K that no instruction divides, with C and without; also where D and C have two types."""
    form = mm.Instruction.parse(name).form
    a, b = matrix(numpy_dtype(form.atype), 70, 100), matrix(numpy_dtype(form.btype), 100, 90, seed=2)
    c = matrix(numpy_dtype(form.ctype or form.dtype), 70, 90, seed=3)
    lazy = [da.from_array(x, chunks=n) for x, n in zip((a, b, c), chunks)]
    assert same(mm.matmul(*lazy, instruction=name), mm.matmul(a, b, c, instruction=name))
    assert same(mm.matmul(*lazy[:2], instruction=name), mm.matmul(a, b, instruction=name))


def test_the_order_along_k_is_part_of_the_bits() -> None:
    """These chunks, summed up in another order, would have other bits."""
    a, b = matrix(np.float16, 16, 512), matrix(np.float16, 512, 16, seed=2)
    whole = mm.matmul(a, b, instruction=F16)
    halves = [mm.matmul(a[:, k], b[k], instruction=F16) for k in (slice(0, 256), slice(256, 512))]
    assert (halves[0] + halves[1]).tobytes() != whole.tobytes()
    assert same(mm.matmul(da.from_array(a, chunks=(16, 256)), b, instruction=F16), whole)


def test_batches_and_arrays_of_others() -> None:
    a, b = matrix(np.float16, 3, 1, 20, 40), matrix(np.float16, 4, 40, 24, seed=2)
    whole = mm.matmul(a, b, instruction=F16)
    assert same(mm.matmul(a, da.from_array(b, chunks=(3, 7, 9)), instruction=F16), whole)
    assert same(mm.matmul(da.from_array(a, chunks=(2, 1, 9, 40)), b, instruction=F16), whole)
    torch = pytest.importorskip("torch")
    assert same(mm.matmul(torch.from_numpy(a), da.from_array(b, chunks=-1), instruction=F16), whole)


def test_block_scaling_and_sparsity() -> None:
    name = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
    chance = np.random.default_rng(5)
    a, b = (chance.integers(0, 16, shape).astype(np.uint8) for shape in ((40, 200), (200, 24)))
    sa, sb = (chance.integers(120, 130, shape).astype(np.uint8) for shape in ((40, 7), (7, 24)))
    whole = mm.matmul(a, b, instruction=name, device="sm_120", scale_a=sa, scale_b=sb)
    given = {"instruction": name, "device": "sm_120", "scale_a": sa}
    assert same(mm.matmul(da.from_array(a, chunks=(15, 50)), b, scale_b=da.from_array(sb, chunks=3), **given), whole)
    with pytest.raises(OperandError, match=r"scale_b of shape \(6, 24\): 7 factors along k are needed, one for 32 elements"):
        mm.matmul(da.from_array(a, chunks=15), b, scale_b=sb[:6], **given)
    thin = matrix(np.float16, 32, 128)
    thin[:, 2::4] = thin[:, 3::4] = 0
    wide = matrix(np.float16, 128, 16, seed=2)
    sparse = "mma.sp m16n8k32 f16"
    whole = mm.matmul(thin, wide, instruction=sparse)
    assert same(mm.matmul(da.from_array(thin, chunks=(20, 50)), wide, instruction=sparse), whole)
    with pytest.raises(OperandError, match="A is compressed, and other operands are arrays of Dask's"):
        mm.matmul(mm.sparse.compress(thin, mm.Instruction.parse(sparse)), da.from_array(wide, chunks=-1), instruction=sparse)


def test_threads_that_come_first_together() -> None:
    """Six threads want a function that no product has used: all get the one that is kept."""
    matrices._entry.cache_clear()
    a, b = matrix(np.float16, 96, 40), matrix(np.float16, 40, 24, seed=2)
    with dask.config.set(scheduler="threads", num_workers=6):
        got = mm.matmul(da.from_array(a, chunks=(8, 40)), b, instruction=F16).compute()
    assert matrices._entry.cache_info().currsize == 1
    assert got.tobytes() == mm.matmul(a, b, instruction=F16).tobytes()


def test_compute() -> None:
    """Chunks of the leading dimensions; those of a matrix are put together."""
    i = mm.Instruction.parse(F16)
    a, b, c = matrix(np.float16, 5, 4, 16, 16), matrix(np.float16, 4, 16, 8, seed=2), matrix(np.float32, 16, 8, seed=3)
    D = i.compute(da.from_array(a, chunks=(2, 3, 8, 5)), b, da.from_array(c, chunks=3))
    assert D.chunks == ((2, 2, 1), (3, 1), (16,), (8,)) and same(D, i.compute(a, b, c))
    signs = mm.Instruction.parse("wgmma m64n8 f16")
    a, b = matrix(np.float16, 2, 64, 16), matrix(np.float16, 16, 8)
    assert same(signs.compute(da.from_array(a, chunks=(1, 64, 16)), b, imm_scale_a=-1), signs.compute(a, b, imm_scale_a=-1))


WRONG = {
    "A: .f16 elements as float64": lambda: mm.matmul(da.ones((4, 4)), da.ones((4, 4)), instruction=F16),
    r"A \(4, 4\) and B \(5, 4\): A is \[..., M, K\]": lambda: mm.matmul(zeros(4, 4), zeros(5, 4), instruction=F16),
    r"C of shape \(4, 5\): \[..., 4, 4\] is needed": lambda: mm.matmul(
        zeros(4, 4), zeros(4, 4), np.zeros((4, 5), np.float32), instruction=F16),
    r"A of shape \(4,\) is no matrix": lambda: mm.matmul(zeros(4), zeros(4, 4), instruction=F16),
    r"A of shape \(4, 4\): \[..., 16, 16\] is needed": lambda: mm.Instruction.parse(F16).compute(zeros(4, 4), zeros(16, 8)),
    "leading dimensions do not broadcast": lambda: mm.matmul(zeros(2, 4, 4), zeros(3, 4, 4), instruction=F16),
    "takes no scale_a or scale_b": lambda: mm.matmul(zeros(4, 4), zeros(4, 4), instruction=F16, scale_a=np.ones((4, 1))),
    "A has chunks of unknown size": lambda: mm.matmul(zeros(4, 4)[zeros(4, 4).sum(axis=1) > 0], zeros(4, 4), instruction=F16),
}  # fmt: skip


def zeros(*shape: int) -> Any:
    return da.zeros(shape, dtype=np.float16, chunks=2)


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_said_at_once(message: str) -> None:
    with pytest.raises(OperandError, match=message):
        WRONG[message]()


def test_nothing_is_computed_until_it_is_asked_for(client: Any) -> None:
    """And then on the workers, which send bf16 to each other."""
    import ml_dtypes

    huge = da.zeros((1 << 20, 1 << 20), dtype=np.float16, chunks=1 << 16)
    assert mm.matmul(huge, huge, instruction=F16).shape == (1 << 20, 1 << 20)
    empty = mm.matmul(da.zeros((4, 0), dtype=np.float16), da.zeros((0, 4), dtype=np.float16), instruction=F16)
    assert same(empty, np.zeros((4, 4), np.float32))
    a, b = matrix(ml_dtypes.bfloat16, 60, 64), matrix(ml_dtypes.bfloat16, 64, 40, seed=2)
    D = mm.matmul(da.from_array(a, chunks=(20, 32)), da.from_array(b, chunks=(32, 20)), instruction="mma m16n8k16 bf16")
    got = client.compute(D).result()
    assert got.tobytes() == mm.matmul(a, b, instruction="mma m16n8k16 bf16").tobytes()
