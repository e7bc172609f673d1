"""Modules and functions as a driver has them: PTX comes in, launches go out to the machine."""

from __future__ import annotations

import time
from dataclasses import replace
from math import prod

import numpy as np

from mmulator.compiler.options import CompileOptions, in_clusters
from mmulator.driver.progress import Launching
from mmulator.driver.settings import STRICT, Settings
from mmulator.errors import LaunchError
from mmulator.host.backend import Request
from mmulator.host.module import CPU, Kernel, Module, sanitizers
from mmulator.host.report import Report
from mmulator.launch.arguments import Arguments
from mmulator.launch.limits import check_device
from mmulator.launch.regions import Regions
from mmulator.rules.choice import chosen

Extent = tuple[int, int, int]
# What other people's compilers write relies on ptxas: Triton reads accumulators in flight.
OPTIONS = CompileOptions(waits=True)


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
        self, grid: object, block: object, params: bytes | bytearray, shared: int, cluster: Extent | None
    ) -> tuple[Extent, Extent, Extent | None]:
        """Grid, block and cluster of a launch, if that is one. Raises LaunchError or UnsupportedError."""
        if len(params) != self.parameter_bytes:
            raise LaunchError(f"{self.name} takes {self.parameter_bytes} bytes of parameters, not {len(params)}")
        g, b, _, c = self.kernel.shape(grid, block, shared, self.loaded.device, cluster)
        return g, b, c

    def run(
        self, grid: Extent, block: Extent, params: bytes | bytearray, regions: Regions, shared: int, seed: int,
        settings: Settings, cluster: Extent | None = None, cooperative: bool = False,
    ) -> Report:  # fmt: skip
        """One launch that was checked, and wait. Under another seed than the settings' its blocks begin in another order.

        Raises ExecutionFault; memory keeps what was stored until then.
        """
        launching = Launching(self.name, settings.progress)
        try:
            return self._run(launching, grid, block, params, regions, shared, seed, settings, cluster, cooperative)
        finally:
            launching.close()

    def _run(
        self, launching: Launching, grid: Extent, block: Extent, params: bytes | bytearray, regions: Regions, shared: int,
        seed: int, settings: Settings, cluster: Extent | None, cooperative: bool,
    ) -> Report:  # fmt: skip
        loaded = self.loaded
        arguments = Arguments(np.frombuffer(params, np.uint8), self.offsets, regions=regions)
        other = seed != settings.seed
        request = Request(
            grid, block, arguments, shared, None, seed, settings.threads, settings.timeout, shuffled=other, cluster=cluster,
            cooperative=cooperative, progress=launching.counted, meanwhile=launching.look,
        )  # fmt: skip
        options = in_clusters(OPTIONS, cluster)
        if settings.sanitize:
            sanitizer = sanitizers()(chosen(settings.rules, settings.sanitize == STRICT))
            request = replace(request, sanitizer=sanitizer)
            watched = any(r.written is not None for r in regions)
            options = replace(options, events=sanitizer.instrument, keep_going=settings.keep_going, watched=watched)
        started = time.perf_counter()
        compiled = loaded.module.loaded.compiled.get((self.name, loaded.device, options))
        if compiled is None:
            compiled = self.kernel.compile(loaded.device, lambda _, *far: launching.compiled(*far), options=options)
            launching.runs()
        compile_seconds = time.perf_counter() - started
        ran = CPU.launch(compiled, request)
        return Report.of(self.name, loaded.device, self.static_shared, request, ran, loaded.module.parse_seconds, compile_seconds)
