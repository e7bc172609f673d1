"""Who waits for whom: a graph of the warps of a cluster, a sentence for each wait, and why a block does not go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from mmulator.isa.effects import Ends, Orders, Queue, Step, Together
from mmulator.observation.debug.machine import first_lane
from mmulator.observation.debug.views.barrier_state import conjugated, masks_text, named_barriers
from mmulator.observation.debug.views.scene import Scene, issuer, of_block, spot
from mmulator.ptx.tree import Immediate, Instruction, Reg
from mmulator.runtime.launch.resident import ResidentCta
from mmulator.runtime.native.state import FULL, LANES
from mmulator.sanitizer.diagnostics.faults.cluster import arrived_lanes
from mmulator.sanitizer.diagnostics.faults.mbarrier import likely, missing_text
from mmulator.sanitizer.diagnostics.mbarriers import MbarrierState, arrivers, under_way
from mmulator.sanitizer.diagnostics.whereabouts import LaneGroup, lanes_text

if TYPE_CHECKING:
    from mmulator.runtime.compiled import CompiledKernel

Node = tuple[int, int]  # rank of a CTA in the cluster, number of a warp


@dataclass(frozen=True)
class Waker:
    """A warp that can end a wait. cta, warp, lanes: who. does: what is awaited of them, in words."""

    cta: int
    warp: int
    lanes: int
    does: str

    @property
    def node(self) -> Node:
        return self.cta, self.warp


@dataclass(frozen=True)
class LaneWait:
    """Lanes that cannot go on.

    cta, warp, lanes: who waits.
    instruction: where.
    what: for what, in words: `phase 2 of full[0] (shared 0x410)`.
    wakers: who can end the wait.
    every: whether all of these are needed; otherwise one may be enough.
    flying: asynchronous operations in flight that can end the wait, in words.
    why: what is missing, and what is likely wrong, in words.
    for_ever: whether nothing that can still happen ends the wait.
    """

    cta: int
    warp: int
    lanes: int
    instruction: Instruction | None
    what: str
    wakers: tuple[Waker, ...] = ()
    every: bool = True
    flying: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    for_ever: bool = False

    @property
    def node(self) -> Node:
        return self.cta, self.warp

    def who(self, blocks: tuple[str, ...]) -> str:
        """The lanes that wait, in words. blocks: names of the cluster's CTAs."""
        lanes = f" {lanes_text(self.lanes)}" if self.lanes != FULL else ""
        return f"warp {self.warp}{lanes}{of_block(blocks, self.cta)}"

    def text(self, blocks: tuple[str, ...] = ()) -> str:
        """The wait in plain sentences. blocks: names of the cluster's CTAs."""
        verb = "wait" if self.lanes != FULL and self.lanes.bit_count() > 1 else "waits"
        said = [f"{self.who(blocks)} {verb} for {self.what}, at {spot(self.instruction)}"]
        said += self.why
        said += [f"in flight: {f}" for f in self.flying]
        names: dict[str, dict[int, dict[int, int]]] = {}
        for w in self.wakers:
            names.setdefault(w.does, {}).setdefault(w.cta, {})[w.warp] = w.lanes
        for does, parts in names.items():
            who = " and ".join(masks_text(m) + of_block(blocks, cta) for cta, m in parts.items())
            verb, _, rest = does.partition(" ")
            several = dict(enumerate(mask for m in parts.values() for mask in m.values()))
            said.append(f"{who} {conjugated(verb, several)} {rest}")
        if not self.wakers and not self.flying:
            said.append("no warp can end this wait any more")
        return "; ".join(said)

    def as_dict(self) -> dict[str, Any]:
        return {
            "cta": self.cta, "warp": self.warp, "lanes": self.lanes, "at": spot(self.instruction), "what": self.what,
            "wakers": [dict(vars(w)) for w in self.wakers],
            "every": self.every, "flying": list(self.flying), "why": list(self.why), "for_ever": self.for_ever,
        }  # fmt: skip


@dataclass(frozen=True)
class Waits:
    """Who waits for whom in a cluster.

    waits: of all lanes that cannot go on.
    ready: warps that have lanes that can go on.
    blocks: names of the cluster's CTAs.
    """

    waits: tuple[LaneWait, ...]
    ready: tuple[Node, ...]
    blocks: tuple[str, ...]

    @property
    def stuck(self) -> tuple[LaneWait, ...]:
        """Waits that nothing can end any more."""
        return tuple(w for w in self.waits if w.for_ever)

    @property
    def edges(self) -> list[tuple[Node, Node]]:
        """(who waits, for whom), each a CTA's rank and a warp."""
        return list(dict.fromkeys((w.node, k.node) for w in self.waits for k in w.wakers))

    @property
    def cycle(self) -> list[Node]:
        """Warps of which each waits for the next and the last for the first; none if there are none."""
        stuck = {w.node for w in self.stuck}
        graph: dict[Node, list[Node]] = {}
        for a, b in self.edges:
            if a in stuck and b in stuck and a != b:
                graph.setdefault(a, []).append(b)
        for start in graph:
            path, seen = [start], {start}
            while nexts := [n for n in graph.get(path[-1], ()) if n == start or n not in seen]:
                step = start if start in nexts and len(path) > 1 else nexts[0]
                if step == start:
                    return path
                path.append(step)
                seen.add(step)
        return []

    def text(self, width: int = 80) -> str:
        """Why the block goes on or does not: a paragraph for each kind of wait."""
        lines = [self._verdict()]
        for text in self._merged():
            lines += wrap(text, width, initial_indent="  ", subsequent_indent="    ")
        cycle = self.cycle
        if cycle:
            names = [f"warp {w}{of_block(self.blocks, c)}" for c, w in cycle]
            lines += wrap(f"in a circle: {' waits for '.join([*names, names[0]])}", width, subsequent_indent="  ")
        return "\n".join(line for text in lines for line in (wrap(text, width) if len(text) > width else [text]))

    def __str__(self) -> str:
        return self.text()

    def _verdict(self) -> str:
        if self.stuck:
            more = f"; {_count(len(self.ready), 'warp')} can go on" if self.ready else ""
            return f"deadlock: {_count(len({w.node for w in self.stuck}), 'warp')} can never go on{more}"
        if not self.waits:
            return "no lane waits"
        return f"{_count(len({w.node for w in self.waits}), 'warp')} wait{'s' * (len({w.node for w in self.waits}) == 1)}, " \
            f"{_count(len(self.ready), 'warp')} can go on"

    def _merged(self) -> list[str]:
        """Sentences, with warps of one CTA that wait alike named together."""
        said: dict[Any, list[LaneWait]] = {}
        for w in self.waits:
            said.setdefault((w.cta, w.lanes, w.instruction, w.what, w.why, w.flying, w.for_ever, _but(w)), []).append(w)
        out = []
        for alike in said.values():
            text = alike[0].text(self.blocks)
            if len(alike) > 1 and alike[0].lanes == FULL:
                who = masks_text({w.warp: FULL for w in alike}) + of_block(self.blocks, alike[0].cta)
                text = f"{who} wait" + text[len(alike[0].who(self.blocks)) + len(" waits") :]
            out.append(text + "; for ever" * alike[0].for_ever)
        return out

    def as_dict(self) -> dict[str, Any]:
        return {
            "waits": [w.as_dict() | {"sentence": w.text(self.blocks)} for w in self.waits],
            "ready": [list(n) for n in self.ready], "edges": [[list(a), list(b)] for a, b in self.edges],
            "stuck": [list(w.node) for w in self.stuck], "cycle": [list(n) for n in self.cycle], "verdict": self._verdict(),
        }  # fmt: skip


def _but(w: LaneWait) -> Any:
    return tuple((k.cta, k.warp, k.lanes, k.does) for k in w.wakers if k.node != w.node)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def waits(scene: Scene) -> Waits:
    """Who waits for whom in the cluster of the warp whose turn it is."""
    every = scene.cta_groups
    found: list[LaneWait] = []
    ready: dict[Node, None] = {}
    for cta, groups in every:
        for g in groups:
            if g.state == "runs":
                ready[cta.rank, g.warp] = None
            else:
                found.append(_KINDS[g.state](scene, cta, g, every))
    return Waits(tuple(_judged(found, set(ready))), tuple(ready), scene.blocks)


def _judged(found: list[LaneWait], ready: set[Node]) -> list[LaneWait]:
    """The waits, with those marked that nothing can end: the greatest set of waits each of which needs another of the set."""
    stuck = set(range(len(found)))
    while True:
        # who moves: a warp with lanes that are ready, or that wait for what may still come
        nodes = {found[n].node for n in stuck} - ready - {w.node for n, w in enumerate(found) if n not in stuck}
        free = {n for n in stuck if not _is_stuck(found[n], nodes)}
        if not free:
            break
        stuck -= free
    return [replace(w, for_ever=n in stuck) for n, w in enumerate(found)]


def _is_stuck(w: LaneWait, nodes: set[Node]) -> bool:
    if w.flying:
        return False
    blocked = [k.node in nodes or (k.node == w.node and not k.lanes & ~w.lanes) for k in w.wakers]
    return not blocked or (any(blocked) if w.every else all(blocked))


# one wait ----------------------------------------------------------------------------------------------------------------------
Every = list[tuple[ResidentCta, list[LaneGroup]]]


def _at_barrier(scene: Scene, cta: ResidentCta, g: LaneGroup, every: Every) -> LaneWait:
    known = next((b for b in named_barriers(scene, cta) if b.number == g.barrier), None)
    what = f"barrier {g.barrier}"
    if known is None:
        return LaneWait(cta.rank, g.warp, g.lanes, g.instruction, what)
    why = (f"{known.arrived} of {known.expected} threads have arrived",)
    if known.counted:
        reach = _reaching(scene, every, _arrives_at_barrier)
        wakers = tuple(k for k in reach if k.cta == cta.rank and k.warp in known.missing)
        return LaneWait(cta.rank, g.warp, g.lanes, g.instruction, what, wakers, False, (), why)
    wakers = tuple(Waker(cta.rank, w, m, "are not there") for w, m in known.missing.items())
    return LaneWait(cta.rank, g.warp, g.lanes, g.instruction, what, wakers, True, (), why)


def _arrives_at_barrier(ins: Instruction) -> bool:
    return ins.effects.ends is Ends.BARRIER


def _held(scene: Scene, cta: ResidentCta, g: LaneGroup, every: Every) -> LaneWait:
    """Lanes that wait for lanes of their own warp."""
    w, ins = cta.warps[g.warp], g.instruction
    members = _members(scene, cta, g, ins) & int(w["live"]) if ins is not None else FULL
    missing = members & ~g.lanes
    wakers = tuple(
        Waker(cta.rank, g.warp, o.lanes & missing, f"are at {spot(o.instruction)}")
        for c, groups in every if c.rank == cta.rank for o in groups if o.warp == g.warp and o.lanes & missing
    )  # fmt: skip
    mask = f" of the member mask {members:#010x}" if ins is not None and ins.effects.together is not Together.WARP else ""
    what = f"{lanes_text(missing)}{mask}" if missing else "other lanes of its warp"
    return LaneWait(cta.rank, g.warp, g.lanes, ins, what, wakers, True)


def _members(scene: Scene, cta: ResidentCta, g: LaneGroup, ins: Instruction) -> int:
    """The member mask of the instruction at which lanes wait."""
    if ins.effects.together is Together.MEETING:
        return int(cta.warps[g.warp]["sync_members"][first_lane(g.lanes)])
    if ins.effects.together is not Together.MEMBERS:
        return FULL
    mask = ins.operands[-1]
    if isinstance(mask, Immediate):
        return mask.bits("b32")
    if isinstance(mask, Reg):
        place = scene.warp_at(cta.rank, g.warp)
        found = scene.register(mask.name, place, scene.function_of(g), g.frame)
        if found is not None:
            return int(found[first_lane(g.lanes)]) & FULL
    return FULL


def _for_others(scene: Scene, cta: ResidentCta, g: LaneGroup, every: Every) -> LaneWait:
    """Lanes that wait for other warps: of the warpgroup, of the cluster, or for registers or columns."""
    ins = g.instruction
    make = (cta.rank, g.warp, g.lanes, ins)
    if ins is None:
        return LaneWait(*make, "other warps")
    effects = ins.effects
    if effects.queue is Queue.WGMMA or effects.together is Together.WARPGROUP:
        first = g.warp & ~3
        others = [n for n in range(first, min(first + 4, len(cta.warps))) if n != g.warp]
        gone = [n for n in others if int(cta.warps[n]["live"]) != FULL]
        wakers = tuple(_elsewhere(cta, every, n) for n in others if n not in gone and not _alike(every, cta, n, ins))
        have = "has" if len(gone) == 1 else "have"
        why = (f"{masks_text(dict.fromkeys(gone, FULL))} of the warpgroup {have} exited",) if gone else ()
        return LaneWait(*make, f"the other warps of its warpgroup, {first} to {first + 3}", wakers, True, (), why)
    if effects.holds:
        frees = _reaching(scene, every, lambda i: i.effects.frees, "may free some")
        return LaneWait(*make, "free columns of tensor memory", tuple(k for k in frees if k.cta == cta.rank), False)
    if effects.resizes:
        free = int(cta.state["register_pool"]) * LANES
        reach = _reaching(scene, every, lambda i: i.effects.resizes and "dec" in i.modifiers, "may release some")
        own = tuple(k for k in reach if k.cta == cta.rank)
        return LaneWait(*make, f"registers: {free} are free in the pool of the block", own, False)
    if effects.orders is Orders.CLUSTER:
        generation = int(scene.resident.cluster["generation"][0])
        wakers = tuple(
            Waker(c.rank, n, m, "have not arrived") for c, _ in every for n, w in enumerate(c.warps)
            if (m := int(w["live"]) & ~arrived_lanes(w, generation))
        )  # fmt: skip
        return LaneWait(*make, "the barrier of the cluster", wakers, True)
    flying = _flying(scene, cta, g)
    return LaneWait(*make, "what it has issued", (), True, flying)


def _flying(scene: Scene, cta: ResidentCta, g: LaneGroup) -> tuple[str, ...]:
    from mmulator.observation.debug.views.in_flight import flights

    own = [f for f in flights(scene).flights if (f.cta, f.warp) == (cta.rank, g.warp)]
    return tuple(spot(f.instruction) for f in own[:2])


def _alike(every: Every, cta: ResidentCta, warp: int, ins: Instruction) -> bool:
    """Whether all lanes of a warp wait at an instruction."""
    groups = next(gs for c, gs in every if c.rank == cta.rank)
    own = [g for g in groups if g.warp == warp]
    return bool(own) and all(g.instruction is ins and g.state == "waits" for g in own)


def _elsewhere(cta: ResidentCta, every: Every, warp: int) -> Waker:
    groups = next(gs for c, gs in every if c.rank == cta.rank)
    own = [g for g in groups if g.warp == warp]
    at = spot(own[0].instruction) if own else "its end"
    return Waker(cta.rank, warp, sum(g.lanes for g in own), f"are at {at}")


def _asleep(scene: Scene, cta: ResidentCta, g: LaneGroup, every: Every) -> LaneWait:
    """Lanes that sleep at an mbarrier."""
    k = g.mbarrier
    make = (cta.rank, g.warp, g.lanes, g.instruction)
    if k is None:
        return LaneWait(*make, "an mbarrier")
    what = f"{k.phase_text} of {k.name(cta)}"
    if not k.valid:
        return LaneWait(*make, what, (), True, (), ("nothing is initialised there",))
    issued = under_way(k)
    flying = tuple(f"{issuer(e, cta)}" for e in issued[:2])
    if len(issued) > 2:
        flying = (*flying[:1], f"{flying[1]} and {len(issued) - 2} more")
    arriving = set(arrivers(scene.grid, k)) if k.word.pending else set()
    bringing = k.word.bytes > 0 and not issued
    reach = _reaching(scene, every, lambda i: i in arriving, "may still arrive") if arriving else ()
    if bringing and not k.word.pending:
        reach = _reaching(scene, every, lambda i: _brings(i), "may still issue a copy")
    own = tuple(w for w in reach if not (w.node == (cta.rank, g.warp) and not w.lanes & ~g.lanes))
    sentence = likely(g)[1] if not own and not flying else ""
    why = (missing_text(k), *([sentence] if sentence else []))
    return LaneWait(*make, what, own, False, flying if not k.word.pending or _by_copies(k) else (), why)


def _by_copies(k: MbarrierState) -> bool:
    """Whether arrivals of asynchronous copies, or of tcgen05.commit, are under way."""
    return any(e.instruction.effects.queue is not Queue.BULK or e.instruction.effects.step is Step.SIGNAL for e in under_way(k))


def _brings(ins: Instruction) -> bool:
    return ins.effects.queue is Queue.BULK and ins.effects.step is Step.ISSUE


_KINDS: dict[str, Callable[[Scene, ResidentCta, LaneGroup, Every], LaneWait]] = {
    "barrier": _at_barrier, "held": _held, "waits": _for_others, "sleeps": _asleep,
}


# what can still be reached ----------------------------------------------------------------------------------------------------
def _reaching(scene: Scene, every: Every, is_one: Callable[[Instruction], bool], does: str = "may arrive") -> tuple[Waker, ...]:
    """Warps with lanes from whose place an instruction can be reached."""
    kernel = scene.kernel
    blocks = _with(kernel, is_one)
    if not blocks:
        return ()
    reach = kernel.once(reachable)
    out: dict[Node, int] = {}
    for cta, groups in every:
        for g in groups:
            if reach[g.pc] & blocks:
                out[cta.rank, g.warp] = out.get((cta.rank, g.warp), 0) | g.lanes
    return tuple(Waker(c, w, m, does) for (c, w), m in out.items())


def _with(kernel: CompiledKernel, is_one: Callable[[Instruction], bool]) -> int:
    """Mask of the blocks of code that have an instruction."""
    found = 0
    for block in kernel.program.blocks:
        if any(is_one(i.original) for i in (*block.body, block.last) if i is not None):
            found |= 1 << block.index
    return found


def reachable(kernel: CompiledKernel) -> list[int]:
    """For each block of code the mask of the blocks that can be executed from its beginning on. A call may lead to any function,
    and from a function back to anywhere.
    """
    blocks = kernel.program.blocks
    everything = (1 << len(blocks)) - 1
    own = next(iter(kernel.program.functions.values()))
    inside = {b.index for b in own.blocks}
    outside = sum(1 << b.index for b in blocks if b.index not in inside)
    reach = [1 << n if n in inside else everything for n in range(len(blocks))]
    for block in own.blocks:
        if block.ending is Ends.CALL:
            reach[block.index] |= outside
    changed = True
    while changed:
        changed = False
        for block in reversed(own.blocks):
            found = reach[block.index]
            for target in block.targets:
                found |= reach[target]
            if found != reach[block.index]:
                reach[block.index], changed = found, True
    return reach
