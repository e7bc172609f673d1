"""Arrays of other libraries: in place where memory is shared, a clear refusal where it is not."""

import array
import ctypes
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mmulator as mm
from tests.support.ptx_text import kernel
from tests.support.torch_stub import Tensor

# out[i] += 1 for 32 words of 32 bits
COUNT = kernel(
    """
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %rd2, %r3, 4;
  add.s64 %rd1, %rd0, %rd2;
  ld.global.u32 %r4, [%rd1];
  add.u32 %r4, %r4, %r0;
  st.global.u32 [%rd1], %r4;
""".replace("mov.u32 %r3", "ld.param.u32 %r0, [n];\n  mov.u32 %r3", 1),
    ".param .u64 out, .param .u32 n",
)
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"


def count(buffer: Any, n: Any = 1) -> None:
    mm.Module.load(COUNT)["k"].launch(1, 32, [buffer, n])


@pytest.fixture(params=["stub", pytest.param("torch", marks=pytest.mark.full)])
def tensor(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A tensor on the memory of a NumPy array."""
    if request.param == "stub":
        return Tensor.of
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: tried with a stand-in only")

    def of(x: np.ndarray) -> Any:
        own = torch.from_numpy(x.view(np.uint8) if x.dtype.kind == "V" else x)
        return own.view(getattr(torch, x.dtype.name)) if x.dtype.kind == "V" else own

    return of


class Dlpack:
    """An array that speaks DLPack alone."""

    def __init__(self, own: np.ndarray, device: int = 1) -> None:
        self.own, self.device = own, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.own.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


class Gives:
    """An array that has `__array__` alone."""

    def __init__(self, own: np.ndarray, copy: bool = False) -> None:
        self.own, self.copies = own, copy

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.own.copy() if self.copies else self.own


def test_tensors_are_device_buffers(tensor: Callable[..., Any]) -> None:
    x = np.zeros(32, np.int32)
    count(tensor(x))
    assert (x == 1).all()
    report = mm.Module.load(COUNT)["k"].launch(1, 32, [tensor(x), 1], watch=[(0, 3)])
    assert [s.value for s in report.stores] == [2]
    half = np.zeros((4, 16), ml_dtypes.bfloat16)
    count(tensor(half), 0x3F803F80)
    assert (half == 1).all()
    byte = np.zeros(128, ml_dtypes.float8_e4m3fn)
    count(tensor(byte), 0x38383838)
    assert (byte == 1).all()


def test_matrices_may_be_tensors(tensor: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((16, 16), (16, 8)))
    c = rng.standard_normal((16, 8), np.float32)
    i = mm.Instruction.parse(MMA)
    want = i.compute(a, b, c)
    assert (i.compute(tensor(a), tensor(b), tensor(c)) == want).all()
    assert (mm.matmul(tensor(a), tensor(b), tensor(c), instruction=i) == want).all()
    sparse = mm.Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32")
    wide = rng.standard_normal((16, 32)).astype(ml_dtypes.bfloat16)
    pruned = mm.sparse.prune(tensor(wide), sparse)
    assert (pruned == mm.sparse.prune(wide, sparse)).all()
    rows = np.arange(32) * 16
    image, words = np.zeros(512, np.uint8), np.arange(32, dtype=np.int32).reshape(32, 1)
    store = mm.Instruction.parse("stmatrix.sync.aligned.m8n8.x1.shared.b16")
    store.execute(memory=tensor(image), p=tensor(rows), r=tensor(words))
    assert (image.view(np.uint32)[:4] == [0, 1, 2, 3]).all()


def test_shared_memory_of_every_kind() -> None:
    words = np.zeros(32, np.int32)
    for buffer in (Dlpack(words), Gives(words), memoryview(words), words.view(np.void(4).dtype)):
        before = words.copy()
        count(buffer)
        assert (words == before + 1).all(), buffer
    own = bytearray(128), array.array("i", [0] * 32), (ctypes.c_int * 32)()
    for buffer in own:
        count(buffer)
        assert bytes(buffer) == np.ones(32, np.int32).tobytes()


class OnGpu:
    __cuda_array_interface__ = {"shape": (32,), "typestr": "<i4", "data": (0, False), "version": 3}  # noqa: RUF012


WORDS = np.zeros(32, np.int32)
REFUSED = [
    (Tensor.of(WORDS, device="cuda:0"), "argument 0 .out.: the tensor is on"),
    (Tensor.of(WORDS, requires_grad=True), "requires grad.*(\n.*)x.detach"),
    (Tensor.of(WORDS, layout="torch.sparse_coo"), "sparse"),
    (Tensor.of(WORDS[::2]), "not contiguous"),
    (WORDS[::2], "not contiguous"),
    (memoryview(WORDS)[::2], "not contiguous"),
    (OnGpu(), "on a GPU(\n|.)*move it to the CPU"),
    (Dlpack(WORDS, 2), "on a GPU"),
    (Dlpack(np.zeros(4, "M8[s]")), "cannot read this Dlpack"),
    (Gives(WORDS, copy=True), "copy of its elements, so that what the kernel writes would be lost"),
    (b"\0" * 128, "read-only"),
    (memoryview(b"\0" * 128), "read-only"),
    ([0] * 32, "not list(\n|.)*np.array"),
    ("out", "pass an integer or an array, not str"),
    (object(), "pass an integer or an array, not object"),
]


@pytest.mark.parametrize(("buffer", "message"), REFUSED, ids=lambda x: type(x).__name__)
def test_what_cannot_be_shared_is_refused(buffer: Any, message: str) -> None:
    with pytest.raises(mm.errors.LaunchError, match=message):
        count(buffer)


def test_refusals_of_real_tensors() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: tried with a stand-in only")
    x = torch.zeros(32, dtype=torch.float32)
    wrong = {
        "requires grad": x.clone().requires_grad_(),
        "sparse": x.to_sparse(),
        "not contiguous": torch.zeros(32, 2)[:, 0],
        "meta tensor": x.to("meta"),
        "negative view": torch.zeros(32, dtype=torch.complex64).conj().imag,
        "torch.jagged": torch.nested.nested_tensor([x, x[:3]], layout=torch.jagged),
    }
    for message, tensor in wrong.items():
        with pytest.raises(mm.errors.LaunchError, match=message):
            count(tensor)
    packed = torch.tensor([[0x21, 0x43]], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    i = mm.Instruction.parse("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32")
    a = np.zeros((1, 32), ml_dtypes.float4_e2m1fn)
    a[0, :4] = [0.5, 1, 1.5, 2]
    b = np.ones((32, 8), ml_dtypes.float4_e2m1fn)
    got = mm.matmul(packed, b[:4], instruction=i, device="sm_120")
    assert (got == mm.matmul(a, b, instruction=i, device="sm_120")).all() and got[0, 0] == 5


def test_scalars_may_be_of_any_library(tensor: Callable[..., Any]) -> None:
    x = np.zeros(32, np.int32)
    for n in (np.int64(2), np.array(2), tensor(np.array(2)), ctypes.c_int(2), True, np.uint8(2)):
        x[:] = 0
        count(x, n)
        assert (x == int(getattr(n, "value", 0) or (n if isinstance(n, bool) else 2))).all()
    zero_dimensional = np.array(5, np.int32)
    mm.Module.load(COUNT)["k"].launch(1, 1, [tensor(zero_dimensional), 1])
    assert zero_dimensional == 6


def test_nothing_is_imported_that_nobody_brought() -> None:
    code = "import sys, numpy, mmulator as mm; mm.Module.load(sys.argv[1])['k'].launch(1, 32, [numpy.zeros(32, 'i4'), 1])"
    done = f"{code}; print([m for m in ('torch', 'cupy', 'jax', 'triton') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", done, COUNT], capture_output=True, text=True, check=True).stdout == "[]\n"
