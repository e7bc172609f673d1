"""Objects behind the handles that programs hold: one device, its context, modules, functions, streams, events."""

import threading
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from mmulator.doors.libcuda.abi import Refused
from mmulator.doors.libcuda.codes import Code
from mmulator.host.driver import Driver, Event, Function, LoadedModule, Stream, current
from mmulator.host.driver.cubin import CubinResources
from mmulator.runtime.launch.shape import LaunchShape

T = TypeVar("T")
LEGACY, PER_THREAD = 1, 2  # handles of the default stream, besides 0
PRIMARY = 0xC0DE0010  # the handle of the one context
POOL = 0xC0DE0020  # handle of the default memory pool


@dataclass(eq=False)
class CudaLibrary:
    """A module that was loaded.

    resources: of its kernels, if it came with a cubin.
    variables: name to (address, bytes), for those whose address was asked for.
    """

    loaded: LoadedModule
    resources: dict[str, CubinResources] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    variables: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(eq=False)
class CudaKernel:
    """A function with what was set on it.

    dynamic: bytes of dynamic shared memory that a launch may ask for.
    carveout: preferred shared memory, without effect.
    clusters: what was set about clusters, by the numbers of CUfunction_attribute.
    shapes: launches that were checked (launches.py); none after an attribute has been set.
    """

    function: Function
    library: CudaLibrary
    handle: int
    dynamic: int = 48 * 1024
    carveout: int = -1
    clusters: dict[int, int] = field(default_factory=dict)
    shapes: dict[tuple[object, ...], LaunchShape] = field(default_factory=dict)


@dataclass(eq=False)
class CudaContext:
    """A context that a program made. It is on the only device, and the work of all contexts is done there. holders: how often it
    must be detached."""

    holders: int = 1


@dataclass(eq=False)
class StreamState:
    """A stream. capture: what records its work instead of running it (captures.py), or None. attributes: values by number."""

    stream: Stream
    flags: int = 0
    priority: int = 0
    capture: Any = None
    attributes: dict[int, bytes] = field(default_factory=dict)


@dataclass(eq=False)
class EventState:
    """An event. captured: where a capture recorded it last: (the capture, the nodes that the event stands for)."""

    event: Event
    timing: bool = True
    captured: Any = None


class CudaState:
    """State of the process. objects: by handle. hides: device memory is not the host's to read (programs of C++)."""

    def __init__(self) -> None:
        self._numbers = count(0xC0DE1000, 16)
        self.objects: dict[int, Any] = {}
        self.retained, self.hides = 0, False
        self.threads = threading.local()
        self.legacy = StreamState(current().default_stream)
        self.streams: dict[int, StreamState] = {0: self.legacy, LEGACY: self.legacy}

    @property
    def driver(self) -> Driver:
        return current()

    @property
    def contexts(self) -> list[int]:
        """The stack of contexts of this thread."""
        found: list[int] = self.threads.__dict__.setdefault("contexts", [])
        return found

    def add(self, thing: object) -> int:
        """A new handle for an object."""
        handle = next(self._numbers)
        self.objects[handle] = thing
        return handle

    def find(self, handle: int, kind: type[T], code: Code = Code.INVALID_HANDLE) -> T:
        """The object of a handle. Raises Refused with a code if there is none of this kind."""
        found = self.objects.get(handle)
        if not isinstance(found, kind):
            raise Refused(code)
        return found

    def stream(self, handle: int) -> StreamState:
        if handle == PER_THREAD or (not handle and getattr(self.threads, "own", False)):
            if "stream" not in self.threads.__dict__:
                self.threads.stream = StreamState(current().new_stream())
            own: StreamState = self.threads.stream
            return own
        found = self.streams.get(handle)
        if found is None:
            other = current().streams.get(handle)  # of a library whose door makes streams itself: torch, CuPy
            if other is None:
                raise Refused(Code.INVALID_HANDLE)
            found = self.streams[handle] = StreamState(other)
        return found


_state: list[CudaState] = []


def state() -> CudaState:
    if not _state:
        _state.append(CudaState())
    return _state[0]


def check_device(device: int) -> None:
    if device != 0:
        raise Refused(Code.INVALID_DEVICE)
