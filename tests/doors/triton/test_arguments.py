"""What may be an argument of a kernel, and what a kernel may touch of it."""

from collections import namedtuple
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from mmulator.errors import ExecutionFault, LaunchError
from mmulator.host.driver import use
from tests.doors.triton import kernels

Pair = namedtuple("Pair", "left right")
N = 100


def added(x: Any, y: Any, o: Any, n: int = N) -> None:
    kernels.add[(triton.cdiv(n, 128),)](x, y, o, n, BLOCK=128)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int64])
def test_numpy_arrays(dtype: Any) -> None:
    x, y, o = np.arange(N).astype(dtype), np.ones(N, dtype), np.zeros(N, dtype)
    added(x, y, o)
    assert (o == x + y).all()


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_bytes_are_copied_as_they_are(dtype: Any) -> None:
    x = np.arange(N, dtype=np.uint8).view(dtype) if dtype != np.bool_ else np.arange(N) % 3 == 0
    o = np.zeros(N, dtype)
    kernels.copy[(1,)](x, o, N, BLOCK=128)
    assert (o.view(np.uint8) == x.view(np.uint8)).all()


def test_views_are_their_storage() -> None:
    """Offset, overlapping, requiring grad; alignment is that of the address."""
    base = torch.arange(3.0 * N)
    o = torch.zeros(2 * N)
    added(base[3:], base[N:], o[17:])
    assert torch.equal(o[17 : 17 + N], base[3 : 3 + N] + base[N : 2 * N]) and not o[:17].any() and not o[17 + N :].any()
    x, out = torch.rand(N, requires_grad=True), np.zeros(2 * N, np.float32)
    added(x, x, out[5:])
    assert (out[5 : 5 + N] == 2 * x.detach().numpy()).all() and not out[:5].any()


def test_nothing_is_an_argument() -> None:
    empty, nothing = torch.empty(0), np.empty(0, np.float32)
    added(empty, nothing, empty, 0)
    kernels.add[(1,)](empty, nothing, empty, 0, BLOCK=128)


def test_reinterpreted_tensors() -> None:
    x, o = torch.arange(N, dtype=torch.uint8), torch.zeros(N, dtype=torch.uint8)
    kernels.copy[(1,)](triton.reinterpret(x, tl.float8e5), triton.reinterpret(o, tl.float8e5), N, BLOCK=128)
    assert torch.equal(x, o)


class Foreign:
    """An array that speaks one protocol."""

    def __init__(self, tensor: torch.Tensor, *names: str) -> None:
        for name in names:
            setattr(self, name, getattr(tensor if name.startswith("__dlpack") else tensor.numpy(), name))


def test_protocols() -> None:
    x, o = torch.rand(N).bfloat16(), torch.zeros(N).bfloat16()
    dlpack = "__dlpack__", "__dlpack_device__"
    kernels.copy[(1,)](Foreign(x, *dlpack), Foreign(o[:], *dlpack), N, BLOCK=128)
    assert torch.equal(x, o)
    y, p = torch.rand(N), torch.zeros(N)
    kernels.copy[(1,)](Foreign(y, "__array_interface__"), Foreign(p, "__array_interface__"), N, BLOCK=128)
    assert torch.equal(y, p)


class Part:
    """A part of a tensor, with no more than what Triton's launcher asks for and, some, with the whole tensor's storage."""

    def __init__(self, tensor: torch.Tensor, offset: int, *also: str) -> None:
        self.dtype, self.data_ptr = tensor.dtype, lambda: tensor.data_ptr() + offset * tensor.element_size()
        for name in also:
            setattr(self, name, getattr(tensor, name))


@pytest.mark.parametrize("also", [(), ("untyped_storage",), ("untyped_storage", "element_size", "device")], ids=len)
def test_parts_of_tensors_by_their_address(also: tuple[str, ...]) -> None:
    x, o = torch.rand(2 * N), torch.zeros(2 * N)
    kernels.copy[(1,)](Part(x, N, *also), Part(o, 3, *also), N, BLOCK=128)
    assert torch.equal(o[3 : N + 3], x[N:]) and not o[:3].any() and not o[N + 3 :].any()
    if also:
        with pytest.raises(ExecutionFault, match=rf"argument 1 \(\w+\), which has {8 * N}"):
            kernels.copy[(1,)](x, Part(o, 2 * N - 1, *also), N, BLOCK=128)


def test_tuples_and_constants_in_them() -> None:
    x, y, o = torch.rand(64), torch.rand(64), torch.zeros(64)
    kernels.pair[(1,)]((x, y), o, 2.0, BLOCK=64)
    assert torch.equal(o, (x + y) * 2)
    a, b, c = x.numpy(), y.numpy(), np.zeros(64, np.float32)
    kernels.pair[(1,)](Pair(a, b), c, tl.constexpr(3.0), BLOCK=64)
    assert (c == (a + b) * np.float32(3)).all()
    with pytest.raises(ExecutionFault, match=r"argument 0 \(ptrs\), item 1, which has 40"):
        kernels.pair[(1,)](Pair(a, b[:10].copy()), c, 2.0, BLOCK=64)


def test_scalars_have_the_bits_of_tritons_launcher() -> None:
    """It rounds an fp16, cuts a bf16 off, overflows an fp32 to infinity and an int8 silently."""
    o = torch.zeros(9, dtype=torch.float64)
    kernels.scalars[(1,)](o, True, -5, 2.5, -1e40, 1.0077, 1.0007, 253, 2**64 - 1, 0.1)
    assert o.tolist() == [1, -5, 2.5, -np.inf, 1.0, float(np.float16(1.0007)), -3, float(2**64), 0.1]


def test_addresses_in_memory() -> None:
    """A tensor's address may be stored, and passed as an integer, for as long as the tensor lives."""
    triton.runtime.driver.active.get_active_torch_device()
    parts = [torch.rand(n) for n in (10, 20, 30)]
    addresses, sizes = torch.tensor([p.data_ptr() for p in parts]), torch.tensor([10, 20, 30], dtype=torch.int32)
    o = torch.zeros(3)
    kernels.grouped[(3,)](addresses, sizes, o, BLOCK=32)
    assert torch.allclose(o, torch.stack([p.sum() for p in parts]))
    del parts
    with pytest.raises(ExecutionFault, match=r"no argument owns|which has|were freed"):
        kernels.grouped[(3,)](addresses, sizes, o, BLOCK=32)


def test_host_descriptors_whole_and_taken_apart() -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, o = torch.rand(32, 16), torch.zeros(16, 16)
    descriptor = TensorDescriptor.from_tensor(x, [16, 16])
    for chip in ("sm_90", "sm_80"):  # a tensor map; base, shape and strides
        use(device=chip)
        o.zero_()
        kernels.tile[(1,)](descriptor, o, N=16)
        assert torch.equal(o, x[16:])


WRONG = [
    (lambda: np.zeros(N, ">f4"), LaunchError, "big-endian"),
    (lambda: np.zeros(N, "S4"), LaunchError, "no type for an array of"),
    (lambda: torch.zeros(N, device="meta"), LaunchError, r"argument 0 \(x_ptr\) is a meta tensor"),
    (lambda: [1.0] * N, TypeError, "type: .*list"),
]


@pytest.mark.parametrize("make, error, words", WRONG, ids=[w[2] for w in WRONG])
def test_what_is_no_argument(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        added(make(), torch.zeros(N), torch.zeros(N))
    if error is LaunchError:
        assert "launch: test_arguments.py:" in str(caught.value)


def test_a_fault_names_both_arguments_of_one_storage_and_two_lines() -> None:
    x = torch.rand(N)
    with pytest.raises(RuntimeError) as caught:
        added(x, x, torch.zeros(2 * N), 2 * N)
    text = str(caught.value)
    assert isinstance(caught.value, ExecutionFault)
    assert "argument 0 (x_ptr) and argument 1 (y_ptr), which has 400" in text
    assert "(kernels.py:" in text and "tl.load(x_ptr + i, mask=m) + tl.load(y_ptr + i, mask=m)" in text
    assert "launch: test_arguments.py:" in text and "kernels.add[(triton.cdiv(n, 128),)](x, y, o, n, BLOCK=128)" in text


def test_read_only_arrays_are_read_only() -> None:
    x = np.ones(N, np.float32)
    x.flags.writeable = False
    added(x, x, np.zeros(N, np.float32))
    with pytest.raises(ExecutionFault, match=r"argument 0 \(x_ptr\) and argument 2 \(o_ptr\)"):
        added(x, np.ones(N, np.float32), x)
