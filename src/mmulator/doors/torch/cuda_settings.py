"""Settings of torch's CUDA that steer speed or the allocator, or ask for libraries: kept, without an effect on results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

from mmulator.doors.imports import after_import
from mmulator.doors.torch.cuda_device import check_device
from mmulator.host.driver.findings import note

CUDNN = 91900  # the version of cuDNN that torch's builds for CUDA 13.0 come with
_pools = count(1)


def _pair(value: Any, take: Callable[..., Any] = lambda value, *_: value) -> tuple[Callable[..., None], Callable[..., Any]]:
    """A function that sets a value, and one that returns it. take: what the first makes of its arguments."""
    kept = [value]

    def put(*args: Any) -> None:
        kept[0] = take(*args)

    return put, lambda *_: kept[0]


def _fraction(fraction: float, device: int) -> float:
    check_device(device)
    if fraction < 1:
        note(f"torch.cuda.set_per_process_memory_fraction({fraction}) has no effect: memory is this machine's, without a limit")
    return fraction


def _sync_mode(mode: int | str) -> int:
    found = {"default": 0, "warn": 1, "error": 2}.get(mode, mode) if isinstance(mode, str) else mode
    if found:
        note(f"torch.cuda.set_sync_debug_mode({mode!r}) has no effect: all operations are synchronous on this machine")
    return int(found)


# Settings of torch._C: the function that sets, the one that returns, and the value at the start.
_SETTINGS: tuple[tuple[str, str, Any], ...] = (
    ("_cuda_set_cudnn_benchmark_limit", "_cuda_get_cudnn_benchmark_limit", 10),
    ("_cufft_set_plan_cache_max_size", "_cufft_get_plan_cache_max_size", 4096),
    ("_cuda_tunableop_enable", "_cuda_tunableop_is_enabled", False),
    ("_cuda_tunableop_tuning_enable", "_cuda_tunableop_tuning_is_enabled", True),
    ("_cuda_record_untuned_enable", "_cuda_record_untuned_is_enabled", False),
    ("_cuda_tunableop_set_filename", "_cuda_tunableop_get_filename", "tunableop_results.csv"),
    ("_cuda_tunableop_set_max_tuning_duration", "_cuda_tunableop_get_max_tuning_duration", 30),
    ("_cuda_tunableop_set_max_tuning_iterations", "_cuda_tunableop_get_max_tuning_iterations", 100),
    ("_cuda_tunableop_set_rotating_buffer_size", "_cuda_tunableop_get_rotating_buffer_size", -1),
    ("_cuda_cudaCachingAllocator_enable", "_cuda_cudaCachingAllocator_is_enabled", True),
)
# Functions of torch._C without effect, and what they return.
_IDLE: dict[str, Any] = {
    "_cuda_clearCublasWorkspaces": None, "_cufft_clear_plan_cache": None, "_cufft_get_plan_cache_size": 0,
    "_cuda_tunableop_get_results": (), "_cuda_tunableop_get_validators": (), "_cuda_tunableop_read_file": False,
    "_cuda_tunableop_write_file": True, "_cuda_tunableop_write_file_on_exit": None,
    "_cuda_tunableop_set_numerical_check_tolerances": None, "_cuda_beginAllocateCurrentThreadToPool": None,
    "_cuda_beginAllocateToPool": None, "_cuda_endAllocateToPool": None, "_cuda_releasePool": None,
    "_cuda_attach_out_of_memory_observer": None, "_host_emptyCache": None,
}  # fmt: skip


class MemPoolBase:
    """The base class of torch.cuda.MemPool: a name for memory, of which there is one pool."""

    def __init__(self, allocator: Any = None, is_user_created: bool = True, *_: Any, **__: Any) -> None:
        self._allocator, self._id = allocator, (0 if is_user_created else next(_pools), next(_pools))

    allocator = property(lambda self: self._allocator)
    id = property(lambda self: self._id)
    device = property(lambda self: 0)

    def use_count(self) -> int:
        return 1


def record_history(enabled: Any = "all", *_: Any, **__: Any) -> None:
    if enabled:
        note("torch.cuda.memory._record_memory_history has no effect: allocations are counted, and leave no trace")


def snapshot(pool: Any = None, *_: Any, **__: Any) -> dict[str, Any]:
    """The result of `torch._C._cuda_memorySnapshot`: the blocks there are now, each a segment of its own, without a history."""
    from mmulator.doors.torch import objects

    segments = []
    for region in objects.memory.blocks():
        size = region.size
        block = {"address": region.start, "size": size, "requested_size": size, "state": "active_allocated", "frames": []}
        segments.append({
            "device": 0, "address": region.start, "total_size": size, "allocated_size": size, "active_size": size,
            "requested_size": size, "stream": 0, "segment_type": "large" if size >= 1 << 20 else "small",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": [block],
        })  # fmt: skip
    return {"segments": segments, "device_traces": [[]], "allocator_settings": {}, "external_annotations": []}


def host_statistics() -> dict[str, Any]:
    """The result of `torch._C._cuda_hostMemoryStats`: pinned memory is not counted."""
    none = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
    return {name: dict(none) for name in ("allocations", "allocated_bytes", "active_requests", "active_bytes", "segments")}


# cuDNN ----------------------------------------------------------------------------------------------------------------
def _version() -> tuple[int, int, int]:
    return CUDNN // 10000, CUDNN // 100 % 100, CUDNN % 100


_LIBRARY = SimpleNamespace(is_cuda=True, getVersionInt=lambda: CUDNN, getRuntimeVersion=_version, getCompileVersion=_version)


def _with_cudnn(module: ModuleType) -> None:
    """Change torch.backends.cudnn: the library is there, whose operators are torch's own here."""
    own = vars(getattr(module, "m", module))
    if own.get("_cudnn") is None:
        own.update(_cudnn=_LIBRARY, _init=lambda: True, version=lambda: CUDNN)


def _with_plans(known: dict[str, Any], module: Any) -> None:
    """Change torch.backends.cuda: its caches of cuFFT's plans are empty. known: functions of torch._C."""
    kind = module.cuFFTPlanCache
    size, most, put = (known[f"_cufft_{name}"] for name in (
        "get_plan_cache_size", "get_plan_cache_max_size", "set_plan_cache_max_size",
    ))  # fmt: skip
    prop = module.cuFFTPlanCacheAttrContextProp
    kind.size, kind.clear = prop(size, "size is read-only"), lambda self: None
    kind.max_size = prop(most, lambda device, value: put(value))


def _without_nvtx(profiler: Any) -> None:
    """Change torch.autograd.profiler: emit_nvtx marks nothing."""
    profiler.emit_nvtx.__enter__ = lambda self: self
    profiler.emit_nvtx.__exit__ = lambda self, *_: False


def functions() -> dict[str, Any]:
    """Functions that torch._C has in a build for CUDA, by name."""
    made: dict[str, Any] = {name: lambda *_, found=found: found for name, found in _IDLE.items()}
    for put, get, value in _SETTINGS:
        made[put], made[get] = _pair(value)
    made["_cuda_setMemoryFraction"], made["_cuda_getMemoryFraction"] = _pair(1.0, _fraction)
    made["_cuda_set_sync_debug_mode"], made["_cuda_get_sync_debug_mode"] = _pair(0, _sync_mode)
    after_import("torch.backends.cuda", partial(_with_plans, made))
    after_import("torch.backends.cudnn", _with_cudnn)
    after_import("torch.autograd.profiler", _without_nvtx)
    return made | {
        "_MemPool": MemPoolBase, "_cuda_memorySnapshot": snapshot, "_cuda_record_memory_history": record_history,
        "_cuda_record_memory_history_legacy": record_history, "_cuda_hostMemoryStats": host_statistics,
        "_cuda_resetPeakHostMemoryStats": lambda: None, "_cuda_resetAccumulatedHostMemoryStats": lambda: None,
        "_cuda_isHistoryEnabled": lambda: False, "_has_cudnn": True,
        "_cudnn": _LIBRARY,
    }  # fmt: skip
