"""Captures: a stream records its operations as nodes of a graph, together with the streams that join it through events."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from itertools import count

from mmulator.base.errors import LaunchError
from mmulator.doors.graphs import operations
from mmulator.doors.graphs.model import PLAIN, Graph, Node
from mmulator.doors.libcuda.abi import Refused, answers, api, edged, get, get_bytes, put, put_int, shared, watching, without
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.state import EventState, StreamState, state

GLOBAL, THREAD_LOCAL, RELAXED = range(3)  # CUstreamCaptureMode
NONE, ACTIVE, INVALIDATED = range(3)  # CUstreamCaptureStatus
EXTERNAL, NON_BLOCKING = 1, 1  # flags of an event's record or wait, and of a stream
_ids = count(1)
_captures: list[Capture] = []  # under way


class _Mode(threading.local):
    value = GLOBAL


_mode = _Mode()


class Capture:
    """A capture under way: the streams in it record their operations into one graph.

    origin: the stream that began it. tips: of each stream, the nodes that its next operation depends on.
    """

    def __init__(self, origin: StreamState, mode: int, graph: Graph, tips: dict[Node, bytes]) -> None:
        self.id, self.origin, self.mode, self.graph = next(_ids), origin, mode, graph
        self.thread, self.invalid, self.over = threading.get_ident(), False, False
        self.tips: dict[StreamState, dict[Node, bytes]] = {origin: tips}
        self.first = len(graph.nodes)
        self.shown: object = None
        origin.capture = self

    @property
    def blocking(self) -> bool:
        """Whether a stream of the capture waits for the default stream."""
        return any(not queue.flags & NON_BLOCKING for queue in self.tips)

    def fails(self, code: Code, why: str) -> Refused:
        """End a capture without a graph. Returns what to raise."""
        self.invalid = True
        return Refused(code, LaunchError(f"while a stream is captured: {why}"))

    def check(self) -> None:
        if self.invalid:
            raise Refused(Code.STREAM_CAPTURE_INVALIDATED, LaunchError("an earlier call has ended the capture of the stream"))

    def add(self, queue: StreamState, what: str | Callable[[], operations.NodeWork], *args: object) -> operations.NodeWork:
        """Record an operation of a stream. what: a name in operations.MADE, for `args`, or what makes the operation."""
        self.check()
        work: operations.NodeWork = operations.MADE[what](*args) if isinstance(what, str) else what()
        tips = self.tips[queue]
        self.tips[queue] = {self.graph.add(work, tips, tips.values()): PLAIN}
        _watch()
        return work

    def record(self, queue: StreamState, event: int, flags: int) -> None:
        if flags & EXTERNAL:
            self.add(queue, "record", event)
        else:
            self.check()
            state().find(event, EventState).captured = (self, dict(self.tips[queue]))

    def wait(self, queue: StreamState, event: int, flags: int) -> None:
        """Let a stream wait for an event: one of this capture joins the stream to it."""
        self.check()
        found = state().find(event, EventState)
        if queue.capture is not None and flags & EXTERNAL:
            self.add(queue, "wait", event)
        elif found.captured is None:
            if found.event.at is not None:
                raise self.fails(Code.STREAM_CAPTURE_ISOLATION, "a wait for an event that was recorded outside of the capture")
        elif self.over:
            raise Refused(Code.CAPTURED_EVENT, LaunchError("the event was recorded last in a capture that is over"))
        elif queue is state().legacy:
            raise self.fails(Code.STREAM_CAPTURE_IMPLICIT, "the default stream cannot join")
        elif queue.capture is not None and queue.capture is not self:
            queue.capture.invalid = True
            raise self.fails(Code.STREAM_CAPTURE_MERGE, "an event of another capture")
        else:
            queue.capture = self
            self.tips[queue] = {**self.tips.get(queue, {}), **found.captured[1]}
            _watch()

    def end(self, queue: StreamState) -> Graph:
        """Return the graph. Raises Refused; the capture is over then too, unless it began on another stream."""
        if queue is not self.origin:
            raise self.fails(Code.STREAM_CAPTURE_UNMATCHED, "it began on another stream")
        for mine in self.tips:
            mine.capture = None
        self.over = True
        _captures.remove(self)
        _watch()
        if self.thread != threading.get_ident() and self.mode != RELAXED:
            raise self.fails(Code.STREAM_CAPTURE_WRONG_THREAD, "it began in another thread")
        self.check()
        waited = {before for node in self.graph.nodes for before in node.after} | {*self.tips[queue]}
        if any(node not in waited for node in self.graph.nodes[self.first :]):
            raise self.fails(Code.STREAM_CAPTURE_UNJOINED, "work of another stream that the first stream does not wait for")
        return self.graph


class _Implicit:
    """The capture of the default stream while a stream that waits for it is captured: each operation there fails."""

    def fails(self, code: Code, why: str) -> Refused:
        return _implicit()

    def add(self, *_: object) -> operations.NodeWork:
        raise _implicit()

    record = wait = add


def _implicit() -> Refused:
    for capture in _captures:
        capture.invalid |= capture.blocking
    return Refused(Code.STREAM_CAPTURE_IMPLICIT, LaunchError(
        "the default stream would wait for a stream that is captured", hint="cudaStreamNonBlocking"))  # fmt: skip


def _watch() -> None:
    """Put what forbids calls in place, or take it away."""
    watching[:] = [_forbid] if _captures else []
    state().legacy.capture = _Implicit() if any(capture.blocking for capture in _captures) else None


# calls that are forbidden -----------------------------------------------------------------------------------------------
def _unsafe(name: str, _: tuple[int, ...]) -> None:
    """A call that may wait for streams: which captures forbid it depends on their modes and the thread's."""
    if _mode.value == RELAXED:
        return
    me = threading.get_ident()
    hurt = [
        c for c in _captures
        if (c.thread == me and c.mode != RELAXED) or (c.mode == GLOBAL and _mode.value == GLOBAL)
    ]  # fmt: skip
    for capture in hurt:
        error = capture.fails(Code.STREAM_CAPTURE_UNSUPPORTED, f"{name} may wait for streams")
    if hurt:
        raise error


def _by_default_stream(name: str, args: tuple[int, ...]) -> None:
    """A call that is done on the default stream."""
    if state().legacy.capture is not None:
        raise _implicit()
    _unsafe(name, args)


def _waits(name: str, _: tuple[int, ...]) -> None:
    """A call that waits for all streams."""
    for capture in _captures:
        error = capture.fails(Code.STREAM_CAPTURE_UNSUPPORTED, f"{name} would wait for it")
    raise error


def _of_stream(name: str, args: tuple[int, ...]) -> None:
    queue = state().stream(args[0])
    if queue.capture is not None:
        raise queue.capture.fails(Code.STREAM_CAPTURE_UNSUPPORTED, f"{name} of that stream")


def _of_event(name: str, args: tuple[int, ...]) -> None:
    if (captured := state().find(args[0], EventState).captured) is not None:
        captured[0].invalid = True
    else:
        _unsafe(name, args)


def _names(*texts: str) -> list[str]:
    return [name for text in texts for name in text.split()]


_BITS = (8, 16, 32)
RULES: dict[str, Callable[[str, tuple[int, ...]], None]] = {
    **dict.fromkeys(_names(
        "cudaMalloc cudaMallocManaged cudaMallocHost cudaHostAlloc cudaMallocPitch cudaMalloc3D cudaFree cudaFreeHost "
        "cudaHostRegister cudaHostUnregister",
        "cuMemAlloc cuMemAllocManaged cuMemAllocPitch cuMemAllocHost cuMemHostAlloc cuMemFree cuMemFreeHost cuMemHostRegister "
        "cuMemHostUnregister",
    ), _unsafe),
    **dict.fromkeys(_names(
        "cudaMemcpy cudaMemcpy2D cudaMemcpy3D cudaMemcpyPeer cudaMemcpyToSymbol cudaMemcpyFromSymbol cudaMemset cudaMemset2D "
        "cudaMemset3D",
        "cuMemcpy cuMemcpyHtoD cuMemcpyDtoH cuMemcpyDtoD cuMemcpyPeer cuMemcpy2D cuMemcpy3D",
        *(f"cuMemsetD{bits} cuMemsetD2D{bits}" for bits in _BITS),
    ), _by_default_stream),
    **dict.fromkeys(_names("cudaDeviceSynchronize cudaThreadSynchronize cudaDeviceReset cuCtxSynchronize"), _waits),
    **dict.fromkeys(_names(
        "cudaStreamSynchronize cudaStreamQuery cuStreamSynchronize",
    ), _of_stream),
    **dict.fromkeys(_names("cudaEventSynchronize cudaEventQuery cuEventQuery"), _of_event),
}  # fmt: skip


def _forbid(name: str, args: tuple[int, ...]) -> None:
    """Raise Refused for a call that is not allowed while a stream is captured."""
    rule = RULES.get(name.removesuffix("_ptsz").removesuffix("_ptds"))
    if rule is not None:
        rule(name, args)


# the driver's functions -------------------------------------------------------------------------------------------------
def begin(stream: int, mode: int, graph: Graph, tips: dict[Node, bytes]) -> None:
    queue = state().stream(stream)
    if mode > RELAXED:
        raise Refused(Code.INVALID_VALUE)
    if queue is state().legacy:
        raise Refused(Code.STREAM_CAPTURE_UNSUPPORTED, LaunchError("the default stream cannot be captured"))
    if queue.capture is not None:
        raise Refused(Code.ILLEGAL_STATE, LaunchError("the stream is captured already"))
    _captures.append(Capture(queue, mode, graph, tips))
    _watch()


@api("cuStreamBeginCapture cuStreamBeginCapture_v2", "pu", 10010, runtime=True)
def begin_capture(stream: int, mode: int) -> None:
    begin(stream, mode, Graph(), {})


def nodes_at(at: int, number: int, edges: int = 0) -> dict[Node, bytes]:
    """Nodes by an array of handles, and the bytes of their edges by an array of 8 bytes each, or PLAIN."""
    found = {state().find(get(at + 8 * n), Node): get_bytes(edges + 8 * n, 8) if edges else PLAIN for n in range(number)}
    if len(found) != number:
        raise Refused(Code.INVALID_VALUE, LaunchError("a node is named twice"))
    return found


@shared("StreamBeginCaptureToGraph", "ppppqu")
def begin_capture_to_graph(stream: int, graph: int, nodes: int, edges: int, number: int, mode: int) -> None:
    begin(stream, mode, state().find(graph, Graph), nodes_at(nodes, number, edges))


@shared("StreamEndCapture", "pp")
def end_capture(stream: int, out: int) -> None:
    queue = state().stream(stream)
    put(out, 0)
    if not isinstance(queue.capture, Capture):
        raise Refused(Code.ILLEGAL_STATE, LaunchError("the stream is not captured"))
    put(out, queue.capture.end(queue).handle)


def _of(stream: int) -> tuple[Capture | None, int]:
    """(the capture of a stream, its status). Raises Refused for the default stream while another stream's capture concerns it."""
    queue = state().stream(stream)
    if isinstance(queue.capture, _Implicit):
        raise _implicit()
    capture: Capture | None = queue.capture
    return capture, NONE if capture is None else INVALIDATED if capture.invalid else ACTIVE


answers("cuStreamIsCapturing", "pp", lambda stream: _of(stream)[1], 1, runtime=True)


@api("cuStreamGetCaptureInfo_v3", "ppppppp", 12030, runtime="StreamGetCaptureInfo_v3")
def capture_info(stream: int, status: int, number: int, graph: int, nodes: int, edges: int, nodes_number: int) -> None:
    """Write what is known of a stream's capture; the arrays of nodes and edges are kept until the next call."""
    capture, known = _of(stream)
    put_int(status, known)
    if capture is None or known != ACTIVE:
        return
    tips = capture.tips[state().stream(stream)]
    handles = (ctypes.c_uint64 * max(len(tips), 1))(*(node.handle for node in tips))
    data = ctypes.create_string_buffer(b"".join(tips.values()), 8 * len(tips) + 1)
    capture.shown = handles, data
    put(number, capture.id)
    put(graph, capture.graph.handle)
    put(nodes, ctypes.addressof(handles))
    put(edges, ctypes.addressof(data))
    put(nodes_number, len(tips))


api("cuStreamGetCaptureInfo", "ppp")(lambda stream, status, number: capture_info(stream, status, number, 0, 0, 0, 0))
api("cuStreamGetCaptureInfo_v2", "pppppp", 11030, runtime="StreamGetCaptureInfo_v2")(without(5, capture_info))


@edged("StreamUpdateCaptureDependencies", "pppqu", 2)
def update_dependencies(stream: int, nodes: int, edges: int, number: int, flags: int) -> None:
    """Add nodes to those that the next operation depends on, or (flag 1) put them in their place."""
    capture, _ = _of(stream)
    if capture is None:
        raise Refused(Code.ILLEGAL_STATE, LaunchError("the stream is not captured"))
    capture.check()
    queue = state().stream(stream)
    capture.tips[queue] = {**({} if flags & 1 else capture.tips[queue]), **nodes_at(nodes, number, edges)}


@shared("ThreadExchangeStreamCaptureMode", "p")
def exchange_mode(mode: int) -> None:
    wanted = get(mode, 4)
    if wanted > RELAXED:
        raise Refused(Code.INVALID_VALUE)
    put_int(mode, _mode.value)
    _mode.value = wanted
