"""The order of accesses that the schedule may choose: an observer decides, one by one, which thread is next.

A kernel is compiled so that lanes wait before each such access (runtime/native/threads/turns.py). When every thread waits,
for its
turn or for another thread, native code asks, and `Turns.choose` names the thread that goes on. What happens then comes back as
`StrongAccess`, `FenceStep`, `Meeting` and `Join`, in their order: `Turns.steps`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.isa.effects import Ends, MemoryEffect, Orders, Together
from mmulator.isa.types import type_bits
from mmulator.ptx.program.addresses import SLOT_LOCAL, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.program.blocks import Block, Program
from mmulator.ptx.program.choices import takes_turns
from mmulator.ptx.program.frames import liveness, unread_results
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.program.waiting import is_idle
from mmulator.ptx.tree import VectorOperand
from mmulator.runtime.launch.arena import pointer, read
from mmulator.runtime.launch.observers import CallingObserver
from mmulator.runtime.native.hooks.events import LOADS, SCOPE_MASK, SCOPE_SHIFT, STORES, Order
from mmulator.runtime.native.state import LANES, Stop, Warp
from mmulator.runtime.native.threads.turns import TURNS
from mmulator.runtime.native.threads.turns import Turns as Struct

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Instrument
    from mmulator.ptx.tree import Instruction
    from mmulator.runtime.launch.grid import Grid
    from mmulator.runtime.launch.resident import Resident
    from mmulator.runtime.launch.workers import Workers

_POINTER, _WORD = ctypes.c_void_p, ctypes.c_uint32
_ASKED, _FENCED = ctypes.CFUNCTYPE(None, _POINTER, _POINTER), ctypes.CFUNCTYPE(None, _POINTER, _WORD, _WORD)
_ACCESSED = ctypes.CFUNCTYPE(None, _POINTER, _WORD, ctypes.c_uint64, _WORD, _WORD)
_MET = ctypes.CFUNCTYPE(None, _POINTER, _WORD)
_DONE = 1 << 31
_WAITING = Warp.offset["waiting"]


MOST = 1024  # threads that wait for turns at once


class OutOfReach(Exception):
    """The end of a launch to which no turns can be given: its argument says why."""


@dataclass(slots=True, eq=False)
class StrongAccess:
    """An access that had its turn.

    thread: number of the thread in the grid. cta: of its CTA; cluster: of its cluster.
    site: number of the instruction.
    place: the window and address of its first byte. size: in bytes.
    reads, writes: what it does; an atom.cas that leaves its bytes as they are, and hands nothing over, only reads.
    order, scope: a base Order, and the level of its scope (1 CTA to 4 system).
    like: the operation, if two of it commute, nothing reads their answers, and nothing is handed over by them; "" if not.
    old, new: the bytes before and after.
    state: where the thread stood before, and all registers that matter there.
    """

    thread: int
    cta: int
    cluster: int
    site: int
    place: tuple[int, int]
    size: int
    reads: bool
    writes: bool
    order: int
    scope: int
    like: str
    old: bytes
    new: bytes = b""
    state: Any = None

    def conflicts(self, other: StrongAccess) -> bool:
        """Whether the order of two accesses of two threads shows."""
        if not (self.writes or other.writes) or self.place[0] != other.place[0]:
            return False
        if self.place[1] + self.size <= other.place[1] or other.place[1] + other.size <= self.place[1]:
            return False
        return not self.like or self.like != other.like


@dataclass(slots=True)
class FenceStep:
    """A fence of memory of some threads. order: whether it acquires and releases."""

    threads: tuple[int, ...]
    scope: int


@dataclass(slots=True)
class Meeting:
    """A barrier that is complete: what these threads did before comes before what they do next."""

    threads: tuple[int, ...]


@dataclass(slots=True)
class Join:
    """Threads of a cluster may have heard of each other, in whatever way."""

    cluster: int


Step = StrongAccess | FenceStep | Meeting | Join
Place = tuple[int, int, int]  # address of the warp, lane, block of code


@dataclass
class Waiting:
    """A thread that waits for its turn. state: where it stands, and all registers that matter there."""

    thread: int
    resident: Resident
    warp: int
    lane: int
    block: int
    state: Any = None


class Turns(CallingObserver):
    """The observer that gives turns.

    choose: is called with the threads that can go on, by number, and returns one; what it raises ends the launch.
    known: for each state of a thread at a read, the place and values with which it comes back to this state having done nothing
        (`spins`): who would read such a value waits for another. The launch adds to it.
    """

    ordered = turns = True

    def __init__(
        self, choose: Callable[[dict[int, Waiting]], int], known: dict[Any, tuple[Any, set[bytes]]] | None = None
    ) -> None:
        self.choose, self.known = choose, {} if known is None else known
        self.steps: list[Step] = []
        self.fenced: set[int] = set()  # threads that have executed a fence
        self.learned = 0  # the number of turns until a thread first came back without having done anything; 0 if none did
        self.stuck: list[Waiting] = []  # who waits for a value that nobody stores
        self.accesses: list[StrongAccess] = []  # of steps, one for each turn
        self.calls_of = (
            _ASKED(self.guarded(self._asked)), _ACCESSED(self.guarded(self._accessed)), _FENCED(self.guarded(self._fenced)),
            _MET(self.guarded(self._met)),
        )  # fmt: skip

    @property
    def instrument(self) -> Instrument:
        return TURNS

    # the launch -----------------------------------------------------------------------------------------------------------
    def begin(self, grid: Grid) -> None:
        self.grid, self.kernel = grid, grid.kernel
        self.row = np.zeros(1, Struct.numpy_dtype())
        for name, call in zip(("asked", "accessed", "fenced", "met"), self.calls_of):
            self.row[name] = ctypes.cast(call, _POINTER).value
        grid.launch["turns"] = pointer(self.row)
        self.residents: dict[int, Resident] = {}
        self.waiting: dict[int, dict[int, Waiting]] = {}  # of each cluster, by its address, who waits for turns
        self.at_rest: set[int] = set()  # clusters of which no lane goes on
        self.last: tuple[Waiting, Any] | None = None  # who had the last turn, and the counts of executions before it
        self.open: StrongAccess | None = None
        self.text = _text_of(grid.kernel)

    def run_by(self, workers: Workers) -> None:
        self.workers = workers
        if workers.most < workers.clusters:
            raise OutOfReach(f"{workers.clusters * self.grid.shape.cluster_size} blocks are more than wait for turns at once")

    def take(self, resident: Resident, worker: int) -> None:
        self.residents[resident.address] = resident

    # who waits ------------------------------------------------------------------------------------------------------------
    def _asked(self, cluster: int, out: int) -> None:
        answer, resident = _WORD.from_address(out), self.residents[cluster]
        self.waiting[cluster] = self._waiting(resident, self.waiting.get(cluster, {}))
        self.at_rest.add(cluster)
        workers = self.workers
        begun = [r for r in workers.residents if r.begun[0]]
        if workers.line.left or any(r.address not in self.at_rest for r in begun):
            answer.value = int(Stop.ASLEEP)  # others have not come so far
            return
        self._came_back()
        every: dict[int, Waiting] = {}
        for r in sorted(begun, key=lambda r: r.number):
            every |= self.waiting[r.address]
        if not every:
            return
        if len(every) > MOST:
            raise OutOfReach(f"more than {MOST:,} threads wait for turns at once")
        ready = {thread: w for thread, w in every.items() if not self._spins(w)}
        if not ready:
            self.stuck = list(every.values())
            return
        chosen = ready[self.choose(ready)]
        self.last = chosen, self.workers.counts[0].copy()
        del self.waiting[chosen.resident.address][chosen.thread]
        self.at_rest.discard(chosen.resident.address)
        warp = chosen.resident.arena.at("warps") + chosen.warp * Warp.size
        self.row["warp"], self.row["lanes"] = warp, 1 << chosen.lane
        _WORD.from_address(warp + _WAITING).value &= ~(1 << chosen.lane)
        if chosen.resident is resident:
            answer.value = int(Stop.BUDGET)
            return
        answer.value = int(Stop.ASLEEP)
        workers.waiting.remove(chosen.resident)
        workers.waiting.appendleft(chosen.resident)

    def _waiting(self, resident: Resident, before: dict[int, Waiting]) -> dict[int, Waiting]:
        """The threads of a cluster that wait for turns. before: those that did when it was last asked; they have not moved
        since.
        """
        found, shape, warps = {}, self.grid.shape, resident.warps
        parked = warps["live"] & warps["waiting"] & ~warps["at_barrier"]
        for n in parked.nonzero()[0].tolist():
            lanes, places = int(parked[n]), warps["lane_pc"][n].tolist()
            rank, warp = divmod(n, shape.warps)
            first = int(resident.ctas["linear"][rank]) * shape.threads + warp * LANES
            for lane in range(LANES):
                if lanes >> lane & 1 and (block := places[lane]) in self.text.live:
                    thread = first + lane
                    known = before.get(thread)
                    state = () if known else (thread, block, self._registers(warps, n, lane, block))
                    found[thread] = known or Waiting(thread, resident, n, lane, block, state)
        return found

    def _registers(self, warps: Any, warp: int, lane: int, block: int) -> tuple[int, bytes]:
        """The frame of a lane, and the registers that it may still read."""
        frame = int(warps["lane_frame"][warp][lane])
        base = int(warps["regs"][warp]) + frame
        parts = []
        for at, size in self.text.live[block]:
            if size:
                parts.append(ctypes.string_at(base + at + lane * size, size))
            else:
                parts.append(b"1" if _WORD.from_address(base + at).value >> lane & 1 else b"0")
        return frame, b"".join(parts)

    # threads that read again and again --------------------------------------------------------------------------------------
    def _spins(self, w: Waiting) -> bool:
        """Whether a thread would read a value with which it comes back here, as it is known."""
        if w.state not in self.known:
            return False
        (address, size), values = self.known[w.state]
        return self._bytes(w.resident, w.warp, w.lane, address, size) in values

    def _bytes(self, resident: Resident, warp: int, lane: int, address: int, size: int) -> bytes:
        return read(resident.arena.at("warps") + warp * Warp.size, lane, address, size)

    def _came_back(self) -> None:
        """See whether the thread that had the last turn stands where it stood, and nothing has happened."""
        if self.last is None:
            return
        (w, before), self.last = self.last, None
        ran = (self.workers.counts[0] != before).nonzero()[0].tolist()
        if any(self.text.joins[n] for n in ran):
            self.steps.append(Join(w.resident.number))
        access = self.accesses[-1]
        if access.thread != w.thread or access.old != access.new or not access.reads or not all(self.text.idle[n] for n in ran):
            return
        warps = w.resident.warps
        here = int(warps["live"][w.warp]) & int(warps["waiting"][w.warp]) & ~int(warps["at_barrier"][w.warp]) & 1 << w.lane
        if not here or int(warps["lane_pc"][w.warp][w.lane]) != w.block:
            return
        if (w.thread, w.block, self._registers(warps, w.warp, w.lane, w.block)) == w.state:
            self.known.setdefault(w.state, ((access.place[1], access.size), set()))[1].add(access.old)
            self.learned = self.learned or len(self.accesses)

    # what happens -----------------------------------------------------------------------------------------------------------
    def _accessed(self, warp: int, lane: int, address: int, order: int, site: int) -> None:
        ins = self.kernel.executed[site]
        if not takes_turns(ins):
            return
        if order & _DONE:
            access, self.open = self.open, None
            if access is not None:
                access.new = read(warp, lane, address, access.size)
                hands_over = access.order & Order.RELEASE or access.thread in self.fenced  # though it changes nothing
                if self.text.tries[site] and access.new == access.old and not hands_over:
                    access.writes = False
            return
        assert self.last is not None
        w = self.last[0]
        size = self.text.sizes[site]
        space = 0
        if address >> SLOT_SHIFT == SLOT_SHARED:
            space = 1 + (w.resident.number if self.grid.shape.cluster_size > 1 else w.thread // self.grid.shape.threads)
        elif address >> SLOT_SHIFT == SLOT_LOCAL:
            space = -1 - w.thread
        self.open = StrongAccess(
            w.thread, w.thread // self.grid.shape.threads, w.resident.number, site, (space, address), size, bool(order & LOADS),
            bool(order & STORES), order & (Order.ACQUIRE | Order.RELEASE | Order.SC), order >> SCOPE_SHIFT & SCOPE_MASK,
            self.text.like[site], read(warp, lane, address, size), state=w.state,
        )  # fmt: skip
        self.steps.append(self.open)
        self.accesses.append(self.open)

    def _threads(self, warp: int, lanes: int) -> tuple[int, ...]:
        """Numbers of lanes of the warp at an address."""
        for resident in self.residents.values():
            n, rest = divmod(warp - resident.arena.at("warps"), Warp.size)
            if rest == 0 and 0 <= n < len(resident.warps):
                rank, w = divmod(n, self.grid.shape.warps)
                first = int(resident.ctas["linear"][rank]) * self.grid.shape.threads + w * LANES
                return tuple(first + lane for lane in range(LANES) if lanes >> lane & 1)
        return ()

    def _fenced(self, warp: int, lanes: int, order: int) -> None:
        if order & Order.ACQUIRE and order & Order.RELEASE:
            self.fenced.update(self._threads(warp, lanes))
            self.steps.append(FenceStep(self._threads(warp, lanes), order >> SCOPE_SHIFT & SCOPE_MASK))

    def _met(self, cta: int, number: int) -> None:
        for resident in self.residents.values():
            rank, rest = divmod(cta - resident.arena.at("ctas"), resident.ctas.dtype.itemsize)
            if rest == 0 and 0 <= rank < resident.size:
                warps = self.grid.shape.warps
                threads: list[int] = []
                for n in range(rank * warps, (rank + 1) * warps):
                    if not resident.warps["bar_came"][n][number]:
                        lanes = int(resident.warps["bar_lanes"][n][number])
                        threads += self._threads(resident.arena.at("warps") + n * Warp.size, lanes)
                self.steps.append(Meeting(tuple(threads)))


@dataclass
class _Text:
    """Facts from the text of a kernel that turns need.

    live: of each block that waits for turns, (offset in the frame, bytes of a lane, 0 for a bit) of the registers that it needs.
    joins: whether threads may hear of each other in a block.
    idle: whether a thread that goes through a block has done nothing.
    sizes, like, tries, vectors: of each site: bytes of an access; the operation if two of it commute unread; whether it is an
        atom.cas, or an access to a vector.
    """

    live: dict[int, list[tuple[int, int]]]
    joins: list[bool]
    idle: list[bool]
    sizes: list[int] = field(default_factory=list)
    like: list[str] = field(default_factory=list)
    tries: list[bool] = field(default_factory=list)
    vectors: list[bool] = field(default_factory=list)


def _text_of(kernel: Any) -> _Text:
    found: _Text | None = kernel.answers.get(_text_of)
    if found is None:
        found = kernel.answers[_text_of] = _read_text(kernel)
    return found


def _read_text(kernel: Any) -> _Text:
    text = _Text({}, [], [])
    for name, function in kernel.program.functions.items():
        frame, into = kernel.frames[name], None
        for n, block in enumerate(function.blocks):
            if block.turn:
                into = into or liveness(function).into
                slots = [(frame.slots[r], type_bits(frame.types[r])) for r in sorted(into[n]) if r in frame.slots]
                text.live[block.index] = [(at, 0 if bits == 1 else max(bits, 8) // 8) for at, bits in slots]
    for block in kernel.program.blocks:
        text.joins.append(any(map(_joins, _every(block))) or block.ending in (Ends.BARRIER, Ends.WAIT))
        calm = block.ending in (Ends.NO, Ends.BRANCH, Ends.INDEXED)
        text.idle.append(calm and (block.turn or all(map(_does_nothing, block.body))))
    dead = _dead(kernel.program)
    for ins in kernel.executed:
        turn = takes_turns(ins)
        form = dict(ins.form.modifiers) if turn else {}
        text.sizes.append(_bytes_of(ins, form) if turn else 0)
        text.like.append(_like(ins, form, dead) if turn else "")
        text.tries.append(form.get("op") == "cas")
        text.vectors.append(turn and any(isinstance(o, VectorOperand) for o in ins.operands))
    return text


def _every(block: Block) -> Sequence[Instruction]:
    return [*block.body, *([block.last] if block.last is not None and block.ending is not Ends.BRANCH else [])]


def _joins(ins: Instruction) -> bool:
    e = ins.effects
    return e.together is not Together.ALONE or e.counted_as == "barrier" or e.orders is Orders.CLUSTER


def _does_nothing(ins: Instruction) -> bool:
    return ins.effects.still or is_idle(ins) or ins.effects.orders is Orders.FENCE


def _bytes_of(ins: Instruction, form: dict[str, Any]) -> int:
    vector = next((o for o in ins.operands if isinstance(o, VectorOperand)), None)
    return type_bits(form["type"]) // 8 * (len(vector.elements) if vector is not None else 1)


COMMUTE = frozenset(("add", "min", "max", "and", "or", "xor"))
_INTEGERS = "bsu"


def _like(ins: Instruction, form: dict[str, Any], dead: frozenset[str]) -> str:
    """The name of an operation of integers whose answer nothing reads."""
    if form.get("op") not in COMMUTE or form["type"][0] not in _INTEGERS or form["type"].startswith("bf"):
        return ""
    if not uses_and_defs(ins)[1] <= dead:
        return ""
    return f"{form['op']} {form['type'].lstrip('su') if form['op'] == 'add' else form['type']}"


def _dead(program: Program) -> frozenset[str]:
    """Results of atomic operations that nothing reads, in whatever function."""
    unread, read_ = set[str](), set[str]()
    for function in program.functions.values():
        atomic = (i for b in function.blocks for i in b.body if i.effects.memory is MemoryEffect.ATOMIC)
        results = {name for i in atomic for name in uses_and_defs(i)[1]}
        found = unread_results(function)
        unread |= found
        read_ |= results - found
    return frozenset(unread - read_)


class NotedOrder:
    """The choice of a schedule that was noted: threads by number, one turn after another; then the first that can go on."""

    def __init__(self, order: Sequence[int]) -> None:
        self.order = iter(order)

    def __call__(self, ready: dict[int, Waiting]) -> int:
        wanted = next(self.order, None)
        return wanted if wanted in ready else next(iter(ready))
