"""Sparse COO tensors of cuda: their indices and values are tensors of cuda, and the CPU's kernels run on aliases of both."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from mmulator.doors.torch import dispatch

_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.SparseCPU)
_aten = torch.ops.aten
# Operators that only describe a sparse tensor, or move its parts by operators of these: the CPU's kernels run on cuda's as well.
STRUCTURE = frozenset("aten::" + name for name in (
    "_indices", "_values", "indices", "values", "sparse_dim", "dense_dim", "_dimI", "_dimV", "_nnz", "is_coalesced", "clone",
    "_coalesced_", "sparse_resize_", "sparse_resize_and_clear_", "copy_sparse_to_sparse_", "copy_", "unsqueeze", "permute",
    "_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors", "empty.memory_format", "empty_like",
    "resize_as_sparse_",
))  # fmt: skip
_make = _aten._sparse_coo_tensor_with_dims_and_tensors.default._handle.redispatch_boxed
_copy = _aten.copy_sparse_to_sparse_.default._handle.redispatch_boxed
_Tensor = torch.Tensor


def _is_sparse(value: Any) -> bool:
    return isinstance(value, _Tensor) and value.layout == torch.sparse_coo


def _made(of: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, device: torch.device) -> torch.Tensor:
    kwargs = {"dtype": values.dtype, "layout": torch.sparse_coo, "device": device, "is_coalesced": of.is_coalesced()}
    return _make(_KEYS, of.sparse_dim(), of.dense_dim(), of.size(), indices, values, **kwargs)


def _host(value: Any, given: list[torch.Tensor]) -> Any:
    """An argument on the CPU, over the same memory. given: receives the dense tensors of cuda."""
    if isinstance(value, (list, tuple)):
        return [_host(v, given) for v in value]
    if isinstance(value, torch.device):
        return dispatch.host(value)
    if not isinstance(value, _Tensor) or not value.is_cuda:
        return value
    if not _is_sparse(value):
        given.append(value)
        return dispatch.alias(value)
    indices, values = value._indices(), value._values()
    given += indices, values
    return _made(value, dispatch.alias(indices), dispatch.alias(values), dispatch.CPU)


def adopt(result: torch.Tensor, given: Sequence[torch.Tensor]) -> torch.Tensor:
    """A sparse result of a CPU operator as one of cuda. given: tensors of cuda that its parts may be views of."""
    indices, values = (dispatch.adopt(part.contiguous(), given) for part in (result._indices(), result._values()))
    return _made(result, indices, values, torch.device("cuda", 0))


def _structural(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    return op._handle.redispatch_boxed(_KEYS, *args, **kwargs)


def _computed(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The result of an operator, computed on the CPU."""
    with torch._C.DisableTorchFunction():
        given: list[torch.Tensor] = []
        values, named = [_host(v, given) for v in args], {name: _host(v, given) for name, v in kwargs.items()}
        found = op(*values, **named)
        own = {}
        for n, argument in enumerate(op._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                mine, other = (args[n], values[n]) if n < len(args) else (kwargs[argument.name], named[argument.name])
                if _is_sparse(mine):
                    _copy(_KEYS, mine, adopt(other, given), False)
                elif mine.is_cuda:
                    dispatch._settle(mine, other)
                own[id(other)] = mine
        several = isinstance(found, (list, tuple))
        out = [own[id(f)] if id(f) in own else dispatch.adopt(f, given) for f in (found if several else [found])]
        return tuple(out) if several else out[0]


def register() -> list[torch.library.Library]:
    """Register kernels for the dispatch key of sparse tensors of cuda."""
    every = torch.library.Library("_", "IMPL", "SparseCUDA")
    every.fallback(_computed, "SparseCUDA")
    own = torch.library.Library("aten", "IMPL", "SparseCUDA")
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel", UserWarning)
        for full in {*registered("SparseCPU"), *registered("SparseCUDA")}:
            if full.startswith("aten::"):
                own.m.impl(full[6:], "SparseCUDA", _kernel(full, _structural if full in STRUCTURE else _computed))
    return [every, own]


def _kernel(full: str, run: Any) -> dispatch.Kernel:
    name, _, overload = full.partition(".")
    return lambda *args, **kwargs: run(dispatch.find(name, overload), *args, **kwargs)
