"""Functions of graphs with structs of parameters, which the driver and the runtime lay out in different ways."""

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mmulator.base.errors import LaunchError
from mmulator.doors.graphs import operations
from mmulator.doors.graphs.calls import add, change, child_of, event_at, node_at, of_kind
from mmulator.doors.graphs.model import Node
from mmulator.doors.graphs.operations import (
    Allocate,
    CopyWork,
    Empty,
    Fill,
    Free,
    Host,
    LaunchWork,
    NodeWork,
    RecordEvent,
    WaitEvent,
)
from mmulator.doors.libcuda.abi import Refused, api, get, get_bytes, put, put_bytes, put_int, unsupported, without
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.launches import parameters
from mmulator.doors.libcuda.memory import HOST
from mmulator.doors.libcuda.state import CudaKernel, state

Register = Callable[[str, str], Callable[[Callable[..., Any]], Callable[..., Any]]]  # a decorator by name and signature


@dataclass(frozen=True)
class Structs:
    """The structs in which a library says what nodes do.

    kernel: handle of a kernel from what the struct has.
    copy: the copy that a struct of a box says.
    write_copy: writes such a struct.
    """

    kernel: Callable[[int], int]
    copy: Callable[[int], CopyWork]
    write_copy: Callable[[int, CopyWork], None]


_KERNEL = struct.Struct("<Q7I4xQQ")  # kernel, grid, block, shared bytes, pointers to parameters, extra


def _read_kernel(at: int, structs: Structs) -> LaunchWork:
    first, gx, gy, gz, bx, by, bz, shared_bytes, pointers, extra = _KERNEL.unpack(get_bytes(at, _KERNEL.size))
    handle = structs.kernel(first)
    params = parameters(state().find(handle, CudaKernel), pointers, extra)
    return LaunchWork(handle, (gx, gy, gz), (bx, by, bz), shared_bytes, params)


def _write_kernel(at: int, node: Node, structs: Structs) -> None:
    """Write a kernel's struct; its pointers to parameters lead to memory of the node."""
    work = node.work
    assert isinstance(work, LaunchWork)
    function = state().find(work.handle, CudaKernel).function
    memory = ctypes.create_string_buffer(work.params, max(len(work.params), 1))
    base = ctypes.addressof(memory)
    pointers = (ctypes.c_uint64 * max(len(function.params), 1))(*(base + offset for offset in function.offsets))
    node.shown = memory, pointers
    put_bytes(at, _KERNEL.pack(work.handle, *work.grid, *work.block, work.shared, ctypes.addressof(pointers), 0))


_FILL = struct.Struct("<QQIIQQ")  # address, pitch, value, bytes of an element, width, height
_HOST = struct.Struct("<QQ")


def _read_fill(at: int, _: Structs) -> Fill:
    address, pitch, value, size, width, height = _FILL.unpack(get_bytes(at, _FILL.size))
    if size not in (1, 2, 4):
        raise Refused(Code.INVALID_VALUE, LaunchError(f"a fill of elements of {size} bytes: 1, 2 or 4"))
    return Fill(address, pitch, value, size, width, height)


def _write_fill(at: int, node: Node, _: Structs) -> None:
    put_bytes(at, _FILL.pack(*node.work))  # type: ignore[misc]


def _write_host(at: int, node: Node, _: Structs) -> None:
    put_bytes(at, _HOST.pack(*node.work))  # type: ignore[misc]


def _write_copy(at: int, node: Node, structs: Structs) -> None:
    assert isinstance(node.work, CopyWork)
    structs.write_copy(at, node.work)


# (class, what reads it from a struct, what writes the struct) by the name of functions
_STRUCTS: dict[str, tuple[type[Any], Callable[[int, Structs], NodeWork], Callable[[int, Node, Structs], None]]] = {
    "Kernel": (LaunchWork, _read_kernel, _write_kernel), "Memcpy": (CopyWork, lambda at, s: s.copy(at), _write_copy),
    "Memset": (Fill, _read_fill, _write_fill), "Host": (Host, lambda at, _: Host(*_HOST.unpack(get_bytes(at, 16))), _write_host),
}  # fmt: skip
_UNION = 16  # byte of CUgraphNodeParams where the struct of a type begins
_BY_TYPE: dict[int, Callable[[int, Structs], NodeWork]] = {
    0: _read_kernel, 1: lambda at, s: s.copy(at + 16), 2: _read_fill, 3: _STRUCTS["Host"][1], 4: lambda at, _: child_of(get(at)),
    5: lambda *_: Empty(), 6: lambda at, _: WaitEvent(event_at(get(at))), 7: lambda at, _: RecordEvent(event_at(get(at))),
    10: lambda at, _: operations.MADE["allocate"](get(at + 104)), 11: lambda at, _: Free(get(at)),
}  # fmt: skip
CONDITIONAL = "conditional nodes of graphs are not modelled"
_REFUSED = {8: "external semaphores", 9: "external semaphores", 12: "batches of memory operations", 13: "conditional nodes"}


def _read_any(what: int, structs: Structs) -> NodeWork:
    """The operation that a CUgraphNodeParams says."""
    kind = get(what, 4)
    if kind not in _BY_TYPE:
        raise unsupported("cuGraphAddNode", f"{_REFUSED.get(kind, f'type {kind}')} of graphs are not modelled")
    return _BY_TYPE[kind](what + _UNION, structs)


def with_structs(structs: Structs, register: Register) -> Callable[..., None]:
    """Register the functions that take structs. register: gives the decorator of a function by name and signature. Returns the
    function that adds a node of any type, whose name has versions."""
    for name, entry in _STRUCTS.items():
        _with_struct(name, entry, structs, register)

    @register("GraphNodeSetParams", "pp")
    def set_any(handle: int, what: int) -> None:
        change(handle, _kept(node_at(handle), _read_any(what, structs)))

    @register("GraphExecNodeSetParams", "ppp")
    def set_any_of(graph: int, handle: int, what: int) -> None:
        change(handle, _kept(node_at(handle), _read_any(what, structs)), graph)

    def add_any(out: int, graph: int, after: int, edges: int, number: int, what: int) -> None:
        work = _read_any(what, structs)
        add(out, graph, after, number, work, edges)
        if isinstance(work, Allocate):
            put(what + _UNION + 112, work.address)

    return add_any


def _kept(node: Node, work: NodeWork) -> NodeWork:
    """An operation with those attributes of a node that its struct does not say."""
    old = node.work
    if isinstance(work, LaunchWork) and isinstance(old, LaunchWork):
        return work._replace(cooperative=old.cooperative, cluster=old.cluster, attributes=old.attributes)
    return work


def _with_struct(name: str, entry: tuple[type[Any], Any, Any], structs: Structs, register: Register) -> None:
    kind, read, write = entry

    @register(f"GraphAdd{name}Node", "pppqp")
    def add_node(out: int, graph: int, after: int, number: int, what: int) -> None:
        add(out, graph, after, number, read(what, structs))

    @register(f"Graph{name}NodeGetParams", "pp")
    def get_params(handle: int, out: int) -> None:
        of_kind(handle, kind)
        write(out, node_at(handle), structs)

    @register(f"Graph{name}NodeSetParams", "pp")
    def set_params(handle: int, what: int) -> None:
        change(handle, _kept(node_at(handle), read(what, structs)))

    @register(f"GraphExec{name}NodeSetParams", "ppp")
    def set_params_of(graph: int, handle: int, what: int) -> None:
        change(handle, _kept(node_at(handle), read(what, structs)), graph)


# the driver's structs -----------------------------------------------------------------------------------------------------
def _kernel_of(handle: int) -> int:
    state().find(handle, CudaKernel)
    return handle


def write_box(at: int, copy: CopyWork) -> None:
    """Write a CUDA_MEMCPY3D."""
    put_bytes(at, bytes(200))
    for base, end in ((at, copy.source), (at + 88, copy.to)):
        put_int(base + 32, end.where)
        put(base + (40 if end.where == HOST else 48), end.address)
        put(base + 72, end.pitch)
        put(base + 80, end.height)
    for place, value in ((176, copy.width), (184, copy.height), (192, copy.depth)):
        put(at + place, value)


DRIVER = Structs(_kernel_of, operations.box_of, write_box)
_VERSIONED = {"GraphAddKernelNode", "GraphKernelNodeGetParams", "GraphKernelNodeSetParams", "GraphExecKernelNodeSetParams"}


def _driver(name: str, signature: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of the driver's functions. Those of copies and fills have a context as one more argument; structs of kernels grew
    at the end, where nothing is read."""
    more = "p" if name.startswith(("GraphAddMem", "GraphExecMem")) else ""
    names = f"cu{name} cu{name}_v2" if name in _VERSIONED else f"cu{name}"
    return lambda function: api(names, signature + more, 12000)(function)


_add_any = with_structs(DRIVER, _driver)
api("cuGraphAddNode_v2", "ppppqp", 12030)(_add_any)
api("cuGraphAddNode", "pppqp")(without(3, _add_any))
