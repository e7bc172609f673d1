"""Breakpoints: where a launch stops by itself, as a user says it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Breakpoint:
    """One place, element, mbarrier or rule at which launches stop.

    number: as people call it, from 1 on.
    kind: `line`, `kernel`, `watch`, `mbarrier` or `rule`.
    place: as typed: `gemm.cu:31`, `ptx:120`, `gemm`; `C[3,5]`; an mbarrier's address or variable; a rule.
    condition: an expression over the lane, such as `tid.x == 3 && %r5 > 7`, or "".
    enabled: whether it stops.
    temporary: it is deleted when it has stopped once.
    hits: how often it stopped.
    ignore: how many more times it does not stop.
    sites: numbers of the instructions that it stands for in the launch at hand.
    problem: why it stands for nothing in the launch at hand, or "".
    """

    number: int
    kind: str
    place: str
    condition: str = ""
    enabled: bool = True
    temporary: bool = False
    hits: int = 0
    ignore: int = 0
    sites: tuple[int, ...] = ()
    problem: str = ""


class Breakpoints:
    """All breakpoints of a program, from launch to launch. A change counts at once, also between two commands of a session."""

    def __iter__(self) -> object:
        raise NotImplementedError

    def add(self, place: str, condition: str = "", temporary: bool = False) -> Breakpoint:
        """A breakpoint at a line or a kernel: `file:line`, `line` of the file in focus, `ptx:line`, a kernel's name, `*SITE`.

        Raises DebugError for what is no place.
        """
        raise NotImplementedError

    def watch(self, element: str, condition: str = "") -> Breakpoint:
        """A watchpoint on an element (`C[3,5]`, `KERNEL:C[3,5]`, `0x7f00:f32`), or on shared memory of a block
        (`shared 0x400:b32`). Raises DebugError.
        """
        raise NotImplementedError

    def mbarrier(self, place: str) -> Breakpoint:
        """A stop when a phase of an mbarrier is completed: an address in shared memory, or a shared variable (`bars+8`)."""
        raise NotImplementedError

    def rule(self, name: str) -> Breakpoint:
        """A stop where the sanitizer finds a rule broken: `races`, `wgmma-*`, `all`. The session has to be sanitized."""
        raise NotImplementedError

    def delete(self, number: int) -> None:
        """Raises DebugError if there is no such breakpoint."""
        raise NotImplementedError
