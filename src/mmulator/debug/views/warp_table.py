"""Where the warps of a block are: a row for warps that are alike, as `info cuda warps` groups them."""

from dataclasses import dataclass
from typing import Any

from mmulator.debug.views.scene import Scene
from mmulator.diagnostics.mbarriers import shared_name
from mmulator.diagnostics.whereabouts import LaneGroup
from mmulator.isa.effects import Orders
from mmulator.launch.resident import ResidentCta
from mmulator.native.state import FULL
from mmulator.program.addresses import SHARED_BASE
from mmulator.ptx.tree import Instruction
from mmulator.tables import text_table


@dataclass(frozen=True)
class WarpsAt:
    """Warps of a CTA whose lanes are at one place, in one state.

    cta: rank of the CTA in the cluster.
    block: (x, y, z) of the CTA in the grid.
    warps: their numbers.
    lanes: mask of the lanes of each.
    state: `ready`, `next`, `done`, or what they wait for.
    instruction: that they execute next; None at the end.
    """

    cta: int
    block: tuple[int, int, int]
    warps: tuple[int, ...]
    lanes: int
    state: str
    instruction: Instruction | None

    @property
    def line(self) -> int:
        """Line of the PTX; 0 at the end."""
        return self.instruction.span.line if self.instruction is not None else 0

    @property
    def source(self) -> str:
        """Line of the program that the PTX was compiled from: `mm.py:17`, or ""."""
        return self.instruction.span.brief if self.instruction is not None else ""

    def as_dict(self) -> dict[str, Any]:
        ins = self.instruction
        return {
            "cta": self.cta, "block": list(self.block), "warps": list(self.warps), "lanes": self.lanes, "state": self.state,
            "file": ins.span.source.name if ins is not None else None, "line": self.line, "source": self.source,
            "instruction": ins.span.text if ins is not None else None,
        }  # fmt: skip


@dataclass(frozen=True)
class WarpTable:
    """The warps of some CTAs. rows: groups of warps. current: (CTA, warp, mask of lanes) of those that are looked at."""

    rows: tuple[WarpsAt, ...]
    current: tuple[int, int, int]

    def as_dict(self) -> dict[str, Any]:
        return {"rows": [r.as_dict() for r in self.rows], "current": list(self.current)}

    def text(self, width: int = 80) -> str:
        """A table, with a star at the lanes that are looked at."""
        lines: list[str] = []
        for block in dict.fromkeys(r.block for r in self.rows):
            own = [r for r in self.rows if r.block == block]
            lines.append(f"block {block}")
            cells = [self._row(r) for r in own]
            head = ("  warp", "lanes", "state", "line", "next instruction")
            lines += [line if len(line) <= width else line[: width - 3] + "..." for line in text_table(head, cells)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    def _row(self, r: WarpsAt) -> tuple[str, ...]:
        cta, warp, lanes = self.current
        star = "* " if r.cta == cta and warp in r.warps and r.lanes & lanes else "  "
        ins = r.instruction
        where = r.source or (str(r.line) if ins is not None else "")
        text = " ".join(ins.span.text.split()) if ins is not None else ""
        lanes_shown = "all" if r.lanes == FULL else f"{r.lanes:08x}" if r.lanes else ""
        return star + numbers_text(r.warps), lanes_shown, r.state, where, text


def numbers_text(numbers: tuple[int, ...]) -> str:
    """Numbers with runs as `0-3, 5`."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def warps(scene: Scene, cluster: bool = False) -> WarpTable:
    """Where the warps are: of the CTA of the warp whose turn it is, or with `cluster` of all CTAs of its cluster."""
    rows: list[WarpsAt] = []
    for cta in scene.resident.each() if cluster else [scene.cta]:
        rows += _of_cta(scene, cta)
    return WarpTable(tuple(rows), (scene.place.cta, scene.place.warp, scene.lanes))


def _of_cta(scene: Scene, cta: ResidentCta) -> list[WarpsAt]:
    alike: dict[Any, list[int]] = {}
    groups = scene.groups_of(cta)
    for g in groups:
        alike.setdefault((g.lanes, state_text(scene, cta, g), g.instruction), []).append(g.warp)
    done = [n for n, w in enumerate(cta.warps) if not int(w["live"])]
    x, y, z = (int(n) for n in cta.state["ctaid"])
    out = [WarpsAt(cta.rank, (x, y, z), tuple(numbers), *key) for key, numbers in alike.items()]
    if done:
        out.append(WarpsAt(cta.rank, (x, y, z), tuple(done), 0, "done", None))
    return sorted(out, key=lambda r: (r.warps, r.lanes & -r.lanes))


def state_text(scene: Scene, cta: ResidentCta, g: LaneGroup) -> str:
    """The state of lanes in a few words: `ready`, `at barrier 1`, `full[2] phase 3`."""
    if g.state == "runs":
        place, lanes, site = scene.turn or (scene.place, scene.lanes, scene.site)
        mine = (cta.rank, g.warp) == (place.cta, place.warp) and g.lanes == lanes
        return "next" if mine and site >= 0 else "ready"
    if g.state == "barrier":
        return f"at barrier {g.barrier}"
    if g.state == "held":
        return "waits for lanes"
    if g.state == "sleeps" and g.mbarrier is not None:
        k = g.mbarrier
        name = shared_name(scene.grid, SHARED_BASE + k.byte) or f"shared {SHARED_BASE + k.byte:#x}"
        return f"{name} {k.phase_text.removeprefix('the ')}" + f" of {k.cta}" * (k.cta.rank != cta.rank)
    ins = g.instruction
    if ins is not None and ins.effects.orders is Orders.CLUSTER:
        return "at barrier.cluster"
    return "waits for warps"
