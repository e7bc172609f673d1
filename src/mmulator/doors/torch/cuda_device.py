"""The device as torch.cuda knows it: the only one, with the properties of the driver's chip."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID, uuid5

import torch

from mmulator.driver import current
from mmulator.isa.chips import REGISTERS
from mmulator.launch.limits import KIB, MULTIPROCESSOR

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
    """Exchange the device as `exchange_device` does; torch wants two functions."""
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
        "_cuda_synchronize": lambda: None,
        "_cuda_ipc_collect": lambda: None,
        "_CudaDeviceProperties": Properties,
        "_has_cuda": True,
    }  # fmt: skip


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
        "_accelerator_synchronizeDevice": lambda device=0: None,
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_getDeviceCapability": lambda device=0: {"supported_dtypes": _dtypes()},
        "_accelerator_emptyCache": lambda: None,
        "_accelerator_emptyHostCache": lambda: None,
    }
