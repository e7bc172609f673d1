"""The order between the operations of a sanitized program: what each uses, and findings where nothing orders two that conflict.

Doors say what happens (launches, copies, fills, events, waits, memory that is freed); happens.py says what is over before what.
Operations run one after the other, so this is not about what was read in this run: it is about any run. An operation is forgotten
once the host has waited for it, since all that comes later comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import string_at
from dataclasses import dataclass, replace
from threading import RLock, local
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from mmulator.base.demangle import demangle
from mmulator.base.errors import undefined
from mmulator.base.findings import Finding, ordered
from mmulator.base.names import shorter
from mmulator.base.refusals import number
from mmulator.base.rules.choice import chosen
from mmulator.base.rules.launches import DEPENDENT, FREED, HOST_READ, HOST_WRITE, OF_PROGRAMS, UNORDERED
from mmulator.base.rules.rule import Rule
from mmulator.host import entries
from mmulator.host.driver import findings as told
from mmulator.host.driver.branches import Branches
from mmulator.host.driver.happens import Clock, HappensBefore, Lane
from mmulator.host.driver.memory import DEVICE_KIND, MANAGED, PINNED, REGISTERED, numbers
from mmulator.host.driver.operations import (
    ALLOCATION,
    StreamOperation,
    conflict,
    located,
    meeting,
    numbered,
    pointers,
    span,
    without,
)
from mmulator.host.driver.streams import Event, Stream
from mmulator.host.settings import RAISE, STRICT, Settings
from mmulator.sanitizer.diagnostics.footprint import NONE, Bitmaps, FootprintObserver, Used, together

if TYPE_CHECKING:
    from mmulator.host.driver.functions import Function
    from mmulator.runtime.launch.regions import Regions
    from mmulator.sanitizer.diagnostics.touched import Runs

MOST, MOST_RUNS = 2048, 1 << 22  # operations that are remembered, and pieces of memory of all; the older half goes first
OFTEN = 64  # operations between two looks at these pieces
_NAME = 100  # characters of a kernel's name


class _Doing(local):
    """The call of a door that is under way in this thread.

    stream: on which.
    waits: the host waits for it.
    strong: it is as an atomic operation.
    called: by a function that waits.
    parts: of one operation, in words and by the bytes that they use; ends: the host waits for one of them.
    inside: a branch of a graph.
    sources: of the next operation.
    """

    waits, strong, called, ends = True, False, False, False
    parts: list[tuple[str, Used]] | None = None
    inside: Stream | None = None
    sources: Sequence[tuple[int, bytes, Any]] = ()

    def __init__(self, stream: Stream) -> None:
        self.stream = stream


class ProgramOrder:
    """The operations of one driver's program. pages: host memory of which accesses of the host are seen, or None."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.clocks = HappensBefore()
        self.operations: list[StreamOperation] = []
        self.names: dict[int, str] = {}  # of lanes
        self.count = self.forgotten = self.by_flags = self.unseen = 0
        self.fence: Callable[[], bool] | None = None  # whether what is done now waits for all, and all for it
        self._at = _Doing(driver.default_stream)
        self.pages: Any = None  # of host memory, where accesses of the host are seen
        self._lock, self._spare = RLock(), list[tuple[list[tuple[int, int]], Bitmaps]]()
        self._lanes = WeakKeyDictionary[Stream, Lane]({driver.default_stream: self.clocks.legacy})
        self._events = WeakKeyDictionary[Event, Clock]()  # what is over by then, of those that were recorded
        told.reader().orders = self

    # lanes and waits ------------------------------------------------------------------------------------------------------
    def lane(self, stream: Stream | None) -> Lane:
        """The lane of a stream."""
        stream = self._at.inside or stream or self.driver.default_stream
        found = self._lanes.get(stream)
        if found is None:
            found = self._lanes[stream] = self.clocks.lane(stream.blocks)
        return found

    def record(self, event: Event, stream: Stream) -> None:
        with self._lock:
            self._events[event] = self.clocks.record(self.lane(stream))

    def wait(self, stream: Stream, event: Event) -> None:
        with self._lock:
            self.clocks.wait(self.lane(stream), self._events.get(event, {}))

    def synchronize(self, stream: Stream | None = None) -> None:
        """The host waits for a stream, or for all."""
        with self._lock:
            self.clocks.synchronize(None if stream is None else self.lane(stream))
            self._settle()

    def known(self, event: Event) -> None:
        """The host waits for an event."""
        with self._lock:
            self.clocks.known(self._events.get(event, {}))
            self._settle()

    def _settle(self) -> None:
        """Forget operations that the host has waited for."""
        self._changed()
        self.operations = [o for o in self.operations if not self.clocks.is_over(o.moment)]
        if self.pages is not None:
            self.pages.show(self.operations)

    @contextmanager
    def on(self, stream: Stream, strong: bool = False, what: str = "") -> Iterator[None]:
        """A block of code is one operation of a stream, and the host does not wait for it.

        strong: it is as an atomic operation.
        what: it is, in words, if its parts do not say it.
        """
        at, before = self._at, {**self._at.__dict__}
        at.stream, at.waits, at.strong, at.parts, at.ends = stream, at.called, strong, [], False
        self.opened()
        try:
            yield
        finally:
            self.closed()
            parts, ends = at.parts, at.ends
            at.__dict__.clear()
            at.__dict__.update(before)
            if parts:
                used = [u for _, u in parts]
                sets = [[getattr(u, name) for u in used] for name in ("read", "written", "strong")]
                whole = used[0] if len(used) == 1 else Used(*(together(np.concatenate(runs)) for runs in sets))
                self._done(what or parts[0][0] + (f", and {len(parts) - 1} more" if parts[1:] else ""), whole, stream, ends)

    @contextmanager
    def inside(self, stream: Stream | None) -> Iterator[None]:
        """A block of code is done by a branch of a graph, whichever stream it names; by none for None."""
        before, self._at.inside = self._at.inside, stream
        try:
            yield
        finally:
            self._at.inside = before

    def opened(self) -> None:
        """A user of memory of the host begins."""
        if self.pages is not None:
            self.pages.begin()

    def closed(self) -> None:
        """A user of memory of the host is done."""
        if self.pages is not None:
            self.pages.end()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call what does something on a stream, and waits."""
        self._at.called = True
        try:
            return function(*args)
        finally:
            self._at.called = False

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        fenced = self.fence is not None and self.fence()
        if fenced:
            self.clocks.meet()
        yield
        if fenced:
            self.clocks.meet()

    def branches(self, stream: Stream, kept: tuple[list[Stream], Clock]) -> Branches:
        """A graph begins to run on a stream. kept: as in Branches."""
        return Branches(self, stream, kept)

    # operations -----------------------------------------------------------------------------------------------------------
    def copied(self, to: int, source: int, size: int) -> None:
        """Bytes are copied, each end memory that is known or the host's own."""
        if not size:
            return
        target, origin = self.driver.memory.known(to), self.driver.memory.known(source)
        used = Used(span(source, size) if origin else NONE, span(to, size) if target else NONE)
        ends = " to ".join("the host" if end is None else end.label for end in (origin, target))
        inside = target is not None and origin is not None and target.label == origin.label == DEVICE_KIND
        waits = target is None or (self._at.waits and not inside)  # a copy to pageable memory returns when it is over
        if origin is not None and origin.label != DEVICE_KIND and not waits:
            self.kept(span(source, size), origin)
        self.done(f"a copy of {number(size, 'byte')} from {ends}", used, waits)

    def filled(self, address: int, size: int) -> None:
        """Bytes are filled. Not even cudaMemset waits."""
        there = span(address, size)
        found = self.driver.memory.known(address)
        waits = self._at.waits and found is not None and found.label != DEVICE_KIND
        self.done(f"a fill of {number(size, 'byte')}", Used(strong=there) if self._at.strong else Used(written=there), waits)

    def used(self, address: int, lines: int, step: int, size: int, writes: bool) -> None:
        """A library reads or writes lines of `size` bytes, `step` bytes apart."""
        begin = address + step * np.arange(lines, dtype=np.int64)
        runs = together(np.stack([begin, begin + size], 1))
        self.done("a call of a library", Used(written=runs) if writes else Used(runs))

    def given(self, address: int, size: int, stream: Stream) -> None:
        """A stream allocates memory, which is there when the stream comes to it."""
        self.allocated(address, size)
        with self.on(stream):
            self.done(f"{ALLOCATION} of {number(size, 'byte')}", Used(written=span(address, size)))

    def done(self, what: str, used: Used, waits: bool = False) -> None:
        """An operation that is no launch, or a part of one (`on`). waits: the host has waited for it when the call returns."""
        if self._at.parts is not None:
            self._at.parts.append((what, used))
            self._at.ends = self._at.ends or waits
            return
        self._done(what, used, self._at.stream, waits)

    def _done(self, what: str, used: Used, stream: Stream, waits: bool) -> None:
        with self._lock, self._fenced():
            moment = self.clocks.operation(self.lane(stream))
            self.count += 1
            made = StreamOperation(what, self._name(stream), moment, used, self._place(), self.count, sources=self._at.sources)
            self._at.sources = ()
            self._say(what, self._conflicts(made))
            if waits:
                self.synchronize(stream)
            self._remember(made)

    def kept(self, host: Runs, owner: Any) -> None:
        """The operation that is done next reads bytes of the host after the call has returned, and should find them as now.

        host: the bytes.
        owner: keeps them where they are.
        """
        if self.pages is None:  # else accesses of the host are seen
            self._at.sources = [(begin, string_at(begin, end - begin), owner) for begin, end in host.tolist()]

    def _changed(self) -> None:
        """Tell of sources of copies that the host has changed before it has waited for the copy."""
        found: list[Finding] = []
        for o in [o for o in self.operations if o.sources and self.clocks.is_over(o.moment)]:
            for begin, data, _ in o.sources:
                there = span(begin, len(data))
                others = (other.used.written for other in self.operations if other.number > o.number)
                if string_at(begin, len(data)) != data and not any(meeting(there, runs) for runs in others):
                    said = f"the host has written memory that {o} reads, before it has waited for it"
                    where = self._bytes((begin, begin + len(data)), o)
                    found.append(self._finding(HOST_WRITE, said, o.what, o.place, o.number, where, o))
        self._say("the host", found)

    def allocated(self, address: int, size: int) -> None:
        """Memory was given out: what was done to these addresses before was done to other memory."""
        with self._lock:
            self.operations = [o for o in self.operations if not self._forget(o, span(address, size))]

    @staticmethod
    def _forget(o: StreamOperation, gone: Runs) -> bool:
        """Cut bytes out of what an operation used. Returns whether nothing is left."""
        if any(meeting(runs, gone) is not None for runs in (o.used.read, o.used.written, o.used.strong)):
            o.used = Used(*(without(runs, gone) for runs in (o.used.read, o.used.written, o.used.strong)))
        return not o.used.count

    def freed(
        self, address: int, size: int, stream: Stream | None = None, label: str = "", waited: Collection[int] | None = None
    ) -> None:
        """Memory is freed: in a stream, whose turn it waits for; else by a call that waits for no operation.

        address, size: of the memory.
        stream: that frees it.
        label: the memory in words.
        waited: lanes whose work is waited for besides; None for memory that is still there.
        """
        with self._lock:
            lane = None if stream is None else self.lane(stream)
            now = self.clocks.host if lane is None else self.clocks.come(lane)
            who = "the host" if stream is None else self._name(stream)
            gone, found = span(address, size), list[Finding]()
            here = self._place()
            for o in self.operations:
                if now.get(o.moment.lane, 0) >= o.moment.place or o.moment.lane in (waited or ()) or o.allocates:
                    continue
                every = (meeting(gone, runs) for runs in (o.used.written, o.used.strong, o.used.read))
                if (met := next(filter(None, every), None)) is not None:
                    said = f"{label or 'memory'} is freed by {who} while {o} may still use it"
                    where = self._bytes(met, o, (address, label) if waited is not None else None)
                    found.append(self._finding(FREED, said, "free", here, self.count + 1, where, o))
            self._say("memory that is freed", found)
            self.allocated(address, size)

    def touched(self, address: int, size: int, writes: bool, place: Callable[[], str]) -> bool:
        """The host touches bytes. Returns whether an operation under way uses them."""
        found: list[Finding] = []
        with self._lock:
            here = span(address, size)
            for o in self.operations:
                if meeting(here, o.used.strong) is not None:  # a flag perhaps, by which the host knows what it may use
                    self.by_flags += 1
                    self.clocks.known({o.moment.lane: o.moment.place})
                every = (meeting(here, runs) for runs in (o.used.written, *((o.used.read,) if writes else ())))
                if not self.clocks.is_over(o.moment) and (met := next(filter(None, every), None)) is not None:
                    rule, word = (HOST_WRITE, "writes") if writes else (HOST_READ, "reads")
                    uses = "use" if writes else "write"
                    said = f"the host {word} memory that {o} may still {uses}"
                    found.append(self._finding(rule, said, f"the host {word}", place, self.count + 1, self._bytes(met, o), o))
            self.operations = [o for o in self.operations if not self.clocks.is_over(o.moment)]  # pages stay as they are
            self._say("the host", found)
        return bool(found)

    # launches -------------------------------------------------------------------------------------------------------------
    def begin(
        self, function: Function, stream: Stream, memory: Regions, params: bytes | bytearray, dependent: bool
    ) -> Launched:
        """A launch begins.

        function, stream, params: what is launched, and where.
        memory: that it may use, besides variables of its module.
        dependent: it need not wait for the launch before it (programmatic stream serialisation).
        """
        image = function.kernel.module.image
        pieces = sorted([*((r.start, r.size) for r in memory), *((start, a.nbytes) for start, a, _ in image.buffers)])
        with self._lock, self._fenced():
            bitmaps = next((b for p, b in self._spare if p == pieces), None) or Bitmaps(pieces)
            self._spare = [(p, b) for p, b in self._spare if b is not bitmaps and p == pieces]
            moment = self.clocks.operation(self.lane(stream), True, dependent)
            early = [o for o in self.operations if o.moment.lane == moment.lane and o.moment.place > moment.early]
        others = [o.used for o in early] if early else None
        self.opened()
        what = f"the launch of {shorter(demangle(function.name), _NAME)}"
        self.count += 1
        made = StreamOperation(what, self._name(stream), moment, Used(), self._place(), self.count, function, bytes(params))
        return Launched(self, FootprintObserver(bitmaps, others), made, early, pieces)

    def over(self, one: Launched, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """A launch is over. Returns its findings, with those about its order."""
        with self._lock:
            one.operation.used = one.observer.over()
            self._spare.append((one.pieces, one.observer.bitmaps))
            self.closed()
            asked = self.wanted(self.driver.settings)
            found = [self._beside(f, one.early) if f.rule == DEPENDENT.name else f for f in findings]
            found += [f for f in self._conflicts(one.operation) if f.rule in asked]
            self._remember(one.operation)
        return tuple(ordered(found))

    def _beside(self, finding: Finding, early: Sequence[StreamOperation]) -> Finding:
        """A finding of a dependent launch with the launch before it."""
        o = early[-1]
        return replace(finding, conflict=o.at())

    # findings -------------------------------------------------------------------------------------------------------------
    def _remember(self, made: StreamOperation) -> None:
        if made.used.count and not self.clocks.is_over(made.moment):
            self.operations.append(made)
            self.unseen += self._is_unseen(made.used)
        if len(self.operations) > MOST or (self.count % OFTEN == 0 and sum(o.used.count for o in self.operations) > MOST_RUNS):
            self.forgotten += len(self.operations) // 2
            del self.operations[: len(self.operations) // 2]
        if self.pages is not None:
            self.pages.show(self.operations)

    def _is_unseen(self, used: Used) -> bool:
        """Whether an operation writes memory of the host of which it is not seen when the host reads it."""
        kinds = self.pages.kinds if self.pages is not None else ()
        memory = [a for a in self.driver.memory if a.label in (PINNED, REGISTERED, MANAGED) and a.label not in kinds]
        return any(meeting(runs, span(a.start, a.size)) is not None for runs in (used.written, used.strong) for a in memory)

    def _place(self) -> Callable[[], str]:
        """A function that says which line of the program has called now."""
        if told.places:
            return told.caller()
        line = entries.line_of_launch() or ""
        return lambda: line

    def _name(self, stream: Stream) -> str:
        lane = self.lane(stream)
        return "the default stream" if lane is self.clocks.legacy else self.names.get(lane.number, f"stream {lane.number}")

    def _conflicts(self, made: StreamOperation) -> list[Finding]:
        found: list[Finding] = []
        for o in self.operations:
            if made.moment.follows(o.moment) or (met := conflict(o.used, made.used)) is None:
                continue
            if meeting(o.used.strong, made.used.strong) is not None:
                self.by_flags += 1
                continue
            theirs, mine, bytes_ = met
            said = f"{made} {mine} what {o} {theirs}, and nothing orders the two"
            where = self._bytes(bytes_, made if made.function is not None else o)
            found.append(self._finding(UNORDERED, said, made.what, made.place, made.number, where, o, self._hint(o, made.stream)))
        return found

    @staticmethod
    def _hint(o: StreamOperation, later: str) -> str:
        return f"{UNORDERED.hint}: here one on {o.stream} after {o.what}, for {later}"

    def _finding(
        self, rule: Rule, said: str, what: str, place: Callable[[], str], number_: int, where: str, o: StreamOperation,
        hint: str = "",
    ) -> Finding:  # fmt: skip
        return Finding(
            rule.name, str(rule.severity), said, what, *located(place, number_), "", where, o.at(),
            self.driver.settings.seed, 1, hint or rule.hint,
        )  # fmt: skip

    def _bytes(self, at: tuple[int, int], o: StreamOperation, gone: tuple[int, str] | None = None) -> str:
        """Bytes in words: `bytes 0 to 255 of argument 1 (out): f32 elements 0 to 63`.

        at: the first, and the one behind the last.
        o: an operation that uses them.
        gone: where memory began that is there no more, and what it was.
        """
        begin, end = at
        if gone is not None:
            return f"{numbered('byte', begin - gone[0], end - 1 - gone[0])} of {gone[1]}"
        found = self.driver.memory.find(begin)
        start, label = (found.start, found.label) if found is not None else (begin, "memory")
        if found is not None and start in numbers:
            label = f"allocation {numbers[start]}, {found.size} bytes of {label}"
        element, size = "", 0
        for n, name, value, kind in pointers(o):
            if found is not None and found.start <= value < found.end:
                label, element = f"argument {n} ({name})", kind
                break
        size = int(element[1:]) // 8 if element[1:].isdigit() else 0
        text = f"{numbered('byte', begin - start, end - 1 - start)} of {label}"
        return text + (f": {numbered(f'{element} element', (begin - start) // size, (end - 1 - start) // size)}" if size else "")

    def _say(self, name: str, findings: Iterable[Finding]) -> None:
        """Tell findings that are of no launch. Raises UndefinedBehaviour if the settings say so."""
        asked = self.wanted(self.driver.settings)
        kept = tuple(f for f in findings if f.rule in asked)
        if kept:
            for reader in self.driver.readers:
                reader(name, kept, None, 0)
            if self.driver.settings.sanitize == RAISE and (wrong := undefined(kept)) is not None:
                raise wrong

    @staticmethod
    def wanted(settings: Settings) -> frozenset[str]:
        """Names of the rules of this file that are looked for."""
        return chosen(settings.rules, settings.sanitize == STRICT) & {rule.name for rule in OF_PROGRAMS}

    def unchecked(self) -> list[str]:
        """Sentences about what was not checked, for the last line."""
        out = []
        if self.forgotten:
            out.append(f"{number(self.forgotten, 'operation')} too old to be ordered against later ones")
        if self.by_flags:
            out.append(f"{number(self.by_flags, 'pair')} of operations that may order themselves by flags not checked")
        if self.unseen:
            out.append(f"{number(self.unseen, 'operation')} wrote memory of the host: not seen when the host reads it")
        if self.pages is not None and self.pages.unwatched:
            out.append(f"{number(self.pages.unwatched, 'page')} of host memory where accesses of the host were not all seen")
        return out


@dataclass(eq=False)
class Launched:
    """A launch under way. early: the launches that it need not wait for. pieces: the memory that it may use."""

    order: ProgramOrder
    observer: FootprintObserver
    operation: StreamOperation
    early: Sequence[StreamOperation]
    pieces: list[tuple[int, int]]

    def end(self, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """The findings of the launch and those about its order, when it is over, however it ended."""
        return self.order.over(self, findings)
