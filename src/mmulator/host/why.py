"""Why elements have their values: a launch is run again from the memory that it found, in the cluster that stored them.

A finished launch comes in, with what it stored and a snapshot of the memory before it; an `Answer` for each element leaves. The
memory is afterwards as the launch left it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.errors import ExecutionFault, InternalError
from mmulator.host.campaign import Snapshot
from mmulator.host.report import Report
from mmulator.launch.arena import bytes_at
from mmulator.launch.arguments import Arguments
from mmulator.launch.launch import How
from mmulator.launch.observers import Observer
from mmulator.launch.shape import LaunchShape
from mmulator.program.addresses import SLOT_PARAM, SLOT_SHIFT
from mmulator.record.asked import Asked, asked
from mmulator.record.memory import last_write, left_out, stores_words
from mmulator.record.names import DeviceNames
from mmulator.record.trail import Trail
from mmulator.record.why import DEPTH, Cause, Explainer

if TYPE_CHECKING:
    from mmulator.diagnostics.watch import Watches
    from mmulator.program.image import ModuleImage

PATIENCE, SLOWER = 2.0, 100  # seconds that one cluster may take alone: at least, and for each second of the launch
Run = Callable[[How, Sequence[Observer]], Report]
Read = Callable[[int, int], bytes]


@dataclass(frozen=True)
class WhyAnswer:
    """Why an element has its value.

    name: of the element.
    cause: the store and what is behind it; None if nothing was stored there.
    notes: what a reader should know of how it was found out.
    """

    name: str
    cause: Cause | None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        from mmulator.record.telling import text

        body = text(self.cause) if self.cause is not None else f"{self.name}: no thread of the launch stored it"
        return "\n".join([body, *(f"note: {note}" for note in self.notes)])

    def as_dict(self) -> dict[str, Any]:
        """The answer as JSON can hold it."""
        from mmulator.record.telling import as_dict

        return {"element": self.name, "cause": as_dict(self.cause) if self.cause else None, "notes": list(self.notes)}


@dataclass(frozen=True)
class Again:
    """A launch that can be run again.

    run: runs it with a How and observers.
    how: as it ran.
    shape: of the launch.
    memory: what it may write, as it was before and as it is now (`keep` was called).
    read: bytes of device memory at a generic address.
    names: of what it was given.
    device: whose arithmetic it has.
    """

    run: Run
    how: How
    shape: LaunchShape
    memory: Snapshot
    read: Read
    names: DeviceNames
    device: str

    def answers(
        self, asked: Sequence[Asked], stores: Sequence[np.void | None], seconds: float, depth: int = DEPTH
    ) -> list[WhyAnswer]:
        """The answer for each element. stores: the last store to each (WatchEntry), or None. seconds: of the launch."""
        values = [self.read(a.start, a.size) for a in asked]
        trails: dict[int, tuple[Trail, tuple[str, ...]]] = {}
        out = []
        try:
            for a, store, value in zip(asked, stores, values):
                if store is None:
                    out.append(WhyAnswer(a.name, None, self._left_out(a, seconds)))
                    continue
                cluster = self._cluster(int(store["cta"]))
                if cluster not in trails:
                    trails[cluster] = self._trail(cluster, a, value, seconds)
                trail, notes = trails[cluster]
                out.append(self._answer(trail, a, value, notes, depth))
        finally:
            self.memory.leave()
        return out

    def _left_out(self, a: Asked, seconds: float) -> tuple[str, ...]:
        """Why no store wrote an element, if one that would have was predicated off."""
        found = self._recorded(Trail(only=stores_words), replace(self.how, threads=1, progress=None))
        missed = left_out(found, a.start)
        if missed is None:
            return ("no store came to its address: no thread computes it, or all that do branch around the store",)
        trail, _ = self._trail(self._cluster(missed[0].block), a, self.read(a.start, a.size), seconds)
        again = left_out(trail, a.start)
        return () if again is None else (Explainer(trail, self.names, self.device).left_out(*again),)

    def _recorded(self, trail: Trail, how: How) -> Trail:
        """A trail of another run from the memory that the launch found; of a run that ends in a fault as far as it came."""
        self.memory.restore()
        trail.read = self.read
        with suppress(ExecutionFault):  # LimitReached among them
            self.run(replace(how, keep_going=False, watched=False), [trail.observer])
        trail.index()
        return trail

    def _answer(self, trail: Trail, a: Asked, value: bytes, notes: tuple[str, ...], depth: int) -> WhyAnswer:
        found = last_write(trail, None, a.start)
        if found is None:
            return WhyAnswer(a.name, None, (*notes, "its store is of a kind that is not told yet"))
        bits = int.from_bytes(value, "little")
        explainer = Explainer(trail, self.names, self.device, depth)
        return WhyAnswer(a.name, explainer.written(found, a.name, bits, a.type, a.size, ()), notes)

    def _cluster(self, block: int) -> int:
        """Number of a block's cluster, x fastest."""
        (gx, gy, _), (cx, cy, cz) = self.shape.grid, self.shape.cluster
        x, y, z = block % gx // cx, block // gx % gy // cy, block // (gx * gy) // cz
        return x + gx // cx * (y + gy // cy * z)

    def _trail(self, cluster: int, a: Asked, value: bytes, seconds: float) -> tuple[Trail, tuple[str, ...]]:
        """The steps of a cluster, and notes. First it runs alone; where that gives another value, the whole launch."""
        limit = PATIENCE + SLOWER * seconds
        whole = replace(self.how, threads=1, progress=None)
        alone = replace(whole, part=(cluster, cluster + 1), timeout=limit)
        for how in (alone, whole):
            trail = self._recorded(Trail(cluster), how)
            if self.read(a.start, a.size) == value:
                break
        same = self.read(a.start, a.size) == value
        note = "run again, the block stored another value: what it stores depends on the order in which warps run"
        return trail, () if same else (note,)


class About:
    """Questions about a launch, asked before it runs.

    asked: the elements.
    run: launches with a How and observers.
    how, shape, arguments, device: of the launch.
    names: of what it was given.
    image: memory of the module's variables.
    memory: what the launch may write, besides the variables.
    """

    def __init__(
        self, asked: Sequence[Asked], run: Run, how: How, shape: LaunchShape, arguments: Arguments, device: str,
        names: DeviceNames, image: ModuleImage, memory: Iterable[tuple[int, np.ndarray]],
    ) -> None:  # fmt: skip
        self.asked, self.arguments = asked, arguments
        self.memory = Snapshot([*memory, *((start, a) for start, a, writable in image.buffers if writable)])
        constants = [(start, a.view(np.uint8).reshape(-1)) for start, a, _ in image.buffers]
        regions = [(b.start, bytes_at(b.host, b.size)) for b in (*arguments.buffers, *arguments.regions)]
        self._bytes = [*constants, *regions]
        self.again = Again(run, how, shape, self.memory, self._read, names, device)

    @property
    def places(self) -> list[tuple[int, int]]:
        """Addresses of the elements."""
        return [(a.start, a.end) for a in self.asked]

    def answers(self, watches: Watches, report: Report, depth: int = DEPTH) -> list[WhyAnswer]:
        """The answers, when the launch is over. depth: how many instructions are told one behind the other."""
        self.memory.keep()
        stores = [watches.last(n) for n in range(len(self.asked))]
        return self.again.answers(self.asked, stores, report.seconds["run"], depth)

    def _read(self, address: int, size: int) -> bytes:
        if address >> SLOT_SHIFT == SLOT_PARAM:
            offset = address - (SLOT_PARAM << SLOT_SHIFT)
            return self.arguments.params[offset : offset + size].tobytes()
        for start, data in self._bytes:
            if start <= address < start + len(data):
                return data[address - start : address - start + size].tobytes()
        raise InternalError(f"no memory at {address:#x}")


def about_arrays(
    why: object, run: Run, how: How, shape: LaunchShape, arguments: Arguments, device: str, parameters: Sequence[str],
    named: Mapping[str, np.ndarray], image: ModuleImage,
) -> About:  # fmt: skip
    """Questions about a launch whose arguments are arrays.

    why: what the user asks (record/asked.py).
    parameters: names of the kernel's parameters.
    named: arrays that the caller has names for.
    run, how, shape, arguments, device, image: as in `About`.

    Raises LaunchError for what is no element of an argument.
    """
    names = DeviceNames.of(arguments, parameters, named)
    memory = [(b.start, bytes_at(b.host, b.size)) for b in arguments.buffers if b.writable]
    return About(asked(why, names, parameters), run, how, shape, arguments, device, names, image, memory)
