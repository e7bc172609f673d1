"""One of two kernels that are compared, with its launch: what runs, which arrays it was given, and its expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.host.campaign import Snapshot
from mmulator.isa.types import TYPES
from mmulator.observation.record.launches.answers import read
from mmulator.observation.record.names import DeviceArray, DeviceNames
from mmulator.observation.record.trail import Trail
from mmulator.observation.same.expressions import Expressions
from mmulator.observation.same.graph import ExpressionGraph, Pieces, cut, joined
from mmulator.runtime.launch.arena import bytes_at, pointer
from mmulator.runtime.launch.launch import How, Launch

if TYPE_CHECKING:
    from mmulator.host.module import Kernel
    from mmulator.runtime.launch.observers import Observer


class Side:
    """One of the two kernels, with its launch.

    kernel, launch: what runs.
    arrays: the memory that it was given: arrays by the number of the argument, other memory behind the last argument.
    """

    def __init__(self, kernel: Kernel, given: Mapping[str, Any], device: str | None) -> None:
        self.kernel = kernel
        self.launch: Launch = kernel.prepared(
            given["grid"], given["block"], given["args"], given.get("shared", 0), device or kernel.module.default_device,
            given.get("cluster"), memory=given.get("memory", ()),
        )  # fmt: skip
        self.names = DeviceNames.of(self.launch, {})
        self.memory = Snapshot(self.launch.writable())
        values = self.launch.arguments.values
        self.arrays = {n: value for n, value in enumerate(values) if isinstance(value, np.ndarray) and value.nbytes}
        self.places: list[tuple[int, DeviceArray]] = []
        every = (*self.launch.arguments.buffers, *self.launch.arguments.regions)
        for n, array in self.arrays.items():
            buffer = next(b for b in every if _host(b) == pointer(array))
            name = kernel.signature.params[n].name
            self.places.append((n, DeviceArray(name, buffer.start, array.nbytes, array.shape, array.itemsize, array.dtype)))
        starts = {place.start for _, place in self.places}
        for n, r in enumerate((r for r in every if r.start not in starts and r.size), len(values)):
            array = r.owner if isinstance(r.owner, np.ndarray) and r.owner.nbytes == r.size else bytes_at(r.host, r.size)
            self.arrays[n] = array
            self.places.append((n, DeviceArray(r.label, r.start, r.size, array.shape, array.itemsize, array.dtype)))

    def run(self, observers: Sequence[Observer] = ()) -> dict[int, np.ndarray]:
        """The contents of the arrays when the launch is over; they are afterwards as they were."""
        try:
            self.launch.run(How(threads=1), observers)
            return {n: a.copy() for n, a in self.arrays.items()}
        finally:
            self.memory.restore()

    def expressions(self, graph: ExpressionGraph, keys: Mapping[int, int]) -> tuple[Expressions, dict[int, np.ndarray]]:
        """The expressions of the launch, and what it left in its arrays. keys: the input that each array is."""
        trail = Trail()
        given = self.launch.arguments
        regions = [(r.start, bytes_at(r.host, r.size)) for r in (*given.buffers, *given.regions)]
        regions += [(start, a.view(np.uint8).reshape(-1)) for start, a, _ in self.kernel.module.image.buffers]
        trail.read = partial(read, given.params, regions)
        left = self.run([trail.observer])
        trail.index()
        kinds = [(p.name, p.type) for p in self.kernel.function.params]

        def inputs(address: int, size: int) -> Pieces | None:
            found = next(((n, a) for n, a in self.places if a.start <= address and address + size <= a.start + a.size), None)
            if found is None:
                return None
            number, array = found
            step, first = array.itemsize, (address - array.start) // array.itemsize
            last = (address + size - 1 - array.start) // step
            whole = joined([
                graph.result("input", (keys[number], at, str(array.dtype)), (), 8 * step) for at in range(first, last + 1)
            ])
            return cut(whole, 8 * (address - array.start - first * step), 8 * size)

        def parameter(name: str, at: int, size: int) -> Pieces | None:
            number, kind = next((n, kind) for n, (own, kind) in enumerate(kinds) if own == name)
            if kind not in TYPES or TYPES[kind].kind != "float":
                return None
            found = graph.result("input", ("parameter", number, repr(given.values[number])), (), TYPES[kind].bits)
            return cut(found, 8 * at, 8 * size)

        return Expressions(trail, graph, inputs, parameter, self.launch.device), left


def _host(buffer: Any) -> int:
    owner = buffer.owner[0] if isinstance(buffer.owner, tuple) else buffer.owner
    return pointer(owner) if isinstance(owner, np.ndarray) else int(buffer.host)
