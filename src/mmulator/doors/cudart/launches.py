"""Launches, attributes of kernels, occupancy, streams and events, and entry points of the driver."""

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from mmulator.doors.cudart import binaries, rows
from mmulator.doors.cudart.binaries import RuntimeRefused, kernel
from mmulator.doors.cudart.memory import DEVICE_TO_HOST, ENDS, HOST_TO_DEVICE, box, plain, symbol_place
from mmulator.doors.cudart.rows import accepts, answers, api, process, refuses, thread
from mmulator.doors.graphs import calls, captures, structs
from mmulator.doors.graphs.operations import CopyWork
from mmulator.doors.libcuda import abi, clusters, launches, modules
from mmulator.doors.libcuda.abi import EDGED, Refused, put, put_bytes, put_int, without
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.modules import set_attribute
from mmulator.doors.libcuda.state import LEGACY, CudaKernel, state

Extent = tuple[int, int, int]
_MISSING_CONFIGURATION = 52
_DIM, _WORD = struct.Struct("<QI"), struct.Struct("<Q")
_LOW = 0xFFFFFFFF


# launches -------------------------------------------------------------------------------------------------------------
def extent(xy: int, z: int) -> Extent:
    """A dim3 by value: two registers, x and y in the first."""
    return xy & _LOW, xy >> 32, z & _LOW


def launched(run: Any, *args: Any) -> None:
    """Run a launch. A fault ends the context: the launch succeeds, as on a GPU, and the calls that follow fail, unless launches
    are blocking."""
    try:
        run(*args)
    except BaseException as error:
        code = abi.fault_code(error)
        if code is None:
            raise
        process.sticky = code
        if rows.blocking():
            raise
        abi.tell(error)


def launch(host: int, grid: Extent, block: Extent, arguments: int, shared: int, stream: int, cooperative: bool = False) -> None:
    launched(launches.launch, kernel(host), grid, block, shared & _LOW, stream, arguments, 0, cooperative)


@api("cudaLaunchKernel __cudaLaunchKernel", "pqqqqpqp")
def launch_kernel(host: int, gxy: int, gz: int, bxy: int, bz: int, arguments: int, shared: int, stream: int) -> None:
    launch(host, extent(gxy, gz), extent(bxy, bz), arguments, shared, stream)


@api("cudaLaunchCooperativeKernel", "pqqqqpqp")
def launch_cooperative(host: int, gxy: int, gz: int, bxy: int, bz: int, arguments: int, shared: int, stream: int) -> None:
    launch(host, extent(gxy, gz), extent(bxy, bz), arguments, shared, stream, True)


@api("cudaLaunchKernelExC", "ppp")
def launch_kernel_ex(config: int, host: int, arguments: int) -> None:
    """Launch as a cudaLaunchConfig_t says: grid, block, a word of shared bytes, stream, attributes as the driver has them."""
    launched(_launch_ex, config, kernel(host), arguments)


def _launch_ex(config: int, handle: int, arguments: int) -> None:
    c = runtime_configuration(config)
    launches.launch(handle, c.grid, c.block, c.shared, c.stream, arguments, 0, c.cooperative, c.cluster, dependent=c.dependent)
    for event in c.events:
        launches.event_record(event, c.stream)


_CONFIG = struct.Struct("<6IQQQI")


def runtime_configuration(config: int) -> clusters.Configuration:
    """The configuration in a cudaLaunchConfig_t."""
    gx, gy, gz, bx, by, bz, shared, stream, attributes, number = _CONFIG.unpack(abi.get_bytes(config, _CONFIG.size))
    return clusters.configured((gx, gy, gz), (bx, by, bz), shared, stream, attributes, number)


@api("__cudaPushCallConfiguration", "qqqqqp", lost=False)
def push_configuration(gxy: int, gz: int, bxy: int, bz: int, shared: int, stream: int) -> None:
    """Keep what stands between <<< and >>> for the call of the kernel's stub."""
    thread.__dict__.setdefault("configurations", []).append((gxy, gz & _LOW, bxy, bz & _LOW, shared, stream))


@api("__cudaPopCallConfiguration", "pppp", lost=False)
def pop_configuration(grid: int, block: int, shared: int, stream: int) -> None:
    kept = thread.__dict__.get("configurations")
    if not kept:
        raise RuntimeRefused(_MISSING_CONFIGURATION)
    gxy, gz, bxy, bz, size, handle = kept.pop()
    # places in the frame of a stub that nvcc has written: they need no look
    written = (grid, _DIM.pack(gxy, gz)), (block, _DIM.pack(bxy, bz)), (shared, _WORD.pack(size)), (stream, _WORD.pack(handle))
    for place, data in written:
        ctypes.memmove(place, data, len(data))


@api("__cudaGetKernel", "pp", lost=False)
def stub_kernel(out: int, host: int) -> None:
    """Write what a kernel's stub gives to its launch. The stub does not look at the code, so the launch says what is wrong."""
    put(out, host)


answers("cudaGetKernel cudaGetFuncBySymbol", "pp", kernel, 8)


def init_module(binary: int) -> int:
    """__cudaInitModule: 1 when the variables of a binary are in place."""
    if binary in binaries.binaries and not process.sticky:
        abi.guarded(binaries.place_managed, "__cudaInitModule")(binary)
        abi.tell(abi.taken())
    return 1


rows.plain("__cudaInitModule", "p", init_module)


# kernels --------------------------------------------------------------------------------------------------------------
# Fields of cudaFuncAttributes: offset, format, number of CUfunction_attribute.
_ATTRIBUTES = (
    (0, "Q", 1), (8, "Q", 2), (16, "Q", 3), (24, "i", 0), (28, "i", 4), (32, "i", 5), (36, "i", 6), (40, "i", 7), (44, "i", 8),
    (48, "i", 9), (52, "i", 10), (56, "i", 11), (60, "i", 12), (64, "i", 13), (68, "i", 15), (72, "i", 14),
)  # fmt: skip
_ATTRIBUTES_SIZE = 144


@api("cudaFuncGetAttributes", "pp")
def function_attributes(out: int, host: int) -> None:
    found, memory = state().find(kernel(host), CudaKernel), bytearray(_ATTRIBUTES_SIZE)
    for at, kind, number in _ATTRIBUTES:
        struct.pack_into(f"<{kind}", memory, at, modules.kernel_attribute(found, number))
    put_bytes(out, bytes(memory))


def _of_kernel(names: str, signature: str, function: Any, at: int = 0) -> None:
    """Functions that the driver has for the handle of a kernel. at: which argument is the kernel."""
    api(names, signature)(lambda *args: function(*args[:at], kernel(args[at]), *args[at + 1 :]))


_of_kernel("cudaFuncSetAttribute", "pii", set_attribute)
_of_kernel("cudaKernelSetAttributeForDevice", "piii", lambda handle, number, value, _: set_attribute(handle, number, value))
_of_kernel("cudaFuncGetName", "pp", modules.kernel_name, 1)
_of_kernel("cudaFuncGetParamInfo", "pqpp", modules.parameter)
accepts("cudaFuncSetCacheConfig cudaFuncSetSharedMemConfig", "pi", "shared memory and the first cache are not divided")


# occupancy ------------------------------------------------------------------------------------------------------------
_of_kernel("cudaOccupancyMaxActiveBlocksPerMultiprocessor", "ppiq", modules.occupancy, 1)
_of_kernel("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "ppiqu", lambda *args: modules.occupancy(*args[:4]), 1)
_of_kernel("cudaOccupancyAvailableDynamicSMemPerBlock", "ppii", modules.available_shared, 1)
for _name, _count in (("MaxActiveClusters", clusters.active_clusters), ("MaxPotentialClusterSize", clusters.cluster_size)):
    answers(f"cudaOccupancy{_name}", "ppp", lambda host, config, count=_count: count(kernel(host), runtime_configuration(config)))


# streams --------------------------------------------------------------------------------------------------------------
@api("cudaStreamCreate", "p")
@api("cudaStreamCreateWithFlags", "pu")
def stream_create(out: int, flags: int = 0) -> None:
    if flags > 1:
        raise Refused(Code.INVALID_VALUE)
    launches.stream_create(out, flags)


@api("cudaStreamDestroy", "p")
def stream_destroy(stream: int) -> None:
    if stream <= LEGACY + 1:
        raise Refused(Code.INVALID_HANDLE)
    launches.stream_destroy(stream)


# events ---------------------------------------------------------------------------------------------------------------
_EVENT_FLAGS = 1 | 2 | 4  # blocking wait, no times, for other processes


@api("cudaEventCreate", "p")
@api("cudaEventCreateWithFlags", "pu")
def event_create(out: int, flags: int = 0) -> None:
    if flags & ~_EVENT_FLAGS:
        raise Refused(Code.INVALID_VALUE)
    launches.event_create(out, flags)


# entry points of the driver -------------------------------------------------------------------------------------------
@api("cudaGetDriverEntryPointByVersion", "ppuqp")
def entry_point_by_version(name: int, out: int, version: int, flags: int, result: int) -> None:
    from mmulator.doors.libcuda import loading

    loading.install()
    missing = loading.find(name, out, version)
    if result:
        put_int(result, missing)
    elif missing:
        raise Refused(Code.NOT_FOUND)


@api("cudaGetDriverEntryPoint", "ppqp")
def entry_point(name: int, out: int, flags: int, result: int) -> None:
    entry_point_by_version(name, out, rows.VERSIONS[thread.version], flags, result)


refuses("tables of the runtime that no document describes", "cudaGetExportTable __cudaGetProcAddress")


# graphs -----------------------------------------------------------------------------------------------------------------
def versioned(name: str, signature: str, place: int, function: Callable[..., Any]) -> None:
    """A function that has an array of edges since CUDA 13, and in CUDA 12 under the name with `_v2`."""
    older = without(place, function)
    api(f"cuda{name}_v2", signature)(lambda *args: function(*args))
    api(f"cuda{name}", signature)(lambda *args: function(*args) if thread.version >= 13 else older(*args[:-1]))


def write_box(at: int, copy: CopyWork) -> None:
    """Write a cudaMemcpy3DParms."""
    put_bytes(at, bytes(160))
    for base, end in ((at, copy.source), (at + 64, copy.to)):
        for place, value in ((32, end.address), (40, end.pitch), (48, copy.width), (56, end.height)):
            put(base + place, value)
    for place, value in ((128, copy.width), (136, copy.height), (144, copy.depth)):
        put(at + place, value)
    put_int(at + 152, ENDS.index((copy.source.where, copy.to.where)))


for _name, (_signature, _place, _function) in EDGED.items():
    versioned(_name, _signature, _place, _function)
_add_any = structs.with_structs(structs.Structs(kernel, box, write_box), lambda name, signature: api(f"cuda{name}", signature))
versioned("GraphAddNode", "ppppqp", 3, _add_any)


@api("cudaGraphLaunch", "pp")
def launch_graph(graph: int, stream: int) -> None:
    launched(calls.launch, graph, stream)


# copies of bytes, from and to variables ---------------------------------------------------------------------------------
def _to_symbol(symbol: int, source: int, size: int, offset: int, kind: int) -> CopyWork:
    return plain(symbol_place(symbol, offset, size, kind, HOST_TO_DEVICE), source, size, kind)


def _from_symbol(to: int, symbol: int, size: int, offset: int, kind: int) -> CopyWork:
    return plain(to, symbol_place(symbol, offset, size, kind, DEVICE_TO_HOST), size, kind)


def _copies(form: str, signature: str, make: Callable[..., CopyWork]) -> None:
    api(f"cudaGraphAddMemcpyNode{form}", f"pppq{signature}")(
        lambda out, graph, after, number, *args: calls.add(out, graph, after, number, make(*args))
    )
    api(f"cudaGraphMemcpyNodeSetParams{form}", f"p{signature}")(lambda node, *args: calls.change(node, make(*args)))
    api(f"cudaGraphExecMemcpyNodeSetParams{form}", f"pp{signature}")(
        lambda graph, node, *args: calls.change(node, make(*args), graph)
    )


_copies("1D", "ppqu", plain)
_copies("ToSymbol", "ppqqu", _to_symbol)
_copies("FromSymbol", "ppqqu", _from_symbol)


# captures ---------------------------------------------------------------------------------------------------------------
api("cudaStreamGetCaptureInfo", "ppppppp")(
    lambda *args: captures.capture_info(*args) if thread.version >= 13 else captures.capture_info(*args[:3], 0, 0, 0, 0)
)

refuses("conditional nodes of graphs are not modelled", "cudaGraphConditionalHandleCreate")
refuses("semaphores of other programming interfaces are not modelled", " ".join(
    f"cudaGraph{what}" for way in ("Signal", "Wait") for what in (
        f"AddExternalSemaphores{way}Node", f"ExternalSemaphores{way}NodeGetParams", f"ExternalSemaphores{way}NodeSetParams",
        f"ExecExternalSemaphores{way}NodeSetParams")))  # fmt: skip
