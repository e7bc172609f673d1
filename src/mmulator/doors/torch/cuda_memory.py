"""torch.cuda's account of memory: the allocator's counters, in the form of torch's functions."""

from __future__ import annotations

from typing import Any

from mmulator.doors.torch.cuda_device import check_device
from mmulator.driver import current

Account = dict[str, dict[str, int]]
_EVENTS = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "num_oom_rejections")


def account() -> dict[str, Account]:
    """Counters of each kind and each pool: current, peak, allocated, freed."""
    from mmulator.doors.torch.allocator import KINDS, POOLS, SERIES, counters

    values = iter(counters)
    found: dict[str, Account] = {kind: {} for kind in KINDS}
    for pool in POOLS:
        for kind in KINDS:
            found[kind][pool] = {series: next(values) for series in SERIES}
    return found


def statistics(device: int = 0) -> dict[str, Any]:
    """The result of `torch._C._cuda_memoryStats`. Blocks that are kept for who asks next count as freed, so reserved is
    allocated memory."""
    check_device(device)
    known = account()
    counts, blocks, requests = known.values()
    none = {pool: dict.fromkeys(series, 0) for pool, series in counts.items()}
    return {
        "allocation": counts, "segment": counts, "active": counts, "inactive_split": none,
        "allocated_bytes": blocks, "reserved_bytes": blocks, "active_bytes": blocks, "inactive_split_bytes": none,
        "requested_bytes": requests, "oversize_allocations": none["all"], "oversize_segments": none["all"],
        "max_split_size": -1, "reserved_bytes_by_private_pools": {}, **dict.fromkeys(_EVENTS, 0),
    }  # fmt: skip


def reset_peak(device: int = 0) -> None:
    """Set the peak to the current value."""
    _set(device, lambda series: {"peak": series["current"]})


def reset_accumulated(device: int = 0) -> None:
    """Set the counters of allocated and freed memory to 0."""
    _set(device, lambda series: {"allocated": 0, "freed": 0})


def _set(device: int, changed: Any) -> None:
    from mmulator.doors.torch.allocator import SERIES, counters

    check_device(device)
    for at in range(0, len(counters), len(SERIES)):
        for name, value in changed(dict(zip(SERIES, counters[at : at + len(SERIES)]))).items():
            counters[at + SERIES.index(name)] = value


def information(device: int = 0) -> tuple[int, int]:
    """(free bytes, all bytes) of the driver's chip."""
    check_device(device)
    total = current().device.memory
    return max(total - account()["rounded"]["all"]["current"], 0), total


def empty() -> None:
    """Give the system the blocks that are kept for who asks next."""
    from mmulator.doors.torch import raw

    raw.memory.free_spare()


def functions() -> dict[str, Any]:
    """Functions that torch._C has in a build for CUDA, by name."""
    return {
        "_cuda_memoryStats": statistics,
        "_cuda_resetPeakMemoryStats": reset_peak,
        "_cuda_resetAccumulatedMemoryStats": reset_accumulated,
        "_cuda_emptyCache": empty,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_cudaCachingAllocator_raw_alloc": lambda size, stream: current().memory.allocate(size, "raw memory").address,
        "_cuda_cudaCachingAllocator_raw_delete": lambda address: current().memory.free(address),
        "_accelerator_getDeviceStats": statistics,
        "_accelerator_getMemoryInfo": information,
        "_accelerator_resetPeakStats": reset_peak,
        "_accelerator_resetAccumulatedStats": reset_accumulated,
    }
