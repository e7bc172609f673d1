"""Pieces that only CUDA's device has, each a function: graphs, NCCL, attention's own operators, sparse and scaled products."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch_device import CUDA, ones, raises, tell

from mmulator.doors.torch import install
from mmulator.host.driver import current


def model_of(seed: int) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1)).cuda()


def graphs_do_what_was_captured_again() -> None:
    """A training step of a graph has the bits of one without, also of dropout, whose generator the capture does not move."""
    inputs = [torch.rand(4, 8, device=CUDA) for _ in range(4)]
    given, stream, found = torch.zeros(4, 8, device=CUDA), torch.cuda.Stream(), []
    for captured in (False, True):
        model = model_of(1)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, capturable=True)

        def step(model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad(set_to_none=True)
            loss = model(given).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        with torch.cuda.stream(stream):
            step(), step()
        torch.cuda.current_stream().wait_stream(stream)
        graph, losses = torch.cuda.CUDAGraph(), []
        if captured:
            with torch.cuda.graph(graph):
                loss = step()
        for x in inputs:
            given.copy_(x)
            if captured:
                graph.replay()
            losses.append((loss if captured else step()).item())
        given.zero_()
        found.append((losses, [p.tolist() for p in model.parameters()]))
    assert found[0] == found[1]
    model = model_of(2).eval()
    graphed = torch.cuda.make_graphed_callables(model_of(2).eval(), (inputs[1].clone(),))
    assert torch.equal(graphed(inputs[0]), model(inputs[0]))


def a_capture_does_nothing_and_does_not_wait() -> None:
    x, seen = ones(3), []
    waiting = (lambda: x.sum().item(), lambda: torch.tensor(1.0, device=CUDA), x.cpu, x.nonzero, lambda: x.copy_(torch.ones(3)))
    for wrong in waiting:
        with torch.cuda.stream(torch.cuda.Stream()):
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin()
            x.add_(1)
            seen.append(torch.cuda.is_current_stream_capturing())
            raises(torch.AcceleratorError, "operation not permitted when stream is capturing", wrong)
            raises(torch.AcceleratorError, "due to a previous error during capture", graph.capture_end)
        raises(RuntimeError, "without a preceding successful capture", graph.replay)
    assert x.tolist() == [1, 1, 1] and seen == [True] * 5 and not torch.cuda.is_current_stream_capturing()
    raises(RuntimeError, "captured on a non-default stream", torch.cuda.CUDAGraph().capture_begin)


def graphs_launch_kernels() -> None:
    if find_spec("triton") is None:
        return
    import triton
    import triton.language as tl

    globals()["tl"] = tl
    add = triton.jit(added)
    x, graph = torch.zeros(100, device=CUDA), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add[(1,)](x, 100, 128)
        y = x * 2
        add[(1,)](y, 100, 128)
    assert x.tolist() == [0] * 100
    for _ in range(3):
        graph.replay()
    assert x.tolist() == [3] * 100 and y.tolist() == [7] * 100


def added(x, n, block: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: F821
    at = tl.program_id(0) * block + tl.arange(0, block)  # type: ignore[name-defined]  # noqa: F821
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)  # type: ignore[name-defined]  # noqa: F821


def attention_has_cudas_operators() -> None:
    """Each kind, in its context and called directly, is scaled_dot_product_attention, and so are its gradients."""
    ops = torch.ops.aten
    for causal, dtype in itertools.product((False, True), (torch.float16, torch.bfloat16)):
        q, k, v = (torch.randn(2, 4, 33, 16, device=CUDA, dtype=dtype, requires_grad=True) for _ in range(3))
        wide = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
        rows = [t.transpose(1, 2) for t in (q, k, v)]
        length = torch.tensor([0, 33, 66], device=CUDA, dtype=torch.int32)
        packed = [t.reshape(66, 4, 16) for t in rows]
        found = [
            ops._flash_attention_forward(*rows, None, None, 33, 33, 0.0, causal, False)[0].transpose(1, 2),
            ops._efficient_attention_forward(*rows, None, None, None, 33, 33, 0.0, int(causal), True)[0].transpose(1, 2),
        ]
        one = ops._flash_attention_forward(*packed, length, length, 33, 33, 0.0, causal, False)[0]
        found.append(one.view(2, 33, 4, 16).transpose(1, 2))
        for kind in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"):
            with sdpa_kernel(getattr(SDPBackend, kind)):
                found.append(F.scaled_dot_product_attention(q, k, v, is_causal=causal))
            assert kind.partition("_")[0] in type(found[-1].grad_fn).__name__.upper()
        (wide * wide).sum().backward()
        wanted = [t.grad.clone() for t in (q, k, v)]
        for one in found:
            torch.testing.assert_close(one, wide.to(dtype), rtol=1e-2, atol=1e-2)
            grads = torch.autograd.grad((one.float() * one.float()).sum(), (q, k, v))
            torch.testing.assert_close(list(grads), wanted, rtol=5e-2, atol=5e-2)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        raises(RuntimeError, "No available kernel", lambda: F.scaled_dot_product_attention(wide, wide, wide))
    assert torch.backends.cuda.is_flash_attention_available()


def nccl_has_a_group_of_one() -> None:
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
        x = ones(4)
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
            dist.all_reduce(x, op)
        with dist._coalescing_manager(device=x.device, async_ops=True) as both:
            dist.all_reduce(x)
            dist.all_reduce(x)
        both.wait()
        dist.barrier()
        bytes_ = torch.empty(4, device=CUDA).to(torch.float8_e4m3fn)
        dist.all_gather_into_tensor(bytes_, x.to(torch.float8_e4m3fn))
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1).cuda(), device_ids=[0])
        for _ in range(3):  # from the second step on torch takes statistics
            model.zero_grad()
            model(x[None]).sum().backward()
        assert x.tolist() == bytes_.tolist() == model.module.weight.grad[0].tolist() == [1] * 4
        raises(RuntimeError, "No backend type associated with device type cpu", lambda: dist.all_reduce(torch.ones(1)))
        assert (dist.get_backend(), dist.is_nccl_available(), torch.cuda.nccl.version()) == ("nccl", True, (2, 28, 9))
        dist.destroy_process_group()


SPARSE = {  # functions of a sparse tensor [2, 3] and a dense one [3, 2]
    "product": lambda s, d: s @ d,
    "of two": lambda s, d: torch.sparse.mm(s, s.t()),
    "sum": lambda s, d: s + s,
    "with dense": lambda s, d: d.t() + s,
    "sum of rows": lambda s, d: torch.sparse.sum(s, 0),
    "joined": lambda s, d: torch.cat([s, s]),
    "softmax": lambda s, d: torch.sparse.softmax(s, 1),
    "turned": lambda s, d: s.t().coalesce(),
    "made": lambda s, d: d.to_sparse(),
    "masked": lambda s, d: d.t().sparse_mask(s.coalesce()),
    "in place": lambda s, d: s.clone().add_(s).mul_(3),
    "copied": lambda s, d: torch.empty_like(s).copy_(s),
    "cleared": lambda s, d: s.clone().zero_(),
    "wide": lambda s, d: s.double(),
    "into dense": lambda s, d: d.t().contiguous().add_(s, alpha=2),
    "chosen": lambda s, d: s.index_select(0, torch.tensor([1], device=d.device)),
    "hybrid": lambda s, d: d.to_sparse(1),
    "norm": lambda s, d: s.coalesce().norm(),
    "added": lambda s, d: torch.sparse.addmm(d[:2], s, d),
}


def words_and_halves_make_halves() -> None:
    """Sums of words and halves have one type on both devices, where halves are computed in f32."""
    words, halves = ones(3, dtype=torch.int64), ones(3, dtype=torch.bfloat16)
    for a, b in ((words, halves), (halves, words)):
        assert torch.sub(a, b, alpha=0.5).dtype == torch.sub(a.cpu(), b.cpu(), alpha=0.5).dtype == torch.bfloat16


def sparse_tensors_are_the_cpus() -> None:
    index, values, dense = torch.tensor([[0, 1, 1, 1], [2, 0, 2, 2]]), torch.tensor([3.0, 4, 5, 6]), torch.rand(3, 2)
    found: dict[str, dict[str, Any]] = {"cpu": {}, CUDA: {}}
    for device, out in found.items():
        given = torch.sparse_coo_tensor(index.to(device), values.to(device), (2, 3)), dense.to(device)
        for name, function in SPARSE.items():
            one = function(*given)
            assert one.device.type == device
            out[name] = one.is_sparse, (one.to_dense() if one.is_sparse else one).tolist()
        for kind in (torch.optim.SGD, torch.optim.SparseAdam, torch.optim.Adagrad):
            torch.manual_seed(0)
            table = nn.Embedding(10, 4, sparse=True).to(device)
            optimizer = kind(table.parameters(), lr=0.1)
            for n in range(3):
                optimizer.zero_grad()
                table(torch.tensor([1, 2, 2, n], device=device)).square().sum().backward()
                optimizer.step()
            assert table.weight.grad.is_sparse and table.weight.grad.device.type == device
            out[kind.__name__] = [[round(x, 5) for x in row] for row in table.weight.tolist()]  # sqrt is CUDA's
    assert found["cpu"] == found[CUDA]
    moved = torch.sparse_coo_tensor(index, values, (2, 3)).cuda()
    assert "device='cuda:0'" in repr(moved) and moved.cpu().to_dense().tolist() == [[0, 0, 3], [4, 0, 11]]


def swizzled(scale: Any) -> Any:
    """Scales [rows, blocks] in the order of tensor cores: row r of a tile of 128 by 4 is at r % 32 * 16 + r // 32 * 4."""
    rows, blocks = scale.shape
    tall, wide = -(-rows // 128), -(-blocks // 4)
    flat = torch.zeros(tall * wide * 512, dtype=scale.dtype)
    for r, c in itertools.product(range(rows), range(blocks)):
        flat[(r // 128 * wide + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = scale[r, c]
    return flat


def products_have_scales() -> None:
    """Products of small whole numbers and powers of two, which f32 has all of: the bits of the sum in double."""
    m, n, k = 160, 48, 256
    a, b = (torch.randint(-4, 5, (rows, k)).double() for rows in (m, n))
    eight = [t.to(torch.float8_e4m3fn).cuda() for t in (a, b)]
    four = torch.tensor([0, 1, 2, 3, 4, -1, -2, -3, -4]), torch.tensor([0, 2, 4, 5, 6, 10, 12, 13, 14], dtype=torch.uint8)

    def packed(x: Any) -> Any:
        codes = four[1][(x[..., None] == four[0]).int().argmax(-1)]
        return (codes[:, ::2] | codes[:, 1::2] << 4).cuda().view(torch.float4_e2m1fn_x2)

    def power(*shape: int) -> Any:
        return torch.randint(-2, 3, shape).double().exp2()

    def whole(scale: Any, rows: int) -> Any:
        return scale.repeat_interleave(-(-rows // scale.size(0)), 0)[:rows].repeat_interleave(k // scale.size(1), 1)

    f32, e8, e4 = torch.float32, torch.float8_e8m0fnu, torch.float8_e4m3fn
    for given, dtype, shapes in (
        (eight, f32, ((m, 1), (n, 1))), (eight, f32, ((m, 2), (n, 2))), (eight, e8, ((m, 8), (n, 8))),
        ([packed(a), packed(b)], e4, ((m, 16), (n, 16))), ([packed(a), packed(b)], e8, ((m, 8), (n, 8))),
    ):  # fmt: skip
        s, t = (power(*shape) for shape in shapes)
        order = swizzled if dtype != f32 else torch.clone
        scales = order(s.to(dtype)), order(t.to(dtype)) if dtype != f32 else t.to(dtype).t().contiguous()
        run = partial(torch._scaled_mm, given[0], given[1].t(), *(x.cuda() for x in scales), out_dtype=f32)
        if dtype != f32:
            raises(RuntimeError, "needs a device of compute capability 10.0", run)
        with device("sm_100"):
            found = run()
        assert torch.equal(found.cpu().double(), (a * whole(s, m)) @ (b * whole(t, n)).t()), (dtype, shapes)
    one = torch.tensor(2.0, device=CUDA)
    found = F.scaled_mm(*(eight[0], eight[1].t()), one, F.ScalingType.TensorWise, one, F.ScalingType.TensorWise, output_dtype=f32)
    assert torch.equal(found.cpu().double(), 4 * (a @ b.t()))
    raises(RuntimeError, "mat2 col_major", lambda: torch._scaled_mm(eight[0], eight[1].t().contiguous(), one, one))


def convolutions_lie_as_tracers_expect() -> None:
    """torch.compile takes the strides of a convolution from a tensor without memory: channels last where an operand has it."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    types = torch.float32, torch.float64
    for dims, turned, last, dtype, batch in itertools.product((1, 2, 3), (False, True), range(4), types, (1, 17)):
        operands = [torch.randn([n, 4] + [k] * dims, dtype=dtype) for n, k in ((batch, 6), (4, 3))]
        if dims > 1:
            operands = [x.to(memory_format=formats[x.dim()]) if last >> n & 1 else x for n, x in enumerate(operands)]
        x, weight = (x.to(CUDA) for x in operands)
        how = [1] * dims, [0] * dims, [1] * dims, turned, [0] * dims, 1
        mode = FakeTensorMode()
        traced = [mode.from_tensor(t) for t in (x, weight)]
        found, expected = torch.convolution(x, weight, None, *how), torch.convolution(*traced, None, *how)
        assert found.stride() == expected.stride(), (dims, turned, last, dtype)
        torch.testing.assert_close(found.cpu(), torch.convolution(*operands, None, *how))
        if dims > 1 and dtype == torch.float32 and last:
            assert found.is_contiguous(memory_format=formats[found.dim()])
        back = [found, x, weight, None, *how, [True, True, False]]
        grads = torch.ops.aten.convolution_backward(*back)
        traced = torch.ops.aten.convolution_backward(expected, *traced, None, *how, [True, True, False])
        assert [g.stride() for g in grads[:2]] == [g.stride() for g in traced[:2]], (dims, turned, last, dtype)


@contextmanager
def device(name: str) -> Iterator[None]:
    before = current().settings
    current().change(replace(before, device=name))
    yield
    current().change(before)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    install()
    tell(globals())
