"""The CPU as a backend: PTX to machine code, thread blocks on its cores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.base.codegen.locks import Lock, no_collection, no_fork
from mmulator.base.errors import ExecutionFault, LaunchError
from mmulator.base.source import Source
from mmulator.compiler import warm
from mmulator.host.backend import HOW, Chip
from mmulator.host.text import Text
from mmulator.ptx.program.image import ModuleImage
from mmulator.runtime.compiled import CompiledKernel, Lowered
from mmulator.runtime.launch.launch import How, Launch, Progress, Ran
from mmulator.runtime.launch.limits import PORTABLE_CLUSTER, check_local
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.printing import CUT
from mmulator.runtime.launch.resident import grid_for, keep
from mmulator.runtime.launch.shape import LaunchShape
from mmulator.runtime.launch.work import Work
from mmulator.runtime.launch.workers import Diagnosis, Workers
from mmulator.runtime.options import DEFAULT, CompileOptions

if TYPE_CHECKING:
    from mmulator.compiler.kernel import Jit
    from mmulator.ptx.tree import ParsedModule as Tree


class CpuModule:
    """A module: memory for its variables, and the machine code of its kernels as they are compiled."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.image = ModuleImage(text.outline)
        self.image.initialise()
        self.compiled: dict[tuple[str, str, CompileOptions], CompiledKernel] = {}
        self.compiling = {f.name: Lock() for f in text.outline.entries}
        self.uncompiled = {f.name for f in text.outline.entries}  # kernels that need the tree, for some device


class Cpu:
    """Stands for a chip where one is asked for (`chip`); a kernel names the device whose arithmetic it wants itself."""

    def __init__(self, device: str = "sm_90") -> None:
        number = int(device[3:])
        self.chip = Chip("mmulator", (number // 10, number % 10), "none")
        self.broken = False

    def load(self, ptx: Tree | str) -> CpuModule:
        return CpuModule(Text.load(Source("<ptx>", ptx)) if isinstance(ptx, str) else Text.of(ptx))

    def compile(
        self, module: CpuModule, entry: str, device: str, options: CompileOptions = DEFAULT, progress: Progress | None = None
    ) -> CompiledKernel:
        """Made once. Raises LaunchError too: for what takes more memory than there is."""
        key = entry, device, options
        compiled = module.compiled.get(key)
        if compiled is None:
            with module.compiling[entry], no_collection():  # of several threads one does it
                compiled = module.compiled.get(key) or _compile(module, key, progress)
        return compiled

    def launch(self, launch: Launch, how: How = HOW, observers: Sequence[Observer] = ()) -> Ran:
        kernel = launch.kernel
        try:
            grid, spare = grid_for(launch, how, observers)
            workers = Workers(grid, how, diagnosis, spare)
            outcome = workers.run()
            kernel.blocks.ran(outcome.seconds)
        except ExecutionFault as fault:
            for observer in observers:
                observer.failed(fault)
            raise
        except MemoryError:
            raise LaunchError("this machine has not enough memory for the launch", hint="fewer threads of the host") from None
        text = grid.printer.text()
        work = Work(kernel, outcome.counts)
        known = sorted((*kernel.notes, *_questions(kernel, work)), key=lambda note: not note.startswith("inferred"))
        notes = [*known, *_notes(launch.shape, workers), *([CUT] if grid.printer.cut else ())]
        ran = Ran(outcome.seconds, outcome.workers, work, kernel.from_cache, notes, text)
        for observer in observers:
            observer.tell(ran, grid)
        if not how.slice:
            keep(grid, workers.residents)
        return ran

    def read(self, module: CpuModule, variable: str) -> bytes:
        return module.image.bytes_of(variable).tobytes()

    def write(self, module: CpuModule, variable: str, data: bytes) -> None:
        memory = module.image.bytes_of(variable)
        if len(data) != memory.nbytes:
            raise LaunchError(f"{variable} has {memory.nbytes} bytes, not {len(data)}")
        memory[:] = np.frombuffer(data, np.uint8)

    def close(self, module: CpuModule) -> None:
        module.compiled.clear()


def _questions(kernel: CompiledKernel, work: Work) -> list[str]:
    """Notes about products in tensor memory."""
    if not kernel.matrix.tensor:
        return []
    from mmulator.runtime.launch.tensor_tables import questions  # it loads layouts and the twin, which other kernels do not need

    return questions(kernel.matrix.tensor, work.tallies)


def diagnosis() -> Diagnosis:
    """Says why a run ends. It knows all instructions, so it is loaded when there is something to say."""
    with no_fork:
        from mmulator.sanitizer.diagnostics.faults import describe as faults
    return faults


def _notes(shape: LaunchShape, workers: Workers) -> list[str]:
    """Notes on the launch, whatever the kernel."""
    said = []
    if workers.sample is not None:
        said.append(f"{workers.clusters * shape.cluster_size} of {shape.ctas} blocks ran, to measure: counts are as if all had")
    if shape.cluster_size > PORTABLE_CLUSTER:
        said.append(f"a cluster of {shape.cluster_size} blocks is not portable: a GPU runs it only where the kernel has the "
                    "attribute CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED")  # fmt: skip
    return said


def _compile(module: CpuModule, key: tuple[str, str, CompileOptions], progress: Progress | None) -> CompiledKernel:
    entry, device, options = key

    def lowering() -> Jit:
        tree, (jit, reached) = module.text.tree, _compiler()
        function = next(f for f in tree.entries if f.name == entry)
        check_local(reached(tree, function).functions.values())
        return jit(tree, function, module.image, device, options)

    def again() -> Lowered:
        return lowering().written()

    text = module.text
    place = warm.key(text.source.text, entry, device, options) if text.known else None
    compiled = warm.find(place, module.image, lowering) if place else None
    if compiled is None:
        compiled = lowering().compile(progress)
        if place:
            warm.keep(place, compiled)
            if options.events is None and not options.step:  # seldom asked for its source
                compiled.lower = again
                module.uncompiled.discard(entry)
                if not module.uncompiled:  # not before: the text would be read again for each of its kernels
                    text.forget_tree()
    elif progress:
        progress(compiled.instructions, compiled.instructions)
    module.compiled[key] = compiled
    return compiled


@cache
def _compiler() -> tuple[Any, Any]:
    """The compiler with all its tables: imported by who needs it. A forked child cannot wait for an import."""
    with no_fork:
        from mmulator.compiler.kernel import Jit
        from mmulator.ptx.program.calls import reached
    return Jit, reached

