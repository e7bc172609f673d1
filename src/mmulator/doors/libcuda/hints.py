"""Hints on where memory should be, which are kept for programs that ask; batches of copies; attributes of streams.

There is one memory, and the bytes are where they are: a hint changes nothing.
"""

from dataclasses import dataclass

from mmulator.doors.libcuda import memory
from mmulator.doors.libcuda.abi import Refused, accepts, api, get, get_bytes, put_bytes, put_int
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.memory import check
from mmulator.doors.libcuda.state import state
from mmulator.host.driver.streams import ordering

NOWHERE, CPU, DEVICE = (0, 0), (2, 0), (1, 0)  # CUmemLocation: type, number
_PRIORITY = 8  # CUstreamAttrID
_ATTRIBUTES = 24  # bytes of a CUmemcpyAttributes
_SOURCE_ORDERS = (1, 2, 3)  # CUmemcpySrcAccessOrder: of the stream, during the call, at any time


@dataclass
class Hints:
    """Advice of a program about an allocation: mostly read, where it should be, whether the device uses it, where it was put."""

    read: bool = False
    preferred: tuple[int, int] = NOWHERE
    accessed: bool = False
    fetched: tuple[int, int] = NOWHERE


_hints: dict[int, Hints] = {}  # by CU_POINTER_ATTRIBUTE_BUFFER_ID: the number of an allocation


def _of(address: int, size: int) -> Hints:
    check(address, size)
    return _hints.setdefault(memory.identity_of(memory.find(address).address), Hints())


def location(word: int) -> tuple[int, int]:
    """A CUmemLocation, which is passed by value in one register."""
    return word & 0xFFFFFFFF, word >> 32


def _by_number(device: int) -> tuple[int, int]:
    """The place of a device by its number, -1 for the host."""
    if device not in (0, -1):
        raise Refused(Code.INVALID_DEVICE)
    return DEVICE if device == 0 else CPU


def advised(address: int, size: int, advice: int, where: tuple[int, int]) -> None:
    found = _of(address, size)
    if not 1 <= advice <= 6:
        raise Refused(Code.INVALID_VALUE)
    if advice in (1, 2):
        found.read = advice == 1
    elif advice in (3, 4):
        found.preferred = where if advice == 3 else NOWHERE
    elif where[0] == DEVICE[0]:
        found.accessed = advice == 5


@api("cuMemAdvise", "pqii")
def advise(address: int, size: int, advice: int, device: int) -> None:
    advised(address, size, advice, _by_number(device))


@api("cuMemAdvise_v2", "pqiq", 12020, runtime="MemAdvise_v2")
def advise_2(address: int, size: int, advice: int, where: int) -> None:
    advised(address, size, advice, location(where))


@api("cuMemPrefetchAsync", "pqip")
def prefetch(address: int, size: int, device: int, stream: int) -> None:
    state().stream(stream)
    _of(address, size).fetched = _by_number(device)


@api("cuMemPrefetchAsync_v2", "pqqup", 12020, runtime="MemPrefetchAsync_v2")
def prefetch_2(address: int, size: int, where: int, flags: int, stream: int) -> None:
    state().stream(stream)
    _of(address, size).fetched = location(where)


@api("cuMemRangeGetAttribute", "pqipq", runtime=True)
def range_attribute(out: int, room: int, number: int, address: int, size: int) -> None:
    """Write an attribute of managed memory: an int, or an array of devices that use it."""
    found = _of(address, size)
    none = -2
    devices = {NOWHERE: none, CPU: -1, DEVICE: 0}
    known = {
        1: int(found.read), 2: devices.get(found.preferred, none), 3: 0 if found.accessed else none,
        4: devices.get(found.fetched, none), 5: found.preferred[0], 6: found.preferred[1], 7: found.fetched[0],
        8: found.fetched[1],
    }  # fmt: skip
    if number not in known or room < 4 or room % 4:
        raise Refused(Code.INVALID_VALUE)
    put_int(out, known[number])
    for at in range(4, room if number == 3 else 4, 4):
        put_int(out + at, none)


@api("cuMemRangeGetAttributes", "pppqpq", runtime=True)
def range_attributes(outs: int, rooms: int, numbers: int, number: int, address: int, size: int) -> None:
    for n in range(number):
        range_attribute(get(outs + 8 * n), get(rooms + 8 * n), get(numbers + 4 * n, 4), address, size)


accepts("cuStreamAttachMemAsync", "ppqu", lambda stream, address: memory.find(address), runtime=True)


# batches ----------------------------------------------------------------------------------------------------------------
@api("cuMemcpyBatchAsync", "pppqppqpp", 12080)
def copies_1(
    to: int, sources: int, sizes: int, number: int, attributes: int, indices: int, sets: int, failed: int, stream: int
) -> None:
    copies(to, sources, sizes, number, attributes, indices, sets, stream)


@api("cuMemcpyBatchAsync_v2", "pppqppqp", 13000)
def copies(to: int, sources: int, sizes: int, number: int, attributes: int, indices: int, sets: int, stream: int) -> None:
    """Copy bytes, one array after another; each end is the host's or the device's. Raises Refused for the default stream, and
    unless attributes say when the sources are read.
    """
    orders = [get(attributes + n * _ATTRIBUTES) & 0xFFFFFFFF for n in range(sets)]
    if not stream or not orders or not all(order in _SOURCE_ORDERS for order in orders):
        raise Refused(Code.INVALID_VALUE)
    queue = state().stream(stream)
    for at in range(0, 8 * number, 8):
        ends = get(to + at), get(sources + at), get(sizes + at)
        if queue.capture is not None:
            queue.capture.add(queue, "copy_any", *ends)
        elif ordering:
            with ordering[-1].on(queue.stream):
                memory.copy_any(*ends)
        else:
            memory.copy_any(*ends)


@api("cuMemPrefetchBatchAsync", "ppqppqqp", 13000, runtime=True)
@api("cuMemDiscardAndPrefetchBatchAsync", "ppqppqqp", 13000, runtime=True)
def prefetches(addresses: int, sizes: int, number: int, places: int, indices: int, sets: int, flags: int, stream: int) -> None:
    """Keep where arrays should be. indices: of each place, the first array that it is for."""
    first = [get(indices + 8 * n) for n in range(sets)]
    for n in range(number):
        which = sum(f <= n for f in first) - 1
        prefetch_2(get(addresses + 8 * n), get(sizes + 8 * n), get(places + 8 * which), 0, stream)


@api("cuMemDiscardBatchAsync", "ppqqp", 13000, runtime=True)
def discards(addresses: int, sizes: int, number: int, flags: int, stream: int) -> None:
    """Let arrays lose what they hold: they keep it."""
    state().stream(stream)
    for at in range(0, 8 * number, 8):
        check(get(addresses + at), get(sizes + at))


# streams ----------------------------------------------------------------------------------------------------------------
@api("cuStreamGetAttribute", "pip", runtime=True)
def get_attribute(stream: int, number: int, out: int) -> None:
    queue = state().stream(stream)
    kept = queue.attributes.get(number, bytes(64))
    put_bytes(out, queue.priority.to_bytes(4, "little", signed=True) if number == _PRIORITY else kept)


@api("cuStreamSetAttribute", "pip", runtime=True)
def set_attribute(stream: int, number: int, value: int) -> None:
    """Keep an attribute; none changes what a stream does here."""
    queue = state().stream(stream)
    if number == _PRIORITY:
        queue.priority = int.from_bytes(get_bytes(value, 4), "little", signed=True)
    else:
        queue.attributes[number] = get_bytes(value, 64)


@api("cuStreamCopyAttributes", "pp", runtime=True)
def copy_attributes(to: int, source: int) -> None:
    state().stream(to).attributes = dict(state().stream(source).attributes)


def _writes(size: int, letter: str) -> None:
    """The function that writes a number of `size` bytes."""

    @api(f"cuStreamWriteValue{8 * size} cuStreamWriteValue{8 * size}_v2", f"pp{letter}u", 11070)
    def write(stream: int, address: int, value: int) -> None:
        queue = state().stream(stream)
        if ordering:
            with ordering[-1].on(queue.stream, strong=True):
                memory.fill(address, value, size, 1)
        else:
            memory.fill(address, value, size, 1)


_writes(4, "u")
_writes(8, "q")
