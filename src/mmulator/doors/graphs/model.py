"""Graphs: operations with dependencies, copies of graphs, and graphs that can be launched.

A launch does one operation after another, in an order that keeps the dependencies: of operations that depend on no other one, the
one that was made first comes first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mmulator.base.errors import LaunchError, UnsupportedError
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
from mmulator.doors.libcuda import memory
from mmulator.doors.libcuda.abi import Refused
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.state import state
from mmulator.host.driver import Stream
from mmulator.host.driver.streams import ordering

PLAIN = bytes(8)  # CUgraphEdgeData of a dependency on all of a node
AUTO_FREE, DEVICE_LAUNCH = 1, 4  # CUgraphInstantiate_flags
TOPOLOGY_CHANGED, TYPE_CHANGED = 2, 3  # CUgraphExecUpdateResult


class Named:
    """A thing with a handle, which it gets when a program first sees it."""

    _handle = 0

    @property
    def handle(self) -> int:
        if not self._handle:
            self._handle = state().add(self)
        return self._handle

    def forget(self) -> None:
        """Take the handle away."""
        state().objects.pop(self._handle, None)


@dataclass(eq=False)
class Node(Named):
    """A node of a graph.

    work: what it does.
    after: the nodes that it depends on, and the 8 bytes of each edge.
    of: the node that this one is a copy of.
    enabled: it does its work when the graph runs.
    shown: memory of the parameters that the program was shown.
    """

    graph: Graph
    work: NodeWork
    after: dict[Node, bytes] = field(default_factory=dict)
    of: Node | None = None
    enabled: bool = True
    shown: Any = None

    def run(self, stream: int) -> None:
        """Do its work, if it is enabled."""
        if self.enabled and ordering and not isinstance(self.work, LaunchWork | Child | WaitEvent | RecordEvent):
            with ordering[-1].on(state().stream(stream).stream):
                self.work.run(stream)
        elif self.enabled:
            self.work.run(stream)


@dataclass(eq=False)
class UserObject(Named):
    """An object of the program, destroyed when nobody refers to it any more. destroy: address of a function for `data`."""

    data: int
    destroy: int
    count: int

    def release(self, number: int) -> None:
        self.count -= number
        if self.count <= 0:
            self.forget()
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.destroy)(self.data)


@dataclass(eq=False)
class Graph(Named):
    """A graph.

    nodes: as they were made.
    of: the graph that this one is a copy of.
    users: references to each user object.
    instances: number of its executables.
    kept: of its runs, for their order (host/driver/order.py).
    """

    nodes: list[Node] = field(default_factory=list)
    of: Graph | None = None
    users: dict[UserObject, int] = field(default_factory=dict)
    instances: int = 0
    kept: tuple[list[Stream], dict[int, int]] = field(default_factory=lambda: ([], {}))

    @property
    def allocates(self) -> bool:
        """Whether nodes allocate or free memory."""
        return any(isinstance(node.work, Allocate | Free) for node in self.every())

    def add(self, work: NodeWork, after: Iterable[Node] = (), edges: Iterable[bytes] | None = None) -> Node:
        """A new node. edges: the bytes of each dependency."""
        before = list(after)
        if any(node.graph is not self for node in before):
            raise Refused(Code.INVALID_VALUE, LaunchError("a node cannot depend on a node of another graph"))
        node = Node(self, work, dict(zip(before, edges or [PLAIN] * len(before))))
        self.nodes.append(node)
        return node

    def followers(self, node: Node) -> list[Node]:
        return [other for other in self.nodes if node in other.after]

    def remove(self, node: Node) -> None:
        for other in self.followers(node):
            del other.after[node]
        self.nodes.remove(node)
        node.forget()

    def order(self) -> list[Node]:
        """Return the nodes, each behind those that it depends on. Raises Refused for a circle."""
        found: dict[Node, None] = {}
        waiting = self.nodes
        while waiting:
            left = []
            for node in waiting:
                if all(other in found for other in node.after):
                    found[node] = None
                else:
                    left.append(node)
            if len(left) == len(waiting):
                raise Refused(Code.INVALID_VALUE, LaunchError("the dependencies of a graph's nodes form a circle"))
            waiting = left
        return list(found)

    def clone(self) -> Graph:
        """A copy of the graph. Graphs in it are copied too."""
        made = Graph(of=self)
        for user, number in self.users.items():
            user.count += number
            made.users[user] = number
        copies: dict[Node, Node] = {}
        for node in self.nodes:
            work = Child(node.work.graph.clone()) if isinstance(node.work, Child) else node.work
            copies[node] = Node(made, work, of=node, enabled=node.enabled)
        for node, copy in copies.items():
            copy.after = {copies[other]: edge for other, edge in node.after.items()}
        made.nodes = list(copies.values())
        return made

    def destroy(self) -> None:
        for node in self.nodes:
            node.forget()
            if isinstance(node.work, Child):
                node.work.graph.destroy()
        for user, number in self.users.items():
            user.release(number)
        self.forget()

    def run(self, stream: int) -> None:
        branches = ordering[-1].branches(state().stream(stream).stream, self.kept) if ordering else None
        for node in self.order():
            if branches is not None:
                with branches.node(node, node.after):
                    node.run(stream)
            else:
                node.run(stream)
        if branches is not None:
            branches.end()

    def every(self) -> Iterable[Node]:
        """The nodes, and those of the graphs in it."""
        for node in self.nodes:
            yield node
            if isinstance(node.work, Child):
                yield from node.work.graph.every()


class Child(NamedTuple):
    """A graph in a graph."""

    graph: Graph

    def run(self, stream: int) -> None:
        self.graph.run(stream)


class Executable(Named):
    """A graph that can be launched: a copy of what it was made from. flags: of its instantiation."""

    def __init__(self, graph: Graph, flags: int) -> None:
        if flags & DEVICE_LAUNCH:
            raise UnsupportedError("graphs that kernels launch are not modelled", hint="the program can launch it")
        for inner in (graph, *(n.work.graph for n in graph.every() if isinstance(n.work, Child))):
            inner.order()
        if graph.instances and graph.allocates:
            why = LaunchError("a graph that allocates has one executable at a time", hint="destroy the other one first")
            raise Refused(Code.NOT_SUPPORTED, why)
        graph.instances += 1
        self.graph, self.flags, self._origin = graph.clone(), flags, graph
        self._nodes: dict[Node, Node] = {}
        self._know(self.graph)

    def _know(self, graph: Graph) -> None:
        for node in graph.every():
            if node.of is not None:
                self._nodes[node.of] = node

    def node(self, original: Node) -> Node:
        """The copy of a node. Raises Refused for one of another graph."""
        found = self._nodes.get(original)
        if found is None:
            raise Refused(Code.INVALID_VALUE, LaunchError("the node is of no graph that this one was made from"))
        return found

    def launch(self, stream: int) -> None:
        queue = state().stream(stream)
        if queue.capture is not None:
            raise queue.capture.fails(Code.STREAM_CAPTURE_UNSUPPORTED, "the launch of a graph")
        for node in self.graph.every():
            work = node.work
            if isinstance(work, Allocate) and self.flags & AUTO_FREE and memory.is_allocated(work.address):
                memory.free(work.address)
        self.graph.run(stream)

    def update(self, graph: Graph) -> tuple[int, Node | None]:
        """Take the operations of a graph with the same nodes and dependencies. Returns (CUgraphExecUpdateResult, the node)."""
        return updated(self._nodes, self.graph, graph)

    def destroy(self) -> None:
        self.forget()
        self.graph.destroy()
        self._origin.instances -= 1


def updated(known: dict[Node, Node], mine: Graph, other: Graph) -> tuple[int, Node | None]:
    """Give a graph the operations of another one. known: copies of nodes, by node. Returns (CUgraphExecUpdateResult, node)."""
    if len(mine.nodes) != len(other.nodes):
        return TOPOLOGY_CHANGED, None
    pairs = dict(zip(other.nodes, mine.nodes))
    for new, old in pairs.items():
        if type(new.work) is not type(old.work):
            return TYPE_CHANGED, new
        if {pairs[n] for n in new.after} != {*old.after}:
            return TOPOLOGY_CHANGED, new
    for new, old in pairs.items():
        if isinstance(new.work, Child) and isinstance(old.work, Child):
            result = updated(known, old.work.graph, new.work.graph)
            if result[0]:
                return result
        elif not isinstance(new.work, Allocate):
            old.work = new.work
        known[new] = old
    return 0, None


KINDS: dict[type[Any], tuple[int, str]] = {  # number and name in CUgraphNodeType
    LaunchWork: (0, "KERNEL"), CopyWork: (1, "MEMCPY"), Fill: (2, "MEMSET"), Host: (3, "HOST"), Child: (4, "GRAPH"),
    Empty: (5, "EMPTY"), WaitEvent: (6, "WAIT_EVENT"), RecordEvent: (7, "EVENT_RECORD"), Allocate: (10, "MEM_ALLOC"),
    Free: (11, "MEM_FREE"),
}  # fmt: skip


def dot(graph: Graph, name_of: Callable[[LaunchWork], str]) -> str:
    """A graph in the language of Graphviz. name_of: the name of a launch's kernel."""
    lines = []
    for n, node in enumerate(graph.nodes):
        work = node.work
        text = KINDS[type(work)][1]
        if isinstance(work, LaunchWork):
            text += f"\\n{name_of(work)}\\n<<<{work.grid}, {work.block}, {work.shared}>>>"
        lines.append(f'"{n}" [label="{n}\\n{text}"];')
        lines += [f'"{graph.nodes.index(before)}" -> "{n}";' for before in node.after]
    return "digraph dot {\n" + "".join(f"  {text}\n" for text in lines) + "}\n"
