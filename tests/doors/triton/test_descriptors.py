"""Tensor descriptors of the host and of the device, as tensor maps; clusters of blocks; what is wrong with either."""

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

import mmulator as mm
from mmulator.doors.triton import descriptors, versions
from mmulator.doors.triton.arguments import slots
from mmulator.errors import ExecutionFault, LaunchError
from mmulator.host.driver import current
from tests.doors.triton import kernels

SHAPES = {1: ((1000,), (256,)), 2: ((50, 80), (16, 32)), 3: ((3, 20, 48), (2, 16, 32)), 5: ((2, 3, 5, 3, 64), (2, 1, 4, 4, 64))}


@pytest.fixture(autouse=True)
def _scratch() -> None:
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))


def blocks(shape: tuple[int, ...], box: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-(-n // b) for n, b in zip(shape, box))[:3]


@pytest.mark.parametrize("rank", SHAPES)
def test_copies_of_every_rank(rank: int) -> None:
    shape, box = SHAPES[rank]
    x = torch.randn(shape).half()
    o = torch.zeros_like(x)
    pair = [TensorDescriptor.from_tensor(t, list(box)) for t in (x, o)]
    getattr(kernels, f"copy{rank}")[blocks(shape, box)](*pair, *box)
    assert torch.equal(o, x)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_descriptors_of_numpy_arrays(dtype: Any) -> None:
    shape, box = SHAPES[2]
    x = np.arange(4000).reshape(shape).astype(np.uint8).astype(dtype)
    o = np.zeros_like(x)
    kernels.copy2[blocks(shape, box)](*(TensorDescriptor.from_tensor(a, list(box)) for a in (x, o)), *box)
    assert (o.view(np.uint8) == x.view(np.uint8)).all()


def test_descriptors_made_on_the_device() -> None:
    shape, box = SHAPES[2]
    x, o = torch.randn(shape), torch.zeros(shape)
    kernels.copy_device[blocks(shape, box)](x, o, *shape, A=box[0], B=box[1])
    assert torch.equal(o, x)


def test_views_have_the_strides_of_their_tensor() -> None:
    whole, out = torch.randn(64, 96).half(), torch.zeros(80, 128).half()
    x, o = whole[8:58, 8:88], out[4:54, 16:96]
    kernels.copy2[blocks(*SHAPES[2])](*(TensorDescriptor.from_tensor(t, [16, 32]) for t in (x, o)), 16, 32)
    assert torch.equal(o, x) and out.count_nonzero() == x.count_nonzero()


@pytest.mark.parametrize("where", ["host", "device"])
def test_nan_padding(where: str) -> None:
    x, o = torch.randn(24, 40), torch.zeros(4, 16, 32)
    if where == "host":
        kernels.padded[(2, 2)](TensorDescriptor.from_tensor(x, [16, 32], padding="nan"), o, A=16, B=32)
    else:
        kernels.padded_device[(2, 2)](x, 24, 40, o, A=16, B=32)
    assert torch.equal(o[0], x[:16, :32]) and torch.equal(o[3, :8, :8], x[16:, 32:])
    assert o[3, 8:].isnan().all() and o[3, :, 8:].isnan().all()


@pytest.mark.parametrize("op", ["add", "max"])
def test_reductions(op: str) -> None:
    x, o = torch.arange(512, dtype=torch.int32).reshape(16, 32), torch.full((16, 32), 100, dtype=torch.int32)
    kernels.reduces[(1,)](x, TensorDescriptor.from_tensor(o, [16, 32]), OP=op, A=16, B=32)
    assert torch.equal(o, x + 100 if op == "add" else x.clamp(min=100))


@pytest.mark.parametrize("kind", ["f16", "tf32", "e4m3"])
def test_products(kind: str) -> None:
    """Operands and result through descriptors, a pipeline of three stages."""
    dtype = {"f16": torch.float16, "tf32": torch.float32, "e4m3": torch.float8_e4m3fn}[kind]
    a, b = torch.randint(-3, 4, (100, 96)).to(dtype), torch.randint(-3, 4, (72, 96)).to(dtype)
    c = torch.zeros(100, 72)
    given = [TensorDescriptor.from_tensor(t, box) for t, box in ((a, [64, 32]), (b, [64, 32]), (c, [64, 64]))]
    kernels.product[(2, 2)](*given, 96, M=64, N=64, K=32, num_stages=3)
    assert torch.equal(c, a.float() @ b.float().T)


def test_persistent_warp_specialised_product() -> None:
    a, b = torch.randint(-3, 4, (256, 128)).half(), torch.randint(-3, 4, (128, 128)).half()
    c = torch.zeros(256, 128).half()
    made = kernels.persistent[(1,)](a, b, c, 256, 128, 128, M=128, N=128, K=64, num_warps=4)
    assert torch.equal(c, (a.float() @ b.float().T).half())
    assert "mbarrier" in made.asm["ptx"] and made.metadata.num_warps > 4


LATER = pytest.mark.skipif(versions.interface() is not versions.TABLE[3, 9], reason="later than this Triton")


@LATER
def test_rounding_to_tf32() -> None:
    x, o = torch.randn(16, 32), torch.zeros(1, 16, 32)
    kernels.padded[(1,)](TensorDescriptor.from_tensor(x, [16, 32], round_f32_to_tf32=True), o, A=16, B=32)
    bits = x.view(torch.int32).to(torch.int64)
    assert torch.equal(o[0].view(torch.int32), ((bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFF).to(torch.int32))


@LATER  # Triton 3.6 cannot compile this kernel
def test_clusters() -> None:
    x, o = torch.randn(2048), torch.zeros(2)
    reports = []
    current().listeners.append(reports.append)
    kernels.summed[(2,)](x, o, N=1024, num_ctas=4)
    assert torch.allclose(o, x.view(2, -1).sum(1), rtol=1e-4, atol=1e-4)
    assert reports[0].grid == (8, 1, 1)


def test_clusters_of_a_product() -> None:
    a, b = torch.randint(-3, 4, (128, 64)).half(), torch.randint(-3, 4, (128, 64)).half()
    c = torch.zeros(128, 128)
    given = [TensorDescriptor.from_tensor(t, box) for t, box in ((a, [128, 32]), (b, [128, 32]), (c, [128, 128]))]
    kernels.product[(1, 1)](*given, 64, M=128, N=128, K=32, num_ctas=2)
    assert torch.equal(c, a.float() @ b.float().T)


# what is passed -----------------------------------------------------------------------------------------------------
META = {"swizzle": 2, "elem_size": 2, "elem_type": 6, "block_size": [16, 32], "fp4_padded": False, "is_im2col": False}


@pytest.mark.parametrize("version", versions.TABLE)
def test_parameters_of_every_version(version: tuple[int, int]) -> None:
    """With a map: it, shape, strides; without one: base, shape, strides, flags, shape, strides."""
    interface = versions.TABLE[version]
    x = torch.randn(50, 80).half()
    d: Any = SimpleNamespace(base=x, shape=[50, 80], strides=[80, 1], padding="nan", round_f32_to_tf32=False)
    signature = {"n": "i32", "d": "tensordesc<fp16[16, 32]>"}
    found = list(slots(signature, interface, [META]))
    assert [s.ty for s in found] == ["i32", "nvTmaDesc", "i32", "i32", "i64", "i64"]
    assert [s.part(d) for s in found[2:] if s.part] == [50, 80, 80, 1]
    pending = found[1].part(d) if found[1].part else None
    made = mm.TensorMap.tiled(x, (16, 32), swizzle="64B", l2_promotion="128B", oob_fill="nan")
    assert isinstance(pending, descriptors.PendingDescriptor) and pending.encode(x.data_ptr(), "d") == made.encode(x.data_ptr())
    apart = list(slots(signature, interface, None))
    flags = ["i1"] * len(interface.flags)
    assert [s.ty for s in apart] == ["i32", "*fp16", "i64", "i64", "i64", "i64", *flags, "i32", "i32", "i64", "i64"]
    assert [s.part(d) for s in apart[6 : 6 + len(flags)] if s.part] == [True, False][: len(flags)]


def test_shapes_of_padded_4_bit_tensors_are_doubled_by_some_versions() -> None:
    d: Any = SimpleNamespace(shape=[8, 64])
    for version, width in (((3, 5), 128), ((3, 7), 64), ((3, 9), 64)):
        found = list(slots({"d": "tensordesc<u8[8, 64]>"}, versions.TABLE[version], [{**META, "fp4_padded": True}]))
        assert [s.part(d) for s in found[1:3] if s.part] == [8, width]


def test_what_the_driver_utilities_make() -> None:
    x = torch.randn(50, 80).half()
    made = mm.TensorMap.tiled(x, (16, 32), swizzle="64B", l2_promotion="128B").encode(x.data_ptr())
    asked = x.data_ptr(), 2, 2, 6, [16, 32], [50, 80], [80, 1]
    assert descriptors.fill_tiled(*asked, 0).data == made
    images = torch.randn(2, 8, 8, 16).half()
    made = mm.TensorMap.im2col(images, (-1, -1), (1, 1), 16, 32, swizzle="32B", l2_promotion="128B").encode(images.data_ptr())
    asked_2 = images.data_ptr(), 1, 2, 6, [32, 16], [2, 8, 8, 16], [1024, 128, 16, 1], 0, [-1, -1], [1, 1], [1, 1, 1, 1]
    assert descriptors.fill_im2col(*asked_2).data == made
    with pytest.raises(RuntimeError, match=r"Failed to create tensor map descriptor: .*multiple of 16 below"):
        descriptors.fill_tiled(*asked[:6], [81, 1], 0)
    with pytest.raises(RuntimeError, match="none of CUtensorMapDataType"):
        descriptors.fill_tiled(*asked[:3], 99, *asked[4:])


def test_a_map_is_an_argument_of_the_compiled_text() -> None:
    """PTX as Triton leaves it, launched without Triton: maps, shapes and strides, scratch."""
    shape, box = SHAPES[2]
    x, o = np.random.default_rng(0).standard_normal(shape).astype(np.float16), np.zeros(shape, np.float16)
    types = ", ".join(["tensordesc<fp16[16, 32]>"] * 2)
    made = mm.triton.compile(kernels.copy2, types, {"A": 16, "B": 32})
    kernel = mm.Module.load(made.ptx)["copy2"]
    swizzle = ["none", "32B", "64B", "128B"][made.metadata.tensordesc_meta[0]["swizzle"]]
    maps = [mm.TensorMap.tiled(a, box, swizzle=swizzle) for a in (x, o)]
    described = [*shape, shape[1], 1]
    extra = [None] * versions.interface().scratch
    kernel.launch(blocks(shape, box), 128, [maps[0], *described, maps[1], *described, *extra], shared=made.metadata.shared)
    assert (o == x).all()
    o[:] = 0
    made.launch(blocks(shape, box), *(TensorDescriptor.from_tensor(a, list(box)) for a in (x, o)))
    assert (o == x).all()
    o[:] = 0
    pair = [TensorDescriptor.from_tensor(a, list(box)) for a in (x, o)]
    mm.triton.launch(kernels.copy2, blocks(shape, box), *pair, 16, 32, device="sm_90")
    assert (o == x).all()


# what is wrong ------------------------------------------------------------------------------------------------------
def test_what_the_driver_refuses_is_said() -> None:
    x = torch.zeros(16, 32)
    d = TensorDescriptor.from_tensor(x, [16, 32])
    d.strides = [33, 1]
    with pytest.raises(RuntimeError, match=r"argument 0 \(x\): strides\[0\] is 132 bytes") as caught:
        kernels.copy2[(1, 1)](d, TensorDescriptor.from_tensor(x, [16, 32]), 16, 32)
    assert isinstance(caught.value, LaunchError) and "launch: test_descriptors.py:" in str(caught.value)


def test_a_descriptor_gives_no_more_than_its_tensor() -> None:
    x, o = torch.zeros(50, 80), torch.zeros(50, 80)
    longer = TensorDescriptor(x, [60, 80], [80, 1], [16, 32])
    with pytest.raises(ExecutionFault) as caught:
        kernels.copy2[(4, 3)](longer, TensorDescriptor.from_tensor(o, [16, 32]), 16, 32)
    assert "argument 0 (x), base" in str(caught.value)
