"""Virtual memory: addresses that a program reserves, memory without an address, and the mapping of one to the other.

One file without a name stands for the device's memory: an allocation is a part of it, and keeps its bytes when it is unmapped.
Mapped neighbours with the same access are one region for kernels and copies. An allocation is mapped at one place at a time.
"""

import ctypes
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from mmulator.base.errors import LaunchError
from mmulator.doors.libcuda import memory
from mmulator.doors.libcuda.abi import Refused, api, get_bytes, put, put_bytes, unsupported
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.state import check_device, state
from mmulator.host.driver import Allocation
from mmulator.host.driver.memory import LARGE, POISON
from mmulator.runtime.launch.arena import lay, release, reserve

GRANULARITY = 2 << 20  # bytes, as NVIDIA's chips have it
PAGE = 4096
MAPPED = "mapped memory"
PINNED, DESCRIPTOR = 1, 1  # CUmemAllocationType; CUmemAllocationHandleType: a file descriptor
DEVICE, HOST_KINDS = 1, (2, 3, 4)  # CUmemLocationType
NO_ACCESS, READ, READ_WRITE = 0, 1, 3  # CUmemAccess_flags
_PROPERTIES, _ACCESS = struct.Struct("<IIIi16x"), struct.Struct("<IiI")
_FILE_BYTES = 1 << 62
_PUNCH = 1 | 2  # FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE


@dataclass(eq=False)
class PhysicalMemory:
    """Memory of cuMemCreate.

    size: bytes, from `at` of the file on.
    properties: the CUmemAllocationProp that it was made with.
    handle: the program's, as long as `holders` is not 0: how often it must be released.
    mapped: whether it has an address.
    fresh: whether it had none yet.
    """

    size: int
    at: int
    properties: bytes
    handle: int = 0
    holders: int = 1
    mapped: bool = False
    fresh: bool = True

    def drop(self) -> None:
        """Free the memory if nothing holds it any more."""
        if not self.holders and not self.mapped:
            state().objects.pop(self.handle, None)
            ctypes.CDLL(None).fallocate(_file(), _PUNCH, ctypes.c_long(self.at), ctypes.c_long(self.size))
            memory.charge(-self.size)


@dataclass(eq=False)
class Mapping:
    """A part of a range of addresses that has memory. access: what kernels may do there."""

    address: int
    size: int
    memory: PhysicalMemory
    access: int = NO_ACCESS

    @property
    def end(self) -> int:
        return self.address + self.size


@dataclass(eq=False)
class ReservedRange:
    """Addresses of cuMemAddressReserve.

    host: where their bytes are on the host: there, or elsewhere in a program whose host cannot read device memory.
    whole: (address, bytes) of each piece of the process's addresses that is reserved for it.
    mapped: by address. regions: those of the driver's memory.
    """

    address: int
    size: int
    host: int
    whole: list[tuple[int, int]]
    mapped: dict[int, Mapping] = field(default_factory=dict)
    regions: list[Allocation] = field(default_factory=list)

    def part(self, address: int, size: int) -> list[Mapping]:
        """The mappings that fill a part of the range. Raises Refused where they do not, or reach farther."""
        found = [self.mapped[at] for at in sorted(self.mapped) if address <= at < address + size]
        ends = [address, *(m.end for m in found)]
        if not size or ends[-1] != address + size or any(m.address != end for m, end in zip(found, ends)):
            raise _wrong(f"{size} bytes at 0x{address:x} are not what was mapped there, as a whole")
        return found

    def show(self) -> None:
        """Give kernels and copies what they may use now."""
        runs: list[tuple[int, int, int]] = []  # first address, end, access
        for at in sorted(self.mapped):
            m = self.mapped[at]
            if runs and runs[-1][1:] == (at, m.access):
                runs[-1] = runs[-1][0], m.end, m.access
            elif m.access != NO_ACCESS:
                runs.append((at, m.end, m.access))
        new = [Allocation(a, end - a, MAPPED, access == READ_WRITE, 0, self, a - self.address + self.host)
               for a, end, access in runs]  # fmt: skip
        state().driver.memory.exchange(self.regions, new)
        self.regions = new


_ranges: dict[int, ReservedRange] = {}
_given_out = [0]  # bytes of the file


@cache
def _file() -> int:
    """The file of the device's memory."""
    handle = os.memfd_create("device memory of mmulator")
    os.ftruncate(handle, _FILE_BYTES)
    return handle


def _wrong(text: str) -> Refused:
    return Refused(Code.INVALID_VALUE, LaunchError(text))


def _require(*wrong: bool) -> None:
    """Raise Refused if one of these is so."""
    if any(wrong):
        raise Refused(Code.INVALID_VALUE)


def _range(address: int, size: int) -> ReservedRange:
    found = next((r for r in _ranges.values() if r.address <= address and address + size <= r.address + r.size), None)
    if found is None:
        raise _wrong(f"{size} bytes at 0x{address:x} are in no range of cuMemAddressReserve")
    return found


def _memory(handle: int) -> PhysicalMemory:
    found = state().objects.get(handle)
    if not isinstance(found, PhysicalMemory) or not found.holders:
        raise _wrong(f"0x{handle:x} is no handle of cuMemCreate")
    return found


def _location(name: str, kind: int, number: int) -> None:
    """Raise Refused for a place other than the device."""
    if kind in HOST_KINDS:
        raise unsupported(name, "memory of the host that is mapped", "allocate it with cuMemAllocHost or cuMemAllocManaged")
    _require(kind != DEVICE)
    check_device(number)


def _checked(name: str, properties: int) -> bytes:
    """A CUmemAllocationProp. Raises Refused."""
    _require(not properties)
    data = get_bytes(properties, _PROPERTIES.size)
    kind, handles, where, number = _PROPERTIES.unpack(data)  # and no hints: compression, use
    _require(kind != PINNED)
    _location(name, where, number)
    if handles not in (0, DESCRIPTOR):
        raise unsupported(name, "memory for other processes, but by file descriptors")
    return data


@api("cuMemGetAllocationGranularity", "ppi")
def granularity(out: int, properties: int, option: int) -> None:
    _require(not out, option not in (0, 1))
    _checked("cuMemGetAllocationGranularity", properties)
    put(out, GRANULARITY)


# memory ---------------------------------------------------------------------------------------------------------------
@api("cuMemCreate", "pqpq")
def create(out: int, size: int, properties: int, flags: int) -> None:
    _require(not out, flags != 0, not size, size % GRANULARITY != 0)
    checked = _checked("cuMemCreate", properties)
    memory.require_room(size, MAPPED)
    made = PhysicalMemory(size, _given_out[0], checked)
    _given_out[0] += size
    made.handle = state().add(made)
    memory.charge(size)
    put(out, made.handle)


@api("cuMemRelease", "p")
def release_handle(handle: int) -> None:
    found = _memory(handle)
    found.holders -= 1
    found.drop()


@api("cuMemRetainAllocationHandle", "pp")
def retain(out: int, address: int) -> None:
    found = _mapping(address).memory
    found.holders += 1
    put(out, found.handle)


@api("cuMemGetAllocationPropertiesFromHandle", "pp")
def properties_of(out: int, handle: int) -> None:
    put_bytes(out, _memory(handle).properties)


# addresses ------------------------------------------------------------------------------------------------------------
@api("cuMemAddressReserve", "pqqpq")
def reserve_addresses(out: int, size: int, alignment: int, hint: int, flags: int) -> None:
    _require(not out, not size, size % PAGE != 0, alignment & (alignment - 1) != 0, flags != 0)
    alignment = max(alignment, GRANULARITY)
    try:
        whole = [(reserve(size + alignment), size + alignment) for _ in range(1 + state().hides)]
    except MemoryError as why:
        raise Refused(Code.OUT_OF_MEMORY, LaunchError(str(why))) from None
    places = [at + -at % alignment for at, _ in whole]
    _ranges[places[0]] = ReservedRange(places[0], size, places[-1], whole)
    put(out, places[0])


@api("cuMemAddressFree", "pq")
def free_addresses(address: int, size: int) -> None:
    found = _ranges.get(address)
    if found is None or found.size != size or found.mapped:
        raise _wrong(f"{size} bytes at 0x{address:x} are no range of cuMemAddressReserve, or memory is mapped there")
    del _ranges[address]
    for at, room in found.whole:
        release(at, room)


# mappings -------------------------------------------------------------------------------------------------------------
def _mapping(address: int) -> Mapping:
    found = next((m for m in _range(address, 1).mapped.values() if m.address <= address < m.end), None)
    if found is None:
        raise _wrong(f"nothing is mapped at 0x{address:x}")
    return found


@api("cuMemGetAddressRange cuMemGetAddressRange_v2", "ppp", 3020)
def mem_range(base: int, size: int, address: int) -> None:
    """Write the first byte and the size of an allocation, or of a mapping where kernels have access."""
    mapped = (m for r in _ranges.values() for m in r.mapped.values())
    found: Mapping | Allocation | None = next((m for m in mapped if m.access and m.address <= address < m.end), None)
    found = found or state().driver.memory.find(address)
    if found is None:
        raise Refused(Code.NOT_FOUND)
    put(base, found.address)
    put(size, found.size)


@api("cuMemMap", "pqqpq")
def map_memory(address: int, size: int, offset: int, handle: int, flags: int) -> None:
    found = _memory(handle)
    if offset or size != found.size:
        raise unsupported("cuMemMap", "a part of an allocation", "map all of it from its start on, as drivers want it")
    _require(flags != 0, not size, address % GRANULARITY != 0)
    where = _range(address, size)
    if any(m.address < address + size and address < m.end for m in where.mapped.values()):
        raise _wrong(f"memory is mapped at 0x{address:x} already")
    if found.mapped:
        raise unsupported("cuMemMap", "a second mapping of one allocation", "unmap the first one")
    host = address - where.address + where.host
    lay(host, size, _file(), found.at)
    if found.fresh and size < LARGE:
        ctypes.memset(host, POISON, size)
    found.mapped, found.fresh = True, False
    where.mapped[address] = Mapping(address, size, found)


@api("cuMemUnmap", "pq")
def unmap(address: int, size: int) -> None:
    where = _range(address, size)
    gone = where.part(address, size)
    for m in gone:
        del where.mapped[m.address]
    where.show()
    state().driver.memory.settle()
    reserve(size, address - where.address + where.host)
    for m in gone:
        m.memory.mapped = False
        m.memory.drop()


@api("cuMemSetAccess", "pqpq")
def set_access(address: int, size: int, descriptions: int, number: int) -> None:
    where = _range(address, size)
    found = where.part(address, size)
    _require(not number)
    access = _accesses(get_bytes(descriptions, number * _ACCESS.size))
    for m in found:
        m.access = access[-1]
    where.show()


def _accesses(data: bytes) -> Sequence[int]:
    """The access that each CUmemAccessDesc gives. Raises Refused."""
    found = []
    for kind, number, access in _ACCESS.iter_unpack(data):
        _location("cuMemSetAccess", kind, number)
        _require(access not in (NO_ACCESS, READ, READ_WRITE))
        found.append(access)
    return found


@api("cuMemGetAccess", "ppp")
def get_access(out: int, location: int, address: int) -> None:
    _require(not out, not location)
    _location("cuMemGetAccess", *struct.unpack("<Ii", get_bytes(location, 8)))
    put(out, _mapping(address).access)
