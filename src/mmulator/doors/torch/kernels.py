"""Operators on cuda that do more than run the CPU's kernel on their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mmulator.doors.torch import dispatch, memory, objects
from mmulator.host.driver.streams import ordering

KEYS = objects.KEYS
_aten = torch.ops.aten
_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
SPECIAL: dict[str, Callable[..., Any]] = {}


def kernel(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: register a function as the kernel of operators on cuda."""

    def take(function: Callable[..., Any]) -> Callable[..., Any]:
        SPECIAL.update(dict.fromkeys(("aten::" + name for name in names), function))
        return function

    return take


# memory -------------------------------------------------------------------------------------------------------------------
_empty = _aten.empty.memory_format._handle.redispatch_boxed
_empty_strided = _aten.empty_strided.default._handle.redispatch_boxed


def _pinned(pin_memory: bool | None) -> None:
    if pin_memory:
        raise RuntimeError("Only dense CPU tensors can be pinned")


@kernel("empty.memory_format")
def empty(
    size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None
) -> Any:
    _pinned(pin_memory)
    where = objects.CPU if device is None else dispatch.host(device)
    try:
        made = _empty(KEYS, size, dtype=dtype, layout=layout, device=where, memory_format=memory_format)
    except RuntimeError as error:
        raise dispatch.out_of_memory(error) from None
    return memory.poison(dispatch.adopt(made))


@kernel("empty_strided")
def empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    _pinned(pin_memory)
    where = objects.CPU if device is None else dispatch.host(device)
    try:
        made = _empty_strided(KEYS, size, stride, dtype=dtype, layout=layout, device=where)
    except RuntimeError as error:
        raise dispatch.out_of_memory(error) from None
    return memory.poison(dispatch.adopt(made))


def _composed(name: str) -> Callable[..., Any]:
    """An operator that asks for new memory and fills it, as torch composes it of others on the device that it is given."""
    run = getattr(_aten, name).default._handle.redispatch_boxed
    return lambda *args, **kwargs: run(KEYS, *args, **kwargs)


FILLED = ("zeros", "ones", "full", "rand", "randn", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "clone")
SPECIAL.update({f"aten::{name}": memory.filled(_composed(name)) for name in FILLED})


@kernel("resize_")
def resize_(self: Any, size: Any, *, memory_format: Any = None) -> Any:
    stride = None
    if memory_format is not None and memory_format not in (torch.contiguous_format, torch.preserve_format):
        stride = torch.empty(size, device="meta", memory_format=memory_format).stride()
    dispatch.resize(self, size, stride)
    return self


@kernel("set_.source_Storage_storage_offset")
def set_storage_offset(self: Any, source: Any, storage_offset: int, size: Any, stride: Any = ()) -> Any:
    _same_device(source)
    if not stride:
        stride = torch.empty(size, device="meta").stride()
    last = 0 if 0 in size else sum((n - 1) * s for n, s in zip(size, stride)) + 1
    needed = (storage_offset + last) * self.dtype.itemsize if last else 0
    if source.nbytes() < needed:
        objects.resize_storage(source, needed)
    return dispatch._set(KEYS, self, source, storage_offset, size, stride)


def _same_device(storage: Any) -> None:
    if storage.device.type != "cuda":
        raise RuntimeError(
            'Attempted to set the storage of a tensor on device "cuda:0" to a storage on different device '
            f'"{storage.device}".  This is no longer allowed; the devices must match.'
        )


@kernel("set_.source_Storage")
def set_storage(self: Any, source: Any) -> Any:
    return set_storage_offset(self, source, 0, [source.nbytes() // self.dtype.itemsize], [1])


@kernel("set_.source_Tensor")
def set_tensor(self: Any, source: Any) -> Any:
    return set_storage_offset(self, dispatch._storage_of(source), source.storage_offset(), source.size(), source.stride())


@kernel("set_")
def set_nothing(self: Any) -> Any:
    return set_storage_offset(self, memory.storage(0), 0, [0], [1])


@kernel("record_stream")
def record_stream(self: Any, stream: Any) -> None:
    """Memory is not reused before it is free, and streams do not run ahead; a sanitized program has said who uses it."""
    if ordering:
        dispatch.uses.recorded(self, stream)


# to and from the CPU ------------------------------------------------------------------------------------------------------
_copy = _aten.copy_.default._handle.redispatch_boxed
_format = _aten.empty_like.default


@kernel("_to_copy")
@memory.filled
def to_copy(
    self: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, non_blocking: bool = False,
    memory_format: Any = None,
) -> Any:  # fmt: skip
    made = torch.empty_like(
        self, dtype=dtype, layout=layout, device=device or self.device, memory_format=memory_format or torch.preserve_format,
        pin_memory=bool(non_blocking and self.is_cuda and device is not None and device.type == "cpu"),
    )  # fmt: skip
    return made.copy_(self, non_blocking)


# what only CUDA has ---------------------------------------------------------------------------------------------------------
def hosted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of CPU tensors as one of tensors of cuda."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            given: list[Any] = []
            values = dispatch._aliases(args, given, [], own=False)
            named = dict(zip(kwargs, dispatch._aliases(kwargs.values(), given, [], own=False)))
            return dispatch.adopt(function(*values, **named), given)

    return run


def on_host(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: register a function of CPU tensors as the kernel of operators that the CPU lacks."""

    def take(function: Callable[..., Any]) -> Callable[..., Any]:
        kernel(*(n for n in names if not _has_kernel("aten::" + n, "CPU")))(hosted(function))
        return function

    return take


@kernel("_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor", "_use_miopen_ctc_loss", "_use_miopen_ctc_loss.Tensor")
def no_library(*args: Any, **kwargs: Any) -> bool:
    return False


@on_host("mm.dtype", "bmm.dtype")
def product(a: Any, b: Any, out_dtype: torch.dtype) -> Any:
    return torch.matmul(a.to(out_dtype), b.to(out_dtype))


@on_host("addmm.dtype", "baddbmm.dtype")
def sum_with_product(c: Any, a: Any, b: Any, out_dtype: torch.dtype, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return torch.add(torch.mul(c.to(out_dtype), beta), torch.matmul(a.to(out_dtype), b.to(out_dtype)), alpha=alpha)


@kernel("mm.dtype_out", "bmm.dtype_out")
def product_out(a: Any, b: Any, out_dtype: torch.dtype, *, out: Any) -> Any:
    return out.copy_(SPECIAL["aten::mm.dtype"](a, b, out_dtype))


@kernel("addmm.dtype_out", "baddbmm.dtype_out")
def sum_with_product_out(c: Any, a: Any, b: Any, out_dtype: torch.dtype, *, beta: Any = 1, alpha: Any = 1, out: Any) -> Any:
    return out.copy_(SPECIAL["aten::addmm.dtype"](c, a, b, out_dtype, beta=beta, alpha=alpha))


def _gates(input_gates: Any, hidden_gates: Any, input_bias: Any, hidden_bias: Any) -> tuple[Any, Any]:
    if input_bias is None:
        return input_gates, hidden_gates
    return input_gates + input_bias, hidden_gates + hidden_bias


@on_host("_thnn_fused_lstm_cell")
def lstm_cell(input_gates: Any, hidden_gates: Any, cx: Any, input_bias: Any = None, hidden_bias: Any = None) -> Any:
    """(hy, cy, activations of the four gates)"""
    a, b = _gates(input_gates, hidden_gates, input_bias, hidden_bias)
    i, f, g, o = (a + b).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat((i, f, g, o), 1)


@on_host("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(grad_hy: Any, grad_cy: Any, cx: Any, cy: Any, workspace: Any, has_bias: bool) -> Any:
    """(gradient of the gates, of cx, of a bias)"""
    i, f, g, o = workspace.chunk(4, 1)
    t = cy.tanh()
    dh = torch.zeros_like(cy) if grad_hy is None else grad_hy
    dc = dh * o * (1 - t * t)
    if grad_cy is not None:
        dc = dc + grad_cy
    gates = torch.cat((dc * g * i * (1 - i), dc * cx * f * (1 - f), dc * i * (1 - g * g), dh * t * o * (1 - o)), 1)
    return gates, dc * f, gates.sum(0) if has_bias else torch.empty(0, dtype=gates.dtype)


@on_host("_thnn_fused_gru_cell")
def gru_cell(input_gates: Any, hidden_gates: Any, hx: Any, input_bias: Any = None, hidden_bias: Any = None) -> Any:
    """(hy, workspace of the backward)"""
    a, b = _gates(input_gates, hidden_gates, input_bias, hidden_bias)
    (ar, az, an), (br, bz, bn) = a.chunk(3, 1), b.chunk(3, 1)
    r, z = (ar + br).sigmoid(), (az + bz).sigmoid()
    n = (an + r * bn).tanh()
    return n + z * (hx - n), torch.cat((r, z, n, hx, bn), 1)


@on_host("_thnn_fused_gru_cell_backward")
def gru_cell_backward(grad_hy: Any, workspace: Any, has_bias: bool) -> Any:
    """(gradients of the two sets of gates, of hx, of the biases)"""
    r, z, n, hx, bn = workspace.chunk(5, 1)
    dn = grad_hy * (1 - z) * (1 - n * n)
    dz = grad_hy * (hx - n) * z * (1 - z)
    dr = dn * bn * r * (1 - r)
    of_input, of_hidden = torch.cat((dr, dz, dn), 1), torch.cat((dr, dz, dn * r), 1)
    biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (torch.empty(0), torch.empty(0))
    return of_input, of_hidden, grad_hy * z, *biases


@on_host("_fused_rms_norm_backward")
def rms_norm_backward(grad: Any, x: Any, normalized_shape: Any, rstd: Any, weight: Any, output_mask: Any) -> Any:
    """(gradient of the input, of the weight), where the CPU lacks it."""
    inner = tuple(range(x.dim() - len(normalized_shape), x.dim()))
    hat = x * rstd
    scaled = grad if weight is None else grad * weight
    of_input = rstd * (scaled - hat * (scaled * hat).mean(inner, keepdim=True))
    outer = tuple(range(x.dim() - len(normalized_shape)))
    of_weight = (grad * hat).sum(outer) if outer else grad * hat
    return of_input.to(x.dtype) if output_mask[0] else None, of_weight.to(x.dtype) if output_mask[1] else None
