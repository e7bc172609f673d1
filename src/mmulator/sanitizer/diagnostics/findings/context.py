"""The facts that sentences about a finding use: threads, addresses and instructions of the launch in words."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mmulator.base.findings import Place
from mmulator.base.rules import BY_NUMBER, Rule
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.tree import Instruction
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.limits import MAX_CLUSTER
from mmulator.runtime.native.state import LANES
from mmulator.sanitizer.diagnostics.whereabouts import lanes_text


@dataclass(frozen=True)
class FindingContext:
    """A launch and one entry of its table of findings (sanitizer/state.py: Found)."""

    grid: Grid
    entry: Any

    @property
    def instruction(self) -> Instruction:
        return self.grid.kernel.sites[int(self.entry["site"])]

    @property
    def name(self) -> str:
        return self.instruction.mnemonic

    @property
    def rule(self) -> Rule:
        return BY_NUMBER[int(self.entry["rule"])]

    def says(self, rule: Rule | None = None) -> str:
        """The message of the broken rule, or of another one, about the instructions of the finding."""
        return (rule or self.rule).says.format(this=self.name, other=self.against)

    @property
    def other(self) -> Instruction | None:
        """The second instruction of a conflict; None if the finding has only one."""
        site = int(self.entry["other_site"])
        return self.grid.kernel.sites[site - 1] if site else None

    @property
    def against(self) -> str:
        """Name of the second instruction of a conflict; "" if the finding has only one."""
        return self.other.mnemonic if self.other is not None else ""

    @property
    def words(self) -> list[int]:
        return [int(word) for word in self.entry["words"]]

    def threads(self, cta: int, warp: int, lanes: int) -> str:
        """Names of threads: `block (0, 0, 0), thread (3, 0, 0)`, or for several lanes `block (0, 0, 0), warp 2, lanes
        0 to 31`.
        """
        return threads_text(self.grid, cta, warp, lanes)

    @property
    def who(self) -> str:
        return self.threads(int(self.entry["cta"]), int(self.entry["warp"]), int(self.entry["lanes"]))

    @property
    def conflict(self) -> Place | None:
        ins, e = self.other, self.entry
        if ins is None:
            return None
        threads = self.threads(int(e["other_cta"]), int(e["other_warp"]), int(e["other_lanes"]))
        return Place(ins.mnemonic, location(ins), ins.span.brief, threads, ins.span)

    def where(self) -> str:
        """The bytes of the finding in words: `4 bytes at byte 128 of argument 2 (out), which has 4096`; "" without an
        address.
        """
        size = int(self.entry["bytes"])
        return memory_text(self.grid, int(self.entry["at"]), size) if size else ""


# The message of a finding, and perhaps where (else as FindingContext.where says) and what to do (else the rule's hint).
Said = str | tuple[str, ...]
Sentences = dict[Rule, Callable[[FindingContext], Said]]


def memory_text(grid: Grid, address: int, size: int) -> str:
    """A range of bytes in words; shared memory is named by its variable: `bytes 16 to 31 of shared memory (tile + 16)`."""
    from mmulator.sanitizer.diagnostics.faults.describe import describe_address
    from mmulator.sanitizer.diagnostics.mbarriers import shared_name

    shared = address >> SLOT_SHIFT == SLOT_SHARED or SHARED_BASE <= address < SHARED_BASE + (MAX_CLUSTER << RANK_SHIFT)
    if not shared or grid.arguments.regions.near(address):
        array = next((a for a in grid.arguments.arrays() if a.holds(address) and a.holds(address + size - 1)), None)
        of = array.elements(address, size) if array is not None else ""
        return f"{size} byte{'s' * (size != 1)} at {describe_address(grid, address)}" + (f": {of}" if of else "")
    offset = address & ((1 << RANK_SHIFT) - 1)
    name, rank = shared_name(grid, offset), address >> RANK_SHIFT & (1 << SLOT_SHIFT - RANK_SHIFT) - 1
    first = offset - SHARED_BASE
    many = f"byte {first}" if size == 1 else f"bytes {first} to {first + size - 1}"
    owner = f" of rank {rank}" if grid.shape.cluster_size > 1 else ""
    return f"{many} of shared memory{owner}" + (f" ({name})" if name else "")


def block_text(grid: Grid, linear: int) -> str:
    """Name of a block by its linear number: `block (1, 0, 0)`."""
    return f"block {grid.shape.block_at(linear)}"


def threads_text(grid: Grid, cta: int, warp: int, lanes: int) -> str:
    """Names of threads: `block (0, 0, 0), thread (3, 0, 0)`, or for several lanes `block (0, 0, 0), warp 2, lanes 0 to 31`.

    grid: the running launch.
    cta: linear number of the block in the grid.
    warp: number of the warp in the block.
    lanes: mask of the lanes.
    """
    block = block_text(grid, cta)
    if lanes.bit_count() == 1:
        return f"{block}, thread {grid.shape.thread_at(warp * LANES + lanes.bit_length() - 1)}"
    return f"{block}, warp {warp}, {lanes_text(lanes)}" if lanes else f"{block}, warp {warp}"


def location(ins: Instruction) -> str:
    """Place of an instruction in its source: `file:line`."""
    return ins.span.place
