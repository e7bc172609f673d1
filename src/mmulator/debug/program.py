"""The launches of a program under the debugger, one after the other."""

from __future__ import annotations

from typing import Protocol

from mmulator.debug.breakpoints import Breakpoints
from mmulator.debug.session import Session


class FrontEnd(Protocol):
    """What shows sessions to a user: a terminal, or an adapter for editors. It is called in the program's thread."""

    def launched(self, session: Session) -> None:
        """A launch stands before its first instruction (`session.start` was called). When this method returns the program
        goes on: the launch is run to its end first, if it has not come there.
        """

    def ended(self) -> None:
        """The program's process ends."""


class Debugger:
    """The debugger of a process.

    breakpoints: of all launches.
    kernels: part of a kernel's name: which launches come under control; "" for all.
    """

    breakpoints: Breakpoints
    kernels: str

    def __init__(self, front: FrontEnd) -> None:
        raise NotImplementedError
