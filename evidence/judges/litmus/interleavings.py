"""Executions of a litmus test in which threads take turns, and whether one has a data race.

The definitions are those of PTX ISA 9.1, Memory Consistency Model: moral strength, release and acquire patterns, observation,
base causality and causality order, conflict and data race. Nothing here is shared with the sanitizer.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evidence.judges.litmus.program import Op, Test

MOST = 30_000  # executions that are followed; where there are more, so many are drawn
COMPARE = {name: getattr(operator, name) for name in ("eq", "ne", "ge", "le", "gt", "lt")}
ARITHMETIC = {"add": operator.add, "sub": operator.sub, "exch": lambda _, value: value}


class Event(NamedTuple):
    """A step of a thread. kind: R, W, U (an atomic operation that wrote), F, A (arrival at a barrier), C (the way on from it).
    source: of a read the event that wrote the value, -1: none. round: of A and C, which use of the barrier."""

    thread: int
    kind: str
    op: Op
    source: int = -1
    round: Any = None


@dataclass
class State:
    """Where an execution is."""

    pcs: list[int]
    registers: list[dict[str, int]]
    memory: dict[str, int]
    writer: dict[str, int]
    events: list[Event] = field(default_factory=list)
    bars: dict[tuple[int, int], tuple[int, list[int]]] = field(default_factory=dict)  # use, threads that came
    waits: dict[int, Any] = field(default_factory=dict)  # a thread that waits, and the use of a barrier
    seen: dict[tuple[int, int], int] = field(default_factory=dict)  # jumps back, and how many writes there were then

    def copy(self) -> State:
        return State(
            self.pcs[:], [r.copy() for r in self.registers], self.memory.copy(), self.writer.copy(), self.events[:],
            {k: (n, t[:]) for k, (n, t) in self.bars.items()}, self.waits.copy(), self.seen.copy(),
        )  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What the executions of a test are. reached: one has the outcome. racy: one has a data race. stuck: one ends with a thread
    that waits at a barrier. all: every execution was followed."""

    reached: bool
    racy: bool
    stuck: bool
    all: bool


class Explorer:
    def __init__(self, test: Test) -> None:
        self.test = test
        self.labels = [{op.label: n for n, op in enumerate(t.ops) if op.kind == "label"} for t in test.threads]
        self.names = {f"P{n}:{op.register}" for n, t in enumerate(test.threads) for op in t.ops if op.register}

    def start(self) -> State:
        threads = self.test.threads
        state = State([0] * len(threads), [{} for _ in threads], dict(self.test.places), {})
        for thread in range(len(threads)):
            self.locally(state, thread)
        return state

    def value(self, state: State, thread: int, operand: int | str) -> int:
        if isinstance(operand, int):
            return operand
        return state.registers[thread].get(operand, self.test.threads[thread].registers.get(operand, 0))

    def locally(self, state: State, thread: int) -> None:
        """Go on to the next instruction that others notice."""
        ops = self.test.threads[thread].ops
        while state.pcs[thread] < len(ops):
            op, at = ops[state.pcs[thread]], state.pcs[thread] + 1
            if op.kind in ("branch", "jump"):
                values = [self.value(state, thread, o) for o in op.operands]
                if op.kind == "jump" or COMPARE[op.operation](*values):
                    at = self.labels[thread][op.label]
            elif op.kind in ("add", "move"):
                values = [self.value(state, thread, o) for o in op.operands]
                state.registers[thread][op.register] = ARITHMETIC[op.operation](*values) if op.kind == "add" else values[0]
            elif op.kind != "label":
                return
            if at < state.pcs[thread]:  # back: only another value leads on
                writes = sum(e.kind in "WU" for e in state.events)
                if state.seen.get((thread, at)) == writes:
                    state.waits[thread] = ("writes", writes)
                state.seen[thread, at] = writes
            state.pcs[thread] = at

    def ready(self, state: State) -> list[int]:
        writes = sum(e.kind in "WU" for e in state.events)
        for thread in [t for t, why in state.waits.items() if why[0] == "writes" and why[1] != writes]:
            del state.waits[thread]
        return [
            n for n, t in enumerate(self.test.threads) if state.pcs[n] < len(t.ops) and n not in state.waits
        ]  # fmt: skip

    def step(self, state: State, thread: int) -> None:
        op = self.test.threads[thread].ops[state.pcs[thread]]
        number = len(state.events)
        if op.kind in ("ld", "atom"):
            old, source = state.memory[op.place], state.writer.get(op.place, -1)
            values = [self.value(state, thread, o) for o in op.operands]
            if op.register:
                state.registers[thread][op.register] = old
            if op.kind == "atom" and not (op.operation == "cas" and old != values[0]):
                state.memory[op.place] = values[1] if op.operation == "cas" else ARITHMETIC[op.operation](old, values[0])
                state.writer[op.place] = number
                state.events.append(Event(thread, "U", op, source))
            else:
                state.events.append(Event(thread, "R", op, source))
        elif op.kind == "st":
            state.memory[op.place] = self.value(state, thread, op.operands[0])
            state.writer[op.place] = number
            state.events.append(Event(thread, "W", op))
        elif op.kind == "fence":
            state.events.append(Event(thread, "F", op))
        else:
            self.barrier(state, thread, op)
        state.pcs[thread] += 1
        self.locally(state, thread)

    def barrier(self, state: State, thread: int, op: Op) -> None:
        cta = self.test.threads[thread].cta
        values = [self.value(state, thread, o) for o in op.operands]
        most = values[1] if len(values) > 1 else sum(t.cta == cta for t in self.test.threads)
        use, came = state.bars.get((cta, values[0]), (0, []))
        state.events.append(Event(thread, "A", op, round=(cta, values[0], use)))
        if op.kind == "sync":
            state.waits[thread] = ("bar", cta, values[0], use)
        came.append(thread)
        state.bars[cta, values[0]] = use, came
        if len(came) == most:
            for other in [t for t, why in state.waits.items() if why == ("bar", cta, values[0], use)]:
                del state.waits[other]
                state.events.append(Event(other, "C", op, round=(cta, values[0], use)))
            state.bars[cta, values[0]] = use + 1, []

    def environment(self, state: State) -> dict[str, int]:
        registers = dict.fromkeys(self.names, 0)
        registers |= {f"P{n}:{name}": value for n, t in enumerate(self.test.threads) for name, value in t.registers.items()}
        for n, values in enumerate(state.registers):
            registers |= {f"P{n}:{name}": value for name, value in values.items()}
        return registers | state.memory

    def known(self, state: State, name: str) -> bool:
        """Whether a value is final: a register of a thread that waits for ever is, once it has been given one."""
        thread, _, register = name.partition(":")
        return not register or int(thread[1:]) not in state.waits or register in state.registers[int(thread[1:])]

    def executions(self) -> Iterator[State]:
        """Ends of executions: all, or those that are drawn after MOST of them."""
        stack: list[tuple[State, int, Op | None, list[int]]] = [(self.start(), -1, None, [])]
        ended = 0
        while stack and ended < MOST:
            state, last, previous, before = stack.pop()
            ready = self.ready(state)
            if not ready:
                ended += 1
                yield state
            for thread in ready:
                op = self.test.threads[thread].ops[state.pcs[thread]]
                if previous is not None and thread < last and thread in before and independent(op, previous):
                    continue  # the two in the other order are followed elsewhere
                after = state.copy()
                self.step(after, thread)
                stack.append((after, thread, op, ready))
        chance = random.Random(0)
        for _ in range(MOST * bool(stack)):
            state = self.start()
            while ready := self.ready(state):
                self.step(state, chance.choice(ready))
            yield state

    def find(self) -> Found:
        judged: dict[Any, bool] = {}
        reached = racy = stuck = False
        count = 0
        for state in self.executions():
            count += 1
            waits = any(why[0] == "bar" for why in state.waits.values())
            stuck |= waits
            if len(state.waits) < len(state.pcs) and all(self.known(state, name) for name in self.test.outcome.names):
                reached |= bool(self.test.outcome(self.environment(state)))
            if not racy:
                key = tuple(state.events)
                if key not in judged:
                    judged[key] = has_race(state.events, self.test)
                racy = judged[key]
        return Found(reached, racy, stuck, count < MOST)


def independent(one: Op, other: Op) -> bool:
    """Two instructions have one effect in either order."""
    if one.kind in ("ld", "st", "atom") and other.kind in ("ld", "st", "atom"):
        return one.place != other.place or (one.kind == other.kind == "ld")
    return {one.kind, other.kind} & {"ld", "st", "atom"} != set() and {one.kind, other.kind} & {"sync", "arrive"} == set()


def has_race(events: Sequence[Event], test: Test) -> bool:
    """Whether two accesses of an execution conflict, are not morally strong, and neither comes first in causality order."""
    size = len(events)
    memory = [n for n, e in enumerate(events) if e.kind in "RWU"]
    fences = [n for n, e in enumerate(events) if e.kind == "F"]

    def strong(e: Event) -> bool:
        return e.kind == "F" or e.op.sem != "weak"

    def within(a: int, b: int) -> bool:
        one, other = (test.threads[events[n].thread] for n in (a, b))
        scope = events[a].op.scope
        return scope != "cta" or (one.cta, one.gpu) == (other.cta, other.gpu)

    def morally_strong(a: int, b: int) -> bool:
        one, other = events[a], events[b]
        if one.kind in "RWU" and other.kind in "RWU" and one.op.place != other.op.place:
            return False
        if one.thread == other.thread:
            return True
        return strong(one) and strong(other) and within(a, b) and within(b, a)

    # writes, and the reads that observe them: a chain of atomic operations carries on what was observed
    observes: dict[int, set[int]] = {n: set() for n in memory}
    for n in memory:
        source = events[n].source
        if source >= 0 and morally_strong(source, n):
            observes[source].add(n)
    for n in reversed(memory):
        for read in list(observes[n]):
            if events[read].kind == "U":
                observes[n] |= observes[read]
    # the first operation of a release pattern, and its write; the read of an acquire pattern, and its last operation
    def ends(n: int, others: range, kinds: str, half: str) -> list[int]:
        """The operations that a release or acquire pattern around an operation can begin or end with.

        n: the operation.
        others: the operations before it, or behind it.
        kinds: of writes, or of reads.
        half: `release` or `acquire`.
        """
        e, half_or_both = events[n], (half, "acq_rel")
        if e.kind not in kinds or not strong(e):
            return []
        own = [m for m in others if events[m].thread == e.thread]
        found = [n] if e.op.sem in half_or_both else []
        found += [m for m in own if m in fences]
        return found + [m for m in own if m in observes and events[m].kind in kinds and events[m].op.place == e.op.place
                        and events[m].op.sem in half_or_both]  # fmt: skip

    releases = [(m, n) for n in memory for m in ends(n, range(n), "WU", "release")]
    acquires = [(n, m) for n in memory for m in ends(n, range(n + 1, size), "RU", "acquire")]
    edges: list[set[int]] = [set() for _ in range(size)]
    for first, write in releases:
        for read, last in acquires:
            if read in observes[write] and morally_strong(first, last):
                edges[first].add(last)
    for a in fences:
        for b in fences:
            if a < b and events[a].op.sem == events[b].op.sem == "sc" and morally_strong(a, b):
                edges[a].add(b)
    for n, e in enumerate(events):
        edges[n] |= {next((m for m in range(n + 1, size) if events[m].thread == e.thread), n)} - {n}
        if e.kind == "A":
            edges[n] |= {m for m in range(n + 1, size) if events[m].kind == "C" and events[m].round == e.round}
    base = [0] * size
    for n in reversed(range(size)):
        for m in edges[n]:
            if m > n:
                base[n] |= 1 << m | base[m]

    def caused(a: int, b: int) -> bool:
        return bool(base[a] >> b & 1) or any(base[read] >> b & 1 for read in observes.get(a, ()))

    return any(
        events[a].op.place == events[b].op.place and events[a].kind + events[b].kind != "RR"
        and not morally_strong(a, b) and not caused(a, b) and not caused(b, a)
        for i, a in enumerate(memory) for b in memory[i + 1 :]
    )  # fmt: skip
