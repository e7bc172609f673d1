"""`Module` and `Kernel`: what a user holds. Module.load -> module[entry] -> launch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from mmulator.base.codegen.locks import TimeUp, no_fork, time_limit
from mmulator.base.errors import LaunchError, short_traceback, shown, undefined
from mmulator.base.lazy import cached_property
from mmulator.base.tables import element, html_table
from mmulator.host import entries
from mmulator.host.cpu import Cpu, CpuModule
from mmulator.host.instead import stack
from mmulator.host.report import Report
from mmulator.host.text import Text, loading_within
from mmulator.host.variables import Variables
from mmulator.isa.chips import as_device
from mmulator.isa.targets import Target, default_device
from mmulator.ptx.program.image import ModuleImage
from mmulator.ptx.program.outline import KernelHead
from mmulator.ptx.text import read_source
from mmulator.runtime.compiled import CompiledKernel
from mmulator.runtime.launch.arguments import Signature
from mmulator.runtime.launch.launch import How, Launch, compile_options
from mmulator.runtime.launch.limits import (
    MAX_BLOCK,
    MAX_GRID,
    as_order,
    check_block,
    check_cooperative,
    check_device,
    check_shared,
    cluster_shape,
    dimensions,
    seconds,
    sequence,
    watched,
    whole,
)
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.regions import NONE, Region, apart
from mmulator.runtime.launch.shape import Extent, LaunchShape
from mmulator.runtime.options import DEFAULT, CompileOptions

if TYPE_CHECKING:
    from distributed import Client

    from mmulator.ptx.tree import Function
    from mmulator.ptx.tree import ParsedModule as Tree
    from mmulator.sanitizer.diagnostics.sanitizer import Sanitizer
    from mmulator.sanitizer.diagnostics.watch import Watched

Progress = Callable[[str, int, int], None]
CPU = Cpu()
SANITIZE = (True, False, "strict", "raise")
_FLAGS = {"keep_going": "", "profile": "", "cooperative": "", "certify": "needed"}  # and another word that each may be


@cache
def _sanitizer() -> type[Sanitizer]:
    """Sanitizer, with all that it finds: imported by who wants it. A forked child cannot wait for an import."""
    with no_fork:
        from mmulator.sanitizer.diagnostics.sanitizer import Sanitizer
    return Sanitizer


def observing(
    sanitize: bool, rules: frozenset[str] | None = None, strict: bool = False, profile: bool = False, trace: str | None = None,
    certify: bool = False,
) -> list[Observer]:
    """New observers for one run of a launch.

    sanitize: whether undefined behaviour is looked for.
    rules, strict: which (sanitizer/diagnostics/sanitizer.py).
    profile: whether it is counted what each instruction does.
    trace: the file that receives what happened when, "" for none: the observer then has it; None: it is not noted.
    certify: whether the run is evidence for a certificate.
    """
    observers: list[Observer] = [_sanitizer()(rules, strict, certify)] if sanitize else []
    if profile:
        observers.append(entries.Counting())
    if trace is not None:
        observers.append(entries.Moments(trace))
    return observers


def _check(given: Mapping[str, Any]) -> None:
    """Refuse values of no use for parameters of `Kernel.launch`. Raises LaunchError."""
    device, progress = given["device"], given["progress"]
    if device is not None and not isinstance(getattr(device, "sm", device), str):
        raise LaunchError(f"device is of type {type(device).__name__}, not a name such as 'sm_90'")
    if progress is not None and not callable(progress):
        raise LaunchError(f"progress is of type {type(progress).__name__}, not a function")
    if given["sanitize"] not in SANITIZE:
        raise LaunchError(f"sanitize is {shown(given['sanitize'])}, not True, False, 'strict' or 'raise'")
    for name, word in _FLAGS.items():
        if given[name] not in (True, False) and given[name] != (word or False):
            also = f", nor {word!r}" if word else ""
            raise LaunchError(f"{name} is of type {type(given[name]).__name__}, not True or False{also}")


class Module(Mapping[str, "Kernel"]):
    """A verified PTX module. `module["gemm"]` is a Kernel; iteration gives the kernels' names.

    A kernel is found by its name, by its C++ name with or without template arguments and parameters, or by a part of
    either that no other kernel has. `variables` are the module's .global and .const variables; they keep their values
    from launch to launch, as on a GPU.
    """

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, text: Text, parse_seconds: float) -> None:
        self.text, self.source = text, text.source
        self.parse_seconds = parse_seconds
        self.loaded = CpuModule(text)
        self._kernels = {head.name: Kernel(self, head) for head in text.outline.entries}

    @classmethod
    @short_traceback
    def load(
        cls, ptx: str | Path, *, name: str | None = None, timeout: float | None = None, device: str | None = None,
        entry: str | None = None, nvcc: str | Sequence[str] = (),
    ) -> Module:  # fmt: skip
        """Parse and verify PTX, wherever it lies.

        ptx: a path, or the text itself (a string with a line break or a `.version` directive). A `.cu` is compiled by nvcc; of a
        program, library, object, archive, fatbin or cubin it is the PTX in it. name: what messages call the text. timeout:
        seconds that it may take. device: what a `.cu` is compiled for, or whose PTX is taken where there is PTX for several;
        default: sm_90. entry: a kernel; of several modules in a file that one is loaded which has it, without it all are linked.
        nvcc: its flags, such as "-Iinclude -std=c++17".

        Raises PtxSyntaxError, InvalidInstructionError or UnsupportedError, with line, column and caret; LimitReached;
        MmulatorError if the file cannot be read or compiled; OperandError for neither a path nor a text.
        """
        if any(name.startswith("MMULATOR_") for name in os.environ):
            from mmulator.host.settings import check_variables

            check_variables()
        device = as_device(device) if device is not None else None
        flags = nvcc
        if isinstance(nvcc, str):
            import shlex

            flags = shlex.split(nvcc)
        with loading_within(timeout, name or str(ptx)):
            source = read_source(ptx, name, device, entry, [str(flag) for flag in flags])
        start = time.perf_counter()
        with loading_within(timeout, source.name):
            text = Text.load(source)
        return cls(text, time.perf_counter() - start)

    @property
    def tree(self) -> Tree:
        return self.text.tree

    @property
    def target(self) -> Target:
        return self.text.outline.target

    @property
    def version(self) -> tuple[int, int]:
        return self.text.outline.version

    @cached_property
    def default_device(self) -> str:
        """The chip whose arithmetic a launch has that names none."""
        return default_device(self.target)

    @property
    def image(self) -> ModuleImage:
        return self.loaded.image

    @cached_property
    def variables(self) -> Variables:
        """The .global and .const variables: `module.variables["coef"]` is an array on the memory that kernels see."""
        return Variables(self.source.name, self.text.outline.variables, self.image)

    @short_traceback
    def __getitem__(self, entry: str) -> Kernel:
        kernel = self._kernels.get(entry) if isinstance(entry, str) else None
        return kernel or self._kernels[self._chosen(entry)]

    def _chosen(self, entry: object) -> str:
        """The full name of a kernel."""
        from mmulator.base.names import choose

        name = self.source.name
        if not isinstance(entry, str):
            raise LaunchError(f"a kernel of {name} is found by its name, not by {type(entry).__name__}")
        try:
            return choose(self._kernels, entry, f"{name} has no kernel")
        except LaunchError as error:
            if entry in self.variables:
                error.hint = f"{entry} is a variable: module.variables[{entry!r}]"
            raise

    def __contains__(self, entry: object) -> bool:
        return entry in self._kernels

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def _head(self) -> str:
        major, minor = self.version
        return f"{self.source.name}: PTX {major}.{minor} for {self.target}"

    def __repr__(self) -> str:
        from mmulator.base.demangle import demangle

        names = ", ".join(demangle(name) for name in list(self)[:4]) + (", ..." if len(self) > 4 else "")
        return f"<Module {self._head()}; kernels: {names or 'none'}>"

    def _repr_html_(self) -> str:
        from mmulator.base.demangle import demangle

        rows = [(demangle(k.name), ", ".join(type for _, type in k._parameters())) for k in self.values()]
        variables = self.variables._repr_html_() if self.variables else ""
        return element("p", self._head()) + html_table(("kernel", "parameters"), rows) + variables


class Kernel:
    """An .entry of a module."""

    def __init__(self, module: Module, head: KernelHead) -> None:
        self.module, self.head, self.name = module, head, head.name
        self.static_shared = head.static_shared  # bytes that the kernel and the functions it reaches declare

    @cached_property
    def function(self) -> Function:
        """The parsed function of the kernel."""
        return next(f for f in self.module.tree.entries if f.name == self.name)

    @short_traceback
    def compile(
        self, device: str | None = None, progress: Progress | None = None, *, options: CompileOptions = DEFAULT
    ) -> CompiledKernel:
        """Machine code for a device's arithmetic; made once. Raises UnsupportedError naming instruction and line."""
        device = as_device(device) if device else self.module.default_device
        report = (lambda done, total: progress("compile", done, total)) if progress else None
        return CPU.compile(self.module.loaded, self.name, device, options, report)

    def _compile_within(
        self, timeout: float | None, device: str, progress: Progress | None, options: CompileOptions
    ) -> CompiledKernel:
        done = [0, 0]

        def report(phase: str, *at: int) -> None:
            done[:] = at
            if progress:
                progress(phase, *at)

        try:
            with time_limit(timeout):
                return self.compile(device, report, options=options)
        except TimeUp:
            how_far = f": {done[0]} of {done[1]} instructions are done" if done[1] else ""
            raise LaunchError(
                f"{self.name} was not compiled within {timeout:g} s{how_far}; nothing was run",
                hint="what is compiled is kept: the next launch goes on from there, or allow more time",
            ) from None

    @cached_property
    def signature(self) -> Signature:
        """The parameters."""
        return Signature(self.head)

    @cached_property
    def _checked(self) -> dict[tuple[Any, ...], LaunchShape]:
        """Shapes of launches that were checked."""
        return {}

    def shape(self, grid: Any, block: Any, shared: Any, device: str, cluster: Any = None) -> LaunchShape:
        """The shape of a launch, if it is one. Raises LaunchError or UnsupportedError.

        The grid is in blocks. A kernel with .blocksareclusters is given it in clusters, and a block of 1 or its own.
        """
        key = grid, block, shared, device, cluster
        try:
            found = self._checked.get(key)
        except TypeError:  # a list
            found = None
        if found is None:
            device = check_device(device, self.module.target)
            g, b = dimensions(grid, "grid", MAX_GRID), dimensions(block, "block", MAX_BLOCK)
            in_clusters = "blocksareclusters" in self.head.directives
            if in_clusters and b == (1, 1, 1):
                b = self._required_block or b
            self._check_directives(b, check_block(b))
            g, c = cluster_shape(cluster, self.head, g, device)
            found = LaunchShape(
                g, b, whole(shared, "shared"), c or (1, 1, 1), c is not None, counts_clusters=in_clusters and c is not None
            )
            check_shared(self.static_shared, found.shared, device)
            if type(grid) in (int, tuple) and type(block) in (int, tuple) and type(shared) is int and (
                cluster is None or type(cluster) in (int, tuple)) and len(self._checked) < 256:
                self._checked[key] = found
        return found

    def prepared(
        self, grid: Any, block: Any, args: Any, shared: Any, device: str, cluster: Any = None, cooperative: Any = False,
        memory: Sequence[Region] = (),
    ) -> Launch:  # fmt: skip
        """A launch for any backend, checked; parameters as those of `launch`. Raises LaunchError or UnsupportedError."""
        shape = self.shape(grid, block, shared, device, cluster)
        if cooperative:
            check_cooperative(shape, self.static_shared, as_device(device))
            shape = replace(shape, cooperative=True)
        given, placed = sequence(args, "args"), apart(memory) if memory else NONE
        arguments = self.signature.pack(given, self.module.image.next_slot, self.module.variables.placed(), placed)
        return Launch(self, shape, arguments, device)

    def run(
        self, launch: Launch, how: How, observers: Sequence[Observer] = (), compiling: Progress | None = None,
        compile_timeout: float | None = None,
    ) -> Report:  # fmt: skip
        """Compile the kernel for a launch on this machine, unless that was done before, run it and wait; or what stands in for
        it (host/instead.py).

        launch: as `prepared` gives it.
        how: seed, threads, time limit and the like.
        observers: what looks at the launch.
        compiling: is called with ("compile", instructions that are compiled, all).
        compile_timeout: seconds that compilation may take; None: no limit.

        Raises LaunchError (nothing was run), UnsupportedError, ExecutionFault.
        """
        if stack:
            return cast(Report, stack[-1](launch, how, observers))
        return self.run_itself(launch, how, observers, compiling, compile_timeout)

    def run_itself(
        self, launch: Launch, how: How, observers: Sequence[Observer] = (), compiling: Progress | None = None,
        compile_timeout: float | None = None,
    ) -> Report:  # fmt: skip
        """`run`, of this kernel whatever stands in for it."""
        if isinstance(how.order, tuple):
            from mmulator.host.exploring import in_order
            how, observers = in_order(how, observers, self.compile(launch.device))
        module, shape, device = self.module, launch.shape, launch.device
        options = compile_options(shape, how, observers)
        started = time.perf_counter()
        compiled = module.loaded.compiled.get((self.name, device, options))
        compiled = compiled or self._compile_within(compile_timeout, device, compiling, options)
        compile_seconds = time.perf_counter() - started
        ran = CPU.launch(Launch(compiled, shape, launch.arguments), how, observers)
        return Report.of(self.name, device, self.static_shared, shape, how.seed, ran, module.parse_seconds, compile_seconds)

    @short_traceback
    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        shared: int = 0,
        device: str | None = None,
        sanitize: bool | Literal["strict", "raise"] = False,
        seed: int = 0,
        *,
        timeout: float | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
        watch: Sequence[Watched] = (),
        cluster: int | Sequence[int] | None = None,
        cooperative: bool = False,
        workers: Client | None = None,
        keep_going: bool = False,
        nan: bool | Literal["nan", "inf"] = False,
        why: Any = None,
        why_depth: int = 6,
        names: Mapping[str, Any] | None = None,
        against: Any = None,
        profile: bool = False,
        trace: str | Path | None = None,
        memory: Sequence[Region] = (),
        waits: bool = False,
        order: int | Sequence[int] | None = None,
        debug: Any = None,
        certify: bool | Literal["needed"] = False,
    ) -> Report:
        """Run the kernel; arrays among `args` are device buffers and are updated in place.

        grid, block: blocks of the grid, threads of a block (int, or up to three). args: one for each parameter: a
        contiguous, writable array on the CPU for a pointer (NumPy's, torch's, anything that shares its memory), a number
        for a scalar, `mm.struct` or bytes for an aggregate, `mm.TensorMap` for a tensor map, None or 0 for a null
        pointer. shared: dynamic shared bytes. device: whose arithmetic (`sm_90`); default: that of .target. seed: of the
        scheduler's choices (when asynchronous operations complete). timeout: seconds that compilation may take, and again
        the run. threads: of the host. progress(phase, done, total) is called with phases `compile`, `run`, `explore`.
        watch: elements, as (number of the argument, index), whose stores the report lists, in order; on one thread of the host
        unless `threads` says more. why: an element, as "C[3,5]" or (number of the argument, index), or several: `report.why` says
        which store gave it its value, and back through instructions (why_depth: how many) what that was computed from. names:
        arrays that `why` calls by these names. against: a device, or a seed, under which the block is run, too: the answer says
        where the values part; or an array of expected values, or several by name: it says what parts the element from it.
        cluster: blocks of a cluster (int, or up to three, which divide the grid; sm_90 and later), default: what
        .reqnctapercluster says, or no clusters (PTX ISA 9.1, Programming Model: Cluster of Cooperative Thread Arrays).
        cooperative: all blocks are resident at once, and may wait for each other (CUDA C++ Programming Guide, grid.sync()).
        sanitize: undefined behaviour is looked for, and is in the report's `findings`; "strict": what everybody's compilers
        do against the letter, too; "raise": the first of severity error is raised when the kernel has run. What is raised
        meanwhile has the findings so far (`error.findings`). keep_going: includes `sanitize`; an access out of bounds or
        misaligned is a finding and no fault: a load gets zeros, a store does nothing, and the kernel goes on.
        certify: includes `sanitize`; the report's `certificate` says whether the launch does the same in every schedule, or names
        one that differs (docs/reference/certificates.md); a fault has it, too. "needed": it is run again without each of its
        barriers, fences, waits and commits, and the certificate's `needed` says which of them it needs.
        nan: a NaN that the launch stores, and that it has made of other values, is raised; "inf": an infinity, too.
        profile: what each line did is counted, and is in the report's `profile`.
        trace: a file that receives what happened when, for Perfetto.
        memory: arrays at device addresses that they say themselves (runtime/launch/regions.py); others get addresses of their
        own. waits: an access to an accumulator of wgmma in flight waits, where ptxas makes it wait. debug: a Debugger
        (observation/debug/program.py), under whose control the launch runs. workers: a distributed.Client, on whose Dask cluster
        the blocks run; blocks that write the same bytes or use each other's results are refused: nothing is stored then.

        Raises LaunchError (nothing was run), UnsupportedError, ExecutionFault (buffers keep what was stored until then),
        UndefinedBehaviour, NotFinite.
        """
        _check({"device": device, "progress": progress, "sanitize": sanitize, "keep_going": keep_going, "profile": profile,
                "cooperative": cooperative, "certify": certify})  # fmt: skip
        device = as_device(device) if device else self.module.default_device
        elements = watched(watch) if watch != () else ()
        how = How(
            whole(seed, "seed"), as_order(order),
            None if threads is None else whole(threads, "threads", 1), seconds(timeout), waits=waits, keep_going=keep_going,
            progress=(lambda done, total: progress("run", done, total)) if progress else None,
        )  # fmt: skip
        looked = bool(sanitize or keep_going or certify)
        if workers is not None:
            entries.check_shared_out(
                cooperative=cooperative, watch=watch not in ((), []), sanitize=looked, threads=threads is not None,
                profile=profile, trace=trace, memory=memory, nan=bool(nan),
            )  # fmt: skip
        launch = self.prepared(grid, block, args, shared, device, cluster, cooperative, memory)
        if workers is not None:
            return entries.launch_on(workers, launch, how)
        looking = partial(observing, looked, None, sanitize == "strict", certify=bool(certify))
        if debug is not None:
            return cast(Report, debug.launch(launch, how, looking, partial(entries.DeviceNames.of, launch, names or {})))
        observers = looking(profile, None if trace is None else str(trace))
        about = entries.about_arrays(why, launch, how, names or {}, against) if why is not None else None
        if elements or about:
            from mmulator.sanitizer.diagnostics.watch import Watches

            watches = Watches(elements, launch.arguments, about.places if about else ())
            observers.append(watches)
        run = partial(self.run, launch, how, observers, progress, how.timeout)
        if nan:
            known = entries.DeviceNames.of(launch, names or {}).arrays
            run = partial(entries.checked, "inf" if nan == "inf" else "nan", launch, how, known, run)
        if certify:
            from mmulator.host.schedules import certified_launch as run_certified
            run = partial(run_certified, launch, how, run, looking, certify == "needed", progress)
        report = run()
        if about:
            report.why = about.answers(watches, report, whole(why_depth, "why_depth", 1))
        if sanitize == "raise" and (error := undefined(report.findings)):
            raise error
        return report

    @property
    def _required_block(self) -> Extent | None:
        """.reqntid"""
        found = self.head.directives.get("reqntid")
        if not found:
            return None
        x, y, z = [*map(int, found), 1, 1][:3]
        return x, y, z

    def _check_directives(self, block: tuple[int, int, int], threads: int) -> None:
        required = self._required_block
        if required not in (None, block):
            said = tuple(self.head.directives["reqntid"])
            raise LaunchError(f"{self.name} is compiled for a block of {said} (.reqntid), not {block}")
        most = self.head.directives.get("maxntid")
        if most:
            limit = prod(int(n) for n in most)
            if threads > limit:
                raise LaunchError(f"{self.name} is compiled for at most {limit} threads a block (.maxntid), not {threads}")

    def _parameters(self) -> list[tuple[str, str]]:
        """Name and type of each; arrays with their bytes."""
        return [(p.name, f".{p.type}" + (f"[{p.size}]" if p.shape else "")) for p in self.head.params]

    def __repr__(self) -> str:
        from mmulator.base.demangle import demangle

        return f"<Kernel {demangle(self.name)}({', '.join(type for _, type in self._parameters())})>"

    def _repr_html_(self) -> str:
        from mmulator.base.demangle import demangle

        rows = [(n, name, type) for n, (name, type) in enumerate(self._parameters())]
        return element("p", f"kernel {demangle(self.name)}") + html_table(("argument", "parameter", "type"), rows)
