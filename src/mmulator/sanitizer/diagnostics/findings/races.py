"""Sentences about races: accesses to memory without an order between them; and operations that almost order them, a signal and a
wait that are relaxed, or whose scope is too narrow.

The search for those runs only when a race is reported, and reads the text alone. For two accesses A and B, it takes operations
after A that signal, operations before B that wait, and the fences between them, and names the pair that lacks least. If some pair
lacks nothing, the cause must be something else, and nothing is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mmulator.base.rules import races as rules
from mmulator.isa.effects import Algebra, Ends, MemoryEffect, Orders, Queue
from mmulator.ptx.program.uses import registers_of, uses_and_defs
from mmulator.ptx.tree import Address, Instruction, Reg, Symbol
from mmulator.runtime.compiled import CompiledKernel
from mmulator.sanitizer.diagnostics.findings.context import FindingContext, Said, Sentences, location
from mmulator.sanitizer.diagnostics.mbarriers import arrives, operates
from mmulator.sanitizer.shadow.judgement import AGAIN
from mmulator.sanitizer.shadow.records import STRONG

_RELAXED = ("relaxed", "volatile")
_TAKES, _ORDERS = frozenset(("cas", "exch")), frozenset(("acquire", "release", "acq_rel"))
WRITES, CHANGES = 2, 4  # flags of an access
_STEPS = 64  # registers that are looked at for an update
_CLUSTER, _MBARRIER, _MEMORY = "cluster", "arrivals", "memory"


@dataclass(frozen=True)
class Link:
    """An operation that signals or waits. group: its kind and place. relaxed: whether it orders nothing by itself."""

    ins: Instruction
    group: tuple[str, str]
    relaxed: bool
    scope: str

    @property
    def at(self) -> int:
        return self.ins.span.start


class Lack(NamedTuple):
    """A reason why a pair does not order the two. mend: may name {scope}. sem: release or acquire, if this alone is missing."""

    what: str
    mend: str
    sem: str = ""


def nearly(c: FindingContext) -> tuple[str, str]:
    """(what an almost sufficient operation lacks, how to repair it): `fence.acq_rel.cta at k.ptx:9 has scope .cta alone`; two
    empty texts if there is no such operation.
    """
    lacks = _nearest(c)
    return "; ".join(lack.what for lack in lacks), "; ".join(dict.fromkeys(lack.mend for lack in lacks))


def is_unreleased(c: FindingContext) -> bool:
    """Whether all that an almost sufficient pair lacks is the release of its signal."""
    return [lack.sem for lack in _nearest(c)] == ["release"]


def is_plain_sync(c: FindingContext) -> bool:
    """Whether one access is a plain store, and the other an atomic operation by which threads wait for each other."""
    word = int(c.entry["words"][0])
    for plain, strong, ins in (word, word >> 32, c.instruction), (word >> 32, word, c.other):
        if ins is not None and strong & STRONG and not plain & STRONG:
            return bool(plain & WRITES) and not (_TAKES | _ORDERS).isdisjoint(ins.modifiers)
    return False


def changes_in_place(c: FindingContext) -> bool:
    """Whether both accesses are of updates like `h[i]++`: a store of what was computed from a load of the same address."""
    updates = c.grid.kernel.once(_updates)
    return c.other is not None and {c.instruction.span.start, c.other.span.start} <= updates


def _updates(kernel: CompiledKernel) -> frozenset[int]:
    """Where in the text the plain loads and stores of updates are."""
    found, newest = set[int](), dict[str, _Made]()
    for ins in sorted(kernel.sites, key=lambda i: i.span.start):
        uses, defs = uses_and_defs(ins)
        if _plain(ins, MemoryEffect.WRITE) and (place := _place(ins)):
            values = (r for o in ins.operands if not isinstance(o, Address) for r in registers_of(o))
            todo = [(newest[r], False) for r in values if r in newest]
            for made, computed in todo:
                if not _plain(made.ins, MemoryEffect.READ):
                    computes = computed or made.ins.effects.algebra is not Algebra.COPY
                    todo += [(source, computes) for source in made.sources if len(todo) < _STEPS]
                elif computed and (_place(made.ins), made.ins.guard) == (place, ins.guard):
                    found |= {made.ins.span.start, ins.span.start}
        newest |= dict.fromkeys(defs, _Made(ins, [newest[r] for r in uses if r in newest]))
        if ins.effects.ends is not Ends.NO:  # an update has no branch in it
            newest.clear()
    return frozenset(found)


class _Made(NamedTuple):
    """An instruction that made a value, and what made its sources."""

    ins: Instruction
    sources: list[_Made]


def _plain(ins: Instruction, does: MemoryEffect) -> bool:
    return ins.effects.counted_as == "memory" and ins.effects.memory is does


def _nearest(c: FindingContext) -> list[Lack]:
    """The lacks of the pair of signal and wait that has fewest; empty if there is no such pair."""
    other = c.other
    assert other is not None
    every = {i.span.start: i for i in c.grid.kernel.sites}
    sites = [every[at] for at in sorted(every)]
    blocks = int(c.entry["cta"]), int(c.entry["other_cta"])
    apart, size = blocks[0] != blocks[1], c.grid.shape.cluster_size
    wanted = "" if not apart else ".cluster" if blocks[0] // size == blocks[1] // size and size > 1 else ".gpu"
    both = (other, c.instruction), (c.instruction, other)
    lacks = [lack for first, second in both if (lack := _least(sites, first, second, apart))]
    return [lack._replace(mend=lack.mend.format(scope=wanted or ".cta")) for lack in min(lacks, key=len, default=[])]


def _least(sites: Sequence[Instruction], a: Instruction, b: Instruction, apart: bool) -> list[Lack]:
    """The shortest list of what a pair of signal and wait lacks; empty if a pair at one place lacks
    nothing.
    """
    exact = [*_chains(sites, a, b, apart, True)]
    if any(not lacks for group, lacks in exact if group == _MEMORY):  # of barriers there are others
        return []
    lacking = [lacks for _, lacks in exact if lacks]
    if not lacking:  # another block names the same flag differently
        lacking = [lacks for _, lacks in _chains(sites, a, b, apart, False) if lacks]
    return min(lacking, key=len, default=[])


def _chains(
    sites: Sequence[Instruction], a: Instruction, b: Instruction, apart: bool, exact: bool
) -> Iterator[tuple[str, list[Lack]]]:
    """For each group of links: what the first signal after A and the last wait before B lack, and the repair.

    sites: the kernel's instructions, in the order of the text.
    a, b: the two accesses.
    apart: whether they are in different blocks.
    exact: whether signal and wait must also name the same place.
    """
    begin, end = a.span.start, b.span.start
    key = slice(1 + exact)
    behind = (s for i in reversed(sites) if i not in (a, b) and i.span.start > begin for s in _links(i, True))
    before = (w for i in sites if i not in (a, b) and i.span.start < end for w in _links(i, False))
    signals, waits = {s.group[key]: s for s in behind}, {w.group[key]: w for w in before}
    fences = [i for i in sites if i.effects.orders is Orders.FENCE]
    for place, s in signals.items():
        w = waits.get(place)
        if w is not None and (apart or w.ins is not s.ins):  # a counter of a block's own passes nothing on
            lacks = [*_lacks(s, _within(fences, begin, s.at), apart, "release", "before"),
                     *_lacks(w, _within(fences, w.at, end), apart, "acquire", "after")]  # fmt: skip
            yield place[0], [*dict.fromkeys(lacks)]


def _within(fences: Sequence[Instruction], begin: int, end: int) -> list[Instruction]:
    return [f for f in fences if begin < f.span.start < end]


def _lacks(link: Link, fences: Sequence[Instruction], apart: bool, sem: str, where: str) -> Iterator[Lack]:
    name = f"{link.ins.mnemonic} at {location(link.ins)}"
    if apart and not link.scope and sem == "release" and link.group[0] == _MBARRIER and not link.relaxed and not fences:
        yield Lack(f"{name} says no scope", f"write .release.cluster at {location(link.ins)}")
    if apart and link.scope == "cta":
        yield Lack(f"{name} has scope .cta alone", f"give the {link.ins.opcode} at {location(link.ins)} the scope {{scope}}")
    if not link.relaxed:
        return
    wide = [f for f in fences if not (apart and _scope(f) == "cta")]
    if wide:
        return
    if fences:
        yield Lack(f"{fences[0].mnemonic} at {location(fences[0])} has scope .cta alone", "give the fence the scope {scope}")
    else:
        mend = f"make the {link.ins.opcode} at {location(link.ins)} .{sem}, or put fence.acq_rel{{scope}} {where} it"
        yield Lack(f"{name} is relaxed, and no fence lies {where} it", mend, sem)


def _scope(ins: Instruction) -> str:
    slots = dict(ins.form.modifiers)
    return str(slots.get("scope") or slots.get("level") or "")


def _links(ins: Instruction, signal: bool) -> Iterator[Link]:
    """The links that an instruction is. signal: whether it is taken as a signal or as a wait."""
    effects = ins.effects
    sem, scope = str(dict(ins.form.modifiers).get("sem") or ""), _scope(ins)
    cluster = effects.orders is Orders.CLUSTER
    if cluster or (operates(ins) and effects.queue is Queue.NONE):
        waits = effects.ends is Ends.WAIT
        if waits != signal and (waits or cluster or arrives(ins)):
            yield Link(ins, (_CLUSTER if cluster else _MBARRIER, _place(ins)), sem in _RELAXED, scope)
        return
    does = effects.memory if effects.counted_as in ("memory", "atomic") else MemoryEffect.NONE
    both = does is MemoryEffect.ATOMIC
    if not both and does is not (MemoryEffect.WRITE if signal else MemoryEffect.READ):
        return
    if both and not signal and isinstance(ins.operands[0], Address):
        return  # it has no result
    sem = sem or ("relaxed" if both else "")
    if sem in ("", "weak"):
        return
    half = sem == ("acquire" if signal else "release")  # of an atomic operation, which does both
    yield Link(ins, (_MEMORY, _place(ins)), sem in _RELAXED or half, scope)


def _place(ins: Instruction) -> str:
    """The base and offset of an instruction's address, `%rd1+8`, to compare places; "" if the address has no base."""
    address = next((o for o in ins.operands if isinstance(o, Address)), None)
    if address is None or not isinstance(address.base, Reg | Symbol):
        return ""
    return f"{address.base.name}+{address.offset + getattr(address.base, 'offset', 0)}"


# sentences ----------------------------------------------------------------------------------------------------------
def _does(flags: int) -> str:
    return "changes" if flags & CHANGES else "writes" if flags & WRITES else "reads"


def _race(c: FindingContext) -> str:
    """The message of a race with a placeholder for the missing order: `st.shared.f32 writes bytes that ld.shared.f32 reads, and
    {}`.
    """
    word = c.words[0]
    now, before = word >> 32 & 0x7FFFFFFF, word & 0xFFFFFFFF
    return f"{c.name} {_does(now)} bytes that {c.against} {_does(before)}, and {{}}"


_ATOMIC = (
    "if all these threads add to one element, add with atom.add or red.add: of two loads and stores at the same time, one update "
    "is lost, and no barrier helps; else let each thread change an element of its own"
)


def _unordered(missing: str) -> Callable[[FindingContext], Said]:
    return lambda c: _near(c, _race(c).format(missing))


def _near(c: FindingContext, said: str) -> Said:
    """The message and hint of a race. If an operation almost orders the two accesses, both name it."""
    what, mend = nearly(c)
    hint = c.rule.hint
    if not what and changes_in_place(c):
        other = hint.partition("; or ")[2]  # than an atomic operation; a barrier would not help
        return said, c.where(), f"{_ATOMIC}; or {other}" if other else _ATOMIC
    word = c.words[0]
    plain = word >> 32 & word & WRITES and not (word >> 32 | word) & CHANGES
    if plain and c.against == c.name:
        hint = f"if each thread should write bytes of its own, correct the stride and the offsets of the address; else {hint}"
        if not what:
            return said, c.where(), hint
    if what:
        return f"{said}: {what}", c.where(), f"{mend}; else {hint}"
    if word & STRONG and word & WRITES and not word >> 32 & (STRONG | WRITES):
        return said, c.where(), f"where any value that was there will do, read it with ld.relaxed or ld.volatile; else {hint}"
    return said


def _of_block(c: FindingContext) -> Said:
    """The message and hint of a race between threads of a block; a repeated write that came second is called an overwritten
    buffer.
    """
    said = _race(c).format("no barrier lies between")
    return _near(c, f"buffer overwritten while it may still be read: {said}" if c.words[0] >> AGAIN else said)


def _copies(ins: Instruction) -> bool:
    return ins.effects.queue is Queue.COPIES


def _of_copy(said: str) -> Callable[[FindingContext], str]:
    """A function that writes the message of a race between an access and a cp.async, whichever of the two was found second."""

    def sentence(c: FindingContext) -> str:
        access, copy = c.name, c.against
        if _copies(c.instruction) and not (c.other is not None and _copies(c.other)):
            access, copy = copy, access
        return said.format(access, copy)

    return sentence


def _lanes(said: str) -> Callable[[FindingContext], str]:
    return lambda c: f"{c.name}: lanes {c.words[0] & 0xFF} and {c.words[0] >> 32} store {said}"


_BARRIER, _WEAK = _unordered("no barrier lies between"), _unordered("nothing orders the two, of which one is weak")
SENTENCES: Sentences = {
    rules.WRITE_WRITE: _BARRIER, rules.READ_WRITE: _of_block, rules.REPLICATED_READ: _BARRIER,
    rules.IN_WARP: _unordered("nothing orders the two threads of a warp"),
    rules.BETWEEN_BLOCKS: _unordered("nothing orders the two blocks"),
    rules.PLAIN_SYNC: lambda c: _race(c).format("one of the two is plain"),
    rules.IN_CLUSTER: _unordered("nothing orders the two blocks of the cluster"),
    rules.COPY_READ: _of_copy("{} reads bytes that {} may not have copied yet"),
    rules.COPY_OVERWRITTEN: _of_copy("{} writes bytes that {} may copy to later"),
    rules.COPY_SOURCE: _of_copy("{} writes bytes that {} may copy from later"),
    rules.HALF_STRONG: _WEAK, rules.NOT_RELEASED: _WEAK,
    rules.UNREAD: _unordered("no barrier lies between; nothing reads what it loaded"),
    rules.LANES_DIFFER: _lanes("different values to the same bytes; which stays is not defined"),
    rules.MATRIX_ROWS: _lanes("different rows at one address; which stays is not defined"),
    rules.SIZES: lambda c: _race(c).format("the two are of different sizes"),
    rules.SCOPE: _unordered("the scope of one leaves out the other's block"),
}
