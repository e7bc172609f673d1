"""The chips that may stand there, as programs ask for them (CUDA C++ Programming Guide, Compute Capabilities; data sheets)."""

import hashlib
from dataclasses import dataclass

from mmulator.isa.chips import REGISTERS, as_device
from mmulator.runtime.launch.limits import (
    CLUSTERED_BLOCKS,
    GROUPS,
    KIB,
    MAX_BLOCK,
    MAX_CLUSTER,
    MAX_GRID,
    MAX_THREADS,
    MULTIPROCESSOR,
    MULTIPROCESSORS,
    SHARED_KIB,
    reserved,
)

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
        """How many clusters of `size` blocks are held at once where a multiprocessor holds `held` blocks of its own limits."""
        if not 1 <= size <= (MAX_CLUSTER if self.capability >= (9, 0) else 1):
            return 0
        groups = GROUPS.get(self.name) if size > 2 else None
        held = min(held, CLUSTERED_BLOCKS)
        return sum(group * held // size for group in groups or (self.multiprocessors,) if group >= size)

    @property
    def persisting(self) -> int:
        """Bytes of the second cache that a program may set aside: 5/8 on an H200, 3/4 on an A100 (tuning guide); none before."""
        return 0 if self.capability < (8, 0) else self.l2 * 3 // 4 if self.name == "sm_80" else self.l2 * 5 // 8

    @property
    def attributes(self) -> dict[int, int]:
        """Answers of the driver, by the numbers of CUdevice_attribute; attributes that are not here are 0.

        An H200 gave all of these with CUDA 13.0. Of another chip its own figures are in their place, where documents (CUDA C++
        Programming Guide, Compute Capabilities; data sheets) say them; what no document says is the H200's.
        """
        threads, blocks, shared = MULTIPROCESSOR[self.name]
        major, minor = self.capability
        hopper, ampere, plain = int(major >= 9), int(major >= 8), int(self.memory_bus < 4096)
        return _ATTRIBUTES | {
            13: self.clock, 16: self.multiprocessors, 18: int(self.name in _INTEGRATED),
            32: int(self.name == "sm_75" or not plain), 36: self.memory_clock, 37: self.memory_bus, 38: self.l2, 39: threads,
            75: major, 76: minor, 81: shared * KIB, 87: _DOUBLES.get(self.name, 2), 97: self.shared, 106: blocks, 107: ampere,
            108: self.persisting, 109: 128 * MIB * ampere, 111: reserved(self.name), 120: hopper, 126: 1 + 3 * hopper,
            127: hopper, 119: 1 + 8 * hopper * (1 - plain), 128: hopper * (1 - plain), 139: _PCI.get(self.name, 0),
        }  # fmt: skip


GIB, MIB = 1 << 30, 1 << 20
_CHIPS = (
    DeviceProperties("sm_70", "Tesla V100-SXM2-32GB", 1530000, 877000, 4096, 32 * GIB, 6 * MIB),
    DeviceProperties("sm_72", "Xavier", 1377000, 2133000, 256, 32 * GIB, MIB // 2),
    DeviceProperties("sm_75", "Tesla T4", 1590000, 5001000, 256, 16 * GIB, 4 * MIB),
    DeviceProperties("sm_80", "NVIDIA A100-SXM4-80GB", 1410000, 1593000, 5120, 80 * GIB, 40 * MIB),
    DeviceProperties("sm_86", "NVIDIA GeForce RTX 3090", 1695000, 9751000, 384, 24 * GIB, 6 * MIB),
    DeviceProperties("sm_87", "Orin", 1300000, 1600000, 256, 32 * GIB, 4 * MIB),
    DeviceProperties("sm_89", "NVIDIA GeForce RTX 4090", 2520000, 10501000, 384, 24 * GIB, 72 * MIB),
    DeviceProperties("sm_90", "NVIDIA H100 80GB HBM3", 1980000, 2619000, 5120, 81079 * MIB, 50 * MIB),  # without the driver's
    DeviceProperties("sm_100", "NVIDIA B200", 1965000, 3996000, 8192, 180 * GIB, 126 * MIB),
    DeviceProperties("sm_103", "NVIDIA B300", 1965000, 3996000, 8192, 288 * GIB, 126 * MIB),
    DeviceProperties("sm_107", "NVIDIA Rubin", 1965000, 3996000, 8192, 288 * GIB, 126 * MIB),  # as a B300's, but for the memory
    DeviceProperties("sm_110", "NVIDIA Thor", 1575000, 8533000, 256, 128 * GIB, 32 * MIB),
    DeviceProperties("sm_120", "NVIDIA GeForce RTX 5090", 2407000, 14001000, 512, 32 * GIB, 96 * MIB),
    DeviceProperties("sm_121", "NVIDIA GB10", 2418000, 8533000, 256, 128 * GIB, 24 * MIB),
)
_INTEGRATED = {"sm_72", "sm_87", "sm_110", "sm_121"}  # their memory is the host's
# Operations in single precision for one in double, of a multiprocessor; others have 2.
_DOUBLES = {"sm_72": 32, "sm_75": 32, **dict.fromkeys(["sm_86", "sm_87", "sm_89", "sm_103", "sm_110", "sm_120", "sm_121"], 64)}
_PCI = {"sm_90": 0x2330_10DE}  # device and vendor
# As an H200 answers (driver 580, CUDA 13.0), but for the place in its machine (33, 34) and the board (139, 140).
_ATTRIBUTES = {
    **dict.fromkeys((15, 19, 31, 33, 41, 44, 78, 79, 80, 83, *range(89, 92), 95, 96, 99, 102, 103, 107, 110, *range(112, 118),
                     120, *range(121, 126), *range(127, 130), 141, 142, 144, 145), 1),
    1: MAX_THREADS, **dict(zip(range(2, 8), (*MAX_BLOCK, *MAX_GRID))), 8: 48 * KIB, 9: 64 * KIB, 10: 32, 11: 2**31 - 1,
    12: REGISTERS, 14: 512, 30: 512, 40: 3, 51: 32, 82: REGISTERS, 118: 100, 131: -1,
    # Widths, heights and depths of textures and surfaces, and how many layers they have.
    21: 131072, 22: 131072, 23: 65536, **dict.fromkeys((24, 25, 26, 58, 59, 60), 16384), 29: 2048, 42: 32768, 43: 2048, 47: 8192,
    48: 8192, **dict.fromkeys((27, 28, 45, 46, 49, 52, 53, 55, 61, 63, 64, 66, 67, 73, 74, 77), 32768), 54: 2046, 56: 131072,
    57: 65536, 62: 2048, 65: 2048, 68: 2046, 69: 1 << 28, 70: 131072, 71: 65000, 72: 2097120,
}  # fmt: skip
CHIPS = {chip.name: chip for chip in _CHIPS}


def chip(name: str) -> DeviceProperties:
    """Raises UnsupportedError if nothing is known of a device."""
    return CHIPS[as_device(name)]
