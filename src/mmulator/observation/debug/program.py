"""The launches of a program under the debugger, one after the other."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

from mmulator.base.demangle import demangle
from mmulator.host.driver.inquiries import ProgramLaunch
from mmulator.host.report import Report
from mmulator.observation.debug.breakpoints import Breakpoints
from mmulator.observation.debug.control import Controlled
from mmulator.observation.debug.session import Session
from mmulator.observation.record.names import DeviceNames
from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.observers import Observer

# Modules of front ends by the name that MMULATOR_DEBUG says: `front(settings)` makes one.
FRONT_ENDS = {"terminal": "mmulator.observation.debug.terminal", "dap": "mmulator.observation.debug.dap"}


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
        self, launch: Launch, how: How, observers: Callable[[], list[Observer]], names: Callable[[], DeviceNames],
        stored: Callable[[], str] = str,
    ) -> Report:  # fmt: skip
        """Run a launch under the front end's control, to its end.

        launch, how: as `Kernel.run` takes them.
        observers: makes the launch's own observers, new ones at each call.
        names: gives the names of the arrays that it was given.
        stored: as in `Controlled`.

        Raises what the launch raises.
        """
        self.number += 1
        name = demangle(launch.kernel.name)
        if not self.front.wants(name, self.number):
            return cast("Report", launch.run(how, observers()))
        controlled = Controlled(name, launch.run, how, launch.shape, launch.device, names(), launch.writable(), observers, stored)
        session = Session(controlled, self.breakpoints, self.number)
        try:
            session.start()
            self.front.launched(session)
            return session.finished()
        except BaseException:
            session.end()
            raise


def debugged(one: ProgramLaunch, observers: Callable[[], list[Observer]]) -> Report:
    """A launch of a program under the debugger of the process. Raises what the launch raises.

    one: the launch.
    observers: makes the launch's own observers, new ones at each call.
    """

    @cache
    def stored() -> str:
        from mmulator.observation.record.launches.questions import stored_type  # which loads much that a debugger may never show

        return stored_type(one.launch.kernel)

    return current(one.settings.debug).launch(one.launch, one.how, observers, lambda: DeviceNames(one.arrays()), stored)


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
