"""What a launch did."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from mmulator.machine.watch import Store


@dataclass
class Report:
    """Result of a launch.

    instructions: executed warp instructions by class. macs: multiply-accumulates of matrix instructions. seconds: of
    parse, compile and run. cached: the machine code came from the disk cache. notes: what a reader should know of the
    fidelity, such as functions that are not modelled to the bit on this device. output: what the kernel printed.
    stores: to the elements that the launch watched, in order.
    """

    kernel: str
    device: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    seed: int
    threads: int
    instructions: dict[str, int]
    macs: int
    seconds: dict[str, float]
    cached: bool
    notes: list[str] = field(default_factory=list)
    output: str = ""
    stores: list[Store] = field(default_factory=list)

    @property
    def total_instructions(self) -> int:
        return sum(self.instructions.values())

    def as_dict(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel, "device": self.device, "grid": list(self.grid), "block": list(self.block),
            "shared": self.shared, "seed": self.seed, "threads": self.threads, "instructions": self.instructions,
            "macs": self.macs, "seconds": self.seconds, "cached": self.cached, "notes": self.notes, "output": self.output,
            "stores": [asdict(s) for s in self.stores],
        }  # fmt: skip
