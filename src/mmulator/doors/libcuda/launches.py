"""Launches, streams and events. A launch is over when the call returns, so a stream never has to wait."""

import ctypes
import struct
from collections.abc import Callable

from mmulator.base.errors import LaunchError
from mmulator.doors.libcuda.abi import Refused, accepts, answers, api, get, get_bytes, needed, put, put_bytes
from mmulator.doors.libcuda.clusters import DEPENDENT, checked, configuration
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.modules import blocks_per_multiprocessor
from mmulator.doors.libcuda.runtime import BARRIER
from mmulator.doors.libcuda.state import PRIMARY, CudaKernel, EventState, StreamState, state
from mmulator.host.driver import Event
from mmulator.host.driver.memory import lent_memory, named_arrays
from mmulator.host.driver.streams import ordering
from mmulator.runtime.launch.limits import MAX_BLOCK, MAX_GRID, check_shared, dimensions
from mmulator.runtime.launch.shape import LaunchShape

Extent = tuple[int, int, int]
MOST_SHAPES = 256  # of launches of a kernel that are remembered
_BUFFER, _SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER and CU_LAUNCH_PARAM_BUFFER_SIZE


def parameters(kernel: CudaKernel, pointers: int, extra: int) -> bytes:
    """The parameter memory: gathered from pointers to each parameter, or as it is."""
    f = kernel.function
    memory = bytearray(f.parameter_bytes)
    if extra:
        found = {}
        while get(extra):
            found[get(extra)] = get(extra + 8)
            extra += 16
        size = get(found.get(_SIZE, 0))
        memory[:size] = get_bytes(found.get(_BUFFER, 0), min(size, len(memory)))
    elif f.params:
        if not pointers:
            raise Refused(Code.INVALID_VALUE, LaunchError(f"{f.name} takes {len(f.params)} arguments, and none are given"))
        places = struct.unpack(f"<{len(f.params)}Q", ctypes.string_at(pointers, 8 * len(f.params)))
        for place, p, at in zip(places, f.params, f.offsets):
            memory[at : at + p.size] = ctypes.string_at(place, p.size)
    return bytes(memory)


def launch(
    handle: int, grid: Extent, block: Extent, shared: int, stream: int, pointers: int, extra: int, cooperative: bool = False,
    cluster: Extent | None = None, given: bytes | None = None, dependent: bool = False,
) -> None:  # fmt: skip
    here = state()
    kernel, queue = here.find(handle, CudaKernel), here.stream(stream)
    key = grid, block, shared, cooperative, cluster
    shape = kernel.shapes.get(key)
    if shape is None:
        shape = _shape(kernel, *key)
        if len(kernel.shapes) < MOST_SHAPES:
            kernel.shapes[key] = shape
    params = parameters(kernel, pointers, extra) if given is None else given
    if queue.capture is not None:
        queue.capture.add(queue, "kernel", handle, grid, block, shared, params, cooperative, cluster, _attributes(dependent))
        return
    if cooperative:
        image = kernel.library.loaded.module.image
        if BARRIER in image.addresses:  # a launch that ended in a fault may have left it in the middle
            image.bytes_of(BARRIER)[:] = 0
    here.driver.run(kernel.function, shape, params, lent_memory(), queue.stream, named_arrays, dependent)


def _attributes(dependent: bool) -> tuple[tuple[int, bytes], ...]:
    """The attributes of a captured launch."""
    return ((DEPENDENT, dependent.to_bytes(64, "little")),) if dependent else ()


def _shape(
    kernel: CudaKernel, grid: Extent, block: Extent, shared: int, cooperative: bool, cluster: Extent | None
) -> LaunchShape:
    """The shape of a launch. Raises LaunchError, Refused or UnsupportedError."""
    grid, block = dimensions(grid, "grid", MAX_GRID), dimensions(block, "block", MAX_BLOCK)
    check_shared(kernel.function.static_shared, shared, state().driver.device.name)  # no opt-in makes room beyond the chip's
    if shared > kernel.dynamic:
        raise LaunchError(
            f"{kernel.function.name}: {shared} bytes of dynamic shared memory, and the kernel has opted in to {kernel.dynamic}",
            hint=f"call cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, {shared}) first; in a "
            "program of the driver API, cuFuncSetAttribute with CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
        )
    if cooperative:
        _check_cooperative(kernel, grid, block, shared)
    return kernel.function.check(grid, block, None, shared, checked(kernel, grid, cluster), cooperative)


def _check_cooperative(kernel: CudaKernel, grid: Extent, block: Extent, shared: int) -> None:
    blocks, threads = grid[0] * grid[1] * grid[2], block[0] * block[1] * block[2]
    most = blocks_per_multiprocessor(kernel, threads, shared) * state().driver.device.multiprocessors
    if blocks > most:
        why = LaunchError(f"a cooperative grid of {blocks} blocks: the device holds {most} at once")
        raise Refused(Code.COOPERATIVE_LAUNCH_TOO_LARGE, why)


@api("cuLaunchKernel", "puuuuuuuppp")
def launch_kernel(
    f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, pointers: int, extra: int
) -> None:
    launch(f, (gx, gy, gz), (bx, by, bz), shared, stream, pointers, extra)


@api("cuLaunchCooperativeKernel", "puuuuuuupp")
def launch_cooperative(
    f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, pointers: int
) -> None:
    launch(f, (gx, gy, gz), (bx, by, bz), shared, stream, pointers, 0, cooperative=True)


@api("cuLaunchKernelEx", "pppp")
def launch_kernel_ex(config: int, f: int, pointers: int, extra: int) -> None:
    c = configuration(config)
    launch(f, c.grid, c.block, c.shared, c.stream, pointers, extra, c.cooperative, c.cluster, dependent=c.dependent)
    for event in c.events:
        event_record(event, c.stream)


@api("cuLaunchHostFunc", "ppp", runtime=True)
def host_function(stream: int, function: int, data: int) -> None:
    needed(function, "host function")
    queue = state().stream(stream)
    if queue.capture is not None:
        queue.capture.add(queue, "host", function, data)
    else:
        _called(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function), data)


def _called(function: Callable[..., object], *args: int) -> None:
    """Call a function of the program that comes after the work of a stream."""
    if ordering:
        ordering[-1].opened()
    function(*args)
    if ordering:
        ordering[-1].closed()


@api("cuStreamAddCallback", "pppu", runtime=True)
def add_callback(stream: int, function: int, data: int, flags: int) -> None:
    needed(function, "host function")
    queue = state().stream(stream)
    if queue.capture is not None:
        raise queue.capture.fails(Code.STREAM_CAPTURE_UNSUPPORTED, "a callback of a stream; a host function can be captured")
    _called(ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(function), stream, 0, data)


# streams ------------------------------------------------------------------------------------------------------------
@api("cuStreamCreate", "pu")
@api("cuStreamCreateWithPriority", "pui", runtime=True)
def stream_create(out: int, flags: int, priority: int = 0) -> None:
    needed(out)
    made = StreamState(state().driver.new_stream(not flags & 1), flags, min(max(priority, -5), 0))
    handle = state().add(made)
    state().streams[handle] = made
    put(out, handle)


@api("cuStreamDestroy cuStreamDestroy_v2", "p", 4000, back=True)
def stream_destroy(handle: int) -> None:
    found = state().find(handle, StreamState)
    state().driver.streams.pop(found.stream.handle, None)
    del state().streams[handle], state().objects[handle]


def _of_stream(value: Callable[[StreamState, int], int]) -> Callable[[int], int]:
    """A number that a function answers about a stream. value: gets its handle, too."""
    return lambda handle: value(state().stream(handle), handle)


def _waited(handle: int) -> None:
    queue = state().stream(handle)
    if ordering:
        ordering[-1].synchronize(queue.stream)


accepts("cuStreamSynchronize cuStreamQuery", "p", _waited, runtime=True)
answers("cuStreamGetPriority", "pp", _of_stream(lambda queue, _: queue.priority), 1, runtime=True)
answers("cuStreamGetFlags", "pp", _of_stream(lambda queue, _: queue.flags), 1, runtime=True)
answers("cuStreamGetId", "pp", _of_stream(lambda _, handle: handle), 1, 8, runtime=True)
answers("cuStreamGetDevice", "pp", _of_stream(lambda *_: 0), 1, runtime=True)
answers("cuStreamGetCtx", "pp", _of_stream(lambda *_: PRIMARY), 1, 8)


@api("cuStreamGetCtx_v2", "ppp", 12050)
def stream_contexts(handle: int, out: int, green: int) -> None:
    state().stream(handle)
    put(out, PRIMARY)
    put(green, 0)


@api("cuStreamWaitEvent", "ppu", runtime=True)
def stream_wait(handle: int, event: int, flags: int) -> None:
    queue, found = state().stream(handle), state().find(event, EventState)
    if found.captured is not None:
        found.captured[0].wait(queue, event, flags)
    elif queue.capture is not None:
        queue.capture.wait(queue, event, flags)
    else:
        queue.stream.wait(found.event)


# events -------------------------------------------------------------------------------------------------------------
@api("cuEventCreate", "pu")
def event_create(out: int, flags: int) -> None:
    needed(out)
    put(out, state().add(EventState(Event(), not flags & 2)))


@api("cuEventDestroy cuEventDestroy_v2", "p", 4000, back=True, runtime=True)
def event_destroy(handle: int) -> None:
    state().find(handle, EventState)
    del state().objects[handle]


@api("cuEventRecord", "pp", runtime=True)
@api("cuEventRecordWithFlags", "ppu", runtime=True)
def event_record(handle: int, stream: int, flags: int = 0) -> None:
    found, queue = state().find(handle, EventState), state().stream(stream)
    if queue.capture is not None:
        queue.capture.record(queue, handle, flags)
    else:
        found.captured = None
        found.event.record(queue.stream)


def _recorded(handle: int) -> EventState:
    """The event of a handle. Raises Refused if a captured stream recorded it last."""
    found = state().find(handle, EventState)
    if found.captured is not None:
        raise Refused(Code.CAPTURED_EVENT, LaunchError("the event was recorded last while its stream was captured"))
    return found


def _happened(handle: int) -> None:
    found = _recorded(handle)
    if ordering:
        ordering[-1].known(found.event)


accepts("cuEventQuery cuEventSynchronize", "p", _happened, runtime=True)


@api("cuEventElapsedTime cuEventElapsedTime_v2", "ppp", 12080, runtime="EventElapsedTime EventElapsedTime_v2")
def event_elapsed(out: int, start: int, end: int) -> None:
    first, last = _recorded(start), _recorded(end)
    if not (first.timing and last.timing) or first.event.at is None or last.event.at is None:
        raise Refused(Code.INVALID_HANDLE)
    put_bytes(out, struct.pack("<f", first.event.elapsed(last.event)))
