"""The device as torch.cuda knows it: the only one, with the properties of the driver's chip, its memory, copies to several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import torch

from mmulator.host.driver import current
from mmulator.host.driver.streams import ordering
from mmulator.isa.chips import REGISTERS
from mmulator.runtime.launch.limits import KIB, MULTIPROCESSOR

CUDA = (13, 0)  # what `torch.version.cuda` says
BUILT_FOR = (75, 80, 86, 90, 100, 120)  # what a build of torch for this CUDA has code for
WARP = 32
_SPACE = UUID("6d6d756c-6174-6f72-8000-000000000000")  # names of chips get their uuids in it


def version() -> str:
    return ".".join(map(str, CUDA))


def invalid_device() -> Exception:
    """The error that torch raises for an unknown device."""
    return torch.AcceleratorError(
        "CUDA error: invalid device ordinal\n"
        "GPU device may be out of range, do you have enough GPUs?\n"
        "Search for `cudaErrorInvalidDevice' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html "
        "for more information.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
        "incorrect.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )


def check_device(index: int) -> None:
    """Raise torch.AcceleratorError for all but device 0."""
    if index != 0:
        raise invalid_device()


def exchange_device(index: int) -> int:
    """Make a device the current one; returns the previous one. A negative index changes nothing."""
    if index < 0:
        return -1
    check_device(index)
    return 0


def maybe_exchange_device(index: int) -> int:
    """Exchange the device as `exchange_device` does; torch wants two functions, of which each gets a handler."""
    return exchange_device(index)


# properties ---------------------------------------------------------------------------------------------------------
class Uuid:
    """A UUID as torch shows it. bytes: the 16 of it."""

    def __init__(self, name: str) -> None:
        self._uuid = uuid5(_SPACE, name)
        self.bytes = self._uuid.bytes

    def __str__(self) -> str:
        return str(self._uuid)


class Properties(NamedTuple):
    """`torch.cuda.get_device_properties`. Sizes in bytes, clocks in kHz, the bus in bits."""

    name: str
    major: int
    minor: int
    is_multi_gpu_board: int
    is_integrated: int
    multi_processor_count: int
    total_memory: int
    max_threads_per_multi_processor: int
    max_threads_per_block: int
    warp_size: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    L2_cache_size: int
    gcnArchName: str
    uuid: Uuid
    pci_bus_id: int
    pci_device_id: int
    pci_domain_id: int

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
            f"pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, pci_domain_id={self.pci_domain_id}, "
            f"L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


_INTEGRATED = ("sm_72", "sm_87", "sm_110", "sm_121")


def properties(index: int = 0) -> Properties:
    """The properties of the driver's chip. Raises torch.AcceleratorError for all but device 0."""
    check_device(index)
    chip = current().device
    major, minor = chip.capability
    most_threads, _, shared = MULTIPROCESSOR[chip.name]
    return Properties(
        chip.product, major, minor, 0, int(chip.name in _INTEGRATED), chip.multiprocessors, chip.memory,
        most_threads, 1024, WARP, REGISTERS, 48 * KIB, chip.shared, shared * KIB, chip.clock,
        chip.memory_clock, chip.memory_bus, chip.l2, chip.product, Uuid(chip.product), 1, 0, 0,
    )  # fmt: skip


def architectures() -> str:
    """The architectures that torch says it was compiled for; the chip is always among them."""
    own = int(current().device.name[3:])
    return " ".join(f"sm_{n}" for n in sorted({*BUILT_FOR, own}))


def _dtypes() -> set[Any]:
    """The dtypes that tensors of the device may have: all but quantized ones."""
    every = {t for t in vars(torch).values() if isinstance(t, torch.dtype)}
    return {t for t in every if not str(t).removeprefix("torch.").startswith("q")}


def accelerator() -> dict[str, Any]:
    """The functions of the device for torch.accelerator."""
    return {
        "_get_accelerator": lambda check=None: torch.device("cuda"),
        "_accelerator_getAccelerator": lambda: torch.device("cuda"),
        "_accelerator_getDeviceIndex": lambda: 0,
        "_accelerator_setDeviceIndex": check_device,
        "_accelerator_exchangeDevice": exchange_device,
        "_accelerator_maybeExchangeDevice": exchange_device,
        "_accelerator_synchronizeDevice": synchronize,
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_getDeviceCapability": lambda device=0: {"supported_dtypes": _dtypes()},
        "_accelerator_emptyCache": lambda: None,
        "_accelerator_emptyHostCache": lambda: None,
    }


# operations of torch.nn.parallel over several devices, on the only one ---------------------------------------------------------
def _only(devices: Sequence[int]) -> int:
    """How often the only device is named. Raises torch.AcceleratorError for another."""
    for device in devices:
        check_device(device)
    return len(devices)


def scatter(
    tensor: torch.Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None = None, dim: int = 0, streams: Any = None
) -> list[torch.Tensor]:
    count = _only(devices)
    parts = tensor.split(chunk_sizes, dim) if chunk_sizes is not None else tensor.chunk(count, dim)
    return [part.to("cuda") for part in parts]


def gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None = None) -> torch.Tensor:
    """Tensors joined along a dimension. destination: 0, None for the current device, -1 for the CPU."""
    whole = torch.cat([t if t.dim() else t.reshape(1) for t in tensors], dim)
    if destination == -1:
        return whole.cpu()
    check_device(destination or 0)
    return whole


def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    return [tensor.to("cuda") for _ in range(_only(devices))]


def broadcast_coalesced(tensors: Sequence[torch.Tensor], devices: Sequence[int], size: int) -> list[list[torch.Tensor]]:
    return [[t.to("cuda") for t in tensors] for _ in range(_only(devices))]


# the account of memory: the allocator's counters, in the form of torch's functions ----------------------
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
    from mmulator.doors.torch import objects

    objects.memory.free_spare()


def synchronize(device: int = 0) -> None:
    """The host waits for all streams."""
    if ordering:
        ordering[-1].synchronize()


def functions() -> dict[str, Any]:
    """Functions that torch._C has in a build for CUDA, by name."""
    return {
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_getDevice": lambda: 0,
        "_cuda_setDevice": check_device,
        "_cuda_exchangeDevice": exchange_device,
        "_cuda_maybeExchangeDevice": maybe_exchange_device,
        "_cuda_canDeviceAccessPeer": lambda device, peer: False,
        "_cuda_hasPrimaryContext": lambda device: device == 0,
        "_cuda_isInBadFork": lambda: False,
        "_cuda_getArchFlags": architectures,
        "_cuda_getCompiledVersion": lambda: CUDA[0] * 1000 + CUDA[1] * 10,
        "_cuda_synchronize": synchronize,
        "_cuda_ipc_collect": lambda: None,
        "_CudaDeviceProperties": Properties,
        "_has_cuda": True,
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
        "_scatter": scatter, "_gather": gather, "_broadcast": broadcast, "_broadcast_coalesced": broadcast_coalesced,
    }  # fmt: skip
