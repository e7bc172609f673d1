"""What programs do with the device cuda, each piece a function; prints a line of JSON for each: [name, error or ""]."""

import copy
import ctypes
import inspect
import io
import json
import pickle
import threading
import traceback
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from mmulator.doors.torch import install, installed

CUDA = "cuda"


def raises(kind: Any, text: str, function: Callable[[], Any]) -> None:
    try:
        found = function()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no error, but {found!r}")


def ones(*size: int, dtype: Any = torch.float32) -> torch.Tensor:
    return torch.ones(size, dtype=dtype, device=CUDA)


def tensors_are_of_the_device() -> None:
    x = ones(3)
    assert type(x) is torch.Tensor and x.is_cuda and x.device == torch.device("cuda:0") and x.get_device() == 0
    assert x.untyped_storage().device == torch.device("cuda:0") and x.storage().is_cuda and x.type() == "torch.cuda.FloatTensor"
    assert torch.tensor([1.0], device=CUDA).is_cuda and x.new_empty(2).is_cuda and torch.randn_like(x).is_cuda
    assert x.to("cpu").device.type == "cpu" and x.cpu().cuda().is_cuda and x.to(0).is_cuda and x.cuda(non_blocking=True).is_cuda
    assert x.to("cpu", non_blocking=True).tolist() == [1, 1, 1] and x.to(device="cpu", dtype=torch.int64).dtype == torch.int64
    assert x.__cuda_array_interface__["data"][0] == x.data_ptr() and torch.from_dlpack(x).data_ptr() == x.data_ptr()
    assert "device='cuda:0'" in repr(x) and f"{x[0]:.1f}" == "1.0" and x.sum().item() == 3 and bool(x[0] == 1) and len(x) == 3
    with torch.device(CUDA):
        assert nn.Linear(2, 2).weight.is_cuda
    raises(RuntimeError, "invalid device ordinal", lambda: torch.ones(2, device="cuda:1"))
    raises(TypeError, "can't convert cuda:0 device type tensor to numpy", x.numpy)
    raises(TypeError, "can't convert cuda:0 device type tensor to numpy", lambda: np.asarray(x))


def views_share_memory() -> None:
    x = torch.arange(24.0, device=CUDA).reshape(2, 3, 4)
    version = x._version
    x[1, :, ::2].zero_()
    assert x._version == version + 1 and x[1].sum().item() == 13 + 15 + 17 + 19 + 21 + 23
    for view in (x.view(torch.int32), x.unfold(2, 2, 1), x.diagonal(), x.T, x.expand(2, 2, 3, 4), x.as_strided((2, 2), (1, 1))):
        assert view.is_cuda and view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    c = ones(3, dtype=torch.complex64)
    torch.view_as_real(c)[:, 1] = 2
    assert c.tolist() == [1 + 2j] * 3 and c.conj().imag.tolist() == [-2] * 3 and (c.conj() * c).real.tolist() == [5] * 3
    x.chunk(2)[1].fill_(7)
    assert x[1].eq(7).all() and x.permute(2, 0, 1).contiguous().stride() == (6, 3, 1)
    x.resize_(100)
    assert x.untyped_storage().nbytes() == 400 and x[5] == 5
    w = torch.empty(0, device=CUDA).set_(x)
    assert w.data_ptr() == x.data_ptr()
    raises(RuntimeError, "different device", lambda: torch.empty(0).set_(x.untyped_storage(), 0, (1,), (1,)))
    p = nn.Parameter(torch.ones(2))
    p.data = p.data.cuda()
    assert p.is_cuda and p.untyped_storage().is_cuda


def results_go_where_they_should() -> None:
    x = torch.randn(3, 4, device=CUDA)
    for start in (torch.empty(0, device=CUDA), torch.empty(2, device=CUDA), torch.empty(4, 3, device=CUDA).t()):
        torch.add(x, x, out=start)
        assert start.shape == (3, 4) and torch.equal(start, x + x)
    assert start.stride() == (1, 3)
    wide = torch.empty(12, device=CUDA)
    torch.mm(x, x.t(), out=wide[:9].view(3, 3))
    assert torch.equal(wide[:9].view(3, 3), x @ x.t())
    values, places = torch.empty(0, device=CUDA), torch.empty(0, dtype=torch.long, device=CUDA)
    torch.sort(x, out=(values, places))
    assert torch.equal(values, x.sort()[0]) and torch.equal(places, x.sort()[1])
    kept = wide
    wide += 1
    assert kept is wide and torch.nonzero(x, out=places).shape == (12, 2) and places.shape == (12, 2)


def results_for_an_empty_tensor() -> None:
    x = torch.randn(1024, device="cuda")
    wanted = x.cpu().abs()
    before = torch.cuda.memory_allocated()
    alone = torch.empty(0, device="cuda")
    torch.abs(x, out=alone)
    assert torch.equal(alone.cpu(), wanted) and torch.cuda.memory_allocated() - before == alone.untyped_storage().nbytes()
    shared = torch.empty(0, device="cuda")
    view = shared.detach()
    torch.abs(x, out=shared)
    assert view.shape == (0,) and torch.equal(view.set_(view.untyped_storage(), 0, (1024,)).cpu(), wanted)


def devices_do_not_mix() -> None:
    x, c = ones(3), torch.ones(3)
    assert (x + torch.tensor(2.0)).is_cuda and (torch.tensor(2.0) * x).is_cuda and x[torch.tensor([0, 1])].is_cuda
    x[torch.tensor([0, 1])] = 5.0
    x[torch.tensor([True, False, True])] = torch.tensor(1.0)
    place, weight = torch.zeros(1, dtype=torch.long, device=CUDA), torch.ones(2, 3)
    for wrong in (
        lambda: x + c, lambda: x.add_(c), lambda: c.add_(x), lambda: torch.where(x > 0, c, x), lambda: F.linear(x, weight),
        lambda: torch.cat([x, c]), lambda: torch.stack([x, c]), lambda: x[None] @ c[:, None], lambda: nn.Linear(3, 3)(x),
        lambda: F.embedding(place, torch.ones(3, 3)), lambda: c[place], lambda: c.gather(0, place), lambda: torch.equal(x, c),
        lambda: torch.add(x, x, out=c), lambda: torch.add(c, c, out=x), lambda: F.layer_norm(x, (3,), c),
        lambda: x.index_select(0, torch.tensor([1])), lambda: F.conv1d(x[None, None], torch.ones(1, 1, 1)),
        lambda: F.cross_entropy(x[None], torch.tensor([1])), lambda: torch.tensor(2.0).add_(x[0]),
    ):  # fmt: skip
        raises(RuntimeError, "same device", wrong)


def gradients_flow() -> None:
    x = torch.randn(4, 4, device=CUDA, requires_grad=True)
    (g,) = torch.autograd.grad((x @ x).tanh().sum(), x, create_graph=True)
    g.pow(2).sum().backward()
    assert x.grad.is_cuda

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(a)
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            assert g.is_cuda
            return g * 2 + 0 * ctx.saved_tensors[0]

    x.grad = None
    Double.apply(x).sum().backward()
    assert x.grad.eq(2).all()
    for reentrant in (True, False):
        checkpoint(lambda a: F.dropout(a @ a).relu(), x, use_reentrant=reentrant).sum().backward()
    wide = torch.randn(3, 3, dtype=torch.double, device=CUDA, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: (a @ a).sin(), wide) and torch.autograd.gradgradcheck(lambda a: a.sin() * a, wide)
    (x.cpu() * 2).cuda().sum().backward()
    results: list[bool] = []

    def work() -> None:
        a = torch.randn(64, 64, device=CUDA, requires_grad=True)
        (a @ a).sum().backward()
        results.append(a.grad.is_cuda)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [True] * 8
    with torch.inference_mode():
        (x + 1).view(-1).add_(2)
    assert torch.func.vmap(torch.func.grad(lambda w: (w**2).sum()))(ones(3, 2)).is_cuda
    assert torch.func.jacrev(torch.sin)(ones(3)).is_cuda and torch.func.jvp(torch.sin, (ones(3),), (ones(3),))[1].is_cuda


def networks_train() -> None:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(72, 10),
        nn.LayerNorm(10),
    ]
    host = nn.Sequential(*layers)
    own, x, y = copy.deepcopy(host).cuda(), torch.randn(2, 3, 8, 8), torch.randn(2, 10)
    F.mse_loss(host(x), y).backward()
    F.mse_loss(own(x.cuda()), y.cuda()).backward()
    for a, b in zip(host.parameters(), own.parameters()):
        assert b.grad.is_cuda and torch.allclose(a.grad, b.grad.cpu(), rtol=1e-4, atol=1e-6)
    optimizers = [v for v in vars(torch.optim).values() if inspect.isclass(v) and v.__module__.startswith("torch.optim")]
    for kind in (o for o in optimizers if o.__name__ not in ("Optimizer", "LBFGS", "SparseAdam", "Muon", "Adafactor")):
        for way in ({}, {"foreach": True}, {"foreach": False}, {"fused": True}):
            if set(way) <= set(inspect.signature(kind).parameters):
                try:
                    optimizer = kind(own.parameters(), lr=0.1, **way)
                except RuntimeError as error:
                    assert "fused" in str(error) or "foreach" in str(error), error
                    continue
                try:
                    optimizer.step()
                    optimizer.step()
                except RuntimeError as error:
                    assert "`fused=True` requires" in str(error), (kind, way, error)
                copy.deepcopy(optimizer.state_dict())
    assert nn.utils.clip_grad_norm_(own.parameters(), 1.0).is_cuda
    own.half().to(torch.bfloat16).cpu()


def state_is_saved() -> None:
    model = nn.Linear(3, 2).cuda()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "x": model.weight[:, 1:]}, file)
    for where, device in ((None, "cuda"), ("cpu", "cpu"), ("cuda:0", "cuda"), (lambda storage, tag: storage, "cpu")):
        file.seek(0)
        found = torch.load(file, map_location=where)
        assert found["x"].device.type == device and torch.equal(found["model"]["weight"].cuda(), model.weight)
    for copied in (pickle.loads(pickle.dumps(model.weight)), copy.deepcopy(model).weight, copy.copy(model.weight)):
        assert copied.is_cuda and torch.equal(copied, model.weight)
    model.load_state_dict(copy.deepcopy(model.state_dict()))


def recurrent_networks_are_the_cpus() -> None:
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        for how in ({}, {"bidirectional": True, "num_layers": 2}, {"bias": False, "batch_first": True}):
            host = kind(4, 5, **how)
            own, x = copy.deepcopy(host).cuda(), torch.randn(3, 2, 4)
            a, b = host(x)[0], own(x.cuda())[0]
            torch.testing.assert_close(a, b.cpu())
            a.square().sum().backward()
            b.square().sum().backward()
            for p, q in zip(host.parameters(), own.parameters()):
                torch.testing.assert_close(p.grad, q.grad.cpu())
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 2, 4, device=CUDA), torch.tensor([5, 3]))
    assert nn.LSTM(4, 5).cuda()(packed)[0].data.is_cuda
    nn.LSTMCell(3, 3).cuda()(ones(2, 3))
    nn.GRUCell(3, 3).cuda()(ones(2, 3))


def attention_is_plain_arithmetic() -> None:
    q = torch.randn(2, 4, 16, 8, requires_grad=True)
    own = q.detach().cuda().requires_grad_()
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    for how in ({}, {"is_causal": True}, {"attn_mask": mask}, {"scale": 0.3}):
        moved = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in how.items()}
        a, b = F.scaled_dot_product_attention(q, q, q, **how), F.scaled_dot_product_attention(own, own, own, **moved)
        torch.testing.assert_close(a, b.cpu())
    b.sum().backward()
    assert own.grad.is_cuda
    F.scaled_dot_product_attention(own.bfloat16(), own.bfloat16(), own.bfloat16(), dropout_p=0.1)
    F.scaled_dot_product_attention(own, own[:, :2], own[:, :2], enable_gqa=True)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).cuda()
    assert layer(own[0]).is_cuda and layer.eval()(own[0]).is_cuda
    assert nn.MultiheadAttention(8, 2).cuda().eval()(own[0], own[0], own[0])[0].is_cuda


def autocast_and_scaling() -> None:
    layer, x = nn.Linear(4, 4).cuda(), torch.randn(2, 4, device=CUDA)
    with torch.autocast(CUDA):
        assert layer(x).dtype == torch.float16
        loss = layer(x).sum()
    with torch.autocast(CUDA, dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16 and F.softmax(layer(x), -1).dtype == torch.float32
    scaler, optimizer = torch.amp.GradScaler(CUDA), torch.optim.SGD(layer.parameters(), 0.1)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() in (32768, 65536)  # half of it where a gradient overflowed


def modes_see_the_programs_operators_alone() -> None:
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    seen: list[str] = []

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(f))
            return f(*args, **(kwargs or {}))

    class Called(TorchFunctionMode):
        def __torch_function__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(f.__name__)
            return f(*args, **(kwargs or {}))

    class Own(torch.Tensor):
        pass

    x = ones(3)
    with Dispatched():
        (x + x).sum()
    with Called():
        torch.mul(torch.add(x, x), 2)
        torch.empty(0, device=CUDA).resize_(3)
    assert seen == ["aten.add.Tensor", "aten.sum.default", "add", "mul", "empty", "resize_"], seen
    own = x.as_subclass(Own)
    assert type(own + own) is Own
    with FakeTensorMode() as fake:
        assert (torch.empty(3, 3, device=CUDA) @ torch.empty(3, 2, device=CUDA)).device == torch.device("cuda:0")
        assert (fake.from_tensor(x) + 1).is_cuda
    assert make_fx(lambda a: (a @ a).relu(), tracing_mode="fake")(ones(2, 2))(ones(2, 2)).is_cuda
    with FlopCounterMode(display=False) as flops:
        torch.mm(ones(2, 2), ones(2, 2))
    assert flops.get_total_flops() == 16


def types_of_elements() -> None:
    names = "float64 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu int8 uint8 int16"
    for name in (names + " int32 int64 uint16 uint32 uint64 bool complex32 complex64 complex128").split():
        if dtype := getattr(torch, name, None):
            e = torch.empty(4, 4, dtype=dtype, device=CUDA)
            assert e.is_cuda and e.view(torch.uint8).cpu().ne(0).any() and e.clone().t().contiguous().is_cuda and repr(e)
            assert ones(3).to(dtype).is_cuda
    a = ones(16, 16).to(torch.float8_e4m3fn)
    one = torch.tensor(1.0, device=CUDA)
    assert torch._scaled_mm(a, a.t(), one, one, out_dtype=torch.bfloat16).eq(16).all()
    half = ones(2, 2, dtype=torch.bfloat16)
    assert torch.mm(half, half, out_dtype=torch.float32).dtype == torch.float32


def fresh_memory_is_poisoned_and_apart() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2):
        assert torch.empty(5, dtype=dtype, device=CUDA).float().isnan().all(), dtype
        assert torch.empty(0, dtype=dtype, device=CUDA).new_empty(3).float().isnan().all()
    assert torch.empty(3, dtype=torch.int16, device=CUDA).eq(-0x3233).all() and not ones(3).isnan().any()
    kept = [torch.ones(n, device=CUDA) + 1 for n in (1, 3, 100, 5000)]
    spans = sorted((t.data_ptr(), t.untyped_storage().nbytes()) for t in kept)
    assert all(a % 512 == 0 for a, _ in spans)
    assert all(b - (a + size) >= min(max(size, 512), 4096) for (a, size), (b, _) in pairwise(spans))


def what_fills_its_memory_does_so_once() -> None:
    from mmulator.doors.torch import kernels, objects

    poisoned, fill = [], objects.memory.fill
    objects.memory.fill = lambda *args: (poisoned.append(args), fill(*args))
    try:
        x = torch.full((3, 4), 2.0, device=CUDA)
        made = {"full": x, "zeros": torch.zeros(3, 4, device=CUDA), "ones": ones(3, 4), "clone": x.clone(), "half": x.half()}
        made |= {name: getattr(torch, name)(x) for name in kernels.FILLED if name.endswith("_like") and name != "full_like"}
        made |= {name: getattr(torch, name)(3, 4, device=CUDA) for name in ("rand", "randn")}
        made["full_like"] = torch.full_like(x, 5)
        assert not poisoned
        torch.empty(3, 4, device=CUDA)
        assert len(poisoned) == 1
    finally:
        objects.memory.fill = fill
    assert all(t.is_cuda and t.shape == (3, 4) and not t.isnan().any() for t in made.values())
    assert made["clone"].eq(2).all() and made["zeros_like"].eq(0).all() and made["full_like"].eq(5).all()
    assert x.t().clone().stride() == (1, 4) and torch.zeros(2, dtype=torch.int8, device=CUDA).dtype == torch.int8


def large_memory_is_used_again() -> None:
    from mmulator.doors.torch import block_cache

    torch.cuda.empty_cache()
    size = block_cache.LEAST // 4
    x = torch.empty(size, device=CUDA)
    at = x.data_ptr()
    del x
    assert block_cache.kept[2] >= 4 * size
    y = torch.empty(size - 100, device=CUDA)
    assert y.data_ptr() == at and y.isnan().all() and not block_cache.kept[2]
    small, other = torch.empty(size // 2, device=CUDA), torch.empty(2 * size, device=CUDA)
    del small, y
    assert block_cache.LEAST <= block_cache.kept[2] < 2 * block_cache.LEAST  # the small one is not kept
    z = torch.empty(3 * size, device=CUDA)
    assert z.data_ptr() != at  # far larger
    many = [torch.empty(size * (n % 5 + 1), dtype=torch.int32, device=CUDA) for n in range(3 * block_cache.PLACES)]
    del many, other, z
    assert block_cache.MOST // 2 < block_cache.kept[2] <= block_cache.MOST
    assert block_cache.kept[2] == sum(block_cache.kept[4::2]) and sum(map(bool, block_cache.kept[3::2])) <= block_cache.PLACES
    torch.cuda.empty_cache()
    assert not any(block_cache.kept[2:])


def gradients_of_softmax_are_summed_in_pieces() -> None:
    from mmulator.doors.torch import precision, reductions

    whole, reductions._PIECE = reductions._PIECE, 1000
    try:
        grad, output = torch.randn(31, 7, 50, device=CUDA), torch.rand(31, 7, 50, device=CUDA)
        for name in precision.SOFTMAX_BACKWARD:
            op = getattr(torch.ops.aten, name)
            for dim in (0, 1, 2, -1, -3):
                for g in (grad, grad.transpose(0, 1).contiguous().transpose(0, 1)):
                    found = op(g, output, dim, torch.float32)
                    wanted = op(g.cpu().double(), output.cpu().double(), dim, torch.float64).float()
                    near = found.cpu().allclose(wanted, rtol=1e-5, atol=1e-5)
                    assert near and found.is_contiguous() and found.dtype == torch.float32, (name, dim)
    finally:
        reductions._PIECE = whole


def memory_is_counted() -> None:
    from mmulator.doors.torch.cuda_device import account

    before = account()["requested"]["all"]
    x = ones(1000)
    y = x + x
    during = account()["requested"]["all"]
    del x, y
    after = account()["requested"]["all"]
    assert during["current"] - before["current"] == 8000 and after["current"] == before["current"]
    assert after["peak"] >= during["current"] and after["freed"] - before["freed"] == 8000
    torch.cuda.reset_peak_memory_stats()
    x = ones(1000)
    held = torch.cuda.memory_allocated()
    del x
    assert held - torch.cuda.memory_allocated() == 4096 and torch.cuda.max_memory_allocated() == held


def kernels_may_touch_what_was_asked_for() -> None:
    from mmulator.host.driver import current

    memory = current().memory
    x, host = ones(10), torch.ones(10)
    before = len(list(memory))
    table = torch.tensor([x.data_ptr(), host[3:].data_ptr()])
    assert [memory.find(int(a)).size for a in table] == [40, 40]
    assert memory.find(int(table[1])).address == host.data_ptr()
    assert memory.known(x.data_ptr()) and len(list(memory)) == before + 2  # for Triton, whose launches borrow no other memory
    del x, host
    assert len(list(memory)) == before and memory.find(int(table[0])) is None


def pinned_memory() -> None:
    p = torch.ones(3).pin_memory()
    assert p.is_pinned() and p[1:].is_pinned() and not p.clone().is_pinned() and not torch.ones(3).is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned() and p.cuda(non_blocking=True).is_cuda
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    assert next(iter(torch.utils.data.DataLoader(data, 2, pin_memory=True)))[0].is_pinned()
    raises(RuntimeError, "pin", lambda: torch.empty(3, device=CUDA, pin_memory=True))


def generators_are_told_apart() -> None:
    g = torch.Generator(device=CUDA).manual_seed(3)
    assert g.device.type == CUDA and isinstance(torch.default_generator, torch.Generator) and g.get_state().numel() == 16
    a, state = torch.rand(5, device=CUDA, generator=g), g.get_state()
    b = torch.rand(5, device=CUDA, generator=g)
    g.set_state(state)
    assert torch.equal(b, torch.rand(5, device=CUDA, generator=g)) and not torch.equal(a, b)
    raises(RuntimeError, "Expected a 'cuda' device type", lambda: torch.rand(5, device=CUDA, generator=torch.Generator()))
    raises(RuntimeError, "Expected a 'cpu' device type", lambda: torch.rand(5, generator=g))
    for seeded in (torch.manual_seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all):
        drawn = []
        for _ in range(2):
            seeded(5)
            drawn.append(torch.cat([torch.randn(4, device=CUDA), torch.randperm(4, device=CUDA), F.dropout(ones(9))]))
        assert torch.equal(*drawn)
    state = torch.cuda.get_rng_state()
    with torch.random.fork_rng():
        torch.rand(3, device=CUDA)
    assert torch.equal(state, torch.cuda.get_rng_state())
    torch.manual_seed(1)
    a = torch.rand(3)
    torch.manual_seed(1)
    torch.rand(100, device=CUDA)
    assert torch.equal(a, torch.rand(3))


def the_smallest_integer_is_divided_as_on_a_gpu() -> None:
    def same(found: torch.Tensor, *wanted: int) -> None:
        assert found.tolist() == [*wanted] and found.dtype == kind, found

    trunc = {"rounding_mode": "trunc"}
    for kind in (torch.int32, torch.int64):
        least, most = torch.iinfo(kind).min, torch.iinfo(kind).max
        x, y, left, right = (
            torch.tensor(values, dtype=kind, device=CUDA)
            for values in ([least, 7, -7, least], [-1, 2, -1, 3], [least, most, 0, 4, least], [most, least, 3, 6, 0])
        )
        wanted = least, 3, 7, -(-least // 3)
        for by in (-1, torch.tensor(-1)):
            same(torch.div(x, by, **trunc), *(-x).tolist())
        for size in (0, 4):
            out = torch.empty(size, dtype=kind, device=CUDA)
            assert torch.div(x, y, out=out, **trunc) is out
            same(out, *wanted)
        same(torch.div(x, y, **trunc), *wanted)
        same(torch.div(x[:, None], y, **trunc)[0], least, least // 2, least, wanted[3])
        same(x.div_(y, **trunc), *wanted)
        same(torch.lcm(left, right), least, least, 0, 12, 0)
        same(left.lcm_(right), least, least, 0, 12, 0)


def libraries_get_the_stream_by_dlpack() -> None:
    """Libraries in C (tvm_ffi) take torch's table of functions for DLPack, and ask it for the stream that work is put on."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return  # an older torch, of which they ask Python
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = (ctypes.c_void_p * 7).from_address(address(capsule, b"dlpack_exchange_api"))  # version, the table before, functions
    ask = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))(table[6])
    for used in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(used):
            stream = ctypes.c_void_p(1)
            assert ask(2, 0, ctypes.byref(stream)) == 0 and stream.value is None, stream  # work is done in order, on stream 0


def what_is_not_there_says_so() -> None:
    from mmulator.errors import UnsupportedError

    eye = torch.eye(3, device=CUDA)
    for function in (
        eye.to_sparse_csr, lambda: torch.quantize_per_tensor(eye, 1.0, 0, torch.quint8),
        lambda: repr(torch.nested.nested_tensor([ones(2)])), eye.to_mkldnn,
    ):  # fmt: skip
        raises(UnsupportedError, "not supported", function)


def tell(names: dict[str, Any]) -> None:
    """Run the functions of a program without arguments and results, and print how each ended."""
    torch.set_num_threads(1)
    for check in [v for v in list(names.values()) if inspect.isfunction(v) and v.__module__ == "__main__"]:
        if check.__annotations__ in ({"return": None}, {"return": "None"}):  # or as a text
            try:
                check()
                print(json.dumps([check.__name__, ""]), flush=True)
            except Exception:
                print(json.dumps([check.__name__, traceback.format_exc()]), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("error")  # nothing is said by installing
    install()
    install()
    assert installed()
    warnings.simplefilter("ignore")
    tell(globals())
