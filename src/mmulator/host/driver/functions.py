"""Modules and functions as a driver has them: PTX comes in, launches go out to the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from mmulator.base.errors import LaunchError
from mmulator.base.rules.choice import chosen
from mmulator.host import entries
from mmulator.host.driver.inquiries import Arrays, ProgramLaunch
from mmulator.host.driver.progress import Launching
from mmulator.host.driver.streams import measuring
from mmulator.host.module import Kernel, Module, observing
from mmulator.host.report import Report
from mmulator.host.settings import STRICT, Settings
from mmulator.runtime.launch.arguments import Arguments
from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.limits import check_device
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.regions import Regions
from mmulator.runtime.launch.shape import Extent, LaunchShape


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
        arrays: Arrays = list, more: Observer | None = None,
    ) -> Report:  # fmt: skip
        """One launch that was checked, and wait. Under another seed than the settings' its blocks begin in another order.
        arrays: gives the arrays that the door knows among the parameters. more: an observer besides those of the settings.

        Raises ExecutionFault; memory keeps what was stored until then.
        """
        launching = Launching(self.name, settings.progress)
        # What other people's compilers write relies on ptxas: Triton reads accumulators in flight, so such an access waits.
        how = How(
            seed, seed if seed != settings.seed else settings.order, settings.threads, settings.timeout, waits=True,
            sampled=measuring.get() and settings.only_runs, progress=launching.counted, meanwhile=launching.look,
        )  # fmt: skip
        if settings.sanitize:
            from mmulator.host.driver.memory import unfilled

            how.keep_going, how.watched = settings.keep_going, bool(unfilled) or any(r.written is not None for r in regions)
        arguments = Arguments(np.frombuffer(params, np.uint8), self.offsets, regions=regions)
        launch = Launch(self.kernel, shape, arguments, self.loaded.device)
        one = ProgramLaunch(launch, how, settings, [], arrays, launching.compiled)
        if settings.debug:
            launching.close()
            return entries.debugged(one, partial(observers_of, settings))
        one.observers += observers_of(settings, bool(settings.profile), "" if settings.trace else None)
        if more is not None:
            one.observers.append(more)
        run: Callable[[], Report] = one.run
        for inquiry in [getattr(entries, name) for name in settings.inquiries] if settings.inquiries else ():
            run = partial(inquiry.around, one, run) if inquiry.each or seed == settings.seed else run
        if settings.sanitize:
            arguments.arrays = one.arrays  # until the launch is over: it is a circle
        try:
            return run()
        finally:
            launching.close()
            arguments.arrays = list


def observers_of(settings: Settings, profile: bool = False, trace: str | None = None) -> list[Observer]:
    """New observers for one run of a launch of a program. profile, trace: as in `observing` (host/module.py)."""
    rules = chosen(settings.rules, settings.sanitize == STRICT) if settings.sanitize else None
    return observing(bool(settings.sanitize), rules, profile=profile, trace=trace, certify=bool(settings.certify))
