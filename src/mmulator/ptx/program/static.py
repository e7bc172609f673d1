"""Rules that a module's text breaks on every path, whatever the launch: findings of `mmulator check` besides errors.

Only certain breaches are reported: an instruction that breaks its rule on every path to it. So a finding names no threads, and
everything that depends on values is left to a launch (sanitizer/).

Registers of wgmma are followed on all paths (base/rules/accumulators.py); asynchronous operations are left that no path commits
to a group, or waits for.
"""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial

from mmulator.base.errors import MmulatorError, OperandError, must_be
from mmulator.base.findings import Finding, Place, spoken
from mmulator.base.rules.accumulators import (
    A_OVERWRITTEN,
    A_READ,
    FENCE_MISSING,
    NOT_COMMITTED,
    NOT_WAITED,
    READ_EARLY,
    WRITTEN_EARLY,
    in_module,
)
from mmulator.base.rules.operands import INSTRUCTION_DESCRIPTOR, SPARSE_SELECTOR
from mmulator.base.rules.rule import Rule
from mmulator.base.rules.text import COPY_NOT_COMMITTED, COPY_NOT_WAITED, WAIT_IGNORED
from mmulator.base.rules.values import OUT_OF_VARIABLE, UNDEFINED_ADDRESS, UNDEFINED_BRANCH, UNDEFINED_STORE
from mmulator.isa.effects import Algebra, Ends, MemoryEffect, Queue, Step, Together
from mmulator.matrix.layouts.instruction_descriptor import Variant
from mmulator.matrix.layouts.sparse.metadata import selectors
from mmulator.ptx.program.blocks import (
    Block,
    FunctionBlocks,
    Program,
    blocks_from,
    build,
    instructions,
    is_wgmma_issue,
    is_wgmma_wait,
)
from mmulator.ptx.program.flow import forward
from mmulator.ptx.program.frames import liveness, pinned_registers
from mmulator.ptx.program.inline_assembly import moved_by_compiler
from mmulator.ptx.program.provenance import accessed_bytes, variables_of
from mmulator.ptx.program.uses import accesses, registers_of, uses_and_defs
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, ParsedModule, Reg, Symbol, VectorOperand

_ALONE = (Together.ALONE, Together.LIVE)


def certain(ins: Instruction) -> bool:
    """Whether an instruction is executed if control reaches it: blocks that end in a guarded instruction have a branch around
    it.
    """
    return ins.guard is None or ins.effects.ends is not Ends.NO or ins.effects.together not in _ALONE


def reachable(function: FunctionBlocks, block: Block) -> set[int]:
    """Numbers of the blocks that control may reach from the end of a block; including the block itself if it is in a loop."""
    first = function.blocks[0].index
    return blocks_from(block.targets, lambda n: function.blocks[n - first].targets)


def found(rule: Rule, ins: Instruction, message: str, where: str = "", other: Instruction | None = None) -> Finding:
    """A finding of the text, which names no threads.

    rule: the broken rule.
    ins: the instruction.
    message: the sentence.
    where: the place in memory, in words.
    other: the other instruction of a conflict.
    """
    conflict = None if other is None else Place(other.mnemonic, _location(other), other.span.brief, "", other.span)
    return Finding(
        rule.name, str(rule.severity), message, ins.mnemonic, _location(ins), ins.span.brief, "", where, conflict, 0, 1,
        spoken(rule.hint, ins.span, other.span if other is not None else None), span=ins.span,
    )  # fmt: skip


def _location(ins: Instruction) -> str:
    return ins.span.place


# groups ---------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class QueueRules:
    """The operations of one queue, and the rules about them.

    queue: the queue.
    uncommitted, unwaited: the rules.
    group, wait: instructions that commit and wait.
    alone: instructions that also wait for uncommitted operations.
    """

    queue: Queue
    uncommitted: Rule
    unwaited: Rule
    group: str
    wait: str
    alone: tuple[str, ...] = ()


KINDS = (
    QueueRules(Queue.WGMMA, NOT_COMMITTED, NOT_WAITED, "wgmma.commit_group", "wgmma.wait_group"),
    QueueRules(Queue.COPIES, COPY_NOT_COMMITTED, COPY_NOT_WAITED, "cp.async.commit_group", "cp.async.wait_group", ("wait_all",)),
)


def left(program: Program) -> Iterator[Finding]:
    """For each kind the last operation in the kernel's text that no commit or wait can follow. Kernels with calls are skipped,
    since a callee may wait.
    """
    blocks = program.entry.blocks
    first = blocks[0].index
    if any(b.ending is Ends.CALL for b in blocks):
        return
    matter = [[i for i in instructions(b) if _matters(i)] for b in blocks]
    for kind in KINDS:
        last: dict[str, Finding] = {}
        for block, every in zip(blocks, matter):
            behind: list[Instruction] | None = None
            for n, ins in enumerate(every):
                if ins.effects.queue is kind.queue and ins.effects.step is Step.ISSUE:
                    if behind is None:
                        behind = [i for b in sorted(reachable(program.entry, block)) for i in matter[b - first]]
                    finding = _left(kind, ins, [*every[n + 1 :], *behind])
                    if finding is not None:
                        last[finding.rule] = finding
        yield from last.values()


def _matters(ins: Instruction) -> bool:
    return ins.effects.queue is not Queue.NONE or ins.effects.ends in (Ends.EXIT, Ends.RETURN)


def _left(kind: QueueRules, ins: Instruction, behind: list[Instruction]) -> Finding | None:
    """The breach of an operation that these instructions may follow; None if they commit and wait."""
    if not any(i.effects.ends in (Ends.EXIT, Ends.RETURN) for i in behind):
        return None
    steps = {i.effects.step for i in behind if i.effects.queue is kind.queue}
    ends = Step.SIGNAL in steps or any(a in i.modifiers for i in behind for a in kind.alone)
    if ends:
        return None
    if Step.COMMIT not in steps:
        return found(kind.uncommitted, ins, f"no {kind.group} follows this {_short(ins)} on any path")
    if Step.WAIT not in steps:
        return found(kind.unwaited, ins, f"no {kind.wait} follows this {_short(ins)} on any path")
    return None


def _short(ins: Instruction) -> str:
    return "wgmma" if ins.effects.queue is Queue.WGMMA else ins.mnemonic


# registers of wgmma ---------------------------------------------------------------------------------------------------
OLDEST = 64  # groups behind an operation that are counted


@dataclass(frozen=True)
class Flight:
    """A register in flight on every path: its wgmma, and the greatest number of groups committed since its issue."""

    wgmma: Instruction
    part: str  # "d" or "a"
    age: int = 0


@dataclass(frozen=True)
class RegisterState:
    """Facts on every path to an instruction.

    fenced: whether some path may have executed wgmma.fence.
    touched: register -> the instructions that accessed it since the last fence; for accumulators the wgmma.
    """

    flying: dict[str, Flight] = field(default_factory=dict)
    touched: dict[str, Instruction] = field(default_factory=dict)
    fenced: bool = False


def meet(a: RegisterState, b: RegisterState) -> RegisterState:
    flying = {
        name: replace(x, age=max(x.age, b.flying[name].age))
        for name, x in a.flying.items()
        if name in b.flying and b.flying[name].part == x.part
    }
    return RegisterState(
        flying, {n: i for n, i in a.touched.items() if n in b.touched and _alike(i, b.touched[n])}, a.fenced or b.fenced
    )


def _alike(a: Instruction, b: Instruction) -> bool:
    """Whether two accesses need no fence between them: neither is a wgmma, or both are wgmma of one shape."""
    return is_wgmma_issue(a) == is_wgmma_issue(b) and (not is_wgmma_issue(a) or _shape(a) == _shape(b))


def _shape(wgmma: Instruction) -> str:
    return str(wgmma.form["shape"])


def _parts(wgmma: Instruction) -> tuple[list[str], list[str]]:
    """(registers of a wgmma's accumulator, registers of A if A is in registers)."""
    a = wgmma.operands[1]
    return list(registers_of(wgmma.operands[0])), list(registers_of(a)) if isinstance(a, VectorOperand) else []


def step(pinned: AbstractSet[str], state: RegisterState, ins: Instruction) -> RegisterState:
    """The facts behind an instruction. pinned: registers that some wgmma uses."""
    if is_wgmma_issue(ins):
        d, a = _parts(ins)
        flying = state.flying | dict.fromkeys(a, Flight(ins, "a")) | dict.fromkeys(d, Flight(ins, "d"))
        return replace(state, flying=flying, touched=state.touched | dict.fromkeys(d, ins))
    if ins.effects.ends is Ends.CALL:
        return RegisterState(fenced=True)
    if ins.effects.queue is Queue.WGMMA:
        if ins.effects.step is Step.FENCE:
            return replace(state, touched={}, fenced=True)
        if ins.effects.step is Step.COMMIT:
            return replace(state, flying={n: replace(f, age=f.age + 1) for n, f in state.flying.items() if f.age < OLDEST})
        if is_wgmma_wait(ins):
            count = ins.operands[0]
            pending = count.value if isinstance(count, Immediate) else 0
            return replace(state, flying={n: f for n, f in state.flying.items() if f.age == 0 or f.age <= pending})
    touched = _touched(pinned, ins)
    return replace(state, touched=state.touched | dict.fromkeys(touched, ins)) if touched else state


def _touched(pinned: AbstractSet[str], ins: Instruction) -> set[str]:
    """Registers of wgmma that an instruction accesses whenever control reaches it."""
    named = any(isinstance(o, Reg) and o.name in pinned for o in ins.leaves)
    if not named or not certain(ins) or moved_by_compiler(ins):
        return set()
    return set().union(*uses_and_defs(ins)) & pinned


def early(program: Program) -> Iterator[Finding]:
    """Findings in the functions of a program: for each wgmma the first instruction of the text that breaks a rule."""
    for function in program.functions.values():
        if any(is_wgmma_issue(i) for i in function.function.instructions):
            yield from _of_function(function)


def _of_function(function: FunctionBlocks) -> Iterator[Finding]:
    entry = function.function.is_entry
    told: set[tuple[Instruction | None, str]] = set()
    pinned = pinned_registers(function)
    after = partial(step, pinned)
    states = forward(function, RegisterState(fenced=not entry), after, meet)
    first = function.blocks[0].index
    for index in sorted(states):
        state = states[index]
        for ins in instructions(function.blocks[index - first]):
            for finding, key in _broken(pinned, state, ins):
                if key not in told:
                    told.add(key)
                    yield finding
            state = after(state, ins)


def _broken(
    pinned: AbstractSet[str], state: RegisterState, ins: Instruction
) -> Iterator[tuple[Finding, tuple[Instruction | None, str]]]:
    """Findings of one instruction, each with a key; findings with one key are reported once."""
    if is_wgmma_issue(ins):
        d, a = _parts(ins)
        yield from _early(state, ins, set(a), {n for n in d if n in state.flying and state.flying[n].part == "a"})
        if not state.fenced:
            said = "a wgmma is executed, and no wgmma.fence before it on any path"
            yield found(FENCE_MISSING, ins, said), (None, "first")
        else:
            yield from _unfenced(state, ins, d, a)
    elif _touched(pinned, ins) and ins.effects.queue is not Queue.WGMMA:
        uses, defs = uses_and_defs(ins)
        yield from _early(state, ins, uses, defs)


def _early(
    state: RegisterState, ins: Instruction, uses: AbstractSet[str], defs: AbstractSet[str]
) -> Iterator[tuple[Finding, tuple[Instruction | None, str]]]:
    for names, verb, rules in ((uses, "reads", (READ_EARLY, A_READ)), (defs, "writes", (WRITTEN_EARLY, A_OVERWRITTEN))):
        for name in sorted(names & state.flying.keys()):
            flight = state.flying[name]
            if is_wgmma_issue(ins) and flight.part == "a" and verb == "reads":
                continue  # two wgmma with one A
            rule: Rule = rules[flight.part == "a"]
            what = "part of A" if flight.part == "a" else "an accumulator"
            why = "no wgmma.commit_group has made it part of a group" if flight.age == 0 else "no wgmma.wait_group covers it"
            said = f"{ins.mnemonic} {verb} {name}, {what} of a wgmma in flight: {why} on any path"
            yield found(rule, ins, said, f"register {name}", flight.wgmma), (flight.wgmma, "wait")


def _unfenced(
    state: RegisterState, ins: Instruction, d: list[str], a: list[str]
) -> Iterator[tuple[Finding, tuple[Instruction | None, str]]]:
    for name in (*d, *a):
        other = state.touched.get(name)
        if other is None or (is_wgmma_issue(other) and (name in state.flying if name in a else _shape(other) == _shape(ins))):
            continue  # in order, or told of already
        part = "A" if name in a else "accumulator"
        said = f"{other.mnemonic} accesses {name}, {part} of this wgmma, and no wgmma.fence lies between the two on any path"
        yield found(FENCE_MISSING, ins, said, f"register {name}", other), (ins, "fence")


# all analyses ---------------------------------------------------------------------------------------------------------
def outside(program: Program) -> Iterator[Finding]:
    """Accesses at a constant place beyond the bytes of a variable."""
    for item in program.functions.values():
        variables = variables_of(program.module, item.function)
        for ins in item.function.instructions:
            address = next((o for o in ins.operands if isinstance(o, Address)), None)
            if address is not None and isinstance(address.base, Symbol) and address.base.name in variables:
                size, at = variables[address.base.name].size, address.base.offset + address.offset
                if not 0 <= at <= size - accessed_bytes(ins):
                    name = address.base.name.partition("@")[0]
                    yield found(OUT_OF_VARIABLE, ins, f"{ins.mnemonic} accesses byte {at} of {name}, which has {size}")


def unwritten(program: Program) -> Iterator[Finding]:
    """Uses of registers that no instruction of the function writes."""
    for item in program.functions.values():
        function = item.function
        written = {p.name for p in (*function.params, *function.returns)}
        written |= {name for ins in function.instructions for name in uses_and_defs(ins)[1]}
        for ins in function.instructions:
            for name, rule in _uses(ins):
                if name not in written:
                    yield found(rule, ins, f"no instruction writes {name}, which {ins.mnemonic} {_SAYS[rule.name]}")


_SAYS = {
    UNDEFINED_STORE.name: "stores to global memory",
    UNDEFINED_BRANCH.name: "depends on",
    UNDEFINED_ADDRESS.name: "has as address",
}


def _uses(ins: Instruction) -> Iterator[tuple[str, Rule]]:
    """Registers that an instruction uses in a way that matters, each with the rule."""
    if ins.guard is not None and ins.effects.ends is Ends.BRANCH:
        yield ins.guard[0].name, UNDEFINED_BRANCH
    if ins.effects.counted_as in ("memory", "atomic"):
        for operand in ins.operands:
            if isinstance(operand, Address) and isinstance(operand.base, Reg):
                yield operand.base.name, UNDEFINED_ADDRESS
    if ins.effects.counted_as == "memory" and ins.effects.memory is MemoryEffect.WRITE and ins.form["space"] == "global":
        for access, operand in accesses(ins):
            if "r" in access and not isinstance(operand, Address):
                for name in registers_of(operand):
                    yield name, UNDEFINED_STORE


def refused(program: Program) -> Iterator[Finding]:
    """Sparsity selectors that the shape of an mma.sp does not have; ptxas itself checks those of wgmma."""
    for item in program.functions.values():
        for ins in item.function.instructions:
            form = ins.form
            if form.is_matrix and form.sparse and form.effects.together is Together.WARP:
                selector, allowed = ins.operands[5], selectors(form)
                if isinstance(selector, Immediate) and selector.value not in allowed:
                    said = f"sparsity selector {selector.value} of {ins.mnemonic}: this shape has 0 to {allowed[-1]}"
                    yield found(SPARSE_SELECTOR, ins, said)


def described(program: Program) -> Iterator[Finding]:
    """Instruction descriptors of tcgen05.mma whose value stands in the text, and that the instruction does not take."""
    for item in program.functions.values():
        products = [i for i in item.function.instructions if i.effects.multiplies and i.effects.queue is Queue.TENSOR]
        if not products:
            continue
        written: dict[str, list[Instruction]] = {}
        for ins in item.function.instructions:
            for name in uses_and_defs(ins)[1]:
                written.setdefault(name, []).append(ins)
        for ins in products:
            word = _constant(ins.operands[3 + ins.form.sparse], written)
            if word is not None:
                try:
                    Variant.of_form(ins.form).decode(word)
                except OperandError as error:
                    yield found(INSTRUCTION_DESCRIPTOR, ins, f"{ins.mnemonic}: {error.message}")


def _constant(operand: Operand, written: dict[str, list[Instruction]]) -> int | None:
    """The 32 bits of an operand: a constant, or a register that one instruction writes, which copies a constant."""
    if isinstance(operand, Reg):
        writers = written.get(operand.name, [])
        plain = len(writers) == 1 and writers[0].guard is None and writers[0].effects.algebra is Algebra.COPY
        operand = writers[0].operands[1] if plain else operand
    return operand.bits("b32") if isinstance(operand, Immediate) else None


def ignored(program: Program) -> Iterator[Finding]:
    """Waits for mbarriers whose predicate is not read on any path before it is overwritten, or that discard it."""
    for item in program.functions.values():
        waits = [b for b in item.blocks if b.ending is Ends.WAIT and b.last is not None and _waits(b.last)]
        out = liveness(item).out if waits else []
        for block in waits:
            ins = must_be(block.last, Instruction)
            names = set(registers_of(ins.operands[0]))
            if not names & out[block.index - item.entry]:
                what = f"nothing reads {', '.join(sorted(names))} after it" if names else "its result is thrown away"
                yield found(WAIT_IGNORED, ins, f"nobody looks at what {ins.mnemonic} says: {what}")


def _waits(ins: Instruction) -> bool:
    return not {"try_wait", "test_wait"}.isdisjoint(ins.modifiers)


_MISSED = {r.name for r in (READ_EARLY, WRITTEN_EARLY, A_OVERWRITTEN)}
_AT_EXIT = {r.name for r in (NOT_COMMITTED, NOT_WAITED)}
# Each gives the findings of one kernel and the functions that it calls.
ANALYSES: tuple[Callable[[Program], Iterator[Finding]], ...] = (early, left, ignored, refused, described, outside, unwritten)


def static_findings(module: ParsedModule) -> tuple[Finding, ...]:
    """The findings of a verified module, in the order of the text; none for kernels that cannot run."""
    found: dict[tuple[str, str, str, int], Finding] = {}
    for program in _programs(module):
        for finding in _of_program(program):
            rule = in_module(finding.about, module.options)
            if rule is not finding.about:
                finding = replace(finding, rule=rule.name, severity=str(rule.severity), hint=rule.hint)
            found.setdefault((*finding.key, finding.span.start if finding.span else 0), finding)
    return tuple(sorted(found.values(), key=lambda f: (f.span.start if f.span else 0, f.rule)))


def _of_program(program: Program) -> Iterator[Finding]:
    """The findings of a program. A wait for wgmma that is missing before a use is not reported again at the exit."""
    findings = [finding for analysis in ANALYSES for finding in analysis(program)]
    missed = any(f.rule in _MISSED for f in findings)
    return (f for f in findings if not (missed and f.rule in _AT_EXIT))


def _programs(module: ParsedModule) -> Iterator[Program]:
    for function in module.functions:
        if function.is_entry and function.is_defined:
            try:
                yield build(module, function)
            except MmulatorError:
                continue
