"""Operators whose kernels for CUDA take other steps than the CPU's: each formula has the steps of CUDA's kernel.

The formulas were compared with an NVIDIA H100, on all numbers of f16 and bf16 and on 16,000 of f32: no bit differs
(tests/doors/test_torch_steps.py), but for elu_backward, whose exponential is the CPU's.
A formula is given tensors of the CPU, and returns None where the CPU's kernel has the bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import torch
from numpy import errstate

from mmulator.doors.launch_site import line_of_launch
from mmulator.doors.torch import dispatch, elementary, precision, reductions
from mmulator.host.driver.products import products
from mmulator.matrix.twin.sfu.arrays import evaluate

_NARROW = frozenset((torch.float16, torch.bfloat16))
_SINGLE = torch.float32
_Tensor = torch.Tensor
_run = torch.ops.aten.mul.Tensor._handle.redispatch_boxed
SIXTH = 1 / torch.tensor(6.0)


def _number(value: Any) -> bool:
    """Whether an operand is a number, or a tensor of one number that the program has on the CPU. Aliases of cuda's memory
    cannot be resized.
    """
    return not isinstance(value, _Tensor) or (value.dim() == 0 and value.untyped_storage().resizable())


def divided(x: Any, by: Any) -> Any:
    """By a number: times its inverse."""
    if not isinstance(x, _Tensor) or not x.is_floating_point() or not _number(by) or _number(x):
        return None
    wide = torch.float64 if x.dtype == torch.float64 else _SINGLE
    divisor = by if isinstance(by, _Tensor) else torch.tensor(by)
    if divisor.is_complex():
        return None
    inverse = 1 / divisor.to(wide)
    if x.dtype == wide:  # takes as long as the CPU's division
        return _run(dispatch.KEYS, x, inverse)
    return (x.to(wide) * inverse).to(x.dtype)


def tanh_backward(grad: Any, y: Any) -> Any:
    if y.dtype in _NARROW:
        return grad * (1 - y * y)
    if y.dtype == _SINGLE:  # one fused multiply-add
        return grad * (1 - y.double() * y.double()).float()
    return None


def rounded(x: Any, *, decimals: int) -> Any:
    if x.dtype not in _NARROW or not decimals:
        return None
    scale = torch.tensor(10.0 ** abs(decimals)).to(x.dtype)
    return (x * scale).round() / scale if decimals > 0 else (x / scale).round() * scale


def power(x: Any, exponent: Any) -> Any:
    if exponent == -0.5:
        return inverse_root(x)
    if x.dtype in _NARROW and exponent == 3:
        return x * x * x
    if x.dtype in _NARROW and exponent == -2:
        return (x * x).reciprocal()
    return None


def inverse_root(x: Any) -> Any:
    """By rsqrt.approx.f32."""
    if x.dtype not in elementary.FLOATS:
        return None
    return elementary.tensor(evaluate("rsqrt", elementary.single(x)), x.dtype, *x.shape)


def sigmoid_backward(grad: Any, y: Any) -> Any:
    return grad * (1 - y) * y if y.dtype == torch.bfloat16 else None


def _clamped(x: Any) -> Any:
    return (x + 3).clamp(0, 6)


def hardsigmoid(x: Any) -> Any:
    return _clamped(x) * SIXTH if x.dtype == _SINGLE else None


def hardswish(x: Any) -> Any:
    return x * _clamped(x) * SIXTH if x.dtype == _SINGLE else None


def _fused(x: Any, a: Any, b: Any) -> Any:
    """x + a * b, rounded once, to the type of x."""
    return (x.double() + a.double() * b.double()).to(_SINGLE).to(x.dtype)


def _floats(*tensors: Any) -> bool:
    return all(isinstance(t, _Tensor) and t.dtype in (*_NARROW, _SINGLE) for t in tensors)


def addcmul(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    if not _floats(x, a, b):
        return None
    return _fused(x, a, b) if value == 1 else _fused(x, torch.tensor(value, dtype=_SINGLE), a.float() * b.float())


def addcdiv(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return _fused(x, torch.tensor(value, dtype=_SINGLE), a.float() / b.float()) if _floats(x, a, b) else None


def _quotient(x: Any, by: Any) -> Any:
    """x / by of integers, cut. The smallest integer divided by -1 is itself: the CPU's kernel ends the process there."""
    minus = by == -1
    return torch.where(minus, -x, torch.div(x, by.masked_fill(minus, 1), rounding_mode="trunc"))


_WRAPPING = frozenset((torch.int32, torch.int64))  # smaller integers are divided as integers of 32 bits


def quotient(x: Any, by: Any, *, rounding_mode: str | None) -> Any:
    if rounding_mode != "trunc" or torch.result_type(x, by) not in _WRAPPING:
        return None
    by = torch.as_tensor(by)
    return _quotient(torch.as_tensor(x), by).to(torch.result_type(x, by)) if (by == -1).any() else None


def lcm(x: Any, y: Any) -> Any:
    x, y = torch.broadcast_tensors(x, y)
    divisor, kind = torch.gcd(x, y), torch.result_type(x, y)  # -1 for the smallest and the largest integer
    if kind not in _WRAPPING or not (divisor == -1).any():
        return None
    return (_quotient(x.to(kind), divisor.masked_fill(divisor == 0, 1)) * y).abs()


# gradients that pass a NaN: (number of the input among the arguments, a value that the gradient passes as it passes a NaN)
PASSING: dict[str, tuple[int, Callable[..., float]]] = {
    "hardtanh_backward": (1, lambda grad, x, low, high: (low + high) / 2), "hardswish_backward": (1, lambda *_: 6.0),
    "hardshrink_backward": (1, lambda *_: inf), "softshrink_backward": (1, lambda *_: inf), "elu_backward": (5, lambda *_: 1.0),
}  # fmt: skip


def _passing(name: str, at: int, value: Callable[..., float]) -> Callable[..., Any]:
    def formula(*given: Any) -> Any:
        values, x = list(given), given[at]
        nans = x.isnan()
        if not nans.any():
            return None
        values[at] = x.masked_fill(nans, value(*given))
        return getattr(torch.ops.aten, name)(*values)

    return formula


FORMULAS: dict[str, Callable[..., Any]] = {
    "div.Tensor": divided, "div_.Tensor": divided, "div.Scalar": divided, "div_.Scalar": divided, "tanh_backward": tanh_backward,
    "sigmoid_backward": sigmoid_backward,
    "div.Tensor_mode": quotient, "div_.Tensor_mode": quotient, "div.Scalar_mode": quotient, "div_.Scalar_mode": quotient,
    "div.out_mode": quotient,
    "lcm": lcm, "lcm_": lcm, "lcm.out": lcm,
    "round.decimals": rounded, "round_.decimals": rounded, "pow.Tensor_Scalar": power, "pow_.Scalar": power,
    "rsqrt": inverse_root, "rsqrt_": inverse_root, "hardsigmoid": hardsigmoid, "hardsigmoid_": hardsigmoid,
    "hardswish": hardswish, "hardswish_": hardswish, "addcmul": addcmul, "addcmul_": addcmul,
    "addcdiv": addcdiv, "addcdiv_": addcdiv,
    **elementary.FORMULAS, **{name: _passing(name, *how) for name, how in PASSING.items()},
    **dict.fromkeys(reductions.OTHERS, lambda *values, **named: None), **reductions.FORMULAS,
}  # fmt: skip
SUMS = frozenset((*reductions.FORMULAS, *reductions.OTHERS))


class SteppedKernel:
    """An operator's kernel for tensors of cuda that takes the steps of CUDA's, where they are known."""

    def __init__(self, operator: dispatch.Operator, formula: Callable[..., Any], run: dispatch.Kernel) -> None:
        self.operator, self.formula, self.plain = operator, formula, run
        name = operator.name.partition("::")[2]
        self.sums = name.partition(".")[0].removeprefix("_").removeprefix("native_") if name in SUMS else ""

    def __call__(self, keys: Any, *values: Any, **named: Any) -> Any:
        """Run the operator on CPU tensors."""
        out = {name: named[name] for _, name in self.operator.outs}
        with errstate(all="ignore"):
            result = self.formula(*values, **{name: value for name, value in named.items() if name not in out})
        if result is None:
            if self.sums and values[0].dtype in elementary.FLOATS and values[0].numel() > 1:
                kind = f"{self.sums} {str(values[0].dtype).removeprefix('torch.')}"
                products().operator(kind, reductions.WHY, line_of_launch)
            return self.plain(keys, *values, **named)
        for target in out.values():
            return target.resize_(result.shape).copy_(result)
        return values[0].copy_(result) if self.operator.written else result


def kernels() -> dict[str, Callable[..., Any]]:
    """Kernels by the names of operators."""
    wider = precision.makers()

    def make(name: str, op: torch._ops.OpOverload) -> dispatch.Operator:
        made = wider.get(name, dispatch.Operator)(op)
        made.run, made.with_numbers = (SteppedKernel(made, FORMULAS[name], run) for run in (made.run, made.with_numbers))
        return made

    return {
        f"aten::{name}": dispatch.kernel(f"aten::{name}", partial(make, name))
        for name in FORMULAS if torch._C._dispatch_has_kernel(f"aten::{name}")
    }  # fmt: skip
