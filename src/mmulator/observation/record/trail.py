"""A trail: the steps of a cluster with what their instructions read, so that one can walk back from a value to its causes.

Steps come in from an observer (observation/record/steps.py) while a launch runs; `Trail` answers where a register was written
before a step, and with what. Values are those that the machine had in its register file.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import LimitReached
from mmulator.isa.effects import Algebra, Ends, MemoryEffect, Queue
from mmulator.isa.types import type_bits
from mmulator.observation.record.steps import NEVER, Steps, WarpPlace
from mmulator.observation.record.tensor_pipe import Images, Issued, TensorPipe, stores_cells
from mmulator.ptx.program.addresses import HEADER_LOCAL
from mmulator.ptx.program.frames import slot_bytes
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Address, Instruction, Symbol, flatten
from mmulator.runtime.native.state import LANES

if TYPE_CHECKING:
    from mmulator.runtime.compiled import CompiledKernel
    from mmulator.runtime.launch.shape import LaunchShape

LOCAL = "%local"  # where a lane's local memory of a frame begins, as if it were a register
MOST = 4_000_000  # steps of a trail
NEAR = 64  # bytes whose stores are looked for together
WRITES = (MemoryEffect.WRITE, MemoryEffect.COPY, MemoryEffect.ATOMIC, MemoryEffect.REDUCE)
_at = ctypes.string_at


@dataclass(frozen=True, slots=True)
class TrailSite:
    """An instruction of the kernel, and where its registers are.

    instruction: as it is executed.
    read, written: names of registers.
    slots: register -> (byte in the frame, bytes, PTX type).
    plan: places of the registers that it reads, in the order of `read`.
    """

    instruction: Instruction
    read: tuple[str, ...]
    written: tuple[str, ...]
    slots: dict[str, tuple[int, int, str]]
    plan: tuple[tuple[int, int], ...]


class TrailStep(NamedTuple):
    """One instruction that a warp executed or tried.

    number: of the step in the launch.
    place: the warp.
    block: number of the CTA in the grid, x fastest.
    lanes: mask of the lanes that executed it.
    site: its number in the kernel.
    frame: byte in the register file where the function's registers begin.
    before: bytes of the registers that it reads, as they were.
    """

    number: int
    place: WarpPlace
    block: int
    lanes: int
    site: int
    frame: int
    before: tuple[bytes, ...]

    @property
    def warp(self) -> tuple[int, int]:
        """(block, number) of the warp. Its place is that of other warps, too: a cluster gets the memory of one that ended."""
        return self.block, self.place.warp


def functions_of(kernel: CompiledKernel) -> dict[Instruction, str]:
    """The function that each instruction of a kernel belongs to, by its name."""
    every = ((name, block) for name, item in kernel.program.functions.items() for block in item.blocks)
    return {i: name for name, block in every for i in (block.after, *block.body, block.last) if i is not None}


class Trail:
    """The steps of a launch in the CTAs of a cluster.

    cluster: its number in the grid; None: of all.
    only: says which instructions are recorded; None: all.
    sites: the kernel's instructions.
    steps: what was executed, in order.
    pipe: operations of tensor memory.
    reads: (number of a step, first warp, number of the operation, image of shared memory) when a wgmma read its operands.
    read: gives bytes of device memory at a generic address, for tensor maps.
    begun: gives such bytes as the launch found them; None where it cannot write.
    goes_on: whether accesses that cannot be are left out (How.keep_going).
    """

    def __init__(self, cluster: int | None = None, only: Callable[[Instruction], bool] | None = None) -> None:
        self.cluster = cluster
        self.steps: list[TrailStep] = []
        self.images = Images()
        self.pipe = TensorPipe(self.images)
        self._seen: dict[int, int] = {}  # of each cluster: steps that were looked at for tcgen05.st
        self.reads: list[tuple[int, tuple[int, int], int, tuple[bytes, ...]]] = []
        if only is None:
            self.observer = Steps(self.stepped, self._read, carried=self._carried)
        else:
            chosen = only  # for the function below
            self.observer = Steps(
                self.stepped, None, NEVER, lambda grid: [n for n, i in enumerate(grid.kernel.executed) if chosen(i)]
            )
        self.read: Callable[[int, int], bytes] | None = None
        self.begun: Callable[[int, int], bytes | None] | None = None
        self.goes_on = False
        self._sites: dict[int, TrailSite] = {}

    # recording ------------------------------------------------------------------------------------------------------
    def stepped(self, place: WarpPlace, lanes: int, site: int) -> None:
        """Record a step that begins; as in `Steps`."""
        if self.cluster is None or place.resident.number == self.cluster:
            self.record(place, lanes, site, place.frame)

    def record(self, place: WarpPlace, lanes: int, site: int, frame: int) -> None:
        """Record a step, as in `stepped`. frame: byte in the register file where its registers begin."""
        base = place.registers + frame
        steps, plan = self.steps, (self._sites.get(site) or self.site(site)).plan
        before = tuple([_at(base + at, n) for at, n in plan])
        steps.append(TrailStep(self.observer.count - 1, place, place.linear.value, lanes, site, frame, before))
        if len(steps) > MOST:
            raise LimitReached(
                f"more than {MOST:,} instructions of warps in one block: too many to look back on",
                hint="launch fewer steps of the loop, or ask for an element that is stored earlier",
            )

    def _read(self, place: WarpPlace, number: int, site: int) -> None:
        if self.cluster is not None and place.resident.number != self.cluster:
            return
        self.reads.append((self.observer.count, (place.block, place.warp), number, self.images.take(place, place.cta)))

    def _carried(self, place: WarpPlace, transfers: list[np.void]) -> None:
        if self.cluster is not None and place.resident.number != self.cluster:
            return
        cluster = place.resident.number
        stored = any(stores_cells(self.instruction(step)) for step in self.steps[self._seen.get(cluster, 0) :])
        self._seen[cluster] = len(self.steps)
        issued = [
            Issued(t, self.observer.place(int(t["warp"])), self.kernel.executed[int(t["site"])].effects.multiplies)
            for t in transfers
        ]  # fmt: skip
        self.pipe.carried(self.observer.count, place, issued, stored)

    @property
    def kernel(self) -> CompiledKernel:
        """The compiled kernel of the launch."""
        return self.observer.kernel

    @property
    def shape(self) -> LaunchShape:
        """The shape of the launch."""
        return self.observer.shape

    def site(self, number: int) -> TrailSite:
        """The entry of a site, made at first use."""
        found = self._sites.get(number)
        if found is None:
            kernel = self.kernel
            ins = kernel.executed[number]
            name = self._function_of(ins)
            frame = kernel.frames[name]
            uses, defs = uses_and_defs(ins)
            slots = {r: (frame.slots[r], slot_bytes(frame.types[r]), frame.types[r]) for r in uses | defs if r in frame.slots}
            if any(isinstance(o, Symbol) and o.name in kernel.locals[name].offsets for o in _named(ins)):
                slots[LOCAL] = HEADER_LOCAL, 4 * LANES, "u32"
                uses = uses | {LOCAL}
            read = tuple(sorted(slots.keys() & uses))
            found = TrailSite(ins, read, tuple(sorted(slots.keys() & defs)), slots, tuple(slots[r][:2] for r in read))
            self._sites[number] = found
        return found

    def function_of(self, step: TrailStep) -> str:
        """Name of the function that executes a step."""
        return self._function_of(self.instruction(step))

    def _function_of(self, ins: Instruction) -> str:
        return self.kernel.once(functions_of)[ins]

    # values ---------------------------------------------------------------------------------------------------------
    def instruction(self, step: TrailStep) -> Instruction:
        return self.site(step.site).instruction

    def register(self, step: TrailStep, name: str) -> NDArray[np.uint64] | None:
        """A register that a step reads, uint64 [32 lanes], as it was before the step; None if the step does not read it."""
        site = self.site(step.site)
        if name not in site.read:
            return None
        return lanes_of(step.before[site.read.index(name)], site.slots[name][2])

    def guard(self, step: TrailStep) -> int:
        """Mask of the lanes for which the guard of a step's instruction holds, among those that executed it."""
        guard = self.instruction(step).guard
        if guard is None:
            return step.lanes
        value = self.register(step, guard[0].name)
        if value is None:
            return step.lanes
        held = sum(1 << n for n in range(LANES) if value[n])
        return step.lanes & (~held if guard[1] else held)

    # walking back ---------------------------------------------------------------------------------------------------
    def index(self) -> None:
        """Make ready for questions: when the launch is over."""
        self.numbers = [s.number for s in self.steps]
        self._writes: dict[tuple[tuple[int, int], int, str], list[int]] = defaultdict(list)
        self._stores: list[int] = []
        self._spans: NDArray[np.uint64] | None = None
        self._near: dict[tuple[int, int], list[tuple[int, TrailStep]]] = {}  # by cluster and address: stores to bytes near it
        self._clusters: dict[int, int] = {}
        self._issued: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._read_at = {(warp, number): (time, image) for time, warp, number, image in reversed(self.reads)}
        self._image: tuple[Any, tuple[int, bytes] | None] = None, None
        self.products: dict[tuple[int, int, str, int], Any] = {}  # a cache of observation/record/products.py
        self.matrices: dict[int, Any] = {}  # another
        self.places: dict[tuple[int, int], Any] = {}  # a cache of observation/record/memory.py
        self.written: dict[tuple[int, int], list[Any]] = {}  # another
        self.tensor: dict[int, Any] = {}  # of observation/record/tensor_cells.py
        for n, step in enumerate(self.steps):
            site = self.site(step.site)
            if site.instruction.effects.memory in WRITES:
                self._stores.append(n)
            for name in site.written:
                self._writes[step.warp, step.frame, name].append(n)

    def cluster_of(self, block: int) -> int:
        """Number of the cluster of a block, by their numbers in the grid."""
        if block not in self._clusters:
            self._clusters[block] = self.shape.cluster_of(block)
        return self._clusters[block]

    def at(self, number: int) -> TrailStep | None:
        """The step of this number; None if it is of another CTA."""
        n = bisect_left(self.numbers, number)
        return self.steps[n] if n < len(self.steps) and self.numbers[n] == number else None

    def writers(self, step: TrailStep, name: str, lane: int) -> Iterator[tuple[TrailStep, bool]]:
        """Steps that name a register as a result, the newest before a step first, each with whether the lane took part."""
        found = self._writes.get((step.warp, step.frame, name), [])
        for k in range(bisect_left(found, bisect_left(self.numbers, step.number)) - 1, -1, -1):
            writer = self.steps[found[k]]
            if writer.lanes >> lane & 1:
                yield writer, bool(self.guard(writer) >> lane & 1)

    def newest(self, step: TrailStep, name: str) -> TrailStep | None:
        """The newest step before a step that names a register as a result, whatever its lanes; None if there is none."""
        found = self._writes.get((step.warp, step.frame, name), [])
        k = bisect_left(found, bisect_left(self.numbers, step.number))
        return self.steps[found[k - 1]] if k else None

    def writer(self, step: TrailStep, name: str, lane: int) -> TrailStep | None:
        """The newest step before a step that wrote a register in a lane; None if there is none."""
        return next((writer for writer, took in self.writers(step, name, lane) if took), None)

    def is_read(self, name: str, after: TrailStep, before: TrailStep) -> bool:
        """Whether an instruction between two steps of a warp reads a register or a copy of it, but for products."""
        first, last = (bisect_left(self.numbers, s.number) for s in (after, before))
        names = {name}
        for site in (self.site(s.site) for s in self.steps[first + 1 : last] if s.warp == before.warp):
            if names.isdisjoint(site.read) or site.instruction.effects.multiplies:
                continue
            if site.instruction.effects.algebra is not Algebra.COPY:
                return True
            names.update(site.written)
        return False

    def call_of(self, step: TrailStep, lane: int) -> TrailStep | None:
        """The call that entered the function that executes a step; None if it is not known."""
        for n in range(bisect_left(self.numbers, step.number) - 1, -1, -1):
            s = self.steps[n]
            mine = s.warp == step.warp and s.lanes >> lane & 1 and s.frame != step.frame
            if mine and self.instruction(s).effects.ends is Ends.CALL:
                return s
        return None

    def _spanned(self, span: Callable[[Trail, TrailStep], tuple[int, int]]) -> NDArray[np.uint64]:
        if self._spans is None:
            self._spans = np.array([span(self, self.steps[n]) for n in self._stores], np.uint64).reshape(-1, 2)
        return self._spans

    def writes_near(
        self, number: int | None, first: int, span: Callable[[Trail, TrailStep], tuple[int, int]], cluster: int = -1
    ) -> Iterator[TrailStep]:
        """The steps that may write to NEAR bytes, the newest first.

        number: of the step before which they are; None: the end.
        first: generic address of the first byte, a multiple of NEAR.
        span: gives the first address that a step may write, and the one behind the last.
        cluster: whose steps; -1: those of all.
        """
        near = self._near.get((cluster, first))
        if near is None:
            low, high = self._spanned(span).T
            hits = np.flatnonzero((low < np.uint64(first + NEAR)) & (np.uint64(first) < high)).tolist()
            steps = [self.steps[self._stores[k]] for k in hits]
            near = [(s.number, s) for s in steps if cluster < 0 or self.cluster_of(s.block) == cluster]
            self._near[cluster, first] = near
        for k in range(len(near) if number is None else bisect_left(near, (number,)), 0, -1):
            yield near[k - 1][1]

    def stores_to(self, low: int, high: int, span: Callable[[Trail, TrailStep], tuple[int, int]]) -> bool:
        """Whether a step may write to an address from `low` to below `high`. span: as in `writes_before`."""
        return any(first < high and low < last for first, last in self._spanned(span).tolist())

    def operands_read(self, step: TrailStep) -> tuple[int, bytes] | None:
        """(time, image of the CTA's shared memory) when the wgmma that a step issued read its operands."""
        number = bisect_left(self._issues(step.warp), step.number)  # operations of a warp are numbered from 0
        key = (step.block, step.place.warp & ~3), number
        if self._image[0] != key:  # the newest answer
            found = self._read_at.get(key)
            self._image = key, None if found is None else (found[0], b"".join(found[1]))
        return self._image[1]

    def _issues(self, warp: tuple[int, int]) -> list[int]:
        """Numbers of the steps at which a warp issued wgmma."""
        if not self._issued:
            for step in self.steps:
                effects = self.instruction(step).effects
                if effects.queue is Queue.WGMMA and effects.multiplies:
                    self._issued[step.warp].append(step.number)
        return self._issued[warp]


def _named(ins: Instruction) -> Iterator[object]:
    """The operands of an instruction and what their addresses begin with."""
    for o in flatten(ins.operands):
        yield o.base if isinstance(o, Address) else o


def lanes_of(raw: bytes, type_name: str) -> NDArray[np.uint64]:
    """Bytes of a register as uint64 [32 lanes]: a predicate is a bit for each lane; of 128 bits the low half."""
    bits = type_bits(type_name)
    if bits == 1:
        word = int.from_bytes(raw[:4], "little")
        return np.array([word >> n & 1 for n in range(LANES)], np.uint64)
    if bits == 128:
        return np.frombuffer(raw, np.uint64)[::2]
    return np.frombuffer(raw, f"<u{max(bits, 8) // 8}").astype(np.uint64)
