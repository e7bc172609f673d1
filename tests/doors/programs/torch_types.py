"""Operators on cuda with the types that CUDA's kernels have and the CPU's have not, by torch's own list and ours.

What is computed must be what the CPU computes in the wider type, rounded once. torch_operators.py prints what is not.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from mmulator.doors.torch.retyped import _WIDER
from tests.doors.programs.torch_operators import attempt, on_cuda

RARE = [torch.uint16, torch.uint32, torch.float8_e4m3fn, torch.float8_e5m2]
ATTENTION = {f"torch.ops.aten._{kind}_attention_forward" for kind in ("flash", "efficient")}  # torch_cards.py
ELSEWHERE = {"nn.functional.rrelu", "histc", *ATTENTION}  # random; below; which the CPU has not
COMPOSED = ("nn.functional.conv", "fft.hfft2", "fft.hfftn", "fft.ihfft2", "fft.ihfftn")  # of several, each rounds, on a GPU too


def widened(value: Any) -> Any:
    return tree_map(lambda v: v.to(_WIDER[v.dtype]) if isinstance(v, torch.Tensor) and v.dtype in _WIDER else
                    _WIDER.get(v, v) if isinstance(v, torch.dtype) else v, value)  # fmt: skip


def of_torch() -> Iterator[tuple[str, str]]:
    import torch.testing._internal.common_methods_invocations as methods

    for op in methods.op_db:
        name = ".".join(filter(None, (op.name, op.variant_test_name)))
        for dtype in sorted({*op.dtypesIfCUDA} - {*op.dtypes}, key=str):
            if name in ELSEWHERE:
                continue
            torch.manual_seed(0)
            for n, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
                if n >= 2:
                    break
                own = (sample.input, sample.args, sample.kwargs)
                (i, a, k), (wi, wa, wk) = on_cuda(own), widened(own)
                got, wrong = attempt(op, i, *a, **k)
                want, error = attempt(op, wi, *wa, **wk)
                yield f"{name} {dtype}", said(got, wrong, want, error, name.startswith(COMPOSED))


def said(got: Any, wrong: Exception | None, want: Any, error: Exception | None, near: bool = False) -> str:
    if error is not None:
        return "" if wrong is not None else "no error"
    if wrong is not None:
        return f"{type(wrong).__name__}: {str(wrong).splitlines()[0][:150]}"
    for g, w in zip(tree_leaves(got), tree_leaves(want), strict=True):
        if not isinstance(g, torch.Tensor):
            continue
        a, b = bits(g.cpu()), bits(w.to(g.dtype))
        if not (torch.allclose(a, b, 0, float(b.abs().max()) / 64) if near else torch.equal(a, b)):
            return f"{g} and {w}"
    return ""


def bits(t: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(t).nan_to_num(nan=7) if t.is_complex() else t.nan_to_num(nan=7)


def moves() -> Iterator[tuple[str, str]]:
    at, mask = torch.tensor([2, 0]), torch.tensor([True, False, True, True])

    def into(f: Any) -> Any:
        return lambda x, at, mask, other: f(x.clone(), at, mask, other)

    each = {
        "index_select": lambda x, at, mask, other: x.index_select(0, at), "flip": lambda x, at, mask, other: x.flip(0),
        "gather": lambda x, at, mask, other: x.gather(0, at), "index": lambda x, at, mask, other: x[at],
        "masked_fill": lambda x, at, mask, other: x.masked_fill(mask, 2),
        "where": lambda x, at, mask, other: torch.where(mask, x, x),
        "index_put": into(lambda x, at, mask, other: x.index_put_((at,), other)),
        "setitem": into(lambda x, at, mask, other: (x.__setitem__(mask, 3), x)[1]),
        "scatter": lambda x, at, mask, other: x.scatter(0, at, other),
        "index_copy": into(lambda x, at, mask, other: x.index_copy_(0, at, other)),
        "select out": lambda x, at, mask, other: torch.index_select(x, 0, at, out=torch.empty_like(x)),
    }  # fmt: skip
    for dtype in RARE:
        x, other = (torch.arange(n, n + size, dtype=torch.float32).to(dtype) for n, size in ((1, 4), (7, 2)))
        for name, f in each.items():
            got, wrong = attempt(f, *(t.cuda() for t in (x, at, mask, other)))
            want, error = attempt(f, x.float(), at, mask, other.float())
            yield f"{name} {dtype}", said(got.float() if wrong is None else got, wrong, want, error)


def histograms() -> Iterator[tuple[str, str]]:
    """Histograms of integers: in whole numbers, the last bin closed, values outside left out, least and greatest as limits."""
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        x = torch.tensor([0, 1, 1, 3, 9], device="cuda", dtype=dtype)
        got = [torch.histc(x, 4, 0, 3), torch.histc(x, 3), torch.histc(x[:1], 2), torch.histc(x, 4, 0, 3, out=x.new_empty(0))]
        want = [[1, 2, 0, 1], [3, 1, 1], [0, 1], [1, 2, 0, 1]]
        right = [t.tolist() for t in got] == want and all(t.dtype == dtype and t.is_cuda for t in got)
        yield f"histc {dtype}", "" if right else str(got)


def nan_gradients() -> Iterator[tuple[str, str]]:
    """Gradients that a GPU passes on where the input is NaN, as an H100 does; elsewhere they are the CPU's."""
    f = torch.nn.functional
    for dtype in (torch.float32, torch.float16):
        for name, function in (("relu6", f.relu6), ("hardtanh", f.hardtanh), ("hardshrink", f.hardshrink)):
            x = torch.tensor([float("nan"), -7.0, 0.1, 0.9, 7.0], dtype=dtype)
            own, other = x.cuda().requires_grad_(), x.clone().requires_grad_()
            for t in (own, other):
                function(t).backward(torch.full_like(t, 0.25))
            want = [0.25, *other.grad.tolist()[1:]]
            yield f"gradient of {name} {dtype}", "" if own.grad.tolist() == want else f"{own.grad} and {want}"


def refusals() -> Iterator[tuple[str, str]]:
    """An operator without an answer is refused in words."""
    _, error = attempt(lambda x: x >> 1, torch.ones(4, device="cuda").to(torch.uint16))
    text = "aten::__rshift__.Scalar of UInt16 on cuda is not supported"
    yield "refusal", "" if isinstance(error, NotImplementedError) and text in str(error) else str(error)


def others() -> dict[str, Any]:
    """How many were tried, and of those that are not as they should be, what they are."""
    found = [*moves(), *histograms(), *nan_gradients(), *refusals(), *of_torch()]
    return {"tried": len({name for name, _ in found}), "other": {name: what for name, what in found if what}}
