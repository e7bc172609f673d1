"""torch.distributed: processes exchange tensors of cuda as those of the CPU, over Gloo; a group of NCCL is one of Gloo's.

Gloo's own functions for CUDA would ask the device's guard for streams and events that it does not have. So a collective of cuda
is redispatched to a third device, for which the group has the backend that it has for cuda.
"""

from __future__ import annotations

import warnings
from datetime import timedelta
from functools import cache
from types import ModuleType
from typing import Any

import torch

from mmulator.doors.imports import after_import
from mmulator.doors.torch import dispatch
from mmulator.doors.torch.cuda_graphs import recorded

PREFIX = "c10d::"
NCCL = (2, 28, 9)  # that torch's builds for CUDA 13.0 come with
TIMEOUT = timedelta(minutes=10)  # of a group of NCCL, if the program says nothing
OTHER = torch.device("privateuseone")
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1)

_pending: list[tuple[Any, Any]] = []  # works under way, and their tensors, whose memory aliases do not keep


def _host(value: Any, moves: bool) -> Any:
    """An argument on the host. moves: FP8, which Gloo does not have, may go as bytes."""
    if isinstance(value, torch.Tensor):
        found = dispatch.alias(value) if value.is_cuda else value
        return found.view(torch.uint8) if moves and str(found.dtype).startswith("torch.float8") else found
    return [_host(v, moves) for v in value] if isinstance(value, (list, tuple)) else value


def _prepared(group: Any) -> None:
    """Give a group the backend for the other device that it has for cuda. Raises torch's error where it has none."""
    if OTHER in _devices(group):
        return
    kind = group.BackendType.NCCL if _is_nccls(group) else group.BackendType.GLOO
    group._register_backend(OTHER, kind, group._get_backend(torch.device("cuda")))


@cache
def _plain_devices() -> Any:
    return vars(torch.distributed.ProcessGroup)["_device_types"]


def _devices(group: Any) -> list[torch.device]:
    return [torch.device(d.type) for d in _plain_devices().__get__(group)]


def _is_nccls(group: Any) -> bool:
    return "cuda:nccl" in torch.distributed.distributed_c10d._world.pg_backend_config.get(group, "")


def _collective(full: str) -> dispatch.Kernel:
    """A collective operator, in place, on aliases. An operator with two results returns its first argument, and a work to wait
    for.
    """
    moves = "reduce" not in full

    def run(*args: Any, **kwargs: Any) -> Any:
        from torch.distributed import ProcessGroup, Work

        name, _, overload = full.partition(".")
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.ScriptObject) and "ProcessGroup" in str(value._type()):
                _prepared(ProcessGroup.unbox(value))
        found = dispatch.find(name, overload).redispatch(
            _KEYS, *(_host(v, moves) for v in args), **{k: _host(v, moves) for k, v in kwargs.items()}
        )
        work = found[-1] if isinstance(found, tuple) else found
        if isinstance(work, torch.ScriptObject):
            _pending[:] = [one for one in _pending if not one[0].is_completed()] + [(Work.unbox(work), (args, kwargs))]
        return (args[0], *found[1:]) if isinstance(found, tuple) else found

    return run


@cache
def _nccl_class() -> type:
    """The class ProcessGroupNCCL: Gloo's, with NCCL's options and name."""
    from torch.distributed import ProcessGroupGloo

    class Options:
        def __init__(self, is_high_priority_stream: bool = False) -> None:
            self.is_high_priority_stream, self._timeout, self.config = is_high_priority_stream, TIMEOUT, Config()
            self.split_from, self.split_color, self.group_name = None, 0, ""
            self.global_ranks_in_group: list[int] = []

    class Config:
        """Settings of a communicator, without effect."""

    class ProcessGroupNCCL(ProcessGroupGloo):
        supports_splitting, supports_coalescing, supports_time_estimate = False, True, False

        def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
            super().__init__(store, rank, size, timeout=getattr(options, "_timeout", TIMEOUT))
            self.nccl_options, self.bound_device_id = options, None

        def name(self) -> str:
            return "nccl"

        def comm_split_count(self) -> int:
            return 0

        def perform_nocolor_split(self, device: Any) -> None:
            """No effect: groups are made one by one."""

        abort = shutdown = _set_default_timeout = lambda self, *_: None

    ProcessGroupNCCL.Options, ProcessGroupNCCL.NCCLConfig = Options, Config
    ProcessGroupNCCL.__module__ = "torch.distributed.distributed_c10d"
    return ProcessGroupNCCL


def _with_nccl(module: ModuleType) -> None:
    """Change torch.distributed.distributed_c10d: there is NCCL."""
    from torch.distributed import Work

    made: Any = _nccl_class()
    group = module.ProcessGroup
    _plain_devices()
    vars(module).update(_NCCL_AVAILABLE=True, ProcessGroupNCCL=made, default_pg_nccl_timeout=TIMEOUT)
    torch.distributed.ProcessGroupNCCL = torch._C._distributed_c10d.ProcessGroupNCCL = made
    torch.distributed.constants.default_pg_nccl_timeout = TIMEOUT

    class Done(Work):
        """The end of several collectives that were one. works: theirs."""

        def __init__(self, works: list[Any]) -> None:
            super().__init__()
            self.works = works

        def wait(self, timeout: Any = None) -> bool:
            for work in self.works:
                work.wait()
            return True

        def is_completed(self) -> bool:
            return all(work.is_completed() for work in self.works)

    plain = {name: vars(group)[name] for name in ("_start_coalescing", "_end_coalescing")}

    def start(self: Any, device: torch.device) -> None:
        if not _is_nccls(self):
            plain["_start_coalescing"](self, device)

    def end(self: Any, device: torch.device) -> Any:
        if not _is_nccls(self):
            return plain["_end_coalescing"](self, device)
        return Done([work for work, _ in _pending])

    # DistributedDataParallel's statistics of time want a timer of CUDA's, which torch asserts ("reducer_->timer_").
    torch._C._distributed_c10d.Logger.set_runtime_stats_and_log = lambda self: None
    group._start_coalescing, group._end_coalescing = start, end
    group._device_types = property(lambda self: [d for d in _devices(self) if d.type != OTHER.type])


def register() -> list[torch.library.Library]:
    """Register kernels for CUDA's dispatch key; none in a torch without torch.distributed."""
    if not torch.distributed.is_available():
        return []
    library = torch.library.Library("c10d", "IMPL")
    names = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel", UserWarning)
        for full in names:
            if full.startswith(PREFIX):
                library.m.impl(full.removeprefix(PREFIX), "CUDA", recorded(full, _collective(full)))
    vars(torch._C).update(
        _nccl_version=lambda: NCCL[0] << 32 | NCCL[1] << 16 | NCCL[2], _nccl_version_suffix=lambda: b"",
    )  # fmt: skip
    after_import("torch.distributed.distributed_c10d", _with_nccl)
    return [library]
