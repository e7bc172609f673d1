"""Attention's own operators of CUDA: flash, memory-efficient and cuDNN's, forward and backward, computed in f32 on the host.

They have the shapes of torch's (torch/_meta_registrations.py), and round to the type of the input once, so their results are
those of a GPU's kernels apart from rounding. Dropout is refused: its mask would not be a GPU's.
"""

from __future__ import annotations

from math import ceil, inf, sqrt
from typing import Any

import torch

from mmulator.base.errors import UnsupportedError
from mmulator.doors.torch.kernels import kernel, on_host

_aten = torch.ops.aten
_NARROW = (torch.float16, torch.bfloat16)
MATH, FLASH, EFFICIENT, CUDNN = range(4)  # torch's numbers (SDPBackend)
TOP_LEFT, BOTTOM_RIGHT = 1, 2  # corners from which a causal mask is counted
_LSE = 32  # rows to a multiple of which efficient attention rounds up its logsumexp


def _no_dropout(p: float) -> None:
    if p:
        raise UnsupportedError("dropout in an operator of attention is not modelled", hint="scaled_dot_product_attention has it")


class Scores:
    """Products of queries and keys, [batch, heads, queries, keys] in f32, and gradients of what is made of them.

    q, k, v: [batch, heads, rows, width]; keys may have fewer heads, which then serve several.
    bias: added to the scores.
    causal: the corner that the mask is counted from, 0 for no mask.
    left, right: keys before and behind its own place that a query sees; None for all.
    """

    def __init__(
        self, q: Any, k: Any, v: Any, bias: Any, causal: int, scale: float | None,
        left: int | None = None, right: int | None = None,
    ) -> None:  # fmt: skip
        self.q, self.few, self.groups, self.dtype = q.float(), k.size(1), q.size(1) // max(k.size(1), 1), q.dtype
        self.k, self.v = (t.float().repeat_interleave(self.groups, 1) for t in (k, v))
        self.scale = 1 / sqrt(q.size(-1)) if scale is None else scale
        s = self.q @ self.k.transpose(-1, -2) * self.scale
        if bias is not None:
            s = s + bias.float()
        rows, columns = s.shape[-2:]
        ahead = torch.arange(columns) - torch.arange(rows)[:, None] - (0 if causal == TOP_LEFT else columns - rows)
        right = 0 if causal else right
        seen = torch.ones(rows, columns, dtype=torch.bool)
        if right is not None and right >= 0:
            seen &= ahead <= right
        if left is not None and left >= 0:
            seen &= ahead >= -left
        self.s = s.masked_fill(~seen, -inf)

    def forward(self) -> tuple[Any, Any]:
        """(output, logarithm of the sum of a row's exponentials); a row that sees no key is 0."""
        lse = self.s.logsumexp(-1)
        p = (self.s - lse[..., None]).exp().nan_to_num(0.0)
        return (p @ self.v).to(self.dtype), lse

    def backward(self, grad: Any, out: Any, lse: Any) -> tuple[Any, Any, Any, Any]:
        """Gradients of q, k, v and the bias."""
        p = (self.s - lse[..., : self.s.size(-2)].reshape(self.s.shape[:-1])[..., None]).exp().nan_to_num(0.0)
        grad = grad.float()
        ds = p * (grad @ self.v.transpose(-1, -2) - (grad * out.float()).sum(-1, keepdim=True))
        of_k, of_v = (
            t.unflatten(1, (self.few, self.groups)).sum(2)
            for t in (ds.transpose(-1, -2) @ self.q * self.scale, p.transpose(-1, -2) @ grad)
        )
        return (ds @ self.k * self.scale).to(self.dtype), of_k.to(self.dtype), of_v.to(self.dtype), ds.to(self.dtype)


def _state() -> Any:
    return torch.zeros(2, dtype=torch.uint64)


def _in_rows(t: Any) -> Any:
    """[batch, heads, rows, width], with the strides that results have: those of [batch, rows, heads, width]."""
    return t.transpose(1, 2).contiguous().transpose(1, 2)


def _padded(lse: Any, wanted: bool) -> Any:
    rows = ceil(lse.size(-1) / _LSE) * _LSE if wanted else 0
    return torch.nn.functional.pad(lse, (0, rows - lse.size(-1)), value=inf) if wanted else lse[..., :0]


@on_host("_scaled_dot_product_flash_attention")
def flash(q: Any, k: Any, v: Any, p: float = 0.0, causal: bool = False, mask: bool = False, *, scale: float | None = None) -> Any:
    _no_dropout(p)
    out, lse = Scores(q, k, v, None, int(causal), scale).forward()
    return _in_rows(out), lse, None, None, q.size(2), k.size(2), _state(), _state()[:0], q.new_empty(0)


@on_host("_scaled_dot_product_flash_attention_backward")
def flash_backward(
    grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, cum_q: Any, cum_k: Any, max_q: int, max_k: int, p: float,
    causal: bool, *_: Any, scale: float | None = None,
) -> Any:  # fmt: skip
    return Scores(q, k, v, None, int(causal), scale).backward(grad, out, lse)[:3]


@on_host("_scaled_dot_product_efficient_attention")
def efficient(
    q: Any, k: Any, v: Any, bias: Any, wanted: bool, p: float = 0.0, causal: bool = False, *, scale: float | None = None
) -> Any:
    _no_dropout(p)
    out, lse = Scores(q, k, v, bias, int(causal), scale).forward()
    return _in_rows(out), _padded(lse, wanted), torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64)


@on_host("_scaled_dot_product_efficient_attention_backward")
def efficient_backward(
    grad: Any, q: Any, k: Any, v: Any, bias: Any, out: Any, lse: Any, seed: Any, offset: Any, p: float, wanted: Any,
    causal: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    found = Scores(q, k, v, bias, int(causal), scale).backward(grad, out, lse)
    of_bias = found[3].sum_to_size(bias.shape) if bias is not None and wanted[3] else None
    return *found[:3], of_bias


@on_host("_scaled_dot_product_cudnn_attention")
def cudnn(
    q: Any, k: Any, v: Any, bias: Any, wanted: bool, p: float = 0.0, causal: bool = False, mask: bool = False, *,
    scale: float | None = None,
) -> Any:  # fmt: skip
    _no_dropout(p)
    out, lse = Scores(q, k, v, bias, int(causal), scale).forward()
    zero = torch.zeros((), dtype=torch.int64)
    return _in_rows(out), lse[..., None] if wanted else lse[:0], None, None, q.size(2), k.size(2), zero, zero, q.new_empty(0)


@on_host("_scaled_dot_product_cudnn_attention_backward")
def cudnn_backward(
    grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, seed: Any, offset: Any, bias: Any, cum_q: Any, cum_k: Any, max_q: int,
    max_k: int, p: float, causal: bool, *, scale: float | None = None,
) -> Any:  # fmt: skip
    return Scores(q, k, v, bias, int(causal), scale).backward(grad, out, lse.squeeze(-1))[:3]


def _sequences(q: Any, k: Any, cum_q: Any, cum_k: Any) -> list[tuple[Any, Any]]:
    """(rows of the queries, rows of the keys) of each sequence of a packed batch."""
    a, b = cum_q.tolist(), (cum_k if cum_k is not None else cum_q).tolist()
    return [(slice(*a[n : n + 2]), slice(*b[n : n + 2])) for n in range(len(a) - 1)]


def _each(run: Any, q: Any, k: Any, cum_q: Any, cum_k: Any) -> list[Any]:
    """Results of `run` for the rows of each sequence, joined along the rows: of [heads, rows, ...]."""
    found = [run(*rows) for rows in _sequences(q, k, cum_q, cum_k)]
    return [torch.cat(parts, 1) for parts in zip(*found)]


def _packed(t: Any) -> Any:
    """[rows, heads, width] as [1, heads, rows, width]."""
    return t.transpose(0, 1)[None]


@on_host("_flash_attention_forward")
def flash_forward(
    q: Any, k: Any, v: Any, cum_q: Any, cum_k: Any, max_q: int, max_k: int, p: float, causal: bool, mask: bool, *,
    scale: float | None = None, window_size_left: int | None = None, window_size_right: int | None = None, **others: Any,
) -> Any:  # fmt: skip
    _no_dropout(p)
    if used := [name for name, value in others.items() if value is not None]:
        raise UnsupportedError(f"{used[0]} of aten::_flash_attention_forward is not modelled")
    corner, window = BOTTOM_RIGHT * causal, (window_size_left, window_size_right)
    if cum_q is None:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out, lse = Scores(q, k, v, None, corner, scale, *window).forward()
        return out.transpose(1, 2).contiguous(), lse, _state(), _state()[:0], q.new_empty(0)

    def run(a: slice, b: slice) -> Any:
        out, lse = Scores(_packed(q[a]), _packed(k[b]), _packed(v[b]), None, corner, scale, *window).forward()
        return out[0], lse[0]

    out, lse = _each(run, q, k, cum_q, cum_k)
    return out.transpose(0, 1).contiguous(), lse, _state(), _state()[:0], q.new_empty(0)


@on_host("_flash_attention_backward")
def flash_backward_packed(
    grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, cum_q: Any, cum_k: Any, max_q: int, max_k: int, p: float,
    causal: bool, *_: Any, scale: float | None = None, window_size_left: int | None = None, window_size_right: int | None = None,
) -> Any:  # fmt: skip
    corner, window = BOTTOM_RIGHT * causal, (window_size_left, window_size_right)
    if cum_q is None:
        q, k, v, grad, out = (t.transpose(1, 2) for t in (q, k, v, grad, out))
        return tuple(t.transpose(1, 2) for t in Scores(q, k, v, None, corner, scale, *window).backward(grad, out, lse)[:3])

    def run(a: slice, b: slice) -> Any:
        scores = Scores(_packed(q[a]), _packed(k[b]), _packed(v[b]), None, corner, scale, *window)
        return [t[0] for t in scores.backward(_packed(grad[a]), _packed(out[a]), lse[None, :, a])[:3]]

    return tuple(t.transpose(0, 1).contiguous() for t in _each(run, q, k, cum_q, cum_k))


@on_host("_efficient_attention_forward")
def efficient_forward(
    q: Any, k: Any, v: Any, bias: Any, cum_q: Any, cum_k: Any, max_q: Any, max_k: Any, p: float, corner: int,
    wanted: bool = False, *, scale: float | None = None, seqlen_k: Any = None, window_size: int | None = None,
) -> Any:  # fmt: skip
    _no_dropout(p)
    zero = torch.zeros((), dtype=torch.int64)
    if seqlen_k is not None or window_size is not None or cum_q is not None:
        raise UnsupportedError("sequences of several lengths in aten::_efficient_attention_forward are not modelled")
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out, lse = Scores(q, k, v, bias, corner, scale).forward()
    return out.transpose(1, 2).contiguous(), _padded(lse, wanted), zero, zero, q.size(2), k.size(2)


@on_host("_efficient_attention_backward")
def efficient_backward_rows(
    grad: Any, q: Any, k: Any, v: Any, bias: Any, out: Any, cum_q: Any, cum_k: Any, max_q: int, max_k: int, lse: Any, p: float,
    seed: Any, offset: Any, corner: int, of_bias: bool, *, scale: float | None = None, **_: Any,
) -> Any:  # fmt: skip
    q, k, v, grad, out = (t.transpose(1, 2) for t in (q, k, v, grad, out))
    *found, ds = Scores(q, k, v, bias, corner, scale).backward(grad, out, lse)
    return *(t.transpose(1, 2) for t in found), ds.sum_to_size(bias.shape) if of_bias else None


def fits(kind: int, q: Any, mask: Any) -> bool:
    """Whether a kind of attention has a kernel for a call, as on a GPU from sm_80 on."""
    if kind == MATH:
        return True
    if q.dim() != 4 or (kind != EFFICIENT and q.dtype not in _NARROW) or (kind == FLASH and mask is not None):
        return False
    return q.size(-1) <= {FLASH: 256, CUDNN: 128}.get(kind, q.size(-1)) and q.is_floating_point()


@kernel("_fused_sdp_choice")
def choice(q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, **_: Any) -> int:
    """The kind of attention: plain arithmetic, one operator after the other, where the program allows it."""
    for kind, name in enumerate(("math", "flash", "mem_efficient", "cudnn")):
        if getattr(torch._C, f"_get_{name}_sdp_enabled")() and fits(kind, q, attn_mask):
            return kind
    raise RuntimeError("No available kernel. Aborting execution.")


def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """scaled_dot_product_attention, which in C++ would ask CUDA's library for the kind, or take no other than arithmetic. With
    dropout each kind is arithmetic: it has the same meaning, and its mask is not a GPU's in any case."""
    kind = choice(query, key, value, attn_mask)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(attn_mask.logical_not(), -inf)
    if kind == MATH or dropout_p:
        given = (query, key, value, attn_mask, dropout_p, is_causal)
        return _aten._scaled_dot_product_attention_math(*given, scale=scale, enable_gqa=enable_gqa)[0]
    if kind == FLASH:
        return _aten._scaled_dot_product_flash_attention(query, key, value, 0.0, is_causal, scale=scale)[0]
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*query.shape[:3], key.size(2))
    run = _aten._scaled_dot_product_cudnn_attention if kind == CUDNN else _aten._scaled_dot_product_efficient_attention
    return run(query, key, value, attn_mask, True, 0.0, is_causal, scale=scale)[0]


# Kernels for dispatch keys, of an operator that torch composes of others.
COMPOSED = {key: {"scaled_dot_product_attention": attention} for key in ("AutogradCUDA", "CUDA")}


def functions() -> dict[str, Any]:
    """Functions of torch._C that say what a GPU has, by name."""
    kinds = {"flash_attention": FLASH, "mem_efficient_attention": EFFICIENT, "cudnn_attention": CUDNN}
    return {"_is_flash_attention_available": lambda: True} | {
        f"_can_use_{name}": lambda given, debug=False, kind=kind: fits(kind, given.query, given.attn_mask)
        for name, kind in kinds.items()
    }
