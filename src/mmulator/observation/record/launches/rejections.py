"""Launches of a program that are kept, so that they can be run again: for elements that a comparison rejects later.

Of each launch the memory that it touched is kept, in pages, with what it left there. Memory is then at its addresses again, in
copies; the program's own is not touched.
"""

import os
import textwrap
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.demangle import demangle
from mmulator.base.errors import MmulatorError
from mmulator.base.findings import WIDTH
from mmulator.host.driver.inquiries import ProgramLaunch
from mmulator.isa.types import TYPES
from mmulator.observation.record.birth import numbers
from mmulator.observation.record.launches.answers import About, Other, WhyAnswer, other_of
from mmulator.observation.record.launches.snapshot import LaunchSnapshot, MemorySnapshot, SnapshotInquiry, Take
from mmulator.observation.record.names import Asked, DeviceArray, DeviceNames, ptx_type
from mmulator.observation.record.origins import summary
from mmulator.observation.record.reference import Reference
from mmulator.runtime.launch.arguments import Arguments
from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.regions import Region, Regions
from mmulator.sanitizer.diagnostics.watch import Watches

PAGE = 4096
WHOLE = 1 << 26  # bytes that a launch did not touch, and that are kept, too: a reference may have used them
MOST = 1 << 30  # bytes of all launches together
FEW = 3  # rejected elements that are explained
endings: list[Callable[[], None]] = []  # are called before rejected elements are told, as the process ends
Array = NDArray[Any]
Bytes = NDArray[np.uint8]


@dataclass
class KeptPiece:
    """Memory that a launch touched.

    name, start, size: how messages call it, the address of its first byte, and bytes.
    is_variable: it belongs to the module.
    pages: numbers of the pages that were touched, or of all, sorted.
    before, after: their bytes before and behind the launch, uint8 [pages, PAGE].
    written: a bit for each of their bytes.
    """

    name: str
    start: int
    size: int
    is_variable: bool
    pages: NDArray[np.int64]
    before: Bytes
    after: Bytes
    written: Bytes

    @property
    def nbytes(self) -> int:
        return self.before.nbytes + self.after.nbytes + self.written.nbytes

    def wrote(self, address: int) -> bool:
        """Whether the launch wrote the byte at an address."""
        row, byte = self._at(address)
        return row >= 0 and bool(self.written[row, byte // 8] >> byte % 8 & 1)

    def left(self, address: int, size: int) -> bytes:
        """Bytes behind the launch, within a page."""
        row, byte = self._at(address)
        return self.after[row, byte : byte + size].tobytes() if row >= 0 else b""

    def _at(self, address: int) -> tuple[int, int]:
        page, byte = divmod(address - self.start, PAGE)
        row = int(np.searchsorted(self.pages, page))
        return (row if row < len(self.pages) and self.pages[row] == page else -1), byte

    def runs(self) -> Iterator[tuple[int, bytes]]:
        """(address, bytes behind the launch) of neighbouring pages that it wrote to."""
        wrote = np.flatnonzero(self.written.any(axis=1))
        for rows in np.split(wrote, np.flatnonzero(np.diff(self.pages[wrote]) != 1) + 1):
            if len(rows):
                yield self.start + int(self.pages[rows[0]]) * PAGE, self.after[rows].tobytes()


@dataclass
class KeptLaunch:
    """A launch that can be run again.

    number: in the process, from 1 on.
    launch, how: as it ran.
    arrays: what was known of arrays among its memory.
    pieces: the memory that it touched.
    """

    number: int
    launch: Launch
    how: How
    arrays: Sequence[DeviceArray]
    pieces: list[KeptPiece]

    @property
    def kernel(self) -> str:
        return demangle(self.launch.kernel.name)

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self.pieces)

    def wrote(self, address: int) -> KeptPiece | None:
        """The piece in which the launch wrote the byte at an address, or None."""
        return next((p for p in self.pieces if p.start <= address < p.start + p.size and p.wrote(address)), None)

    @property
    def names(self) -> DeviceNames:
        return DeviceNames(self.arrays)

    def why(self, asked: Asked, depth: int, other: Other | Reference | None) -> WhyAnswer:
        """Run it again, in memory of its own, and explain an element."""
        kernel, was = self.launch.kernel, self.launch
        image = kernel.module.image
        regions = Regions(self._region(p) for p in self.pieces if not p.is_variable)
        arguments = Arguments(was.arguments.params.copy(), kernel.signature.offsets, regions=regions)
        variables = {p.name: image.bytes_of(p.name).copy() for p in self.pieces if p.is_variable}
        try:
            for p in self.pieces:
                if p.is_variable:
                    _fill(image.bytes_of(p.name), p)
            launch = replace(was, arguments=arguments)
            how = replace(self.how, threads=1, progress=None, meanwhile=None, watched=False)
            about = About([asked], launch, how, self.names, other)
            watches = Watches([], arguments, about.places)
            (answer,) = about.answers(watches, launch.run(how, [watches]), depth)
            return answer
        finally:
            for name, data in variables.items():
                image.bytes_of(name)[:] = data

    def _region(self, p: KeptPiece) -> Region:
        room = np.zeros(p.size + 256, np.uint8)
        skip = -room.ctypes.data % 128
        data = room[skip : skip + p.size]
        _fill(data, p)
        return Region.of(p.start, data, p.name)


def _fill(data: Bytes, p: KeptPiece) -> None:
    """Write the pages of a piece, as they were before the launch, to an array of all its bytes."""
    for page, bytes in zip(p.pages.tolist(), p.before):
        part = data[page * PAGE : (page + 1) * PAGE]
        part[:] = bytes[: len(part)]


def _kept(snapshot: LaunchSnapshot) -> Iterator[KeptPiece]:
    """The pages that a launch touched; of pieces with few others, all."""
    touched = [(p, _touched(p)) for p in snapshot.pieces if p.touched]
    room, whole = WHOLE, set[int]()
    for p, some in sorted(touched, key=lambda one: int((~one[1]).sum())):
        room -= PAGE * int((~some).sum())
        whole |= {p.start} if room >= 0 else set()
    for p, some in touched:
        pages = np.flatnonzero(some | (p.start in whole))
        written = np.zeros(len(some) * PAGE, bool)
        if p.written is not None:
            written[: len(p.written)] = p.written
        before, after = (_pages(data, pages) for data in (p.before, p.live))
        marks = np.packbits(written.reshape(-1, PAGE)[pages], axis=1, bitorder="little")
        yield KeptPiece(p.name, p.start, len(p.live), p.is_variable, pages, before, after, marks)


def _touched(p: MemorySnapshot) -> NDArray[np.bool_]:
    """Whether a launch touched each page of a piece."""
    found = np.zeros(-(-len(p.live) // PAGE), bool)
    for bits in (p.read, p.written):
        if bits is not None and len(bits):
            found[: -(-len(bits) // PAGE)] |= np.logical_or.reduceat(bits, np.arange(0, len(bits), PAGE))
    return found


def _pages(data: Bytes, pages: NDArray[np.int64]) -> Bytes:
    found = np.zeros((len(pages), PAGE), np.uint8)
    for row, page in zip(found, pages.tolist()):
        part = data[page * PAGE : (page + 1) * PAGE]
        row[: len(part)] = part
    return found


Found = tuple[KeptLaunch, Asked, tuple[str, ...]]  # a launch, the element as it stored it, notes


@dataclass
class Rejected:
    """An element that a comparison rejected.

    by: the comparison, `torch.testing.assert_close`.
    index: of the element in what was compared.
    said: why there is no answer, or "".
    launch, kernel: the launch that stored it, `launch 3, add`, and its kernel; or "".
    answer: why it has its value.
    """

    by: str
    index: tuple[int, ...]
    said: str = ""
    launch: str = ""
    kernel: str = ""
    answer: WhyAnswer | None = None

    def __str__(self) -> str:
        at = f" rejects [{', '.join(map(str, self.index))}]" if self.index else ""
        head = f"{self.by}{at}"
        if self.answer is None:
            return "\n".join(textwrap.wrap(f"{head}: {self.said}", WIDTH, subsequent_indent="    ", break_on_hyphens=False))
        return f"{head}, which {self.launch}, stored\nwhy {self.answer.wrapped(WIDTH)}"


@dataclass
class Keeping:
    """The launches of a process that are kept, and what comparisons rejected.

    depth: how many instructions are told one behind the other.
    launches: the newest, as many as fit.
    count: of all launches so far.
    """

    depth: int
    against: str = ""
    launches: deque[KeptLaunch] = field(default_factory=deque)
    rejected: list[Rejected] = field(default_factory=list)
    count: int = 0
    process: int = field(default_factory=os.getpid)

    def take(self, how: How, snapshot: LaunchSnapshot, error: BaseException | None) -> None:
        """Keep a launch that is over."""
        self.count += 1
        self.launches.append(KeptLaunch(self.count, snapshot.launch, how, snapshot.arrays, list(_kept(snapshot))))
        while sum(launch.nbytes for launch in self.launches) > MOST and len(self.launches) > 1:
            self.launches.popleft()

    def told(self) -> list[tuple[str, str, WhyAnswer | None]]:
        """(text, kernel, answer) of each element that was rejected, as the process ends."""
        for end in endings:
            end()
        if not self.rejected and self.launches:
            said = f"why auto: no comparison rejected an element, behind {self.count:,} launch{'es' * (self.count != 1)}"
            return [(f"{said}; known are those of torch.testing, numpy.testing, torch and numpy", "", None)]
        return [(str(r), r.kernel, r.answer) for r in self.rejected]

    def begin(self) -> None:
        """Forget launches and what was rejected, as a test begins."""
        self.launches.clear()
        self.rejected.clear()
        self.count = 0

    def find(self, address: int, values: Array, index: tuple[int, ...]) -> Found | None:
        """The launch that stored an element, or an array with the values of its array; None if no launch that is kept did.

        address: of the element in the memory of the array that was compared.
        values, index: that array, and the element's index.
        """
        return self._stored(address, values, index) or self._copied(values, index) or self._passed(address, values, index)

    def explain(self, by: str, index: tuple[int, ...], found: Found | None, want: Any, got: Any = None) -> None:
        """Explain an element that a comparison rejects.

        by: the comparison.
        index: of the element.
        found: what `find` gave.
        want, got: the value that was expected, and the one that came; None: it is no number.
        """
        if len(self.rejected) >= FEW:
            return
        if found is None:
            said = "no launch that is kept stored it, nor an array with its values"
            if not self.launches:
                said = "no launch was kept before"
            elif self.launches[0].number > 1:
                said += f" (kept are launches {self.launches[0].number} to {self.count})"
            found, want = self._not_finite() if got is not None and got != got else None, None
            if found is None:
                self.rejected.append(Rejected(by, index, said + "; ask by name: --why NAME[INDEX]"))
                return
        launch, asked, notes = found
        try:
            answer = launch.why(asked, self.depth, self._other(launch, by, want))
        except MmulatorError as error:
            said = f"launch {launch.number}, {launch.kernel}, cannot be run again: {error.message}"
            self.rejected.append(Rejected(by, index, said))
            return
        more = (*answer.sources, *self._earlier(launch, answer))
        answer = replace(answer, sources=more, notes=(*answer.notes, *notes))
        self.rejected.append(Rejected(by, index, "", f"launch {launch.number}, {launch.kernel}", launch.kernel, answer))

    def _not_finite(self) -> Found | None:
        """The newest launch that stored a NaN in an array whose type is known, and the first such element."""
        for launch in reversed(self.launches):
            for array in launch.arrays:
                kind = ptx_type(array.dtype) if array.dtype is not None else ""
                if kind not in TYPES or TYPES[kind].kind != "float":
                    continue
                for start, data in (run for p in launch.pieces for run in p.runs()):
                    low, high = max(start, array.start), min(start + len(data), array.start + array.size)
                    raw = np.frombuffer(data[low - start : max(low, high) - start], f"u{array.itemsize}")
                    if (wrong := np.flatnonzero(np.isnan(numbers(raw.tolist(), kind)))).size:
                        at = low + int(wrong[0]) * array.itemsize
                        note = "the host computed what was compared: this is a NaN that was stored before"
                        return launch, Asked(launch.names(at), at, kind), (note,)
        return None

    def _other(self, launch: KeptLaunch, by: str, want: Any) -> Other | Reference | None:
        if self.against and self.against != "reference":
            against = int(self.against) if self.against.isdigit() else self.against
            return other_of(against, launch.launch, launch.how.seed)
        return None if want is None else Reference(by, {"": np.asarray(want)})

    def _stored(self, address: int, values: Array, index: tuple[int, ...]) -> Found | None:
        """The newest launch that stored at an address."""
        for launch in reversed(self.launches):
            piece = launch.wrote(address)
            if piece is not None:
                changed = piece.left(address, values.itemsize) != values[index].tobytes()
                notes = ("it was changed since, by the host or a copy",) if changed else ()
                return launch, Asked(launch.names(address), address, ptx_type(values.dtype)), notes
        return None

    def _passed(self, address: int, values: Array, index: tuple[int, ...]) -> Found | None:
        """The newest launch that stored other elements of the array at an address, which are as it left them."""
        size, flat = values.itemsize, values.reshape(-1)
        begin = address - int(np.ravel_multi_index(index, values.shape)) * size
        for launch in reversed(self.launches) if values.flags.c_contiguous else ():
            for start, data in (run for p in launch.pieces for run in p.runs()):
                low, high = max(begin, start), min(begin + values.nbytes, start + len(data))
                left, now = data[low - start : max(low, high) - start], flat.tobytes()[low - begin : max(low, high) - begin]
                if left == now and any(p.wrote(at) for p in launch.pieces for at in range(low, high, size)):
                    return launch, Asked(launch.names(address), address, ptx_type(values.dtype)), ()
        return None

    def _copied(self, values: Array, index: tuple[int, ...]) -> Found | None:
        """The newest launch that left all the values of an array, as they are or in a narrower type."""
        flat = values.reshape(-1)
        if values.size < 2 or (flat == flat[0]).all():
            return None
        for launch in reversed(self.launches):
            for dtype in _types(values):
                for turned in (False, True)[: 1 + (values.ndim == 2)]:
                    rows = np.ascontiguousarray((values.T if turned else values).astype(dtype))
                    at = tuple(reversed(index)) if turned else index
                    for piece in launch.pieces:
                        for start, data in piece.runs():
                            place = find_rows(data, rows)
                            if place is not None:
                                first, step = place
                                row = int(np.ravel_multi_index(at[:-1], rows.shape[:-1])) if len(at) > 1 else 0
                                address = start + first + row * step + at[-1] * rows.itemsize
                                note = "it is told as of an array that has all the values that were compared"
                                return launch, Asked(launch.names(address), address, ptx_type(rows.dtype)), (note,)
        return None

    def _earlier(self, launch: KeptLaunch, answer: WhyAnswer) -> Iterator[str]:
        """Sentences about elements that earlier launches had stored."""
        found: dict[int, list[tuple[int, str]]] = {}
        for address, name in sorted(answer.leaves.items()):
            for other in reversed(self.launches):
                if other.number < launch.number and other.wrote(address) is not None:
                    found.setdefault(other.number, []).append((address, name))
                    break
        for other in self.launches:
            if other.number in found:
                (address, _), *_ = stored = found[other.number]
                question = f"{other.kernel.partition('(')[0]}:{other.names(address)}@{self._number(other)}"
                yield f"{summary([name for _, name in stored])}: stored by launch {other.number}: --why '{question}'"

    def _number(self, launch: KeptLaunch) -> int:
        """The number of a launch among those of its kernel."""
        return sum(other.number <= launch.number and other.kernel == launch.kernel for other in self.launches)


def _types(values: Array) -> list[np.dtype[Any]]:
    """The type of an array, and narrower ones that hold all of its values."""
    import ml_dtypes

    found = [values.dtype]
    for name in ("float32", "float16", ml_dtypes.bfloat16):
        dtype = np.dtype(name)
        if values.dtype.kind == "f" and dtype.itemsize < values.dtype.itemsize:
            with np.errstate(all="ignore"):
                back = values.astype(dtype).astype(values.dtype)
            if ((back == values) | (np.isnan(back) & np.isnan(values))).all():
                found.append(dtype)
    return found


def find_rows(data: bytes, rows: Array) -> tuple[int, int] | None:
    """Where the rows of an array lie in some bytes, at equal distances: (byte of the first, bytes from one to the next).

    rows: a contiguous array, whose last axis is a row.
    """
    lines = rows.reshape(-1, rows.shape[-1]) if rows.ndim > 1 else rows.reshape(1, -1)
    first, size = lines[0].tobytes(), rows.itemsize
    whole = rows.tobytes()
    at = data.find(whole)
    if at >= 0 and at % size == 0:
        return at, len(first)
    at = data.find(first)
    while at >= 0:
        if at % size == 0 and len(lines) > 1:
            second = data.find(lines[1].tobytes(), at + len(first))
            step = second - at
            if second >= 0 and all(data.startswith(line.tobytes(), at + n * step) for n, line in enumerate(lines)):
                return at, step
        at = data.find(first, at + size)
    return None


@cache
def keeping(depth: int, against: str) -> Keeping:
    """The launches that this process keeps."""
    return Keeping(depth, against)



class KeepInquiry(SnapshotInquiry):
    """The wish to know why elements have their values that a comparison rejects: `auto` in `Settings.why`."""

    def sink(self, one: ProgramLaunch) -> Take:
        return partial(keeping(one.settings.why_depth, one.settings.why_against).take, one.how)


KEEP = KeepInquiry()
