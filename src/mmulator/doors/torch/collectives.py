"""torch.distributed: processes exchange tensors of cuda as those of the CPU, over Gloo.

Gloo's own functions for CUDA would ask the device's guard for streams and events that it does not have.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from mmulator.doors.torch import dispatch

PREFIX = "c10d::"


def _host(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return dispatch.alias(value) if value.is_cuda else value
    return [_host(v) for v in value] if isinstance(value, (list, tuple)) else value


def _collective(full: str) -> dispatch.Kernel:
    """A collective operator, in place, on aliases. An operator with two results returns its first argument, and a work to wait
    for.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        name, _, overload = full.partition(".")
        found = dispatch.find(name, overload).redispatch(
            dispatch.KEYS, *map(_host, args), **{k: _host(v) for k, v in kwargs.items()}
        )
        return (args[0], *found[1:]) if isinstance(found, tuple) else found

    return run


def register() -> list[torch.library.Library]:
    """Register kernels for CUDA's dispatch key; none in a torch without torch.distributed."""
    library = torch.library.Library("c10d", "IMPL")
    names = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel", UserWarning)
        for full in names:
            if full.startswith(PREFIX):
                library.m.impl(full.removeprefix(PREFIX), "CUDA", _collective(full))
    return [library]
