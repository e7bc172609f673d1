"""The axioms of PTX's memory model (PTX ISA 9.1, Memory Consistency Model), and all ends that they allow a small litmus test.

The test has no branches and no barriers, all its accesses are strong and of one scope that has all threads in it, so that
those of one location are morally strong. A relation is a list of sets (masks): the events that come after each event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from evidence.judges.litmus.program import OutOfReach, Test

Relation = list[int]
INIT = -1  # a thread that writes the first values


@dataclass(frozen=True)
class Event:
    thread: int
    kind: str  # R, W or F
    place: str
    sem: str
    register: str = ""
    value: int = 0
    operation: str = ""  # of the write of an atomic operation: add or exch
    half: int = -1  # of such a write: its read


def events_of(test: Test) -> list[Event]:
    found = [Event(INIT, "W", place, "weak", value=value) for place, value in test.places.items()]
    for n, thread in enumerate(test.threads):
        for op in thread.ops:
            if op.kind not in ("ld", "st", "atom", "fence") or op.sem == "weak" or op.operation not in ("", "add", "exch"):
                raise OutOfReach(op.kind)
            if op.kind == "fence":
                found.append(Event(n, "F", "", op.sem))
            if op.kind in ("ld", "atom"):
                found.append(Event(n, "R", op.place, op.sem, op.register))
            if op.kind in ("st", "atom"):
                half = len(found) - 1 if op.kind == "atom" else -1
                found.append(Event(n, "W", op.place, op.sem, "", int(op.operands[0]), op.operation, half))
    return found


def then(a: Relation, b: Relation) -> Relation:
    return [_any(row, b) for row in a]


def _any(row: int, b: Relation) -> int:
    found = 0
    while row:
        low = row & -row
        found |= b[low.bit_length() - 1]
        row ^= low
    return found


def either(*relations: Relation) -> Relation:
    found = [0] * len(relations[0])
    for relation in relations:
        found = [x | y for x, y in zip(found, relation)]
    return found


def closed(a: Relation) -> Relation:
    a = [*a]
    for k in range(len(a)):
        for i in range(len(a)):
            if a[i] >> k & 1:
                a[i] |= a[k]
    return a


def reflexive(a: Relation) -> Relation:
    return [row | 1 << n for n, row in enumerate(a)]


def has_cycle(a: Relation) -> bool:
    return any(row >> n & 1 for n, row in enumerate(closed(a)))


def ends(test: Test) -> set[frozenset[tuple[str, int]]]:
    """The final values of registers and locations in all executions that the axioms allow."""
    events = events_of(test)
    size = range(len(events))

    def relation(holds: object) -> Relation:
        return [sum(1 << j for j in size if holds(events[i], events[j], i, j)) for i in size]  # type: ignore[operator]

    po = relation(lambda a, b, i, j: a.thread == b.thread != INIT and i < j)
    local = relation(lambda a, b, i, j: a.thread == b.thread != INIT and i < j and a.place == b.place != "")
    rmw = relation(lambda a, b, i, j: b.half == i)
    same = relation(lambda a, b, i, j: a.place == b.place != "")
    releases = reflexive([0] * len(events))
    release = [0] * len(events)
    acquire = [0] * len(events)
    for i, e in enumerate(events):
        after = [j for j in size if po[i] >> j & 1]
        if e.kind == "W" and e.sem in ("release", "acq_rel"):
            release[i] |= releases[i] | sum(1 << j for j in after if events[j].kind == "W" and events[j].place == e.place)
        if e.kind == "F":
            release[i] |= sum(1 << j for j in after if events[j].kind == "W")
        if e.kind == "R":
            acquire[i] |= (1 << i) * (e.sem in ("acquire", "acq_rel"))
            acquire[i] |= sum(1 << j for j in after if events[j].kind == "F")
            same_place = [j for j in after if local[i] >> j & 1 and events[j].kind == "R"]
            acquire[i] |= sum(1 << j for j in same_place if events[j].sem in ("acquire", "acq_rel"))
    reads = [i for i in size if events[i].kind == "R"]
    writes = {place: [i for i in size if events[i].kind == "W" and events[i].place == place] for place in test.places}
    fences = [i for i in size if events[i].kind == "F" and events[i].sem == "sc"]
    found = set()
    for sources in product(*(writes[events[i].place] for i in reads)):
        rf = [0] * len(events)
        source = dict(zip(reads, sources))
        for read, write in source.items():
            rf[write] |= 1 << read
        if has_cycle(either(rf, rmw)):
            continue
        observed = closed(either(rf, then(rmw, rf)))
        observed = [row if events[i].kind == "W" else 0 for i, row in enumerate(observed)]
        observed = [row & sum(1 << j for j in reads) for row in observed]
        sync = then(then(release, observed), acquire)
        for co in _orders(writes, events):
            fr = [0] * len(events)
            for read, write in source.items():
                fr[read] = co[write]
            if any(co[source[events[w].half]] & sum(1 << x for x in size if co[x] >> w & 1) for w in size if events[w].half >= 0):
                continue  # a write came between the two halves of an atomic operation
            if any(not co[source[events[w].half]] >> w & 1 for w in size if events[w].half >= 0):
                continue
            if has_cycle(either(rf, co, fr, local)):
                continue
            if any(_is_allowed(order, events, po, local, sync, observed, co, rf, fr, same) for order in permutations(fences)):
                found.add(_end(test, events, source, co))
    return found


def _orders(writes: dict[str, list[int]], events: Sequence[Event]) -> Iterator[Relation]:
    every = [[(first, *rest) for first in here[:1] for rest in permutations(here[1:])] for here in writes.values()]
    for orders in product(*every):
        co = [0] * len(events)
        for order in orders:
            for n, write in enumerate(order):
                co[write] = sum(1 << other for other in order[n + 1 :])
        yield co


def _is_allowed(
    order: Sequence[int], events: Sequence[Event], po: Relation, local: Relation, sync: Relation, observed: Relation, co:
        Relation,
    rf: Relation, fr: Relation, same: Relation,
) -> bool:  # fmt: skip
    between = [0] * len(events)
    for n, fence in enumerate(order):
        between[fence] = sum(1 << other for other in order[n + 1 :])
    may = reflexive(po)
    base = then(may, closed(then(either(sync, between), may)))
    cause = either(base, then(observed, either(base, local)))
    for i, e in enumerate(events):
        for j in (j for j, other in enumerate(events) if cause[i] >> j & 1):
            both = e.kind + events[j].kind
            if both == "WW" and same[i] >> j & 1 and not co[i] >> j & 1:
                return False
            if both == "FF" and i in order and j in order and not between[i] >> j & 1:
                return False
    back = then(either(rf, fr), cause)
    return not any(row >> n & 1 for n, row in enumerate(back))


def _end(test: Test, events: Sequence[Event], source: dict[int, int], co: Relation) -> frozenset[tuple[str, int]]:
    def value(n: int) -> int:
        e = events[n]
        if e.kind == "R":
            return value(source[n])
        return (e.value + (value(e.half) if e.operation == "add" else 0)) & 0xFFFFFFFF

    left = {f"P{e.thread}:{e.register}": value(n) for n, e in enumerate(events) if e.kind == "R" and e.register}
    last = {e.place: n for n, e in enumerate(events) if e.kind == "W" and not co[n]}
    return frozenset((left | {place: value(n) for place, n in last.items()}).items())
