"""Products with the bits of cuBLAS, where the order of its sums is known; others are the CPU's. The report counts both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mmulator.doors.launch_site import line_of_launch
from mmulator.doors.torch import dispatch, orders
from mmulator.doors.torch.kernels import hosted, kernel
from mmulator.host.driver import current
from mmulator.host.driver.products import products

VECTORS = ("mv", "mv.out", "addmv", "addmv_", "addmv.out", "dot", "dot.out", "vdot", "vdot.out")
OPERATORS = tuple(name + out for name in ("mm", "bmm", "addmm", "baddbmm") for out in ("", ".out"))


def product(*values: Any, **named: Any) -> Any:
    """The result of a product of CPU tensors with the library's bits; None where its order is not known. It is counted."""
    of, made = orders.product(current().device.name, *values, **named)
    if of is not None:
        products().count(of.kind, made is not None, line_of_launch)
    return made


class CountedOperator(dispatch.Operator):
    """A product's kernel for tensors of cuda that is the CPU's: no order of it is known."""

    def __init__(self, op: torch._ops.OpOverload) -> None:
        super().__init__(op)
        self.plain, self.run = self.run, self.counted

    def counted(self, keys: Any, *values: Any, **named: Any) -> Any:
        made = self.plain(keys, *values, **named)
        kind = self.name.partition("::")[2].partition(".")[0].rstrip("_")
        dtype = next(v.dtype for v in values if isinstance(v, torch.Tensor))
        products().count(f"{orders.type_name(dtype)} {kind}", False, line_of_launch)
        return made


class LibraryOperator(dispatch.Operator):
    """A product's kernel for tensors of cuda."""

    def __init__(self, op: torch._ops.OpOverload) -> None:
        super().__init__(op)
        self.plain, self.run = self.run, self.in_order

    def in_order(self, keys: Any, *values: Any, out: Any = None, **named: Any) -> Any:
        *c, a, b = values
        made = product(a, b, *c, **named) if out is None or out.dtype == a.dtype else None
        if out is None:
            return self.plain(keys, *values, **named) if made is None else made
        if made is None or made.shape != out.shape:  # torch's own kernel says what is wrong with `out`, or makes it larger
            self.plain(keys, *values, **named, out=out)
        return out if made is None else out.copy_(made)


def kernels() -> dict[str, Callable[..., Any]]:
    """Kernels by the names of operators."""
    made = {f"aten::{name}": dispatch.kernel(f"aten::{name}", LibraryOperator) for name in OPERATORS}
    return made | {f"aten::{name}": dispatch.kernel(f"aten::{name}", CountedOperator) for name in VECTORS}


_SUMMED = (torch.bfloat16, torch.float16, torch.float32)  # types of scaled products whose bits are known
_TILE, _COLUMNS = 128, 4  # rows and scales of a tile of swizzled scales
_FOUR = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)  # of E2M1's codes
_NEWER = {getattr(torch, name) for name in ("float8_e8m0fnu", "float4_e2m1fn_x2") if hasattr(torch, name)}


def _values(x: Any) -> Any:
    """Elements of a matrix whose last dimension lies together, in f64."""
    if str(x.dtype) != "torch.float4_e2m1fn_x2":
        return x.double()
    codes = x.view(torch.uint8).long()
    return _FOUR[torch.stack((codes & 15, codes >> 4), -1).flatten(-2)]


def _unswizzled(scale: Any, rows: int, blocks: int) -> Any:
    """Scales [rows, blocks] of tiles of 128 rows and 4 blocks: in a tile rows r, r + 32, r + 64 and r + 96 lie together."""
    tiles, columns = -(-rows // _TILE), -(-blocks // _COLUMNS)
    if scale.numel() != tiles * _TILE * columns * _COLUMNS:
        raise ValueError(
            f"Invalid scaling configuration: the scales of {rows} rows of {blocks} blocks are "
            f"{tiles * _TILE * columns * _COLUMNS} numbers, and not {scale.numel()}"
        )
    tiled = scale.reshape(tiles, columns, _TILE // 4, 4, _COLUMNS).transpose(2, 3).reshape(tiles, columns, _TILE, _COLUMNS)
    return tiled.transpose(1, 2).reshape(tiles * _TILE, columns * _COLUMNS)[:rows, :blocks]


def _factors(scale: Any, rows: int, k: int, swizzled: bool) -> Any:
    """Factors of the elements of [rows, k]."""
    block, number = 16 if scale.dtype == torch.float8_e4m3fn else 32, scale.double()
    if scale.numel() == 1:
        return number.reshape(1, 1)
    if swizzled:
        return _unswizzled(number, rows, k // block).repeat_interleave(block, 1)
    if scale.numel() == rows:
        return number.reshape(rows, 1)
    block = 128 if scale.dtype == torch.float32 else block
    if number.dim() != 2 or number.size(1) != -(-k // block) or number.size(0) not in (rows, -(-rows // 128)):
        raise ValueError(f"Invalid scaling configuration: scales {tuple(scale.shape)} of [{rows}, {k}]")
    tall = number if number.size(0) == rows else number.repeat_interleave(128, 0)[:rows]
    return tall.repeat_interleave(block, 1)[:, :k]


def _product(
    a: Any, b: Any, of_a: list[tuple[Any, bool]], of_b: list[tuple[Any, bool]], bias: Any, out: Any, fast: bool
) -> Any:  # fmt: skip
    """a @ b with scales. of_a, of_b: each a scale and whether it is swizzled; of b those of its transpose, [n, k]."""
    types = {a.dtype, b.dtype, *(scale.dtype for scale, _ in (*of_a, *of_b))}
    least = (10, 0) if types & _NEWER else (8, 9)
    if current().device.capability < least:
        raise RuntimeError(
            f"a scaled product of {a.dtype} needs a device of compute capability {least[0]}.{least[1]}, and this is "
            f"{current().device.name}"
        )
    if a.stride(1) != 1 or b.stride(0) != 1:
        raise RuntimeError(f"mat1 must be row_major and mat2 col_major, got strides {a.stride()} and {b.stride()}")
    x, y = _values(a), _values(b.t())
    if x.size(1) % 16 or y.size(0) % 16:
        shapes = f"{tuple(x.shape)} and {tuple(y.t().shape)}"
        raise RuntimeError(f"Expected dimensions of mat1 and mat2 to be divisible by 16, got {shapes}")
    for scale, swizzled in of_a:
        x = x * _factors(scale, x.size(0), x.size(1), swizzled)
    for scale, swizzled in of_b:
        y = y * _factors(scale, y.size(0), y.size(1), swizzled)
    known, dtype = None, out or a.dtype
    if bias is not None and dtype == torch.float32:
        raise RuntimeError("Bias is not supported when out_dtype is set to Float32")
    if bias is not None and bias.dtype not in ((dtype,) if dtype in _SUMMED else _SUMMED[:2]):
        raise RuntimeError(f"Bias must be {dtype} to compute {dtype} output, but got {bias.dtype}")
    if len(of_a) == len(of_b) == 1 and dtype in _SUMMED:
        known = orders.scaled(current().device.name, a, b, (of_a[0][0], of_b[0][0].t()), fast, bias)
    products().count(f"{str(a.dtype).removeprefix('torch.')} scaled_mm", known is not None, line_of_launch)
    if known is not None:
        return known.to(dtype)
    found = x @ y.t()
    if bias is not None:
        found = found + bias.double()
    if dtype.itemsize == 1:
        most = torch.finfo(dtype).max
        found = found.clamp(-most, most)
    return found.float().to(dtype)


def scaled(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    of_a, of_b = ((s, s.dtype != torch.float32 and s.numel() > 1) for s in (scale_a, scale_b))
    if not of_b[1] and scale_b.dim() == 2:
        of_b = scale_b.t(), False
    more = [] if scale_result is None else [(scale_result, False)]
    return _product(a, b, [of_a], [of_b, *more], bias, out_dtype, use_fast_accum)


_run = kernel("_scaled_mm")(hosted(scaled))


@kernel("_scaled_mm.out")
def scaled_out(*args: Any, out: Any, **kwargs: Any) -> Any:
    return out.copy_(_run(*args, **{**kwargs, "out_dtype": kwargs.get("out_dtype") or out.dtype}))


def scaled_by_recipe(
    a: Any, b: Any, scale_a: Any, recipe_a: Any, swizzle_a: Any, scale_b: Any, recipe_b: Any, swizzle_b: Any, bias: Any,
    out_dtype: Any, contraction_dim: Any = (), use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    def each(scales: Any, swizzles: Any, rows: int) -> list[tuple[Any, bool]]:
        out, tall = [], (rows, -(-rows // 128))
        for n, scale in enumerate(scales):
            turned = scale.dim() == 2 and scale.size(0) not in tall and scale.size(1) in tall
            out.append((scale.t() if turned else scale, n < len(swizzles) and swizzles[n] == 1))
        return out

    of_a, of_b = each(scale_a, swizzle_a, a.size(0)), each(scale_b, swizzle_b, b.size(1))
    return _product(a, b, of_a, of_b, bias, out_dtype, use_fast_accum)


if hasattr(torch.ops.aten, "_scaled_mm_v2"):
    kernel("_scaled_mm_v2")(hosted(scaled_by_recipe))
