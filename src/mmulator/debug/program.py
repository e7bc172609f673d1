"""The launches of a program under the debugger, one after the other."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mmulator.debug.breakpoints import Breakpoints
from mmulator.debug.control import Controlled
from mmulator.debug.session import Session
from mmulator.demangle import demangle
from mmulator.launch.launch import How

if TYPE_CHECKING:
    from mmulator.host.module import Kernel
    from mmulator.host.report import Report
    from mmulator.launch.arguments import Arguments
    from mmulator.launch.observers import Observer
    from mmulator.launch.shape import LaunchShape
    from mmulator.record.names import DeviceNames

# Modules of front ends by the name that MMULATOR_DEBUG says: `front(settings)` makes one.
FRONT_ENDS = {"terminal": "mmulator.debug.terminal", "dap": "mmulator.debug.dap"}


class FrontEnd(Protocol):
    """A front end, which shows sessions to a user: a terminal, or an adapter for editors. The program's thread calls it."""

    def wants(self, kernel: str, number: int) -> bool:
        """Whether launch `number` of the program, of this kernel, is to come under control. Others run as without a debugger."""

    def launched(self, session: Session) -> None:
        """A launch stands before its first instruction (`session.start` was called). When this method returns the program
        goes on: the launch is run to its end first, if it has not come there. What it raises ends the launch, and the program's
        call raises it.
        """

    def ended(self) -> None:
        """The program's process ends."""


class Debugger:
    """The debugger of a process.

    front: what shows it to a user.
    breakpoints: of all launches.
    number: launches so far.
    """

    def __init__(self, front: Callable[[Debugger], FrontEnd]) -> None:
        self.breakpoints = Breakpoints()
        self.number = 0
        self.front = front(self)

    def launch(
        self, kernel: Kernel, shape: LaunchShape, arguments: Arguments, device: str, how: How,
        observers: Callable[[], list[Observer]], names: Callable[[], DeviceNames],
        memory: Callable[[], Sequence[tuple[int, np.ndarray]]], stored: Callable[[], str] = str,
    ) -> Report:  # fmt: skip
        """Run a launch under the front end's control, to its end.

        kernel, shape, arguments, device, how: as `Kernel.run` takes them.
        observers: makes the launch's own observers, new ones at each call.
        names: gives the names of the arrays that it was given.
        memory: gives what it may write, besides the module's variables, as (address, array).
        stored: as in `Controlled`.

        Raises what the launch raises.
        """
        self.number += 1
        name = demangle(kernel.name)
        run = partial(kernel.run, shape, arguments, device)
        if not self.front.wants(name, self.number):
            return run(how, observers())
        variables = ((start, array) for start, array, writable in kernel.module.image.buffers if writable)
        known = [*memory(), *variables]
        controlled = Controlled(name, run, how, shape, device, names(), known, observers, stored)
        session = Session(controlled, self.breakpoints, self.number)
        try:
            session.start()
            self.front.launched(session)
            return session.finished()
        except BaseException:
            session.end()
            raise


@cache
def current(settings: str) -> Debugger:
    """The debugger of this process. settings: what MMULATOR_DEBUG says, `{"front": "terminal", ...}`."""
    said: dict[str, Any] = json.loads(settings)
    module = import_module(FRONT_ENDS[said["front"]])
    made = Debugger(lambda debugger: module.front(debugger, said))
    process = os.getpid()

    def ended() -> None:
        if os.getpid() == process:
            made.front.ended()

    atexit.register(ended)
    return made
