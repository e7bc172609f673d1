"""torch.cuda's account of memory. Memory is this machine's; the account is of what tensors on the device hold."""

from __future__ import annotations

from typing import Any

from mmulator.doors.torch.cuda_device import check_device
from mmulator.driver import current

_SERIES = ("current", "peak", "allocated", "freed")
_POOLS = ("all", "large_pool", "small_pool")


def _account() -> dict[str, Any]:
    """What `torch._C._cuda_memoryStats` gives. Nothing is kept in reserve: what is reserved is what is allocated."""
    from mmulator.doors.torch.memory import statistics

    found = statistics()
    counts, blocks, requests = ({p: found[p][k] for p in _POOLS} for k in ("count", "rounded", "requested"))
    none = {pool: dict.fromkeys(_SERIES, 0) for pool in _POOLS}
    events = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free")
    return {
        "allocation": counts, "segment": counts, "active": counts, "inactive_split": none,
        "allocated_bytes": blocks, "reserved_bytes": blocks, "active_bytes": blocks, "inactive_split_bytes": none,
        "requested_bytes": requests, "oversize_allocations": none["all"], "oversize_segments": none["all"],
        "max_split_size": -1, "num_oom_rejections": 0, "reserved_bytes_by_private_pools": {}, **dict.fromkeys(events, 0),
    }  # fmt: skip


def _reset(*series: str) -> None:
    from mmulator.doors.torch.memory import reset

    reset(*series)


def information(device: int = 0) -> tuple[int, int]:
    """Bytes free, and bytes in all, of the chip that stands there."""
    check_device(device)
    total = current().device.memory
    return max(total - _account()["allocated_bytes"]["all"]["current"], 0), total


def _stats(device: int = 0) -> dict[str, Any]:
    check_device(device)
    return _account()


def functions() -> dict[str, Any]:
    """What torch._C has in a build for CUDA, by name."""
    return {
        "_cuda_memoryStats": _stats,
        "_cuda_resetPeakMemoryStats": lambda device: _reset("peak"),
        "_cuda_resetAccumulatedMemoryStats": lambda device: _reset("allocated", "freed"),
        "_cuda_emptyCache": lambda: None,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_cudaCachingAllocator_raw_alloc": lambda size, stream: current().memory.allocate(size, "raw memory").address,
        "_cuda_cudaCachingAllocator_raw_delete": lambda address: current().memory.free(address),
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
        "_cuda_isHistoryEnabled": lambda: False,
        "_accelerator_getDeviceStats": _stats,
        "_accelerator_getMemoryInfo": information,
        "_accelerator_resetPeakStats": lambda device: _reset("peak"),
        "_accelerator_resetAccumulatedStats": lambda device: _reset("allocated", "freed"),
    }
