"""torch.cuda's account of memory. Memory is this machine's; the account is of what tensors on the device hold."""

from __future__ import annotations

import weakref
from typing import Any

from mmulator.doors.torch.cuda_device import check_device
from mmulator.driver import current

BLOCK = 512  # bytes that torch's allocator rounds a request up to
LARGE = 1 << 20  # from here on requests come from the pool of large blocks
_SERIES = ("current", "peak", "allocated", "freed")
_POOLS = ("all", "large_pool", "small_pool")


class Series:
    """How much of something there is and has been."""

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def add(self, amount: int) -> None:
        if amount > 0:
            self.allocated += amount
        else:
            self.freed -= amount
        self.current += amount
        self.peak = max(self.peak, self.current)

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in _SERIES}


class _Held(weakref.ref[Any]):
    """A storage of so many bytes."""

    __slots__ = ("size",)
    size: int


class Account:
    """Counts, bytes as blocks of torch's allocator, and bytes as requested, in each of three pools."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self.counts, self.blocks, self.requests = ({pool: Series() for pool in _POOLS} for _ in range(3))

    def hold(self, storage: Any) -> None:
        """A storage of the device is new: it counts until it is no more."""
        size = storage.nbytes()
        self.allocated(size)
        held = _Held(storage, self._gone)
        held.size = size
        self._held[id(held)] = held

    def _gone(self, held: _Held) -> None:
        del self._held[id(held)]
        self.freed(held.size)

    def _series(self) -> list[Series]:
        return [s for group in (self.counts, self.blocks, self.requests) for s in group.values()]

    def allocated(self, size: int) -> None:
        """A tensor has got memory of so many bytes."""
        self._add(size, 1)

    def freed(self, size: int) -> None:
        """Memory of so many bytes is no tensor's any more."""
        self._add(size, -1)

    def _add(self, size: int, sign: int) -> None:
        for pool in ("all", "large_pool" if size >= LARGE else "small_pool"):
            self.counts[pool].add(sign)
            self.blocks[pool].add(sign * (size + -size % BLOCK))
            self.requests[pool].add(sign * size)

    def reset_peak(self) -> None:
        for series in self._series():
            series.peak = series.current

    def reset_accumulated(self) -> None:
        for series in self._series():
            series.allocated = series.freed = 0

    def as_dict(self) -> dict[str, Any]:
        """What `torch._C._cuda_memoryStats` gives. Nothing is kept in reserve: what is reserved is what is allocated."""
        counts, blocks, requests = (
            {pool: series.as_dict() for pool, series in group.items()} for group in (self.counts, self.blocks, self.requests)
        )
        none = {pool: dict.fromkeys(_SERIES, 0) for pool in _POOLS}
        events = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free")
        return {
            "allocation": counts, "segment": counts, "active": counts, "inactive_split": none,
            "allocated_bytes": blocks, "reserved_bytes": blocks, "active_bytes": blocks, "inactive_split_bytes": none,
            "requested_bytes": requests, "oversize_allocations": none["all"], "oversize_segments": none["all"],
            "max_split_size": -1, "num_oom_rejections": 0, "reserved_bytes_by_private_pools": {}, **dict.fromkeys(events, 0),
        }  # fmt: skip


ACCOUNT = Account()


def information(device: int = 0) -> tuple[int, int]:
    """Bytes free, and bytes in all, of the chip that stands there."""
    check_device(device)
    total = current().device.memory
    return max(total - ACCOUNT.blocks["all"].current, 0), total


def _stats(device: int = 0) -> dict[str, Any]:
    check_device(device)
    return ACCOUNT.as_dict()


def functions() -> dict[str, Any]:
    """What torch._C has in a build for CUDA, by name."""
    return {
        "_cuda_memoryStats": _stats,
        "_cuda_resetPeakMemoryStats": lambda device: ACCOUNT.reset_peak(),
        "_cuda_resetAccumulatedMemoryStats": lambda device: ACCOUNT.reset_accumulated(),
        "_cuda_emptyCache": lambda: None,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_cudaCachingAllocator_raw_alloc": lambda size, stream: current().memory.allocate(size, "raw memory").address,
        "_cuda_cudaCachingAllocator_raw_delete": lambda address: current().memory.free(address),
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
        "_cuda_isHistoryEnabled": lambda: False,
        "_accelerator_getDeviceStats": _stats,
        "_accelerator_getMemoryInfo": information,
        "_accelerator_resetPeakStats": lambda device: ACCOUNT.reset_peak(),
        "_accelerator_resetAccumulatedStats": lambda device: ACCOUNT.reset_accumulated(),
    }
