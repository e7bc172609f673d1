"""The chips that may stand there, as programs ask for them (CUDA C++ Programming Guide, Compute Capabilities; data sheets)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from mmulator.isa.chips import as_device
from mmulator.launch.limits import KIB, MAX_CLUSTER, MULTIPROCESSORS, SHARED_KIB

DRIVER_VERSION = 13010  # CUDA version of the driver: 13.1


@dataclass(frozen=True)
class DeviceProperties:
    """A chip. name: of the arithmetic, `sm_90`. product: what programs print. clocks in kHz, bus in bits, memory in bytes."""

    name: str
    product: str
    clock: int
    memory_clock: int
    memory_bus: int
    memory: int
    l2: int

    @property
    def capability(self) -> tuple[int, int]:
        number = int(self.name[3:])
        return number // 10, number % 10

    @property
    def uuid(self) -> bytes:
        """The 16 bytes that name the device."""
        return hashlib.md5(self.name.encode(), usedforsecurity=False).digest()

    @property
    def multiprocessors(self) -> int:
        return MULTIPROCESSORS[self.name]

    @property
    def shared(self) -> int:
        """Bytes of shared memory that a block may opt in to."""
        return SHARED_KIB[self.name] * KIB

    def clusters(self, size: int, held: int) -> int:
        """How many clusters of `size` blocks are held at once where a multiprocessor holds `held` blocks. A chip whose groups of
        multiprocessors are not all whole holds a few less."""
        if not 1 <= size <= (MAX_CLUSTER if self.capability >= (9, 0) else 1):
            return 0
        return self.multiprocessors * held // size


GIB, MIB = 1 << 30, 1 << 20
_CHIPS = (
    DeviceProperties("sm_70", "Tesla V100-SXM2-32GB", 1530000, 877000, 4096, 32 * GIB, 6 * MIB),
    DeviceProperties("sm_72", "Xavier", 1377000, 2133000, 256, 32 * GIB, MIB // 2),
    DeviceProperties("sm_75", "Tesla T4", 1590000, 5001000, 256, 16 * GIB, 4 * MIB),
    DeviceProperties("sm_80", "NVIDIA A100-SXM4-80GB", 1410000, 1593000, 5120, 80 * GIB, 40 * MIB),
    DeviceProperties("sm_86", "NVIDIA GeForce RTX 3090", 1695000, 9751000, 384, 24 * GIB, 6 * MIB),
    DeviceProperties("sm_87", "Orin", 1300000, 1600000, 256, 32 * GIB, 4 * MIB),
    DeviceProperties("sm_89", "NVIDIA GeForce RTX 4090", 2520000, 10501000, 384, 24 * GIB, 72 * MIB),
    DeviceProperties("sm_90", "NVIDIA H100 80GB HBM3", 1980000, 2619000, 5120, 80 * GIB, 50 * MIB),
    DeviceProperties("sm_100", "NVIDIA B200", 1965000, 3996000, 8192, 180 * GIB, 126 * MIB),
    DeviceProperties("sm_103", "NVIDIA B300", 1965000, 3996000, 8192, 288 * GIB, 126 * MIB),
    DeviceProperties("sm_110", "NVIDIA Thor", 1575000, 8533000, 256, 128 * GIB, 32 * MIB),
    DeviceProperties("sm_120", "NVIDIA GeForce RTX 5090", 2407000, 14001000, 512, 32 * GIB, 96 * MIB),
    DeviceProperties("sm_121", "NVIDIA GB10", 2418000, 8533000, 256, 128 * GIB, 24 * MIB),
)
CHIPS = {chip.name: chip for chip in _CHIPS}


def chip(name: str) -> DeviceProperties:
    """Raises UnsupportedError if nothing is known of a device."""
    return CHIPS[as_device(name)]
