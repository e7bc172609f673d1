"""Straight-line regions of a function as NVIDIA's assembler sees them when it contracts products and sums.

Regions differ from the blocks of blocks.py: some single PTX instructions are branches in machine code (`div.rn.f32`, a guarded
load), and adjacent blocks without another way in are one region. The rows of instructions state this (`Effects.ptxas`); it was
found by experiment: docs/explanation/arithmetic.md.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field

from mmulator.base.classes import dataclass
from mmulator.isa.effects import Algebra, Ends, Ptxas
from mmulator.ptx.program.blocks import blocks_from
from mmulator.ptx.program.flow import turned
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Function, Immediate, Instruction, Label, LabelRef, NegatedPredicate, Operand, Reg, Symbol

_ENDS = (Ends.BRANCH, Ends.INDEXED, Ends.RETURN, Ends.EXIT, Ends.TRAP)
_JUMPS = (Ends.BRANCH, Ends.INDEXED)


@dataclass
class _Segment:
    """Statements without a branch in or out.

    jumps: labels to which it may branch.
    falls: whether control may continue in the next segment.
    forks: whether its last instruction is a branch of the machine code that PTX does not show, so that no segment is joined to
        it.
    """

    statements: list[int] = field(default_factory=list)
    jumps: list[str] = field(default_factory=list)
    falls: bool = True
    forks: bool = False


@dataclass(frozen=True)
class CodeRegions:
    """The regions of a function.

    place: reachable statement -> (region, position in it).
    successors: of each region.
    guarded: statements whose guard is not known to be true.
    definitions: register -> statements that write it.
    accesses: statement -> (registers read, registers written).
    cuts: statements that end a region and are not branches in PTX.
    """

    place: Mapping[int, tuple[int, int]]
    successors: Mapping[int, frozenset[int]]
    guarded: frozenset[int]
    definitions: Mapping[str, list[int]]
    accesses: Mapping[int, tuple[frozenset[str], frozenset[str]]]
    cuts: frozenset[int]


def regions_of(function: Function, dead: AbstractSet[int] = frozenset()) -> CodeRegions:
    """The regions of a function: its body is cut at branches, and segments with only one way between them are joined.

    dead: statements that are removed first, and do not cut.
    """
    body = function.body
    accesses = {n: uses_and_defs(s) for n, s in enumerate(body) if isinstance(s, Instruction)}
    definitions: dict[str, list[int]] = defaultdict(list)
    for n, (_, writes) in accesses.items():
        for name in writes:
            definitions[name].append(n)
    known = _constants(function, definitions)
    segments, labels, guarded, cuts = _segments(function, known, dead)
    region, order, joined = _join(segments, labels)
    place: dict[int, tuple[int, int]] = {}
    successors: dict[int, set[int]] = defaultdict(set)
    count: dict[int, int] = defaultdict(int)
    for s in order:
        for n in segments[s].statements:
            place[n] = region[s], count[region[s]]
            count[region[s]] += 1
        if s not in joined:
            successors[region[s]].update(region[t] for t in _targets(segments, labels, s))
    return CodeRegions(
        place, {r: frozenset(t) for r, t in successors.items()}, frozenset(guarded), definitions, accesses, frozenset(cuts)
    )


def _segments(
    function: Function, known: Mapping[str, int], dead: AbstractSet[int]
) -> tuple[list[_Segment], dict[str, int], set[int], set[int]]:
    segments = [_Segment()]
    labels: dict[str, int] = {}
    guarded: set[int] = set()
    cuts: set[int] = set()

    def cut() -> None:
        segments.append(_Segment())

    for n, statement in enumerate(function.body):
        if isinstance(statement, Label):
            if segments[-1].statements or segments[-1].jumps or not segments[-1].falls or segments[-1].forks:
                cut()
            labels[statement.name] = len(segments) - 1
            continue
        runs = _runs(statement, known)
        if runs is False:
            continue
        segment = segments[-1]
        segment.statements.append(n)
        if runs is None:
            guarded.add(n)
        ends, ptxas = statement.effects.ends, statement.effects.ptxas
        if ends in _ENDS:
            segment.jumps = _jumps(function, statement)
            segment.falls = runs is None
            segment.forks = runs is None and ends not in _JUMPS
            cut()
        elif _cuts(ptxas, guarded=runs is None) and (n not in dead or ptxas is Ptxas.EXPANDED):
            segment.forks = True
            cuts.add(n)
            cut()
    segments[-1].falls = False
    return segments, labels, guarded, cuts


def _jumps(function: Function, ins: Instruction) -> list[str]:
    if ins.effects.ends is Ends.BRANCH:
        return [o.name for o in ins.operands if isinstance(o, LabelRef)]
    if ins.effects.ends is Ends.INDEXED and isinstance(ins.operands[1], Symbol):
        return [t.name for t in function.targets[ins.operands[1].name].targets]
    return []


def _cuts(ptxas: Ptxas, guarded: bool) -> bool:
    """Whether the machine code of an instruction has a branch."""
    return ptxas in (Ptxas.BRANCHES, Ptxas.EXPANDED) or (guarded and ptxas is Ptxas.GUARDED)


def _targets(segments: list[_Segment], labels: Mapping[str, int], s: int) -> set[int]:
    segment = segments[s]
    targets = {labels[name] for name in segment.jumps}
    if segment.falls and s + 1 < len(segments):
        targets.add(s + 1)
    return targets


def _join(segments: list[_Segment], labels: Mapping[str, int]) -> tuple[dict[int, int], list[int], dict[int, int]]:
    """(region of each reachable segment; these segments in order, a region's together; segment -> the segment joined behind
    it).
    """
    reached = blocks_from([0], lambda s: _targets(segments, labels, s))
    targets = {s: _targets(segments, labels, s) for s in reached}
    into = turned(targets)
    into[0].append(-1)
    lone = {s: next(iter(t)) for s, t in targets.items() if len(t) == 1 and not segments[s].forks}
    joined = {s: t for s, t in lone.items() if into[t] == [s]}
    followers = set(joined.values())
    region: dict[int, int] = {}
    order: list[int] = []
    for first in sorted(reached - followers):
        at: int | None = first
        while at is not None:
            region[at] = first
            order.append(at)
            at = joined.get(at)
    return region, order, joined


# constants ----------------------------------------------------------------------------------------------------------
_COMPARE = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b,
}  # fmt: skip
_LOGIC: Mapping[Algebra, Callable[[int, int], int]] = {
    Algebra.COPY: lambda a, b: a, Algebra.NOT: lambda a, b: 1 - a, Algebra.AND: lambda a, b: a & b,
    Algebra.OR: lambda a, b: a | b, Algebra.XOR: lambda a, b: a ^ b,
}  # fmt: skip


def _constants(function: Function, definitions: Mapping[str, list[int]]) -> dict[str, int]:
    """Predicates and integers whose value is known from the text: `mov.pred %p1, -1` and what is computed from it."""
    known: dict[str, int] = {}
    for n, ins in enumerate(function.body):
        if not isinstance(ins, Instruction) or ins.guard is not None or not ins.operands:
            continue
        target = ins.operands[0]
        if isinstance(target, Reg) and definitions.get(target.name) == [n]:
            result = _evaluate(ins, known)
            if result is not None:
                known[target.name] = result
    return known


def _evaluate(ins: Instruction, known: Mapping[str, int]) -> int | None:
    form, algebra = ins.form, ins.effects.algebra
    compares = algebra is Algebra.COMPARISON
    if not (compares or algebra in _LOGIC):
        return None
    type_name = form["type"]
    if not compares and type_name != "pred" and not (algebra is Algebra.COPY and type_name[:1] in "bus"):
        return None
    if compares and (type_name[:1] not in "bus" or type_name.startswith("bf") or len(ins.operands) != 3):
        return None
    values = [_value(o, type_name, known) for o in ins.operands[1:]]
    if algebra is Algebra.AND and 0 in values:
        return 0
    if algebra is Algebra.OR and 1 in values:
        return 1
    if None in values:
        return None
    a, b = [*(v for v in values if v is not None), 0][:2]
    if not compares:
        return _LOGIC[algebra](a, b)
    if type_name[:1] == "s":
        top = 1 << (int(type_name[1:]) - 1)
        a, b = (a ^ top) - top, (b ^ top) - top
    compare = _COMPARE.get(form["cmp"])
    return None if compare is None else int(compare(a, b))


def _value(operand: Operand, type_name: str, known: Mapping[str, int]) -> int | None:
    match operand:
        case Immediate(literal="int"):
            return operand.bits(type_name)
        case Reg(name=name):
            return known.get(name)
        case NegatedPredicate(register=Reg(name=name)):
            return 1 - known[name] if name in known else None
    return None


def _runs(ins: Instruction, known: Mapping[str, int]) -> bool | None:
    """Whether a guarded instruction is executed; None if that depends on values."""
    if ins.guard is None:
        return True
    register, negated = ins.guard
    value = known.get(register.name)
    return None if value is None else bool(value) != negated
