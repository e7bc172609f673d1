"""Functions of graphs that the driver and the runtime have with the same arguments, by the name behind `cu` and `cuda`."""

import struct
from typing import Any

from mmulator.base.errors import LaunchError
from mmulator.base.files import write
from mmulator.doors.graphs import model, operations
from mmulator.doors.graphs.captures import nodes_at
from mmulator.doors.graphs.model import PLAIN, Child, Executable, Graph, Node, UserObject
from mmulator.doors.graphs.operations import Allocate, CopyWork, Empty, Fill, Free, LaunchWork, NodeWork, RecordEvent, WaitEvent
from mmulator.doors.libcuda.abi import (
    Refused,
    accepts,
    answers,
    api,
    edged,
    get,
    get_bytes,
    put,
    put_bytes,
    put_int,
    shared,
    text,
)
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.memory import used
from mmulator.doors.libcuda.state import CudaKernel, EventState, check_device, state

_COOPERATIVE, _CLUSTER = 2, 4  # CUlaunchAttributeID
_MOST_FLAGS = 16
_MOVE = 1  # flag of GraphRetainUserObject: the caller's references become the graph's


def graph_at(handle: int) -> Graph:
    return state().find(handle, Graph, Code.INVALID_VALUE)


def node_at(handle: int) -> Node:
    return state().find(handle, Node, Code.INVALID_VALUE)


def executable(handle: int) -> Executable:
    return state().find(handle, Executable, Code.INVALID_VALUE)


# graphs -----------------------------------------------------------------------------------------------------------------
@shared("GraphCreate", "pu")
def create(out: int, flags: int) -> None:
    if flags:
        raise Refused(Code.INVALID_VALUE)
    put(out, Graph().handle)


@shared("GraphDestroy", "p")
def destroy(handle: int) -> None:
    graph_at(handle).destroy()


@shared("GraphClone", "pp")
def clone(out: int, handle: int) -> None:
    found = graph_at(handle)
    if found.allocates:
        raise Refused(Code.NOT_SUPPORTED, LaunchError("a graph that allocates cannot be copied"))
    put(out, found.clone().handle)


@shared("GraphNodeFindInClone", "ppp")
def find_in_clone(out: int, original: int, handle: int) -> None:
    wanted = node_at(original)
    found = next((node for node in graph_at(handle).nodes if node.of is wanted), None)
    if found is None:
        raise Refused(Code.INVALID_VALUE, LaunchError("the graph is no copy of the node's graph"))
    put(out, found.handle)


@shared("GraphDebugDotPrint", "ppu")
def dot_print(handle: int, path: int, flags: int) -> None:
    names = model.dot(graph_at(handle), lambda work: state().find(work.handle, CudaKernel).function.name)
    try:
        write(text(path), names, LaunchError)
    except LaunchError as why:
        raise Refused(Code.OPERATING_SYSTEM, why) from None


def _listed(found: list[tuple[Any, ...]], outs: tuple[int, ...], number: int) -> None:
    """Write columns of a table: handles of nodes, or bytes.

    found: its lines.
    outs: address of each column's array; without the first array only the number of lines is asked for.
    number: address of the most lines, where the number of lines is written.
    """
    if outs[0]:
        room = get(number)
        for n, line in enumerate(found[:room]):
            for out, value in zip(outs, line):
                put_bytes(out and out + 8 * n, value if isinstance(value, bytes) else value.handle.to_bytes(8, "little"))
        for n in range(len(found), room):
            put(outs[0] + 8 * n, 0)
        put(number, min(room, len(found)))
    else:
        put(number, len(found))


def _checked_edges(found: list[tuple[Any, ...]], edges: int, wanted: int) -> None:
    """Raise Refused where dependencies have bytes that the caller has no room for."""
    if wanted and not edges and any(line[-1] != PLAIN for line in found):
        raise Refused(Code.LOSSY_QUERY, LaunchError("dependencies of this graph have data, and there is no array for them"))


@shared("GraphGetNodes", "ppp")
def get_nodes(handle: int, out: int, number: int) -> None:
    _listed([(node,) for node in graph_at(handle).nodes], (out,), number)


@shared("GraphGetRootNodes", "ppp")
def get_roots(handle: int, out: int, number: int) -> None:
    _listed([(node,) for node in graph_at(handle).nodes if not node.after], (out,), number)


@edged("GraphGetEdges", "ppppp", 3)
def get_edges(handle: int, origins: int, ends: int, edges: int, number: int) -> None:
    found = [(before, node, edge) for node in graph_at(handle).nodes for before, edge in node.after.items()]
    _checked_edges(found, edges, origins)
    _listed(found, (origins, ends, edges), number)


@edged("GraphNodeGetDependencies", "pppp", 2)
def get_dependencies(handle: int, out: int, edges: int, number: int) -> None:
    found = list(node_at(handle).after.items())
    _checked_edges(found, edges, out)
    _listed(found, (out, edges), number)


@edged("GraphNodeGetDependentNodes", "pppp", 2)
def get_dependents(handle: int, out: int, edges: int, number: int) -> None:
    node = node_at(handle)
    found = [(other, other.after[node]) for other in node.graph.followers(node)]
    _checked_edges(found, edges, out)
    _listed(found, (out, edges), number)


def _pairs(handle: int, origins: int, ends: int, number: int) -> list[tuple[Node, Node]]:
    """(from, to) of edges. Raises Refused for nodes of another graph, or a node on itself."""
    pairs = [(node_at(get(origins + 8 * n)), node_at(get(ends + 8 * n))) for n in range(number)]
    if any(a is b or {a.graph, b.graph} != {graph_at(handle)} for a, b in pairs):
        raise Refused(Code.INVALID_VALUE, LaunchError("an edge is between two nodes of the graph"))
    return pairs


@edged("GraphAddDependencies", "ppppq", 3)
def add_dependencies(handle: int, origins: int, ends: int, edges: int, number: int) -> None:
    pairs = _pairs(handle, origins, ends, number)
    if any(before in node.after for before, node in pairs):
        raise Refused(Code.INVALID_VALUE, LaunchError("the graph has that edge already"))
    for n, (before, node) in enumerate(pairs):
        node.after[before] = get_bytes(edges + 8 * n, 8) if edges else PLAIN


@edged("GraphRemoveDependencies", "ppppq", 3)
def remove_dependencies(handle: int, origins: int, ends: int, edges: int, number: int) -> None:
    pairs = _pairs(handle, origins, ends, number)
    if any(before not in node.after for before, node in pairs):
        raise Refused(Code.INVALID_VALUE, LaunchError("the graph has no such edge"))
    for before, node in pairs:
        del node.after[before]


# nodes ------------------------------------------------------------------------------------------------------------------
@shared("GraphNodeGetType", "pp")
def node_type(handle: int, out: int) -> None:
    put_int(out, model.KINDS[type(node_at(handle).work)][0])


@shared("GraphDestroyNode", "p")
def destroy_node(handle: int) -> None:
    node = node_at(handle)
    if isinstance(node.work, Allocate | Free):
        raise Refused(Code.NOT_SUPPORTED, LaunchError("nodes of allocations stay in their graph"))
    node.graph.remove(node)


def add(out: int, graph: int, after: int, number: int, work: NodeWork, edges: int = 0) -> None:
    """Add a node, and write its handle."""
    before = nodes_at(after, number, edges)
    put(out, graph_at(graph).add(work, before, before.values()).handle)


def child_of(handle: int) -> Child:
    found = graph_at(handle)
    if found.allocates:
        raise Refused(Code.NOT_SUPPORTED, LaunchError("a graph that allocates cannot be a part of another graph"))
    return Child(found.clone())


shared("GraphAddEmptyNode", "pppq")(lambda out, graph, after, number: add(out, graph, after, number, Empty()))
shared("GraphAddChildGraphNode", "pppqp")(
    lambda out, graph, after, number, child: add(out, graph, after, number, child_of(child))
)
answers("cuGraphChildGraphNodeGetGraph", "pp", lambda node: of_kind(node, Child).graph.handle, 1, 8, runtime=True)


def of_kind(handle: int, kind: type[Any]) -> Any:
    """The operation of a node. Raises Refused for another kind of operation."""
    found = node_at(handle).work
    if not isinstance(found, kind):
        raise Refused(Code.INVALID_VALUE, LaunchError(f"the node is of kind {model.KINDS[type(found)][1]}"))
    return found


def change(handle: int, work: NodeWork, graph: int = 0) -> None:
    """Give a node another operation of its kind. graph: handle of the executable graph whose copy of the node changes, or 0."""
    of_kind(handle, type(work))
    node = node_at(handle)
    (executable(graph).node(node) if graph else node).work = work


def event_at(handle: int) -> int:
    state().find(handle, EventState)
    return handle


def _events(name: str, make: type[RecordEvent] | type[WaitEvent]) -> None:
    """Functions of nodes that record an event, or wait for one."""

    @shared(f"GraphAdd{name}Node", "pppqp")
    def add_event(out: int, graph: int, after: int, number: int, event: int) -> None:
        add(out, graph, after, number, make(event_at(event)))

    answers(f"cuGraph{name}NodeGetEvent", "pp", lambda node: of_kind(node, make).event, 1, 8, runtime=True)
    shared(f"Graph{name}NodeSetEvent", "pp")(lambda node, event: change(node, make(event_at(event))))
    shared(f"GraphExec{name}NodeSetEvent", "ppp")(lambda graph, node, event: change(node, make(event_at(event)), graph))


_events("EventRecord", RecordEvent)
_events("EventWait", WaitEvent)


shared("GraphAddMemFreeNode", "pppqp")(lambda out, graph, after, number, at: add(out, graph, after, number, Free(at)))
answers("cuGraphMemFreeNodeGetParams", "pp", lambda node: of_kind(node, Free).address, 1, 8, runtime=True)


# CUDA_MEM_ALLOC_NODE_PARAMS: properties of a pool, 16 bytes of access, the size at byte 104, the address at 112
@shared("GraphAddMemAllocNode", "pppqp")
def add_allocation(out: int, graph: int, after: int, number: int, what: int) -> None:
    work = operations.MADE["allocate"](get(what + 104))
    add(out, graph, after, number, work)
    put(what + 112, work.address)


@shared("GraphMemAllocNodeGetParams", "pp")
def get_allocation(handle: int, out: int) -> None:
    found = of_kind(handle, Allocate)
    put_bytes(out, struct.pack("<IIII88xQQ", 1, 0, 1, 0, found.memory.size, found.address))


@shared("DeviceGetGraphMemAttribute", "iip")
def graph_memory(device: int, number: int, out: int) -> None:
    """Write how much memory graphs use or keep: as much as the program has allocated."""
    check_device(device)
    put(out, used())


accepts("cuDeviceSetGraphMemAttribute", "iip", check_device, runtime=True)
accepts("cuDeviceGraphMemTrim", "i", check_device, runtime=True)


# attributes of launches -------------------------------------------------------------------------------------------------
@shared("GraphKernelNodeGetAttribute", "pip")
def get_attribute(handle: int, number: int, out: int) -> None:
    work = of_kind(handle, LaunchWork)
    known = {
        **dict(work.attributes), _COOPERATIVE: struct.pack("<I", work.cooperative),
        _CLUSTER: struct.pack("<3I", *work.cluster or (0, 0, 0)),
    }  # fmt: skip
    put_bytes(out, known.get(number, b"").ljust(64, b"\0"))


@shared("GraphKernelNodeSetAttribute", "pip")
def set_attribute(handle: int, number: int, value: int) -> None:
    work = of_kind(handle, LaunchWork)
    if number == _COOPERATIVE:
        work = work._replace(cooperative=get(value, 4) != 0)
    elif number == _CLUSTER:
        x, y, z = struct.unpack("<3I", get_bytes(value, 12))
        work = work._replace(cluster=(x, y, z) if x else None)
    else:
        work = work._replace(attributes=(*{**dict(work.attributes), number: get_bytes(value, 64)}.items(),))
    change(handle, work)


@shared("GraphKernelNodeCopyAttributes", "pp")
def copy_attributes(to: int, source: int) -> None:
    a, b = of_kind(to, LaunchWork), of_kind(source, LaunchWork)
    change(to, a._replace(cooperative=b.cooperative, cluster=b.cluster, attributes=b.attributes))


# graphs that can be launched --------------------------------------------------------------------------------------------
@api("cuGraphInstantiateWithFlags", "ppq", runtime="GraphInstantiateWithFlags GraphInstantiate")
def instantiate(out: int, handle: int, flags: int) -> None:
    put(out, Executable(graph_at(handle), flags).handle)


@api("cuGraphInstantiate cuGraphInstantiate_v2", "ppq", 11000)
def instantiate_any(out: int, handle: int, flags: int) -> None:
    """Instantiate a graph by the name whose third argument is, by version, flags or the address of a node."""
    instantiate(out, handle, flags if flags < _MOST_FLAGS else 0)


@shared("GraphInstantiateWithParams", "ppp")
def instantiate_with(out: int, handle: int, what: int) -> None:
    """Instantiate a graph as a struct says: flags, a stream, then the node of an error and the outcome, which are written."""
    put(what + 16, 0)
    put_int(what + 24, 1)
    instantiate(out, handle, get(what))
    put_int(what + 24, 0)


@shared("GraphExecDestroy", "p")
def destroy_executable(handle: int) -> None:
    executable(handle).destroy()


answers("cuGraphExecGetFlags", "pp", lambda handle: executable(handle).flags, 1, 8, runtime=True)


@api("cuGraphLaunch", "pp")
def launch(handle: int, stream: int) -> None:
    executable(handle).launch(stream)


@shared("GraphUpload", "pp")
def upload(handle: int, stream: int) -> None:
    executable(handle)
    state().stream(stream)


@shared("GraphExecChildGraphNodeSetParams", "ppp")
def set_child(graph: int, handle: int, child: int) -> None:
    found = executable(graph).node(node_at(handle)).work
    if not isinstance(found, Child):
        raise Refused(Code.INVALID_VALUE)
    if model.updated({}, found.graph, graph_at(child))[0]:
        raise Refused(Code.INVALID_VALUE, LaunchError("the graph has other nodes than the one in its place"))


@shared("GraphExecUpdate", "ppp")
def update(handle: int, graph: int, out: int) -> None:
    """Update, and write the result, the node of an error and 0."""
    result, node = executable(handle).update(graph_at(graph))
    put_int(out, result)
    put(out and out + 8, node.handle if node else 0)
    put(out and out + 16, 0)
    if result:
        why = "the graph has other nodes or dependencies than the one that was instantiated"
        raise Refused(Code.GRAPH_EXEC_UPDATE_FAILURE, LaunchError(why))


api("cuGraphExecUpdate_v2", "ppp", 12000)(update)


def _switchable(graph: int, handle: int) -> Node:
    of_kind(handle, (LaunchWork, CopyWork, Fill))  # type: ignore[arg-type]
    return executable(graph).node(node_at(handle))


answers("cuGraphNodeGetEnabled", "ppp", lambda graph, node: int(_switchable(graph, node).enabled), 2, runtime=True)


@shared("GraphNodeSetEnabled", "ppu")
def set_enabled(graph: int, handle: int, enabled: int) -> None:
    _switchable(graph, handle).enabled = enabled != 0


# objects of the program -------------------------------------------------------------------------------------------------
@shared("UserObjectCreate", "pppuu")
def user_create(out: int, data: int, destructor: int, number: int, flags: int) -> None:
    if flags != 1 or not number:  # NO_DESTRUCTOR_SYNC must be said
        raise Refused(Code.INVALID_VALUE)
    put(out, UserObject(data, destructor, number).handle)


@shared("UserObjectRetain", "pu")
def user_retain(handle: int, number: int) -> None:
    state().find(handle, UserObject).count += number


@shared("UserObjectRelease", "pu")
def user_release(handle: int, number: int) -> None:
    state().find(handle, UserObject).release(number)


@shared("GraphRetainUserObject", "ppuu")
def retain_user(graph: int, handle: int, number: int, flags: int) -> None:
    user, users = state().find(handle, UserObject), graph_at(graph).users
    users[user] = users.get(user, 0) + number
    if not flags & _MOVE:
        user.count += number


@shared("GraphReleaseUserObject", "ppu")
def release_user(graph: int, handle: int, number: int) -> None:
    user, users = state().find(handle, UserObject), graph_at(graph).users
    if users.get(user, 0) < number:
        raise Refused(Code.INVALID_VALUE)
    users[user] -= number
    user.release(number)
