"""Memory of every kind, copies and fills: the driver API's functions with the runtime's arguments."""

from mmulator.doors.cudart.binaries import RuntimeRefused, variable
from mmulator.doors.cudart.rows import ByteExtent, Pitched, api, shared
from mmulator.doors.graphs import operations
from mmulator.doors.graphs.operations import CopyWork
from mmulator.doors.libcuda import memory as driver
from mmulator.doors.libcuda.abi import Refused, get, needed, put, put_int
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.device import device_pool
from mmulator.doors.libcuda.state import check_device, state
from mmulator.errors import LaunchError, UnsupportedError

HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = range(5)  # cudaMemcpyKind
_ROW = 512  # bytes to which a line of cudaMallocPitch is rounded up
INVALID_DIRECTION, INVALID_PITCH = 21, 12


# allocations ----------------------------------------------------------------------------------------------------------
def _allocated(out: int, size: int, kind: str) -> None:
    """Write the address of new memory; of no bytes, a null pointer."""
    needed(out)
    put(out, driver.allocate(size, kind) if size else 0)


@api("cudaMalloc", "pq")
def malloc(out: int, size: int) -> None:
    _allocated(out, size, driver.DEVICE_KIND)


@api("cudaMallocManaged", "pqu")
def malloc_managed(out: int, size: int, flags: int) -> None:
    if flags not in (1, 2) or not size:
        raise Refused(Code.INVALID_VALUE)
    _allocated(out, size, driver.MANAGED)


@api("cudaMallocHost", "pq")
def malloc_host(out: int, size: int) -> None:
    _allocated(out, size, driver.PINNED)


@api("cudaHostAlloc", "pqu")
def host_alloc(out: int, size: int, flags: int) -> None:
    if size:
        driver.mem_host_alloc(out, size, flags)
    else:
        put(out, 0)


@api("cudaMallocAsync", "pqp")
def malloc_async(out: int, size: int, stream: int) -> None:
    put(out, driver.allocate_on(stream, size) if size else 0)


@api("cudaMallocPitch", "ppqq")
def malloc_pitch(out: int, pitch: int, width: int, height: int) -> None:
    line = -(-width // _ROW) * _ROW
    put(pitch, line)
    _allocated(out, line * height, driver.DEVICE_KIND)


@api("cudaMalloc3D", "pE")
def malloc_3d(out: int, size: ByteExtent) -> None:
    """Write a cudaPitchedPtr."""
    line = -(-size.width // _ROW) * _ROW
    _allocated(out, line * size.height * size.depth, driver.DEVICE_KIND)
    for n, value in enumerate((line, size.width, size.height), 1):
        put(out + 8 * n, value)


shared(
    ("MallocFromPoolAsync", "pqpp", driver.mem_alloc_from_pool), ("MemGetInfo", "pp", driver.mem_info),
    ("Free FreeHost", "p", driver.free), ("FreeAsync", "pp", driver.free_on),
    ("HostRegister", "pqu", driver.mem_host_register), ("HostUnregister", "p", driver.mem_host_unregister),
    ("HostGetDevicePointer", "ppu", driver.mem_host_device_pointer), ("HostGetFlags", "pp", driver.mem_host_flags),
    ("DeviceGetDefaultMemPool DeviceGetMemPool", "pi", device_pool), ("DeviceSetMemPool", "ip", driver.set_pool),
    ("MemPoolCreate", "pp", driver.pool_create), ("MemPoolDestroy", "p", driver.pool_destroy),
    ("MemPoolSetAttribute", "pip", driver.pool_set), ("MemPoolGetAttribute", "pip", driver.pool_get),
    ("MemPoolTrimTo", "pq", driver.pool_trim), ("MemPoolSetAccess", "ppq", driver.pool_set_access),
    ("MemPoolGetAccess", "ppp", driver.pool_get_access),
)  # fmt: skip


@api("cudaPointerGetAttributes", "pp")
def pointer_attributes(out: int, address: int) -> None:
    """Write cudaPointerAttributes: the kind of memory, the device, and the address there and on the host."""
    allocation = state().driver.memory.find(address)
    if allocation is None:
        kind, device, there, host = 0, -2, 0, address  # memory that CUDA knows nothing of
    else:
        what = driver.kind_of(allocation.address)
        kind = {driver.PINNED: 1, driver.REGISTERED: 1, driver.MANAGED: 3}.get(what, 2)
        device, there, host = 0, address, address if kind != 2 else 0
    put_int(out, kind)
    put_int(out + 4, device)
    put(out + 8, there)
    put(out + 16, host)


# copies ---------------------------------------------------------------------------------------------------------------
def _checked(to: int, source: int, size: int, kind: int) -> None:
    """Raise Refused where an end that is the device's is not memory of the device, or the kind is none."""
    if kind > DEFAULT:
        raise RuntimeRefused(INVALID_DIRECTION)
    if kind in (HOST_TO_DEVICE, DEVICE_TO_DEVICE):
        driver.check(to, size)
    if kind in (DEVICE_TO_HOST, DEVICE_TO_DEVICE):
        driver.check(source, size)


def copy(to: int, source: int, size: int, kind: int = DEFAULT) -> None:
    if size:
        if not to or not source:
            raise Refused(Code.INVALID_VALUE)
        _checked(to, source, size, kind)
        driver.move(to, source, size)


@api("cudaMemcpy", "ppqu")
def memcpy(to: int, source: int, size: int, kind: int) -> None:
    copy(to, source, size, kind)


# (source, to) by cudaMemcpyKind
ENDS = (
    (driver.HOST, driver.HOST), (driver.HOST, driver.DEVICE), (driver.DEVICE, driver.HOST), (driver.DEVICE, driver.DEVICE),
    (operations.UNIFIED, operations.UNIFIED),
)  # fmt: skip


def plain(to: int, source: int, size: int, kind: int) -> CopyWork:
    """A copy of bytes as an operation of a stream."""
    if kind > DEFAULT:
        raise RuntimeRefused(INVALID_DIRECTION)
    here, there = ENDS[kind]
    return operations.line(to, there, source, here, size)


def perform(stream: int, work: operations.NodeWork) -> None:
    """Do something on a stream, or record it where the stream is captured."""
    queue = state().stream(stream)
    if queue.capture is not None:
        queue.capture.add(queue, lambda: work)
    else:
        work.run(stream)


@api("cudaMemcpyAsync", "ppqup")
def memcpy_async(to: int, source: int, size: int, kind: int, stream: int) -> None:
    if state().stream(stream).capture is None:
        copy(to, source, size, kind)
    else:
        perform(stream, plain(to, source, size, kind))


@api("cudaMemcpyPeerAsync", "pipiqp", now="cudaMemcpyPeer")
def memcpy_peer_async(to: int, device: int, source: int, source_device: int, size: int, stream: int) -> None:
    check_device(device)
    check_device(source_device)
    memcpy_async(to, source, size, DEVICE_TO_DEVICE, stream)


@api("cudaMemcpy2DAsync", "pqpqqqup", now="cudaMemcpy2D")
def memcpy_2d_async(to: int, pitch: int, source: int, source_pitch: int, width: int, height: int, kind: int, stream: int) -> None:
    perform(stream, _box((to, pitch, 1), (source, source_pitch, 1), width, height, 1, kind))


def _box(to: tuple[int, int, int], source: tuple[int, int, int], width: int, height: int, depth: int, kind: int) -> CopyWork:
    """A copy of lines. to, source: address, bytes from line to line, lines from plane to plane. Raises RuntimeRefused."""
    if kind > DEFAULT:
        raise RuntimeRefused(INVALID_DIRECTION)
    if height * depth > 1 and width > min(to[1], source[1]):
        raise RuntimeRefused(INVALID_PITCH)
    here, there = ENDS[kind]
    return CopyWork(operations.End(*to, there), operations.End(*source, here), width, height, depth)


def box(what: int) -> CopyWork:
    """The copy that a cudaMemcpy3DParms says: array, x, y, z, and pointer, pitch and sizes of each end; the extent; the kind."""
    ends = []
    for at in (what, what + 64):
        array, x, y, z, pointer, pitch, _, height = (get(at + 8 * n) for n in range(8))
        if array:
            raise UnsupportedError("copies from and to a cudaArray are not modelled")
        ends.append((pointer + (z * height + y) * pitch + x, pitch, height))
    return _box(ends[1], ends[0], get(what + 128), get(what + 136), get(what + 144), get(what + 152, 4))


@api("cudaMemcpy3DAsync", "pp", now="cudaMemcpy3D")
def memcpy_3d_async(what: int, stream: int) -> None:
    perform(stream, box(what))


# variables ------------------------------------------------------------------------------------------------------------
@api("cudaGetSymbolAddress", "pp")
def symbol_address(out: int, symbol: int) -> None:
    put(out, variable(symbol)[0])


@api("cudaGetSymbolSize", "pp")
def symbol_size(out: int, symbol: int) -> None:
    put(out, variable(symbol)[1])


def symbol_place(symbol: int, offset: int, size: int, kind: int, way: int) -> int:
    """Address of bytes of a variable that a copy writes (way: HOST_TO_DEVICE) or reads (DEVICE_TO_HOST).

    Raises RuntimeRefused for a copy of another kind, Refused for bytes behind the variable's end.
    """
    if kind not in (way, DEVICE_TO_DEVICE, DEFAULT):
        raise RuntimeRefused(INVALID_DIRECTION)
    address, total = variable(symbol)
    if offset + size > total:
        raise Refused(Code.INVALID_VALUE, LaunchError(f"{size} bytes at byte {offset} of a variable of {total} bytes"))
    return address + offset


@api("cudaMemcpyToSymbolAsync", "ppqqup", now="cudaMemcpyToSymbol")
def memcpy_to_symbol_async(symbol: int, source: int, size: int, offset: int, kind: int, stream: int) -> None:
    memcpy_async(symbol_place(symbol, offset, size, kind, HOST_TO_DEVICE), source, size, kind, stream)


@api("cudaMemcpyFromSymbolAsync", "ppqqup", now="cudaMemcpyFromSymbol")
def memcpy_from_symbol_async(to: int, symbol: int, size: int, offset: int, kind: int, stream: int) -> None:
    memcpy_async(to, symbol_place(symbol, offset, size, kind, DEVICE_TO_HOST), size, kind, stream)


# fills ----------------------------------------------------------------------------------------------------------------
@api("cudaMemsetAsync", "piqp", now="cudaMemset")
def memset_async(address: int, value: int, size: int, stream: int) -> None:
    memset_2d_async(address, 0, value, size, 1, stream)


@api("cudaMemset2DAsync", "pqiqqp", now="cudaMemset2D")
def memset_2d_async(address: int, pitch: int, value: int, width: int, height: int, stream: int) -> None:
    perform(stream, operations.Fill(address, pitch, value, 1, width, height))


@api("cudaMemset3DAsync", "PiEp", now="cudaMemset3D")
def memset_3d_async(to: Pitched, value: int, size: ByteExtent, stream: int) -> None:
    """Fill a box on a stream."""
    for plane in range(size.depth):
        memset_2d_async(to.address + plane * to.pitch * to.height, to.pitch, value, size.width, size.height, stream)
