"""Where the lanes of a CTA are, and what they wait for: the facts of reports about deadlocks, time limits and interruptions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mmulator.isa.effects import Ends
from mmulator.ptx.program.blocks import Block, Program
from mmulator.ptx.tree import Instruction
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.resident import ResidentCta
from mmulator.runtime.native.state import LANES, NUM_BARRIERS
from mmulator.sanitizer.diagnostics.mbarriers import MbarrierState, known, place_text

MOST = 4  # warps that a message names
State = Literal["runs", "waits", "held", "barrier", "sleeps"]


@dataclass(frozen=True)
class LaneGroup:
    """Lanes of a warp at one place.

    state: "held" if they wait for lanes of their own warp, "waits" for other warps of the warpgroup, "sleeps" for a phase of
        `mbarrier`.
    pc: number of the block of code that they execute next.
    frame: byte in the warp's register file at which the frame of their function begins.
    """

    warp: int
    lanes: int
    state: State
    instruction: Instruction | None
    barrier: int = -1
    mbarrier: MbarrierState | None = None
    cta: ResidentCta | None = None
    pc: int = -1
    frame: int = 0

    def __str__(self) -> str:
        wait = verb(self.lanes, "waits", "wait")
        if self.mbarrier is not None and self.cta is not None:
            what = f"{self.mbarrier.phase_text} of {self.mbarrier.name(self.cta)}"
            return f"{lanes_text(self.lanes)} {wait} for {what} at {place_text(self.instruction)}"
        does = {
            "runs": "at", "sleeps": "at", "waits": f"{wait} for other warps at", "held": f"{wait} for other lanes at",
            "barrier": f"{wait} at",
        }[self.state]  # fmt: skip
        number = f" (barrier {self.barrier})" if self.state == "barrier" else ""
        return f"{lanes_text(self.lanes)} {does} {place_text(self.instruction)}{number}"


def verb(mask: int, one: str, more: str) -> str:
    """The word for one lane, or for more, by the number of lanes in a mask."""
    return one if mask.bit_count() == 1 else more


def lanes_text(mask: int) -> str:
    """Names of the lanes in a mask: `lanes 0 to 3, 9`."""
    runs: list[list[int]] = []
    for lane in (n for n in range(LANES) if mask >> n & 1):
        if runs and runs[-1][1] == lane - 1:
            runs[-1][1] = lane
        else:
            runs.append([lane, lane])
    return f"{verb(mask, 'lane', 'lanes')} " + ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in runs)


def groups(grid: Grid, cta: ResidentCta) -> list[LaneGroup]:
    """The groups of all lanes of a CTA that have not exited, in the order of warps."""
    return [g for w in cta.warps for g in of_warp(grid.kernel.program, cta, w)]


def of_warp(program: Program, cta: ResidentCta, w: Any) -> Iterator[LaneGroup]:
    """The groups of a warp's lanes that have not exited."""
    left = int(w["live"])
    frames, pcs = w["lane_frame"], w["lane_pc"]
    while left:
        lane = (left & -left).bit_length() - 1
        state, barrier = _state(w, lane)
        same = [n for n in range(LANES) if pcs[n] == pcs[lane] and frames[n] == frames[lane] and _state(w, n) == (state, barrier)]
        lanes = sum(1 << n for n in same) & left
        left &= ~lanes
        at = int(pcs[lane])
        ins = instruction_at(program, at, state)
        asleep = state == "sleeps"
        yield LaneGroup(
            int(w["index"]), lanes, state, ins, -1 if asleep else barrier, known(cta.resident, barrier) if asleep else None,
            cta if asleep else None, at, int(frames[lane]),
        )  # fmt: skip


def _state(w: Any, lane: int) -> tuple[State, int]:
    bit = 1 << lane
    if int(w["at_barrier"]) & bit:
        return "barrier", next((n for n in range(NUM_BARRIERS) if int(w["bar_lanes"][n]) & bit), -1)
    if int(w["held"]) & bit:
        return "held", -1
    if int(w["waiting"]) & int(w["napping"]) & bit:
        return "sleeps", int(w["naps_at"][lane])
    return ("waits" if int(w["waiting"]) & bit else "runs"), -1


def instruction_at(program: Program, pc: int, state: State) -> Instruction | None:
    """The instruction that lanes at block `pc` execute next; for state "barrier" the barrier at which they wait."""
    if state == "barrier":
        return next((b.last for b in program.blocks if b.ending is Ends.BARRIER and pc in b.targets), None)
    seen: set[int] = set()
    while pc not in seen:
        seen.add(pc)
        block: Block = program.blocks[pc]
        if block.body or block.last is not None:
            found = block.body[0] if block.body else block.last
            return found.original if found is not None else None
        if not block.targets:
            break
        pc = block.targets[0]
    return None


def warps_text(found: list[LaneGroup], most: int = MOST) -> str:
    """Places of warps in words, with equal warps together: `warp 0: lanes 0 to 15 at ...; lanes 16 to 31 ...; warps 1 to 3:
    ...`.
    """
    said: dict[str, list[int]] = {}
    for warp in dict.fromkeys(g.warp for g in found):
        text = ", ".join(str(g) for g in found if g.warp == warp)
        said.setdefault(text, []).append(warp)
    parts = [f"{lanes_text(sum(1 << n for n in warps)).replace('lane', 'warp')}: {text}" for text, warps in said.items()]
    return "; ".join(parts[:most]) + (f"; and {len(parts) - most} more" if len(parts) > most else "")


def arrived_text(cta: ResidentCta) -> str:
    """Arrivals at the barriers of a CTA: `; 32 of 64 threads have arrived at barrier 1`."""
    state = cta.state
    said = []
    for n in range(NUM_BARRIERS):
        arrived, count = int(state["barriers"]["arrived"][n]), int(state["barriers"]["count"][n])
        if arrived:
            said.append(f"{arrived} of {count or int(state['live_threads'])} threads have arrived at barrier {n}")
    return "".join(f"; {text}" for text in said)


def everywhere(first: ResidentCta, found: Sequence[tuple[ResidentCta, list[LaneGroup]]]) -> str:
    """Places of the lanes of all CTAs of a cluster: `first` comes first, and CTAs with equal texts are named together."""
    said: dict[str, list[ResidentCta]] = {}
    for cta, groups in sorted(found, key=lambda x: x[0].rank != first.rank):
        if groups:
            said.setdefault(warps_text(groups, most=LANES) + arrived_text(cta), []).append(cta)
    parts = []
    for text, ctas in said.items():
        own = ctas[0].rank == first.rank
        alike = ", ".join(map(str, ctas[1:] if own else ctas))
        parts.append(f"{text}; the same in {alike}" if own and alike else text if own else f"{alike}: {text}")
    return "; ".join(parts)
