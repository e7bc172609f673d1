"""Operations of streams as values: what a node of a graph does when the graph runs, and what a captured stream records.

MADE makes an operation from the name under which a captured function records itself and that function's arguments.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from mmulator.base.errors import UnsupportedError
from mmulator.doors.libcuda import launches, memory
from mmulator.doors.libcuda.abi import api, get
from mmulator.doors.libcuda.clusters import DEPENDENT
from mmulator.doors.libcuda.memory import DEVICE, HOST, on_stream
from mmulator.doors.libcuda.state import state
from mmulator.host.driver import Allocation
from mmulator.host.driver.streams import ordering

UNIFIED = 4  # CUmemorytype: the address says whose memory it is
Extent = tuple[int, int, int]


class NodeWork(Protocol):
    """The operation of a node of a graph."""

    def run(self, stream: int) -> None:
        """Carry out the operation on a stream, by its handle."""


class LaunchWork(NamedTuple):
    """A launch.

    handle: of the kernel.
    grid, block: (x, y, z).
    shared: bytes of dynamic shared memory of a block.
    params: parameter memory, as it was when the node was made.
    cooperative: blocks may wait for each other.
    cluster: blocks of a cluster, or None.
    attributes: further launch attributes, number and 64 bytes each, which change no result.
    """

    handle: int
    grid: Extent
    block: Extent
    shared: int
    params: bytes
    cooperative: bool = False
    cluster: Extent | None = None
    attributes: tuple[tuple[int, bytes], ...] = ()

    def run(self, stream: int) -> None:
        launches.launch(
            self.handle, self.grid, self.block, self.shared, stream, 0, 0, self.cooperative, self.cluster, self.params,
            any(number == DEPENDENT and value[0] for number, value in self.attributes),
        )


class End(NamedTuple):
    """One end of a copy. pitch: bytes from line to line. height: lines from plane to plane. where: HOST, DEVICE or UNIFIED."""

    address: int
    pitch: int
    height: int
    where: int

    def line(self, y: int, z: int, width: int) -> int:
        """Address of a line, of which `width` bytes are copied. Raises Refused for bytes that should be the device's."""
        address = self.address + (z * self.height + y) * self.pitch
        if self.where == DEVICE:
            memory.check(address, width)
        return address


class CopyWork(NamedTuple):
    """A copy of a box. width: bytes of a line; height: lines of a plane; depth: planes."""

    to: End
    source: End
    width: int
    height: int = 1
    depth: int = 1

    def run(self, stream: int) -> None:
        for z in range(self.depth if self.width else 0):
            for y in range(self.height):
                memory.move(self.to.line(y, z, self.width), self.source.line(y, z, self.width), self.width)


class Fill(NamedTuple):
    """A fill of lines. pitch: bytes from line to line. size: bytes of an element. width: elements of a line."""

    address: int
    pitch: int
    value: int
    size: int
    width: int
    height: int = 1

    def run(self, stream: int) -> None:
        memory.fill_plane(self.address, self.pitch, self.value, self.size, self.width, self.height)


class Host(NamedTuple):
    """A call of a function of the program. function, data: addresses."""

    function: int
    data: int

    def run(self, stream: int) -> None:
        launches.host_function(stream, self.function, self.data)


class Empty(NamedTuple):
    """An empty operation: a node that others wait for."""

    def run(self, stream: int) -> None:
        """Do nothing."""


class WaitEvent(NamedTuple):
    event: int

    def run(self, stream: int) -> None:
        launches.stream_wait(stream, self.event, 0)


class RecordEvent(NamedTuple):
    event: int

    def run(self, stream: int) -> None:
        launches.event_record(self.event, stream)


class Allocate(NamedTuple):
    """An allocation, at the same address each time."""

    memory: Allocation

    @property
    def address(self) -> int:
        return self.memory.address

    def run(self, stream: int) -> None:
        memory.put_back(self.memory)
        if ordering:
            ordering[-1].given(self.memory.address, self.memory.size, state().stream(stream).stream)


class Free(NamedTuple):
    address: int

    def run(self, stream: int) -> None:
        memory.free_on(self.address, stream)


# copies of lines and boxes --------------------------------------------------------------------------------------------
def line(to: int, there: int, source: int, here: int, size: int) -> CopyWork:
    """A copy of bytes. there, here: where `to` and `source` are."""
    return CopyWork(End(to, size, 1, there), End(source, size, 1, here), size)


def _end(at: int, planes: bool) -> End:
    """One end of a CUDA_MEMCPY2D: x, y, kind, host, device, array, pitch; in a CUDA_MEMCPY3D also z, a level, a word, lines."""
    x, y = get(at), get(at + 8)
    z, level, behind = (get(at + 16), get(at + 24), at + 32) if planes else (0, 0, at + 16)
    where = get(behind, 4)
    if where not in (HOST, DEVICE, UNIFIED) or level:
        raise UnsupportedError("copies from and to a CUDA array are not modelled")
    base, pitch = get(behind + 8 if where == HOST else behind + 16), get(behind + (40 if planes else 32))
    height = get(behind + 48) if planes else 1
    return End(base + (z * height + y) * pitch + x, pitch, height, where)


def plane_of(what: int) -> CopyWork:
    """The copy that a CUDA_MEMCPY2D says. A pitch of 0 is that of lines without room between them."""
    width, height = get(what + 112), get(what + 120)
    source, to = (end if end.pitch else end._replace(pitch=width) for end in (_end(what, False), _end(what + 56, False)))
    return CopyWork(to, source, width, height)


def box_of(what: int) -> CopyWork:
    """The copy that a CUDA_MEMCPY3D says."""
    width, height, depth = (get(what + at) for at in (176, 184, 192))
    source, to = (
        end._replace(pitch=end.pitch or width, height=end.height or height) for end in (_end(what, True), _end(what + 88, True))
    )
    return CopyWork(to, source, width, height, depth)


@on_stream("cuMemcpy2DAsync cuMemcpy2DAsync_v2", "pp", 3020)
@api("cuMemcpy2D cuMemcpy2D_v2 cuMemcpy2DUnaligned cuMemcpy2DUnaligned_v2", "p", 3020)
def copy_plane(what: int) -> None:
    plane_of(what).run(0)


@on_stream("cuMemcpy3DAsync cuMemcpy3DAsync_v2", "pp", 3020)
@api("cuMemcpy3D cuMemcpy3D_v2", "p", 3020)
def copy_box(what: int) -> None:
    box_of(what).run(0)


class LibraryWork(NamedTuple):
    """Work of a library of NVIDIA's that is modelled here. do: carries it out."""

    do: Callable[[], None]

    def run(self, stream: int) -> None:
        self.do()


MADE: dict[str, Callable[..., Any]] = {
    "call": LibraryWork,
    "kernel": LaunchWork, "host": Host, "record": RecordEvent, "wait": WaitEvent, "free": Free, "copy": lambda copy: copy,
    "allocate": lambda size: Allocate(memory.set_aside(size)),
    "copy_in": lambda to, source, size: line(to, DEVICE, source, HOST, size),
    "copy_out": lambda to, source, size: line(to, HOST, source, DEVICE, size),
    "copy_over": lambda to, source, size: line(to, DEVICE, source, DEVICE, size),
    "copy_peer": lambda to, _, source, __, size: line(to, DEVICE, source, DEVICE, size),
    "copy_any": lambda to, source, size: line(to, UNIFIED, source, UNIFIED, size),
    "copy_plane": plane_of, "copy_box": box_of,
    **{f"fill_{size}": lambda address, value, number, size=size: Fill(address, 0, value, size, number) for size in (1, 2, 4)},
    **{
        f"fill_plane_{size}": lambda address, pitch, value, width, height, size=size: Fill(
            address, pitch, value, size, width, height
        )
        for size in (1, 2, 4)
    },
}  # fmt: skip
