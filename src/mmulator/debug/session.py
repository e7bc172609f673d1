"""The motor of the debugger: one launch under control.

The launch runs on one thread of the host, in steps: one instruction that one warp executes, or tries. Steps are numbered, and a
launch has the same steps in each run under one seed. So going back is: restore the memory, and run to an earlier step. All
methods are called by one thread, which waits for the launch meanwhile; `interrupt` may be called by any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmulator.debug.breakpoints import Breakpoints
from mmulator.debug.machine import Machine
from mmulator.debug.stops import Focus, StepScope, Stopped

if TYPE_CHECKING:
    from mmulator.host.report import Report
    from mmulator.record.names import DeviceNames


class Session:
    """One launch under control.

    kernel_name: as people write it (demangled).
    number: of the launch in the program, from 1 on.
    grid, block, cluster: extents of the launch, (x, y, z) each.
    device: whose arithmetic it has.
    seed: of the scheduler's choices.
    names: of the arrays that it was given.
    breakpoints: where it stops; shared by all launches of a program.
    scope: whose instructions count as steps.
    focus: the lane that commands are about; a stop sets it, and a user may.
    stop: where the launch stands.
    """

    kernel_name: str
    number: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    device: str
    seed: int
    names: DeviceNames
    breakpoints: Breakpoints
    scope: StepScope
    focus: Focus
    stop: Stopped

    # going on and back; each returns the new `stop`, and raises DebugError where a direction has no way on -----------------
    def start(self) -> Stopped:
        """Run to the first instruction. Also when the launch has begun already: start over."""
        raise NotImplementedError

    def go(self, back: bool = False) -> Stopped:
        """Continue to the next stop. back: to the one before."""
        raise NotImplementedError

    def step(self, count: int = 1, *, lines: bool = True, over: bool = False, back: bool = False) -> Stopped:
        """Go on by lines of the program, or by instructions, of the warps in `scope` around `focus`; breakpoints stop it.

        count: how many.
        lines: by lines of the source, or of the PTX where no source is known; False: by PTX instructions.
        over: a call of a function is one line or instruction.
        back: into the past.
        """
        raise NotImplementedError

    def finish(self, back: bool = False) -> Stopped:
        """Run until the function in focus has returned. back: to the call of it."""
        raise NotImplementedError

    def goto(self, step: int) -> Stopped:
        """Stand before the step of a number. Breakpoints do not stop it."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Stop at the next step. The only method for other threads."""
        raise NotImplementedError

    # the end --------------------------------------------------------------------------------------------------------------
    def finished(self) -> Report:
        """Run to the end without stops, and leave the launch's results in memory.

        Raises what the launch raises: ExecutionFault for a fault or a deadlock.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Give the launch up: its thread ends, and memory is as before the launch."""
        raise NotImplementedError

    # what there is to see -------------------------------------------------------------------------------------------------
    @property
    def machine(self) -> Machine:
        """The machine at this stop. Raises DebugError when the launch is over and has no blocks any more."""
        raise NotImplementedError

    def why(self, element: str) -> str:
        """Why an element (`C[3,5]`) has the value that it has now: its store and what is behind it, in words."""
        raise NotImplementedError
