"""Why elements have their values: a launch is run again from the memory that it found, in the cluster that stored them.

A finished launch comes in, with what it stored and a snapshot of the memory before it; a `WhyAnswer` for each element leaves. The
memory is afterwards as the launch left it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mmulator.base.errors import ExecutionFault, LaunchError, OperandError, UnsupportedError
from mmulator.base.interop import as_array
from mmulator.base.schemas import document
from mmulator.host.campaign import Snapshot
from mmulator.host.report import Report
from mmulator.isa.chips import as_device
from mmulator.observation.record.birth import Birth, Births
from mmulator.observation.record.cause import Cause, span_text
from mmulator.observation.record.detours import Arrived, Detours
from mmulator.observation.record.memory import last_write, left_out, stores_words
from mmulator.observation.record.names import Asked, DeviceNames, asked
from mmulator.observation.record.reference import (
    BesideAnother,
    BesideReference,
    Reference,
    ReferenceArrays,
    beside,
    beside_reference,
)
from mmulator.observation.record.sources import Sources
from mmulator.observation.record.trail import Trail
from mmulator.observation.record.values import text_of
from mmulator.observation.record.why import DEPTH, Explainer
from mmulator.ptx.program.addresses import SLOT_PARAM, SLOT_SHIFT
from mmulator.runtime.launch.arena import bytes_at
from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.limits import whole
from mmulator.sanitizer.diagnostics.watch import Watches

REFERENCE = "reference"
NO_REFERENCE = "against reference: there is no reference to compare with"
REFERENCES = (
    "--why auto compares with what an assert expects, run with [expect] of the launch file or --expect, launch(against=...) with "
    "an array; the exact sum of a matrix product is in every answer"
)
NOTHING = "no store came to its address: no thread computes it, or all that do branch around the store"
HEIGHT = 40  # lines of a screen
EARLIER = 2  # stores to an element, before the last one, that are told besides the first
PATIENCE, SLOWER = 2.0, 100  # seconds that one cluster may take alone: at least, and for each second of the launch
Read = Callable[[int, int], bytes]


@dataclass(frozen=True)
class WhyAnswer:
    """Why an element has its value.

    name: of the element.
    cause: the store and what is behind it; None if nothing was stored there.
    notes: what a reader should know of how it was found out.
    beside: the element in another run or in a reference, if one was asked for.
    sources: what it was computed from, however far back, and indices that overflowed on the way.
    leaves: address -> name of each element of device memory that the launch found and that it was computed from.
    birth: where a NaN or an infinity was born; None of another value.
    short: whether it has to fit a screen: nobody asked for more or fewer instructions than usual.
    """

    name: str
    cause: Cause | None
    notes: tuple[str, ...] = ()
    beside: BesideAnother | BesideReference | None = None
    sources: tuple[str, ...] = ()
    leaves: Mapping[int, str] = field(default_factory=dict, repr=False, compare=False)
    birth: Birth | None = field(default=None, compare=False)
    short: bool = True

    def __str__(self) -> str:
        return self._text()

    def _text(self, **most: int) -> str:
        from mmulator.observation.record.tree import text

        reference = self.beside if self.birth is None else None
        said = reference.lead if isinstance(reference, BesideReference) else ""
        lead = [f"{self.name} differs: {said}"] * bool(said)
        told = text(self.cause, self.birth, **most) if self.cause is not None else self._nothing
        return "\n".join([*lead, told, *self._more()])

    def wrapped(self, width: int) -> str:
        """The answer in lines of at most so many columns; tables may be wider. It has as many levels as a screen has room for,
        unless it was asked how many.
        """
        from mmulator.observation.record.tree import ROWS, wrapped

        whole = wrapped(str(self), width)
        shorter = [(2 * DEPTH, ROWS[0]), *((most, ROWS[1]) for most in range(2 * DEPTH, 0, -1))]
        for most, rows in shorter if self.short else ():
            if whole.count("\n") < HEIGHT:
                break
            whole = wrapped(self._text(most=most, rows=rows), width)
        return whole

    @property
    def _nothing(self) -> str:
        return f"{self.name}: no thread of the launch stored it"

    def _more(self) -> list[str]:
        return [*self.sources, *([str(self.beside)] if self.beside else []), *(f"note: {note}" for note in self.notes)]

    def _repr_html_(self) -> str:
        from mmulator.base.tables import element
        from mmulator.observation.record.tree import part

        body = part(self.cause) if self.cause is not None else element("p", self._nothing)
        body = element("p", f"{self.birth.kind} since {self.birth.said}") + body if self.birth is not None else body
        return body + "".join(element("p", line) for line in self._more())

    def as_dict(self) -> dict[str, Any]:
        """The answer as JSON can hold it."""
        from mmulator.matrix.numerics.element import hexed
        from mmulator.observation.record.losses import losses_of
        from mmulator.observation.record.tree import as_dict

        other = self.beside
        pair = (other.cause, other.here, other.there) if isinstance(other, BesideAnother) else (None, None, None)
        cause, here, there = (as_dict(one) if one else None for one in pair)
        return document("cause", {
            "element": self.name, "cause": as_dict(self.cause) if self.cause else None, "notes": list(self.notes),
            "sources": list(self.sources), "birth": self.birth.as_dict() if self.birth is not None else None,
            "losses": [
                {"kind": x.kind, "said": x.said, "value": hexed(x.value)} for x in (losses_of(self.cause) if self.cause else ())
            ],
            **({"beside": {
                "label": other.label, "cause": cause, "said": str(other), "here": here, "there": there,
                **({"want": other.want} if isinstance(other, BesideReference) else {}),
            }} if other else {}),
        })  # fmt: skip


@dataclass(frozen=True)
class Other:
    """Another run of a launch, to compare with.

    label: how people are told of it.
    launch: the launch, on the other device if it is one.
    seed: of the scheduler's choices.
    """

    label: str
    launch: Launch
    seed: int


def other_of(against: object, launch: Launch, seed: int) -> Other | Reference:
    """The run or the reference that a launch is compared with. Raises UnsupportedError or LaunchError.

    against: another device, another seed, an array of expected values, or several by name.
    seed: of the launch.
    """
    if isinstance(against, Reference):
        return against
    if isinstance(against, str) and against == REFERENCE:
        raise LaunchError(NO_REFERENCE, hint=REFERENCES)
    if isinstance(against, Mapping):
        return Reference(REFERENCE, {name: as_array(name, array) for name, array in against.items()})
    if not isinstance(against, str | int):
        return Reference(REFERENCE, {"": as_array("against", against)})
    if isinstance(against, int):
        return Other(f"seed {against}", launch, whole(against, "against"))
    name = as_device(against)
    return Other(name, replace(launch, device=name), seed)


@dataclass(frozen=True)
class Again:
    """A launch that can be run again.

    launch, how: as it ran.
    memory: what it may write, as it was before and as it is now (`keep` was called).
    read: bytes of device memory at a generic address.
    names: of what it was given.
    other: another run, or a reference, to compare with.
    """

    launch: Launch
    how: How
    memory: Snapshot
    read: Read
    names: DeviceNames
    other: Other | Reference | None = None

    def answers(
        self, asked: Sequence[Asked], stores: Sequence[np.ndarray], seconds: float, depth: int = DEPTH
    ) -> list[WhyAnswer]:
        """The answer for each element. stores: those to each (WatchEntry), in order. seconds: of the launch."""
        values = [self.read(a.start, a.size) for a in asked]
        trails: dict[int, tuple[Trail, tuple[str, ...]]] = {}
        out = []
        try:
            for a, store, value in zip(asked, stores, values):
                if not len(store):
                    out.append(WhyAnswer(a.name, None, self._left_out(a, seconds)))
                    continue
                cluster = self.launch.shape.cluster_of(int(store[-1]["cta"]))
                if cluster not in trails:
                    trails[cluster] = self._trail(cluster, a, value, seconds)
                trail, notes = trails[cluster]
                answer = self._answer(trail, a, value, notes, depth)
                answer = replace(answer, sources=(*answer.sources, *self._stores_before(trail, a, store[:-1])))
                if isinstance(self.other, Reference) and answer.cause is not None:
                    arrays = ReferenceArrays(self.names.arrays, self.read)
                    answer = replace(
                        answer, beside=beside_reference(answer.cause, self.other.want(a.name), self.other.label, arrays)
                    )
                elif isinstance(self.other, Other) and answer.cause is not None:
                    answer = self._with(self.other, answer, cluster, a, answer.cause, depth)
                out.append(answer)
        finally:
            self.memory.leave()
        return out

    def _begun(self, address: int, size: int) -> bytes | None:
        """Bytes as the launch found them; None where it cannot write."""
        for p in self.memory.pieces:
            at = address - p.owner - p.start
            if 0 <= at <= len(p.before) - size:
                return p.before[at : at + size].tobytes()
        return None

    def _by_others(self, explainer: Explainer) -> Iterator[str]:
        """Sentences about the last store by any block to places that other blocks wrote."""
        places = [(at, at + size) for at, size in [*explainer.foreign.items()][:EARLIER]]
        watches = Watches([], self.launch.arguments, places)
        self.memory.restore()
        with suppress(ExecutionFault):
            self.launch.run(replace(self.how, threads=1, progress=None, watched=False), [watches])
        for (at, end), stores in zip(places, watches.others()):
            if len(stores):
                yield f"{self.names(at, end - at)} was stored last by {self._store_text(explainer.trail, stores[-1])}"

    def _store_text(self, trail: Trail, entry: np.void) -> str:
        """`st.global.f32 at k.ptx:20 (k.py:9), block (0, 0, 0), thread (5, 0, 0)` of a WatchEntry."""
        ins = trail.kernel.sites[int(entry["site"])].original
        block, thread = self.launch.shape.block_at(int(entry["cta"])), self.launch.shape.thread_at(int(entry["thread"]))
        return f"{ins.mnemonic} at {span_text(ins.span)}, block {block}, thread {thread}"

    def _nowhere(self, a: Asked) -> str:
        """A sentence that nothing would store an element: how many blocks there are, and how far the launch wrote before it."""
        shape, array = self.launch.shape, self.names.at(a.start)
        low = array.start if array is not None else a.start
        changed = [
            at for p in self.memory.pieces if low <= p.owner + p.start + len(p.before) and p.owner + p.start < a.start
            for at in (p.owner + p.start + np.flatnonzero(p.before != p.wanted)).tolist() if low <= at < a.start
        ]  # fmt: skip
        last = f"; the last element before it that changed is {self.names(changed[-1] // a.size * a.size)}" if changed else ""
        return f"{NOTHING}; the grid is {shape.grid} blocks of {shape.block} threads{last}"

    def _left_out(self, a: Asked, seconds: float) -> tuple[str, ...]:
        """Why no store wrote an element: one that would have was predicated off, or a branch leads past it."""
        found = self._recorded(Trail(only=stores_words), replace(self.how, threads=1, progress=None))
        missed = left_out(found, a.start)
        if missed is None:
            return (self._led_past(a, seconds) or self._nowhere(a),)
        trail, _ = self._trail(self.launch.shape.cluster_of(missed[0].block), a, self.read(a.start, a.size), seconds)
        again = left_out(trail, a.start)
        return () if again is None else (Explainer(trail, self.names, self.launch.device).left_out(*again),)

    def _led_past(self, a: Asked, seconds: float) -> str:
        """A sentence about the branch that leads a thread past a store to an element; "" if there is none."""
        detours = Detours(a.start)
        self.memory.restore()
        limit = PATIENCE + SLOWER * seconds
        how = replace(self.how, threads=1, progress=None, timeout=limit, keep_going=True, watched=False)
        with suppress(ExecutionFault, Arrived):
            self.launch.run(how, [detours])
        if detours.found is None:
            return ""
        trail, _ = self._trail(self.launch.shape.cluster_of(detours.found.block), a, self.read(a.start, a.size), seconds)
        step = detours.found.step_of(trail)
        explainer = Explainer(trail, self.names, self.launch.device)
        return "" if step is None else explainer.led_past(step, detours.found.lane, detours.found.store)

    def _recorded(self, trail: Trail, how: How, launch: Launch | None = None) -> Trail:
        """A trail of another run from the memory that the launch found; of a run that ends in a fault as far as it came."""
        self.memory.restore()
        trail.read, trail.begun, trail.goes_on = self.read, self._begun, how.keep_going
        with suppress(ExecutionFault):  # LimitReached among them
            (launch or self.launch).run(replace(how, watched=False), [trail.observer])
        trail.index()
        return trail

    def _answer(self, trail: Trail, a: Asked, value: bytes, notes: tuple[str, ...], depth: int) -> WhyAnswer:
        found = last_write(trail, None, a.start)
        if found is None:
            return WhyAnswer(a.name, None, (*notes, "its store is of a kind that is not told yet"))
        bits = int.from_bytes(value, "little")
        explainer = Explainer(trail, self.names, self.launch.device, depth)
        cause = explainer.written(found, a.name, bits, a.type, a.size, ())
        sources = Sources(explainer).gather(found, a.type, a.size)
        by = tuple(self._by_others(explainer)) if explainer.foreign else ()
        birth = Births(explainer).of(found, a.name, bits, a.type, a.size)
        return WhyAnswer(a.name, cause, notes, None, (*by, *sources.sentences()), sources.leaves, birth, depth == DEPTH)

    def _stores_before(self, trail: Trail, a: Asked, stores: np.ndarray) -> Iterator[str]:
        """Sentences about stores to an element before the last one: the first of them and the newest."""
        if not len(stores):
            return
        kinds = np.flatnonzero(np.diff(stores["cta"]) | np.diff(stores["site"]) | (stores["value"][1:] != stores["value"][:-1]))
        told = stores[np.concatenate([[0], kinds + 1])]  # of stores that are alike the first
        some = [*told[:1], *told[1:][-EARLIER:]]
        yield f"stored {len(stores) + 1:,} times in this launch; before" + (", among others:" if len(some) < len(stores) else ":")
        for entry in some:
            yield f"  {text_of(int(entry['value']), a.type)} by {self._store_text(trail, entry)}"

    def _with(self, other: Other, answer: WhyAnswer, cluster: int, a: Asked, cause: Cause, depth: int) -> WhyAnswer:
        """An answer with what another run says of the element; a note where that run is impossible."""
        try:
            return replace(answer, beside=self._beside(other, cluster, a, cause, depth))
        except UnsupportedError as error:
            return replace(answer, notes=(*answer.notes, f"not compared with {other.label}: {error.message}"))

    def _beside(self, other: Other, cluster: int, a: Asked, cause: Cause, depth: int) -> BesideAnother:
        """The element in another run of its cluster."""
        how = replace(self.how, threads=1, progress=None, part=(cluster, cluster + 1), seed=other.seed)
        trail = self._recorded(Trail(cluster), how, other.launch)
        found = last_write(trail, None, a.start)
        if found is None:
            return beside(other.label, cause, None)
        bits = int.from_bytes(self.read(a.start, a.size), "little")
        there = Explainer(trail, self.names, other.launch.device, depth).written(found, a.name, bits, a.type, a.size, ())
        return beside(other.label, cause, there)

    def _trail(self, cluster: int, a: Asked, value: bytes, seconds: float) -> tuple[Trail, tuple[str, ...]]:
        """The steps of a cluster, and notes. First it runs alone; where that gives another value, the whole launch."""
        limit = PATIENCE + SLOWER * seconds
        whole = replace(self.how, threads=1, progress=None)
        alone = replace(whole, part=(cluster, cluster + 1), timeout=limit)
        for how in (alone, whole):
            trail = self._recorded(Trail(cluster), how)
            if self.read(a.start, a.size) == value and last_write(trail, None, a.start) is not None:
                break
        again = self.read(a.start, a.size)
        if again == value:
            return trail, ()
        self._recorded(Trail(only=stores_words), replace(whole, seed=whole.seed + 1))
        order = "what it stores depends on the order in which warps run"
        other = "its warps in another order gave this value, too: what it reads may be what blocks beside it, or the host, write"
        return trail, (f"run again, the block stored another value: {order if self.read(a.start, a.size) != again else other}",)


class About:
    """Questions about a launch, asked before it runs.

    asked: the elements.
    launch, how: what runs, and how.
    names: of what it was given.
    other: another run, or a reference, to compare with.
    """

    def __init__(
        self, asked: Sequence[Asked], launch: Launch, how: How, names: DeviceNames, other: Other | Reference | None = None
    ) -> None:
        self.asked, self.arguments = asked, launch.arguments
        self.memory = Snapshot(launch.writable())
        constants = [(start, a.view(np.uint8).reshape(-1)) for start, a, _ in launch.kernel.module.image.buffers]
        regions = [(b.start, bytes_at(b.host, b.size)) for b in (*self.arguments.buffers, *self.arguments.regions)]
        self._bytes = [*constants, *regions]
        self.again = Again(launch, how, self.memory, self._read, names, other)

    @property
    def places(self) -> list[tuple[int, int]]:
        """Addresses of the elements."""
        return [(a.start, a.end) for a in self.asked]

    def answers(self, watches: Watches, report: Report, depth: int = DEPTH) -> list[WhyAnswer]:
        """The answers, when the launch is over. depth: how many instructions are told one behind the other."""
        self.memory.keep()
        return self.again.answers(self.asked, watches.others(), report.seconds["run"], depth)

    def _read(self, address: int, size: int) -> bytes:
        return read(self.arguments.params, self._bytes, address, size)


def read(params: np.ndarray, regions: Iterable[tuple[int, np.ndarray]], address: int, size: int) -> bytes:
    """Bytes of device memory, or of the parameters.

    params: bytes of the parameters.
    regions: (address, bytes) of all memory.
    address: of the first byte.
    size: number of bytes.
    """
    if address >> SLOT_SHIFT == SLOT_PARAM:
        offset = address - (SLOT_PARAM << SLOT_SHIFT)
        return params[offset : offset + size].tobytes()
    for start, data in regions:
        if start <= address <= start + len(data) - size:
            return data[address - start : address - start + size].tobytes()
    raise OperandError(f"no memory at {address:#x}")


def about_arrays(why: object, launch: Launch, how: How, named: Mapping[str, np.ndarray], against: object = None) -> About:
    """Questions about a launch whose arguments are arrays.

    why: what the user asks (observation/record/names.py).
    launch, how: as in `About`.
    named: arrays that the caller has names for.
    against: as in `other_of`, or None.

    Raises LaunchError for what is no element of an argument.
    """
    other = None if against is None else other_of(against, launch, how.seed)
    names = DeviceNames.of(launch, named)
    return About(asked(why, names, [p.name for p in launch.kernel.signature.params]), launch, how, names, other)
