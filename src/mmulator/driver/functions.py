"""Modules and functions as a driver has them: PTX comes in, launches go out to the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from mmulator.driver.clock import measuring
from mmulator.driver.progress import Launching
from mmulator.errors import LaunchError
from mmulator.host.module import Kernel, Module, sanitizers
from mmulator.host.report import Report
from mmulator.launch.arguments import Arguments
from mmulator.launch.launch import How
from mmulator.launch.limits import check_device
from mmulator.launch.observers import Observer
from mmulator.launch.regions import Regions
from mmulator.launch.shape import Extent, LaunchShape
from mmulator.record.names import DeviceArray
from mmulator.rules.choice import chosen
from mmulator.settings import STRICT, Settings

Arrays: TypeAlias = Callable[[], Sequence[DeviceArray]]


class LoadedModule:
    """PTX that is loaded for a device. Raises what Module.load raises."""

    def __init__(self, ptx: str, name: str, device: str) -> None:
        self.module = Module.load(ptx, name=name)
        self.device = check_device(device, self.module.target)

    def function(self, name: str) -> Function:
        """Raises LaunchError if there is no such kernel."""
        return Function(self, self.module[name])


class Function:
    """A kernel of a loaded module. params, offsets, parameter_bytes: its parameters, where they lie, and how long they are.
    static_shared: bytes that it declares. max_threads: of a block."""

    def __init__(self, loaded: LoadedModule, kernel: Kernel) -> None:
        self.loaded, self.kernel = loaded, kernel
        self.name = kernel.name
        self.params, self.offsets, self.parameter_bytes = (
            kernel.signature.params, kernel.signature.offsets, kernel.signature.bytes,
        )  # fmt: skip
        self.static_shared = kernel.static_shared
        directives = kernel.head.directives
        self.max_threads = prod(int(n) for n in directives.get("maxntid") or directives.get("reqntid") or (1024,))

    def check(
        self, grid: object, block: object, params: bytes | bytearray | None, shared: int, cluster: Extent | None,
        cooperative: bool,
    ) -> LaunchShape:  # fmt: skip
        """The shape of a launch, if it is one. params: None if they have the right length. Raises LaunchError or
        UnsupportedError."""
        if params is not None and len(params) != self.parameter_bytes:
            raise LaunchError(f"{self.name} takes {self.parameter_bytes} bytes of parameters, not {len(params)}")
        shape = self.kernel.shape(grid, block, shared, self.loaded.device, cluster)
        return replace(shape, cooperative=True) if cooperative else shape

    def run(
        self, shape: LaunchShape, params: bytes | bytearray, regions: Regions, seed: int, settings: Settings,
        arrays: Arrays = list,
    ) -> Report:  # fmt: skip
        """One launch that was checked, and wait. Under another seed than the settings' its blocks begin in another order.
        arrays: gives the arrays that the door knows among the parameters.

        Raises ExecutionFault; memory keeps what was stored until then.
        """
        launching = Launching(self.name, settings.progress)
        # What other people's compilers write relies on ptxas: Triton reads accumulators in flight, so such an access waits.
        how = How(
            seed, seed if seed != settings.seed else None, settings.threads, settings.timeout, waits=True,
            sampled=measuring.get() and settings.only_runs, progress=launching.counted, meanwhile=launching.look,
        )  # fmt: skip
        if settings.debug:
            from mmulator.driver.debugged import debugged

            launching.close()
            return debugged(settings, self, shape, Arguments(np.frombuffer(params, np.uint8), self.offsets, regions=regions),
                            regions, how, arrays)  # fmt: skip
        observers: list[Observer] = []
        if settings.sanitize:
            observers.append(sanitizers()(chosen(settings.rules, settings.sanitize == STRICT)))
            how.keep_going, how.watched = settings.keep_going, any(r.written is not None for r in regions)
        if settings.profile:
            from mmulator.record.counts import Counting

            observers.append(Counting())
        moments = None
        if settings.trace:
            from mmulator.record.moments import Moments

            moments = Moments()
            observers.append(moments)
        try:
            arguments = Arguments(np.frombuffer(params, np.uint8), self.offsets, regions=regions)
            what = shape, arguments, regions, how, observers, settings, launching.compiled, arrays
            if settings.looks and seed == settings.seed:
                from mmulator.driver.looked import looked_at

                return looked_at(settings, self, shape, arguments, how, observers, arrays, partial(self._run, *what))
            return self._run(*what)
        finally:
            launching.close()
            if moments is not None:
                from mmulator.driver.traced import traces

                traces(settings.trace).add(moments.events)

    def _run(
        self, shape: LaunchShape, arguments: Arguments, regions: Regions, how: How, observers: list[Observer], settings: Settings,
        compiled: Any, arrays: Arrays,
    ) -> Report:  # fmt: skip
        if settings.why and how.seed == settings.seed:
            return self._asked(shape, arguments, regions, how, observers, settings, compiled, arrays)
        return self.kernel.run(shape, arguments, self.loaded.device, how, observers, compiled)

    def _asked(
        self, shape: LaunchShape, arguments: Arguments, regions: Regions, how: How, observers: list[Observer], settings: Settings,
        compiled: Any, arrays: Arrays,
    ) -> Report:  # fmt: skip
        """The launch, and why elements have their values."""
        from mmulator.diagnostics.watch import Watches
        from mmulator.driver.why import asking

        run = partial(self.kernel.run, shape, arguments, self.loaded.device)
        other, against = None, settings.why_against
        if against:
            from mmulator.host.why import other_of

            every = partial(self.kernel.run, shape, arguments)
            other = other_of(int(against) if against.isdigit() else against, self.loaded.device, how.seed, every)
        questions = asking(*settings.asked)
        about = questions.about(self, shape, arguments, regions, how, run, arrays, other)
        if about is None:
            return run(how, observers, compiled)
        watches = Watches([], [], arguments, about.about.places)
        report: Report = run(how, [*observers, watches], compiled)
        about.answers(watches, report)
        return report
