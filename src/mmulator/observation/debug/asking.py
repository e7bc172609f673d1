"""Why an element has its value at a stop: the launch is run again up to there, and its steps are looked back on."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from mmulator.base.errors import ExecutionFault
from mmulator.host.campaign import Snapshot
from mmulator.observation.debug.control import Controlled
from mmulator.observation.record.launches.answers import WhyAnswer, read
from mmulator.observation.record.memory import last_write, stores_words
from mmulator.observation.record.names import Asked
from mmulator.observation.record.sources import Sources
from mmulator.observation.record.steps import WarpPlace
from mmulator.observation.record.trail import Trail
from mmulator.observation.record.why import Explainer
from mmulator.ptx.tree import Instruction


class Enough(Exception):
    """The end of a run that has come to its step."""


class TrailUntil(Trail):
    """The steps of a launch before one of them.

    end: number of that step.
    cluster, only: as in `Trail`.
    """

    def __init__(self, end: int, cluster: int | None = None, only: Callable[[Instruction], bool] | None = None) -> None:
        super().__init__(cluster, only)
        self.end = end
        self.observer.first = min(self.observer.first, end)

    def stepped(self, place: WarpPlace, lanes: int, site: int) -> None:
        if self.observer.count > self.end:
            raise Enough
        super().stepped(place, lanes, site)


def why(launch: Controlled, memory: Snapshot, asked: Asked, end: int) -> str:
    """Why an element has its value before a step, in words.

    launch: runs again.
    memory: what it may write, as it was before; afterwards it is as before the step.
    asked: the element.
    end: number of the step.
    """
    stores = _run(launch, memory, TrailUntil(end, only=stores_words))
    found = last_write(stores, None, asked.start)
    if found is None:
        return f"{asked.name}: no store wrote it before step {end}"
    cluster = launch.shape.cluster_of(found.step.block)
    trail = _run(launch, memory, TrailUntil(end, cluster))
    found = last_write(trail, None, asked.start)
    if found is None:
        return f"{asked.name}: its store is of a kind that is not told yet"
    bits = int.from_bytes(_read(launch, trail, asked.start, asked.size), "little")
    explainer = Explainer(trail, launch.names, launch.device)
    cause = explainer.written(found, asked.name, bits, asked.type, asked.size, ())
    sources = tuple(Sources(explainer).gather(found, asked.type, asked.size).sentences())
    return str(WhyAnswer(asked.name, cause, sources=sources))


def _run(launch: Controlled, memory: Snapshot, trail: TrailUntil) -> TrailUntil:
    memory.restore()
    trail.read = lambda address, size: _read(launch, trail, address, size)
    how = replace(launch.how, threads=1, progress=None, meanwhile=None, timeout=None, keep_going=False, watched=False)
    with suppress(ExecutionFault, Enough):
        launch.run(how, [trail.observer])
    trail.index()
    return trail


def _read(launch: Controlled, trail: Trail, address: int, size: int) -> bytes:
    """Bytes of device memory, or of the parameters, also where the launch is over and its grid has left its kernel."""
    watched = trail.observer
    regions = (*launch.memory, *((start, array) for start, array, _ in watched.kernel.image.buffers))
    return read(watched.grid.params, ((start, array.reshape(-1).view("u1")) for start, array in regions), address, size)
