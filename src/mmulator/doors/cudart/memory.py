"""Memory of every kind, copies, fills and hints: the driver API's functions with the runtime's arguments."""

from mmulator.base.errors import LaunchError, UnsupportedError
from mmulator.doors.cudart.binaries import RuntimeRefused, variable
from mmulator.doors.cudart.rows import ByteExtent, Pitched, answers, api, thread
from mmulator.doors.graphs import operations
from mmulator.doors.graphs.operations import CopyWork
from mmulator.doors.libcuda import hints
from mmulator.doors.libcuda import memory as driver
from mmulator.doors.libcuda.abi import Refused, get, needed, put, put_int
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.state import check_device, state
from mmulator.host.driver.memory import DEVICE_KIND, MANAGED, PINNED, REGISTERED
from mmulator.host.driver.streams import ordering

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
    _allocated(out, size, DEVICE_KIND)


@api("cudaMallocManaged", "pqu")
def malloc_managed(out: int, size: int, flags: int) -> None:
    if flags not in (1, 2) or not size:
        raise Refused(Code.INVALID_VALUE)
    _allocated(out, size, MANAGED)


@api("cudaMallocHost", "pq")
def malloc_host(out: int, size: int) -> None:
    _allocated(out, size, PINNED)


@api("cudaHostAlloc", "pqu")
def host_alloc(out: int, size: int, flags: int) -> None:
    if size:
        driver.mem_host_alloc(out, size, flags)
    else:
        put(out, 0)


answers("cudaMallocAsync", "pqp", lambda size, stream: driver.allocate_on(stream, size) if size else 0, 8)


@api("cudaMallocPitch", "ppqq")
def malloc_pitch(out: int, pitch: int, width: int, height: int) -> None:
    line = -(-width // _ROW) * _ROW
    put(pitch, line)
    _allocated(out, line * height, DEVICE_KIND)


@api("cudaMalloc3D", "pE")
def malloc_3d(out: int, size: ByteExtent) -> None:
    """Write a cudaPitchedPtr."""
    line = -(-size.width // _ROW) * _ROW
    _allocated(out, line * size.height * size.depth, DEVICE_KIND)
    for n, value in enumerate((line, size.width, size.height), 1):
        put(out + 8 * n, value)


@api("cudaPointerGetAttributes", "pp")
def pointer_attributes(out: int, address: int) -> None:
    """Write cudaPointerAttributes: the kind of memory, the device, and the address there and on the host."""
    allocation = state().driver.memory.find(address)
    if allocation is None:
        kind, device, there, host = 0, -2, 0, address  # memory that CUDA knows nothing of
    else:
        what = driver.kind_of(allocation.address)
        kind = {PINNED: 1, REGISTERED: 1, MANAGED: 3}.get(what, 2)
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
    elif ordering:
        with ordering[-1].on(queue.stream):
            work.run(stream)
    else:
        work.run(stream)


@api("cudaMemcpyAsync", "ppqup")
def memcpy_async(to: int, source: int, size: int, kind: int, stream: int) -> None:
    queue = state().stream(stream)
    if queue.capture is None and ordering:
        with ordering[-1].on(queue.stream):
            copy(to, source, size, kind)
    elif queue.capture is None:
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
answers("cudaGetSymbolAddress", "pp", lambda symbol: variable(symbol)[0], 8)
answers("cudaGetSymbolSize", "pp", lambda symbol: variable(symbol)[1], 8)


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


# functions whose arguments differ between CUDA 12 and 13 ----------------------------------------------------------------------
@api("cudaMemAdvise", "pqiq")
def advise(address: int, size: int, advice: int, where: int) -> None:
    """Keep a hint. where: the number of a device until CUDA 12, a cudaMemLocation since CUDA 13."""
    (hints.advise_2 if thread.version >= 13 else hints.advise)(address, size, advice, _place(where))


@api("cudaMemPrefetchAsync", "pqqpp")
def prefetch(address: int, size: int, where: int, third: int, fourth: int) -> None:
    """Keep where memory should be. third, fourth: a stream until CUDA 12; flags and a stream since CUDA 13."""
    if thread.version >= 13:
        hints.prefetch_2(address, size, where, 0, fourth)
    else:
        hints.prefetch(address, size, _place(where), third)


def _place(word: int) -> int:
    """A cudaMemLocation as it is, or an int of a register, by version."""
    low = word & 0xFFFFFFFF
    return word if thread.version >= 13 else low - (low >> 31 << 32)


@api("cudaMemcpyBatchAsync", "pppqppqpp")
def copies(
    to: int, sources: int, sizes: int, number: int, attributes: int, indices: int, sets: int, last: int, stream: int
) -> None:
    """Copy arrays. last: the stream since CUDA 13; until CUDA 12 the place of a failing copy's number, and the stream follows."""
    hints.copies(to, sources, sizes, number, attributes, indices, sets, last if thread.version >= 13 else stream)
