"""Barriers: named ones, mbarriers and the cluster's, with who has arrived, who waits, and who is missing; and where the warps
are: a row for warps that are alike, as `info cuda warps` groups them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np

from mmulator.base.tables import text_table
from mmulator.isa.effects import Orders
from mmulator.observation.debug.views.scene import Scene, issuer, lanes_in, of_block
from mmulator.ptx.program.addresses import SHARED_BASE
from mmulator.ptx.tree import Instruction
from mmulator.runtime.launch.resident import ResidentCta
from mmulator.runtime.native.state import ACCOUNTS, FULL, NUM_BARRIERS, Account
from mmulator.sanitizer.diagnostics.faults.cluster import arrivals
from mmulator.sanitizer.diagnostics.faults.mbarrier import missing_text
from mmulator.sanitizer.diagnostics.mbarriers import MbarrierState, known, shared_name, under_way
from mmulator.sanitizer.diagnostics.whereabouts import LaneGroup, lanes_text

_ACCOUNT = np.dtype(Account.numpy_dtype())


@dataclass(frozen=True)
class NamedBarrier:
    """A barrier of `bar` and `barrier` with arrivals.

    cta: rank of its CTA in the cluster.
    number: 0 to 15.
    arrived, expected: threads that count as arrived, and threads with which it is complete.
    counted: whether the instruction names the number of threads.
    waiting: warp -> mask of lanes that wait at it.
    came: warp -> mask of lanes that came, and count when all lanes of their warp are there.
    missing: warp -> mask of lanes that have not come; with `counted` these are all lanes that are elsewhere.
    """

    cta: int
    number: int
    arrived: int
    expected: int
    counted: bool
    waiting: dict[int, int]
    came: dict[int, int]
    missing: dict[int, int]

    def text(self) -> str:
        """The barrier in one sentence."""
        said = f"barrier {self.number}: {self.arrived} of {self.expected} threads have arrived"
        said += f"; {masks_text(self.waiting)} {conjugated('wait', self.waiting)}" if self.waiting else "; nobody waits"
        part = {w: m for w, m in self.came.items() if m}
        if part:
            said += f"; {masks_text(part)} came, and count when all lanes of the warp are there"
        missing = masks_text(self.missing)
        if missing:
            said += f"; not there: {missing}" if self.counted else f"; missing: {missing}"
        return said

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Sleeper:
    """Lanes that wait at an mbarrier. cta, warp, lanes: who. parity: the parity of the phase whose end they wait for."""

    cta: int
    warp: int
    lanes: int
    parity: int



@dataclass(frozen=True)
class MbarrierView:
    """An mbarrier.

    state: what is known of it.
    name: of the variable that it is in, and its address.
    sleepers: who waits at it.
    flying: asynchronous operations in flight that it hears of, in words.
    events: `made`, `arrived`, `asked` and `brought`: who did it last, in words.
    blocks: names of the cluster's CTAs.
    """

    state: MbarrierState
    name: str
    sleepers: tuple[Sleeper, ...]
    flying: tuple[str, ...]
    events: dict[str, str]
    blocks: tuple[str, ...]

    @property
    def missing(self) -> str:
        """The arrivals and bytes that the phase lacks, in words."""
        return missing_text(self.state)

    def text(self) -> str:
        """The mbarrier in a few sentences."""
        k = self.state
        if not k.valid:
            return f"{self.name}: invalidated"
        lines = [f"{self.name}: {k.phase_text} (parity {k.word.phase}), {self.missing}"]
        if self.sleepers:
            lines += self._waiting()
        if self.flying:
            more = f" and {len(self.flying) - 1} more" if len(self.flying) > 1 else ""
            lines.append(f"in flight for it: of {self.flying[0]}{more}")
        return "\n    ".join(lines)

    def _waiting(self) -> Iterator[str]:
        alike: dict[tuple[int, int], dict[int, int]] = {}
        for s in self.sleepers:
            alike.setdefault((s.cta, s.parity), {})[s.warp] = s.lanes
        for (cta, parity), who in alike.items():
            yield f"{masks_text(who)}{of_block(self.blocks, cta)} {conjugated('wait', who)} for the phase of parity {parity}"

    def as_dict(self) -> dict[str, Any]:
        k = self.state
        return {
            "name": self.name, "cta": k.cta.rank, "byte": k.byte, "valid": k.valid, "phase": k.phases, "parity": k.word.phase,
            "pending": k.word.pending, "expected": k.word.expected, "bytes": k.word.bytes, "expected_bytes": k.expected,
            "came_bytes": k.came, "missing": self.missing, "events": self.events, "in_flight": list(self.flying),
            "waiting": [dict(vars(s)) for s in self.sleepers],
        }  # fmt: skip


@dataclass(frozen=True)
class ClusterBarrier:
    """The barrier of the cluster.

    arrived, expected: threads that have arrived, and all threads that have not exited.
    generation: how often it was complete.
    missing: rank of a CTA -> threads that have not arrived.
    """

    arrived: int
    expected: int
    generation: int
    missing: dict[int, int]

    def text(self, blocks: tuple[str, ...]) -> str:
        """The barrier in one sentence. blocks: names of the cluster's CTAs."""
        said = f"barrier.cluster: {self.arrived} of {self.expected} threads have arrived; complete {self.generation} times before"
        lacks = ", ".join(f"{n} of {blocks[rank]}" for rank, n in self.missing.items() if n)
        return said + (f"; missing: {lacks}" if self.arrived and lacks else "")

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Barriers:
    """All barriers of a cluster that something is known of."""

    named: tuple[NamedBarrier, ...]
    mbarriers: tuple[MbarrierView, ...]
    cluster: ClusterBarrier | None
    blocks: tuple[str, ...]

    def text(self, width: int = 80) -> str:
        """A paragraph for each barrier."""
        said = [(f"{self.blocks[b.cta]}, " if len(self.blocks) > 1 else "") + b.text() for b in self.named]
        said += [m.text() for m in self.mbarriers]
        if self.cluster is not None:
            said.append(self.cluster.text(self.blocks))
        if not said:
            return "no barrier has arrivals, and no mbarrier is initialised"
        parts = [("  " * bool(n), part.strip()) for text in said for n, part in enumerate(text.split("\n"))]
        lines = (wrap(part, width, initial_indent=lead, subsequent_indent="    ") for lead, part in parts)
        return "\n".join(line for some in lines for line in some)

    def __str__(self) -> str:
        return self.text()

    def as_dict(self) -> dict[str, Any]:
        return {
            "named": [b.as_dict() for b in self.named], "mbarriers": [m.as_dict() for m in self.mbarriers],
            "cluster": None if self.cluster is None else self.cluster.as_dict(),
        }  # fmt: skip


def masks_text(masks: dict[int, int]) -> str:
    """Warps and lanes in words: `warps 0 to 3`, `warp 4 lanes 0 to 7`."""
    whole = [w for w, m in masks.items() if m == FULL]
    said = []
    if whole:
        text = lanes_text(sum(1 << w for w in whole))
        said.append(text.replace("lane", "warp"))
    said += [f"warp {w} {lanes_text(m)}" for w, m in masks.items() if m and w not in whole]
    return ", ".join(said)


def conjugated(verb: str, who: dict[int, int]) -> str:
    """A verb in the number of what `masks_text` names: one whole warp or one lane is singular."""
    masks = list(who.values())
    if len(masks) == 1 and (masks[0] == FULL or masks[0].bit_count() == 1):
        return {"are": "is", "have": "has", "may": "may"}.get(verb, verb + "s")
    return verb


def barriers(scene: Scene) -> Barriers:
    """The barriers of the cluster."""
    named = tuple(b for cta in scene.resident.each() for b in named_barriers(scene, cta))
    return Barriers(named, tuple(mbarriers(scene)), _cluster(scene) if scene.resident.size > 1 else None, scene.blocks)


def named_barriers(scene: Scene, cta: ResidentCta) -> Iterator[NamedBarrier]:
    """The barriers of a CTA with arrivals."""
    for number in range(NUM_BARRIERS):
        row = cta.state["barriers"]
        if not int(row["came"][number]):
            continue
        count = int(row["count"][number])
        waiting = {n: int(w["bar_lanes"][number]) for n, w in enumerate(cta.warps)}
        came = {n: int(w["bar_came"][number]) for n, w in enumerate(cta.warps)}
        missing = {n: int(w["live"]) & ~(waiting[n] | came[n]) for n, w in enumerate(cta.warps)}
        arrived = int(row["arrived"][number])
        yield NamedBarrier(
            cta.rank, number, arrived, count or int(cta.state["live_threads"]), bool(count),
            {n: m for n, m in waiting.items() if m}, {n: m for n, m in came.items() if m & ~waiting[n] or m},
            {n: m for n, m in missing.items() if m},
        )  # fmt: skip


def mbarriers(scene: Scene) -> list[MbarrierView]:
    """The mbarriers of the cluster that are initialised, by block and address."""
    if not scene.kernel.mbarriers:
        return []
    rows = scene.resident.arena.view("accounts", _ACCOUNT)[:ACCOUNTS]
    count = int(scene.resident.cluster["account_count"][0])
    places = sorted(int(r["at"]) for r in rows if r["at"] and r["valid"]) if count else []
    asleep = sleepers(scene)
    out = []
    for at in places:
        k = known(scene.resident, at)
        flying = tuple(issuer(e, scene.cta) for e in under_way(k))
        known_events = {name: getattr(k, name) for name in ("made", "arrived", "asked", "brought")}
        events = {name: issuer(e, scene.cta) for name, e in known_events.items() if e is not None}
        out.append(MbarrierView(k, k.name(scene.cta), tuple(asleep.get(at, ())), flying, events, scene.blocks))
    return sorted(out, key=lambda m: (m.state.cta.rank, m.state.byte))


def sleepers(scene: Scene) -> dict[int, list[Sleeper]]:
    """Who waits at the mbarrier at each address of the host."""
    out: dict[int, list[Sleeper]] = {}
    for cta in scene.resident.each():
        for number, w in enumerate(cta.warps):
            lanes = int(w["waiting"]) & int(w["napping"]) & int(w["live"])
            found: dict[tuple[int, int], int] = {}
            for lane in lanes_in(lanes):
                key = int(w["naps_at"][lane]), int(w["naps_for"]) >> lane & 1
                found[key] = found.get(key, 0) | 1 << lane
            for (at, parity), mask in found.items():
                out.setdefault(at, []).append(Sleeper(cta.rank, number, mask, parity))
    return out


def _cluster(scene: Scene) -> ClusterBarrier:
    row = scene.resident.cluster
    generation = int(row["generation"][0])
    missing = {c.rank: int(c.state["live_threads"]) - arrivals(c, generation) for c in scene.resident.each()}
    live = sum(int(c.state["live_threads"]) for c in scene.resident.each())
    return ClusterBarrier(int(row["arrived"][0]), live, generation, missing)


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
