"""Memory: allocations of the driver, host memory that is pinned or mapped, copies, fills, and attributes of pointers.

Device memory is host memory, so a copy is a plain copy, in whichever direction; where an end is the device's, it is looked up
before a byte moves. In a program of C++ device memory has addresses at which the host can read nothing, as on a GPU.
"""

import ctypes
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from mmulator.base.errors import LaunchError
from mmulator.doors.libcuda.abi import Refused, accepts, answers, api, get, get_bytes, needed, put
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.device import current_context
from mmulator.doors.libcuda.state import POOL, check_device, state
from mmulator.host.driver import Allocation
from mmulator.host.driver.findings import caller
from mmulator.host.driver.memory import ALIGN, DEVICE_KIND, LARGE, MANAGED, PINNED, REGISTERED
from mmulator.host.driver.streams import ordering
from mmulator.runtime.launch.arena import bytes_at
from mmulator.runtime.launch.limits import host_memory

HOST, DEVICE = 1, 2  # CUmemorytype
_kinds: dict[int, str] = {}  # kinds of allocations, by address
_used = [0]  # bytes of device memory
_flags: dict[int, int] = {}
_identities: dict[int, int] = {}
_identity = count(1)


class _Owner:
    """The owner of host memory that a program registered; the driver keeps a weak reference to it."""


_owners: dict[int, _Owner] = {}


def used() -> int:
    return _used[0]


def allocate(size: int, kind: str) -> int:
    """Address of new memory. Raises Refused for 0 bytes, or for more than the chip or this machine has."""
    if size == 0:
        raise Refused(Code.INVALID_VALUE)
    driver = state().driver
    require_room(size, kind)
    try:
        device = kind == DEVICE_KIND
        place = caller() if driver.settings.why else str
        hidden, align = device and state().hides, mmap.PAGESIZE if ordering and not device else ALIGN
        address = driver.memory.allocate(size, kind, device and driver.watches, hidden, place, align).address
    except MemoryError:
        raise Refused(Code.OUT_OF_MEMORY) from None
    if kind == MANAGED and size < LARGE:  # pages of the host's system have zeros in them, and programs count on that
        ctypes.memset(address, 0, size)
    _kinds[address] = kind
    _identities[address] = next(_identity)
    if device:
        _used[0] += size
    if ordering:
        ordering[-1].allocated(address, size)
    return address


def require_room(size: int, kind: str) -> None:
    """Raise Refused if the chip or this machine has no room for so many bytes."""
    if size > state().driver.device.memory - used() or (size > LARGE and size > host_memory() // 2):
        raise Refused(Code.OUT_OF_MEMORY, LaunchError(f"{size} bytes of {kind}: the device has no such room, or this machine"))


def charge(size: int) -> None:
    """Count bytes of device memory as used, or, below 0, as free again."""
    _used[0] += size


@api("cuMemFree cuMemFree_v2", "p", 3020, back=True, runtime="Free FreeHost")
@api("cuMemFreeHost", "p", back=True)
def free(address: int) -> None:
    if not address:
        return
    _check_first(address)
    if ordering and address not in _from:
        ordering[-1].synchronize()  # as CUDA's driver may, and does, for memory that belongs to no pool
    elif ordering:
        ordering[-1].freed(address, _from[address][1], label=_kinds[address])
    _free(address)


def _check_first(address: int) -> None:
    if address not in _kinds:  # also what is mapped there
        raise Refused(Code.INVALID_VALUE, LaunchError(f"free of address 0x{address:x}, which is no allocation's first byte"))


def _free(address: int) -> None:
    """Take memory back, whoever has ordered it."""
    try:
        size = state().driver.memory.free(address, caller())
    except LaunchError as why:
        raise Refused(Code.INVALID_VALUE, why) from None
    if _kinds.pop(address, None) == DEVICE_KIND:
        _used[0] -= size
    if address in _from:
        pool, size = _from.pop(address)
        pool.count(-size)
    _flags.pop(address, None)
    _identities.pop(address, None)


def kind_of(address: int) -> str:
    """The kind of memory of an allocation that begins at an address."""
    return _kinds.get(address, DEVICE_KIND)


def identity_of(address: int) -> int:
    """The number of an allocation that begins at an address, which no other one has had; 0 if there is none."""
    return _identities.get(address, 0)


def free_all() -> None:
    """Free what the program has allocated, as the end of a context does."""
    for address in list(_kinds):
        if _kinds[address] == REGISTERED:
            _owners.pop(address, None)
            _kinds.pop(address)
        else:
            free(address)


def find(address: int) -> Allocation:
    found = state().driver.memory.find(address)
    if found is None:
        raise Refused(Code.INVALID_VALUE, LaunchError(f"0x{address:x} is not an address of device memory"))
    return found


def check(address: int, size: int) -> None:
    """Raise Refused if not all of the bytes are memory of one allocation."""
    if size:
        a = find(address)
        if address + size > a.address + a.size:
            raise Refused(Code.INVALID_VALUE, LaunchError(
                f"{size} bytes at 0x{address:x} leave {a.label}, which has {a.address + a.size - address} there"))  # fmt: skip


def on_stream(names: str, signature: str, since: int = 2000) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a function under further names, which take a stream as the last argument: it must be one. A stream that is
    captured records the function's name (operations.MADE)."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @api(names, signature, since)
        def on(*args: int) -> None:
            queue = state().stream(args[-1])
            if queue.capture is not None:
                queue.capture.add(queue, function.__name__, *args[:-1])
            elif ordering:
                with ordering[-1].on(queue.stream):
                    function(*args[:-1])
            else:
                function(*args[:-1])

        return function

    return register


@api("cuMemAlloc cuMemAlloc_v2", "pq", 3020)
def mem_alloc(out: int, size: int) -> None:
    current_context()
    needed(out)
    put(out, allocate(size, DEVICE_KIND))


def allocate_on(stream: int, size: int, pool: int = POOL) -> int:
    """Address of memory that a stream allocates: a stream that is captured does so each time its graph runs."""
    queue, found = state().stream(stream), _pool(pool)
    if queue.capture is None:
        address = allocate(size, found.kind)
        _from[address] = found, size
        found.count(size)
        if ordering:
            ordering[-1].given(address, size, queue.stream)
        return address
    captured: int = queue.capture.add(queue, "allocate", size).address
    return captured


answers("cuMemAllocAsync", "pqp", lambda size, stream: allocate_on(stream, size), 0, 8)
answers(
    "cuMemAllocFromPoolAsync", "pqpp", lambda size, pool, stream: allocate_on(stream, size, pool), 0, 8,
    runtime="MallocFromPoolAsync",
)  # fmt: skip


def set_aside(size: int) -> Allocation:
    """Memory that is nobody's until it is put back, at its address."""
    address = allocate(size, DEVICE_KIND)
    found = find(address)
    free(address)
    return found


def put_back(memory: Allocation) -> None:
    """Allocate memory that was set aside. Raises Refused where it is allocated already."""
    if memory.address in _kinds:
        raise Refused(Code.INVALID_VALUE, LaunchError(f"{memory.size} bytes at 0x{memory.address:x} are allocated already"))
    state().driver.memory.put_back(memory)
    _kinds[memory.address], _identities[memory.address] = DEVICE_KIND, next(_identity)
    _used[0] += memory.size


def is_allocated(address: int) -> bool:
    return address in _kinds


@api("cuMemAllocManaged", "pqu")
def mem_alloc_managed(out: int, size: int, flags: int) -> None:
    if flags not in (1, 2):
        raise Refused(Code.INVALID_VALUE)
    put(out, allocate(size, MANAGED))


@api("cuMemAllocPitch cuMemAllocPitch_v2", "ppqqu", 3020)
def mem_alloc_pitch(out: int, pitch: int, width: int, height: int, element: int) -> None:
    line = -(-width // 512) * 512
    put(out, allocate(line * height, DEVICE_KIND))
    put(pitch, line)


answers("cuMemAllocHost cuMemAllocHost_v2", "pq", lambda size: allocate(size, PINNED), 0, 8, 3020)


@api("cuMemHostAlloc", "pqu")
def mem_host_alloc(out: int, size: int, flags: int) -> None:
    address = allocate(size, PINNED)
    _flags[address] = flags
    put(out, address)


@api("cuMemFreeAsync", "pp", back=True, runtime="FreeAsync")
def free_on(address: int, stream: int) -> None:
    queue = state().stream(stream)
    if queue.capture is not None:
        queue.capture.add(queue, "free", address)
    else:
        if not address:
            return
        _check_first(address)
        if ordering:
            ordering[-1].freed(address, find(address).size, queue.stream, _kinds[address])
        _free(address)


@api("cuMemHostRegister cuMemHostRegister_v2", "pqu", 6050, runtime="HostRegister")
def mem_host_register(address: int, size: int, flags: int) -> None:
    if not address or not size:
        raise Refused(Code.INVALID_VALUE)
    if address in _owners:
        raise Refused(Code.HOST_MEMORY_ALREADY_REGISTERED)
    _owners[address] = owner = _Owner()
    state().driver.memory.expose(address, size, owner, REGISTERED)
    _kinds[address], _flags[address] = REGISTERED, flags
    _identities[address] = next(_identity)


@api("cuMemHostUnregister", "p", runtime="HostUnregister")
def mem_host_unregister(address: int) -> None:
    if _owners.pop(address, None) is None:
        raise Refused(Code.HOST_MEMORY_NOT_REGISTERED)
    _kinds.pop(address, None)
    _flags.pop(address, None)


def _known(address: int) -> int:
    find(address)
    return address


answers(
    "cuMemHostGetDevicePointer cuMemHostGetDevicePointer_v2", "ppu", _known, 0, 8, 3020, runtime="HostGetDevicePointer"
)  # fmt: skip
answers("cuMemHostGetFlags", "pp", lambda address: _flags.get(_known(address), 0), runtime="HostGetFlags")


@api("cuMemGetInfo cuMemGetInfo_v2", "pp", 3020, runtime=True)
def mem_info(free_bytes: int, total: int) -> None:
    memory = state().driver.device.memory
    put(free_bytes, memory - used())
    put(total, memory)


# copies -------------------------------------------------------------------------------------------------------------
def move(to: int, source: int, size: int) -> None:
    if size:
        memory = state().driver.memory
        if ordering:
            ordering[-1].opened()
        ctypes.memmove(memory.host_place(to, size), memory.host_place(source, size), size)
        memory.copied(to, source, size)
        if ordering:
            ordering[-1].closed()
            ordering[-1].copied(to, source, size)


@on_stream("cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2", "ppqp", 3020)
@api("cuMemcpyHtoD cuMemcpyHtoD_v2", "ppq", 3020)
def copy_in(to: int, source: int, size: int) -> None:
    check(to, size)
    move(to, source, size)


@on_stream("cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2", "ppqp", 3020)
@api("cuMemcpyDtoH cuMemcpyDtoH_v2", "ppq", 3020)
def copy_out(to: int, source: int, size: int) -> None:
    check(source, size)
    move(to, source, size)


@on_stream("cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2", "ppqp", 3020)
@api("cuMemcpyDtoD cuMemcpyDtoD_v2", "ppq", 3020)
def copy_over(to: int, source: int, size: int) -> None:
    check(to, size)
    check(source, size)
    move(to, source, size)


@on_stream("cuMemcpyAsync", "ppqp")
@api("cuMemcpy", "ppq")
def copy_any(to: int, source: int, size: int) -> None:
    """Copy bytes; each end is the host's or the device's."""
    move(to, source, size)


@on_stream("cuMemcpyPeerAsync", "ppppqp")
@api("cuMemcpyPeer", "ppppq")
def copy_peer(to: int, to_context: int, source: int, source_context: int, size: int) -> None:
    copy_over(to, source, size)


# fills --------------------------------------------------------------------------------------------------------------
def fill(address: int, value: int, size: int, number: int) -> None:
    """Fill `number` elements of `size` bytes, of which the address is a multiple."""
    if address % size:
        raise Refused(Code.INVALID_VALUE, LaunchError(f"a fill of {8 * size}-bit numbers at 0x{address:x}: not aligned"))
    check(address, size * number)
    if number:
        memory = state().driver.memory
        if ordering:
            ordering[-1].opened()
        bytes_at(memory.host_place(address, size * number), size * number).view(f"u{size}")[:] = value & ((1 << 8 * size) - 1)
        memory.wrote(address, size * number)
        if ordering:
            ordering[-1].closed()
            ordering[-1].filled(address, size * number)


def fill_plane(address: int, pitch: int, value: int, size: int, width: int, height: int) -> None:
    """Fill `height` lines of `width` elements of `size` bytes. pitch: bytes from line to line."""
    for line in range(height):
        fill(address + line * pitch, value, size, width)


def _fills(bits: int) -> None:
    size = bits // 8

    def whole(address: int, value: int, number: int) -> None:
        fill(address, value, size, number)

    def plane(address: int, pitch: int, value: int, width: int, height: int) -> None:
        fill_plane(address, pitch, value, size, width, height)

    whole.__name__, plane.__name__ = f"fill_{size}", f"fill_plane_{size}"
    api(f"cuMemsetD{bits} cuMemsetD{bits}_v2", "puq", 3020)(whole)
    on_stream(f"cuMemsetD{bits}Async", "puqp")(whole)
    api(f"cuMemsetD2D{bits} cuMemsetD2D{bits}_v2", "pquqq", 3020)(plane)
    on_stream(f"cuMemsetD2D{bits}Async", "pquqqp")(plane)


for _bits in (8, 16, 32):
    _fills(_bits)


# pools --------------------------------------------------------------------------------------------------------------
_LOCATIONS = {1: DEVICE_KIND, 2: PINNED, 3: PINNED}  # CUmemLocationType: the device, the host, a part of the host
_PINNED_TYPE, _MANAGED_TYPE = 1, 2  # CUmemAllocationType
_RESERVED, _RESERVED_HIGH, _USED, _USED_HIGH = range(5, 9)  # CUmemPool_attribute
_WIDE = {4, _RESERVED, _RESERVED_HIGH, _USED, _USED_HIGH}  # attributes of 64 bits; the others are an int
_PORTION = 32 << 20  # bytes that a pool takes at a time, as an H200's do


@dataclass(eq=False)
class MemoryPool:
    """A pool. kind: of its memory. attributes: by number. access: of the device, CUmemAccess_flags."""

    kind: str
    attributes: dict[int, int] = field(default_factory=lambda: {1: 1, 2: 1, 3: 1})
    access: int = 3

    def count(self, size: int) -> None:
        """Count bytes as used, or, below 0, as free again."""
        known = self.attributes
        known[_USED] = known.get(_USED, 0) + size
        known[_RESERVED] = -(-known[_USED] // _PORTION) * _PORTION
        for now, high in ((_USED, _USED_HIGH), (_RESERVED, _RESERVED_HIGH)):
            known[high] = max(known.get(high, 0), known[now])


_default_pool = MemoryPool(DEVICE_KIND)
_defaults: dict[str, int] = {DEVICE_KIND: POOL}  # handles of default pools, by their kind
_from: dict[int, tuple[MemoryPool, int]] = {}  # allocations of pools, by address: the pool, and how many bytes


def _pool(handle: int) -> MemoryPool:
    return _default_pool if handle == POOL else state().find(handle, MemoryPool)


def _made(kind: int, location: int) -> MemoryPool:
    """A new pool. kind: CUmemAllocationType. location: CUmemLocationType. Raises Refused."""
    if kind == _MANAGED_TYPE and location in (0, *_LOCATIONS):
        return MemoryPool(MANAGED)
    where = _LOCATIONS.get(location)
    if where is None or kind != _PINNED_TYPE:
        raise Refused(Code.INVALID_VALUE)
    return MemoryPool(where, access=3 if where == DEVICE_KIND else 0)


@api("cuMemPoolCreate", "pp", runtime=True)
def pool_create(out: int, properties: int) -> None:
    kind, _, location = struct.unpack("<3I", get_bytes(properties, 12))
    put(out, state().add(_made(kind, location)))


@api("cuMemPoolDestroy", "p", back=True, runtime=True)
def pool_destroy(pool: int) -> None:
    _pool(pool)
    state().objects.pop(pool, None)


@api("cuMemPoolSetAttribute", "pip", runtime=True)
def pool_set(pool: int, number: int, value: int) -> None:
    if number not in range(1, 9):
        raise Refused(Code.INVALID_VALUE)
    _pool(pool).attributes[number] = get(value, 8 if number in _WIDE else 4)


@api("cuMemPoolGetAttribute", "pip", runtime=True)
def pool_get(pool: int, number: int, out: int) -> None:
    if number not in range(1, 9):
        raise Refused(Code.INVALID_VALUE)
    put(out, _pool(pool).attributes.get(number, 0), 8 if number in _WIDE else 4)


accepts("cuMemPoolTrimTo", "pq", _pool, runtime=True)
accepts("cuMemSetMemPool", "pip", lambda where, kind, pool: _pool(pool), 13000, runtime=True)


@api("cuMemPoolSetAccess", "ppq", runtime=True)
def pool_set_access(pool: int, descriptions: int, number: int) -> None:
    for kind, _, access in struct.iter_unpack("<IiI", get_bytes(descriptions, 12 * number)):
        if kind == 1:
            _pool(pool).access = access


answers(
    "cuMemPoolGetAccess", "ppp", lambda pool, location: _pool(pool).access if get(location, 4) == 1 else 0, runtime=True
)  # fmt: skip


@api("cuMemGetMemPool cuMemGetDefaultMemPool", "ppi", runtime=True)
def memory_pool(out: int, location: int, kind: int) -> None:
    made = _made(kind, get(location, 4))
    if made.kind not in _defaults:
        _defaults[made.kind] = state().add(made)
    put(out, _defaults[made.kind])


@api("cuDeviceSetMemPool", "ip", runtime=True)
def set_pool(device: int, pool: int) -> None:
    check_device(device)
    _pool(pool)
