"""Stops of a launch: why, when and where, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from mmulator.base.errors import MmulatorError

if TYPE_CHECKING:
    from mmulator.base.errors import ExecutionFault
    from mmulator.base.location import Location
    from mmulator.ptx.tree import Instruction


class DebugError(MmulatorError):
    """A request to the debugger that cannot be carried out: the message says why, the hint what can."""

    kind = "debugger"


class Reason(Enum):
    """Why a launch stopped."""

    ENTRY = "entry"  # the launch's first instruction
    STEP = "step"  # a step, a `goto` or a `finish` is done
    BREAKPOINT = "breakpoint"  # before a line, for lanes whose condition holds
    WATCHPOINT = "watchpoint"  # an element was stored, or has another value
    MBARRIER = "mbarrier"  # a phase of an mbarrier was completed
    FINDING = "finding"  # the sanitizer found a rule broken
    FAULT = "fault"  # an instruction cannot be executed
    DEADLOCK = "deadlock"  # no warp can go on
    INTERRUPTED = "interrupted"  # someone asked
    BEGIN = "begin"  # going back came to the launch's first instruction
    EXITED = "exited"  # the launch is over; there is no warp


class StepScope(Enum):
    """Whose instructions count as steps: those of the warp in focus, of its warpgroup, or of its block."""

    WARP = "warp"
    WARPGROUP = "warpgroup"
    BLOCK = "block"


@dataclass(frozen=True)
class Focus:
    """A lane that commands are about.

    block: number of the CTA in the grid, x fastest.
    warp: of the CTA.
    lane: of the warp.
    """

    block: int
    warp: int
    lane: int = 0

    @property
    def thread(self) -> int:
        """Number of the thread in its CTA, x fastest."""
        return 32 * self.warp + self.lane


@dataclass(frozen=True)
class Stopped:
    """Where a launch stands.

    reason: why it stopped.
    step: number of steps that are done; the step of this number comes next. At the end, the number of all.
    focus: the warp that executes the next step, and its lowest lane that does; None when the launch is over.
    lanes: mask of the lanes that execute the next step, before its guard.
    site: number of the next instruction in the kernel (CompiledKernel.executed); -1 when the launch is over.
    instruction: that instruction as it is written; None when the launch is over.
    hits: numbers of the breakpoints that stopped it.
    text: what happened, in a line or several, for people.
    error: what a launch that faulted or hangs ends with.
    """

    reason: Reason
    step: int
    focus: Focus | None = None
    lanes: int = 0
    site: int = -1
    instruction: Instruction | None = field(default=None, repr=False)
    hits: tuple[int, ...] = ()
    text: str = ""
    error: ExecutionFault | None = field(default=None, compare=False)

    @property
    def over(self) -> bool:
        """Whether the launch can only go back: it has exited, faulted, or hangs."""
        return self.reason in (Reason.EXITED, Reason.FAULT, Reason.DEADLOCK)

    @property
    def ptx_line(self) -> int:
        """Line of the PTX; 0 when the launch is over."""
        return self.instruction.span.line if self.instruction is not None else 0

    @property
    def location(self) -> Location | None:
        """Line of the program that the instruction was compiled from, where the PTX says so."""
        return self.instruction.span.location if self.instruction is not None else None
