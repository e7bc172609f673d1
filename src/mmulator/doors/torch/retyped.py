"""Operators that CUDA's kernels have for more types than the CPU's: they are computed through another type.

Halves go through f32 and complex halves through complex64, rounded once at the end, as CUDA's kernels compute (`opmath_t`);
operators that only move elements go through integers of their width. torch's own tests list which types CUDA has and the CPU
does not (`OpInfo.dtypesIfCUDA`). For all others the error names the operator and the type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mmulator.base.errors import UnsupportedError
from mmulator.doors.torch import dispatch

_Tensor = torch.Tensor
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64, torch.bool: torch.uint8}
_NAMES = {"Half": torch.float16, "BFloat16": torch.bfloat16, "ComplexHalf": torch.complex32, "Bool": torch.bool}
# Types of one, two, four and eight bytes of which the CPU's kernels have few, and integers as long.
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_RARE = frozenset(
    getattr(torch, name)
    for name in ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
                 "float8_e8m0fnu")
    if hasattr(torch, name)
)  # fmt: skip
# Operators that move elements and compute nothing, in place or not. Those behind a colon do where that argument is false.
_MOVES = {
    "index_select": "", "flip": "", "roll": "", "gather": "", "masked_fill": "", "masked_fill_": "", "masked_select": "",
    "masked_scatter": "", "masked_scatter_": "", "index": "", "index_fill": "", "index_fill_": "", "index_copy": "",
    "index_copy_": "", "take": "", "where": "", "cat": "", "tril": "", "triu": "", "_index_put_impl_": "accumulate",
    "index_put_": "accumulate", "index_put": "accumulate", "scatter": "reduce", "scatter_": "reduce", "repeat_interleave": "",
    "unfold_copy": "", "nonzero": "", "diag_embed": "",
}  # fmt: skip


class UnsupportedType(UnsupportedError, NotImplementedError):
    """Torch's NotImplementedError, which programs may catch, with a message of mmulator's."""


def elsewhere(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], refused: str) -> Any:
    """The result of an operator whose kernel for the CPU refused a type. refused: its name. Raises UnsupportedType."""
    if refused in _NAMES:
        return _computed(op, args, kwargs, _WIDER)
    rare = {t.dtype for t in _tensors((args, kwargs)) if t.dtype in _RARE}
    condition = _MOVES.get(op.name().partition("::")[2].partition(".")[0])
    if rare and condition is not None and not (condition and _argument(op, args, kwargs, condition)):
        return _moved(op, args, kwargs)
    raise UnsupportedType(
        f"{op.name()} of {refused} on cuda is not supported: torch's kernel for the CPU, which is run here, has no such type",
        hint="CUDA's may have it; compute it through another one, as x.float() or x.view(torch.uint8)",
    ) from None


def _argument(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
    at = next((n for n, a in enumerate(op._schema.arguments) if a.name == name), len(args))
    return args[at] if at < len(args) else kwargs.get(name)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    return [value] if isinstance(value, _Tensor) else []


def _mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, _Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: _mapped(v, change) for name, v in value.items()}
    return type(value)(_mapped(v, change) for v in value) if type(value) in (list, tuple) else value


def _computed(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], wider: dict[Any, Any]) -> Any:
    """The result, computed in wider types, with one rounding."""
    made: list[tuple[torch.Tensor, torch.Tensor]] = []

    def widen(t: torch.Tensor) -> torch.Tensor:
        if t.dtype not in wider:
            return t
        made.append((t, t.to(wider[t.dtype])))
        return made[-1][1]

    wide_args, wide_kwargs = _mapped(args, widen), _mapped(kwargs, widen)
    if isinstance(kwargs.get("dtype"), torch.dtype):
        wide_kwargs["dtype"] = wider.get(kwargs["dtype"], kwargs["dtype"])
    found = op(*wide_args, **wide_kwargs)
    written = [n for n, a in enumerate(op._schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    targets = {id(_argument(op, args, kwargs, op._schema.arguments[n].name)) for n in written}
    own = {}
    for narrow, wide in made:
        if id(narrow) in targets:
            own[id(wide)] = narrow.resize_(wide.shape).copy_(wide)
    types = _types(op, args, kwargs)
    narrower = {wide: narrow.dtype for narrow, wide in ((n, w.dtype) for n, w in made)}
    several = isinstance(found, (list, tuple))
    out = []
    for n, t in enumerate(found if several else (found,)):
        if isinstance(t, _Tensor) and id(t) not in own:
            t = t.to(types[n] if n < len(types) and types[n] is not None else narrower.get(t.dtype, t.dtype))
        out.append(own.get(id(t), t))
    return tuple(out) if several else out[0]


def _types(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The dtypes of an operator's results, which torch knows without a run; empty where torch does not know them."""
    def outline(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")

    try:
        found = op(*_mapped(args, outline), **_mapped(kwargs, outline))
    except Exception:  # operators whose results' shapes depend on values, and such
        return []
    return [getattr(t, "dtype", None) for t in (found if isinstance(found, (list, tuple)) else (found,))]


def _moved(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result, computed on integers of the elements' width, which share the memory of arguments that are written in place."""
    rare = next(t.dtype for t in _tensors((args, kwargs)) if t.dtype in _RARE)
    integer = _INTEGERS[rare.itemsize]
    views: dict[int, torch.Tensor] = {}
    shared: list[tuple[torch.Tensor, torch.Tensor]] = []

    def view(t: torch.Tensor) -> torch.Tensor:
        if t.dtype != rare:
            return t
        made = t.view(integer)
        views[id(made)] = t
        shared.append((made, t))
        return made

    def encode(name: str, value: Any) -> Any:
        """A number that is stored."""
        if name != "value" or isinstance(value, _Tensor):
            return value
        return torch.tensor(value, dtype=rare).view(integer).item()

    names = [a.name for a in op._schema.arguments]
    given = [encode(name, v) for name, v in zip(names, _mapped(list(args), view))]
    found = op(*given, **{name: encode(name, v) for name, v in _mapped(kwargs, view).items()})
    for made, t in shared:
        if made.shape != t.shape:  # the operator gave it another shape
            t.resize_(made.shape)
    return _mapped(found, lambda t: views.get(id(t), t.view(rare) if t.dtype == integer else t))


def histc(self: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """torch.histc of integers, which CUDA counts in whole numbers: bin (x - min) * bins // (max - min), the last one closed."""
    low, high = int(min), int(max)
    if low == high and self.numel():
        low, high = int(self.min()), int(self.max())
    if low == high:
        low, high = low - 1, high + 1
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    if low > high:
        raise RuntimeError("max must be larger than min")
    x = self.reshape(-1).to(torch.int64)
    x = x[(x >= low) & (x <= high)]
    at = ((x - low) * bins // (high - low)).clamp(max=bins - 1)
    return torch.bincount(at, minlength=bins).to(self.dtype)


class Histogram(dispatch.Operator):
    """Both forms of histc."""

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args[0].dtype.is_floating_point:
            return super().call(args, kwargs)
        out = kwargs.get("out")
        found = histc(*args, **{name: v for name, v in kwargs.items() if name != "out"})
        return found if out is None else out.resize_(found.shape).copy_(found)


class Transform(dispatch.Operator):
    """Fourier transforms, which cuFFT has of halves for sizes that are powers of two alone."""

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, sizes = args[0], [args[0].size(d) for d in args[1]]
        if self.op._opname == "_fft_c2r" and sizes:
            sizes[-1] = args[3]
        if x.dtype in (torch.float16, torch.complex32) and (wrong := [n for n in sizes if n & (n - 1)]):
            raise RuntimeError(
                "cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, but got a signal "
                f"size of{wrong}"
            )
        return super().call(args, kwargs)


_OWN = {"histc": Histogram, "histc.out": Histogram, "_fft_r2c": Transform, "_fft_c2c": Transform, "_fft_c2r": Transform}


def install() -> None:
    """Make operators that refuse a type come here."""
    dispatch.retyped = elsewhere


def kernels() -> dict[str, Callable[..., Any]]:
    """Kernels by the names of operators."""
    return {f"aten::{name}": dispatch.kernel(f"aten::{name}", make) for name, make in _OWN.items()}
