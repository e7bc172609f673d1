"""One driver a process: the device that stands there, its memory, its streams, and what is told of each launch."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from mmulator.base.errors import ExecutionFault, MmulatorError, NotFinite, UnsupportedError, undefined
from mmulator.base.lazy import cached_property
from mmulator.base.refusals import GATHERED, register
from mmulator.host import entries
from mmulator.host.driver import progress
from mmulator.host.driver.chips import DeviceProperties, chip
from mmulator.host.driver.streams import Stream, ordering
from mmulator.host.settings import RAISE, Settings, check_variables

if TYPE_CHECKING:  # the machine is imported when a program has memory, or a kernel
    from mmulator.base.findings import Finding
    from mmulator.host.driver.functions import Function, LoadedModule
    from mmulator.host.driver.inquiries import Arrays
    from mmulator.host.driver.memory import Memory
    from mmulator.host.report import Report
    from mmulator.runtime.launch.regions import Region
    from mmulator.runtime.launch.shape import Extent, LaunchShape

Listener: TypeAlias = "Callable[[Report], object]"
Reader: TypeAlias = "Callable[[str, tuple[Finding, ...], MmulatorError | None, int], object]"


class Driver:
    """A device with its memory. listeners: are called with the report of each launch. readers: as in `tell`, with the kernel's
    name."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings.from_environment()
        check_variables()
        progress.listen()
        self.device: DeviceProperties = chip(self.settings.device)
        self.default_stream = Stream(0)
        self.streams: dict[int, Stream] = {0: self.default_stream}
        self.listeners: list[Listener] = []
        if self.settings.report:
            from mmulator.host.driver import report

            self.listeners.append(report.listener(self.settings.report))
        for name in self.settings.inquiries:
            getattr(entries, name).begin(self.settings, self.listeners)
        if GATHERED in os.environ:
            from mmulator.host.driver import findings

            atexit.register(findings.pass_on)
        self.recorder: Callable[[Callable[[], Report]], object] | None = None  # of a graph that is captured
        self.readers: list[Reader] = []
        if self.settings.sanitize:
            from mmulator.host.driver import findings

            self.readers.append(findings.reader())
            self.listeners.append(findings.reader().heard)
            gathering = findings.gathering()
            if gathering is not None:
                self.readers.append(gathering)
                self.listeners.append(gathering.heard)
        self._order()

    @cached_property
    def memory(self) -> Memory:
        """Memory that was allocated, and memory whose address the program has."""
        from mmulator.host.driver.memory import Memory

        return vars(self).setdefault("memory", Memory())  # the same for threads that ask at once

    @property
    def watches(self) -> bool:
        """Whether it is followed which bytes of device memory have been written."""
        if not self.settings.sanitize:
            return False
        from mmulator.base.rules import values
        from mmulator.base.rules.choice import chosen

        return not chosen(self.settings.rules).isdisjoint((values.UNDEFINED_GLOBAL.name, values.UNDEFINED_PART.name))

    def change(self, settings: Settings) -> None:
        """Other settings from now on; memory, streams and listeners stay. Raises UnsupportedError for an unknown device."""
        self.device, self.settings = chip(settings.device), settings
        self._order()

    def _order(self) -> None:
        """From now on the order of what the program does is looked at, or not, as the settings say."""
        if not self.settings.sanitize:
            ordering.clear()
        elif not (ordering and ordering[-1].driver is self):
            from mmulator.host.driver.order import ProgramOrder

            ordering[:] = [ProgramOrder(self)] if ProgramOrder.wanted(self.settings) else []

    def load(self, ptx: str, name: str = "<ptx>") -> LoadedModule:
        """A module of PTX text. Raises PtxSyntaxError, InvalidInstructionError or UnsupportedError."""
        from mmulator.host.driver.functions import LoadedModule

        return LoadedModule(ptx, name, self.device.name)

    def stream(self, handle: int = 0) -> Stream:
        """The stream of a handle; one that nobody made is the default stream."""
        return self.streams.get(handle, self.default_stream)

    def new_stream(self, blocks: bool = True) -> Stream:
        """A new stream. blocks: the default stream and it wait for each other (it is not cudaStreamNonBlocking)."""
        made = Stream(blocks=blocks)
        self.streams[made.handle] = made
        return made

    def launch(
        self, function: Function, grid: object, block: object, params: bytes | bytearray, regions: Sequence[Region] = (),
        shared: int = 0, stream: Stream | None = None, *, cluster: Extent | None = None,
        cooperative: bool = False, arrays: Arrays = list,
    ) -> Report:  # fmt: skip
        """Run a kernel and wait.

        grid: blocks, block: threads, (x, y, z) each. params: the parameter memory, with addresses as they are. regions: the
        memory that the kernel was given; it may touch that, and what the program has the address of. shared: dynamic shared
        bytes. cluster: blocks of a cluster; None: what the kernel says. cooperative: all blocks are resident at once; whether
        the chip holds them, the door knows, which has the registers. arrays: gives what the door knows of arrays among the
        parameters. With `settings.seeds` it is run under so many seeds,
        and what the first leaves is what stays.

        Raises LaunchError (nothing was run), UnsupportedError, ExecutionFault (memory keeps what was stored until then),
        UnstableResult (the seeds leave other bits), UndefinedBehaviour (with `settings.sanitize` "raise").
        """
        try:
            shape = function.check(grid, block, params, shared, cluster, cooperative)
            return self.run(function, shape, params, regions, stream, arrays)
        except UnsupportedError as error:
            register.enter(error.message).launches += 1
            raise

    def run(
        self, function: Function, shape: LaunchShape, params: bytes | bytearray, regions: Sequence[Region] = (),
        stream: Stream | None = None, arrays: Arrays = list, dependent: bool = False,
    ) -> Report:  # fmt: skip
        """`launch` of a shape that was checked. dependent: it need not wait for the launch before it in its stream."""
        if self.recorder is not None:
            self.recorder(partial(self.run, function, shape, bytes(params), regions, stream, arrays, dependent))
        under_way = self.memory.begin()
        settings = self.settings
        ordered = more = None

        try:
            if not self.watches:
                self.memory.unwatch()
            memory = self.memory.regions(regions)
            if self.watches:
                self.memory.follow(memory)
            if ordering and settings.sanitize and self.recorder is None:  # a capture is undone
                ordered = ordering[-1].begin(function, stream or self.default_stream, memory, params, dependent)
                more = ordered.observer
            if settings.certify:
                from mmulator.host.driver import certificates

                run = partial(function.run, shape, params, memory)
                done = certificates.certify(function, memory, settings, run, arrays, more)
            elif settings.seeds == 1:
                done = function.run(shape, params, memory, settings.seed, settings, arrays, more)
            else:
                from mmulator.host.driver import seeds

                run = partial(function.run, shape, params, memory, more=more)
                done = seeds.agreed(function, memory, settings, run)
        except KeyboardInterrupt as stop:
            if not stop.args:  # not of a launch
                raise
            raise stop.with_traceback(None) from None
        except MmulatorError as error:
            if ordered is not None:
                error.findings = ordered.end(error.findings)
            if isinstance(error, ExecutionFault) and error.asserted:
                print(*error.asserted, sep="\n", file=sys.stderr, flush=True)
            register.ran += isinstance(error, ExecutionFault)
            if isinstance(error, ExecutionFault) and "MMULATOR_EXEC" in os.environ and GATHERED not in os.environ:
                from mmulator.host.driver import findings

                atexit.unregister(findings.after_fault)  # once
                atexit.register(findings.after_fault)
            if isinstance(error, NotFinite):
                from mmulator.host.driver.findings import gathering

                if (file := gathering()) is not None:
                    file.stopped()
            if settings.sanitize and not isinstance(error, UnsupportedError):
                self.tell(function, error.findings, error)
            raise
        finally:
            self.memory.end(under_way)
        if ordered is not None:
            done.findings = ordered.end(done.findings)
        register.ran += 1
        (stream or self.default_stream).add(done)
        if done.output:
            print(done.output, end="", flush=True)
            from mmulator.runtime.launch.printing import CUT

            if CUT in done.notes:
                print(f"mmulator: {function.name}: {CUT}", file=sys.stderr)
        for listener in self.listeners:
            listener(done)
        if settings.sanitize:
            wrong = undefined(done.findings) if settings.sanitize == RAISE else None
            self.tell(function, done.findings, wrong)
            if wrong is not None:
                raise wrong
        return done

    def tell(
        self, function: Function, findings: tuple[Finding, ...], error: MmulatorError | None = None, launches: int = 1
    ) -> None:
        """Tell what was found in a launch. launches: that were looked at; 0 for more of a launch of which was told."""
        for reader in self.readers:
            reader(function.name, findings, error, launches)


_current: list[Driver] = []


def current() -> Driver:
    """The process's driver; the environment says what device it has."""
    if not _current:
        _current.append(Driver())
    return _current[0]


def use(driver: Driver | None = None, **settings: Any) -> Driver:
    """Make a driver the process's: the one given, or one with the current settings but these."""
    made = driver or Driver(replace(current().settings if _current else Settings.from_environment(), **settings))
    _current[:] = [made]
    return made
