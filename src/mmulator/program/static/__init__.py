"""Rules that a module's text breaks on every path, whatever the launch: findings of `mmulator check` besides errors.

Only certain breaches are reported: an instruction that breaks its rule on every path to it. So a finding names no threads, and
everything that depends on values is left to a launch (sanitizer/).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from mmulator.errors import MmulatorError, OperandError, must_be
from mmulator.findings import Finding
from mmulator.isa.effects import Algebra, Ends, MemoryEffect, Queue, Together
from mmulator.layouts.instruction_descriptor import Variant
from mmulator.layouts.sparse.metadata import selectors
from mmulator.program.blocks import Program, build
from mmulator.program.frames import liveness
from mmulator.program.provenance import accessed_bytes, variables_of
from mmulator.program.static.flow import found
from mmulator.program.static.groups import left
from mmulator.program.static.registers import early
from mmulator.program.uses import accesses, registers_of, uses_and_defs
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, ParsedModule, Reg, Symbol
from mmulator.rules.accumulators import A_OVERWRITTEN, NOT_COMMITTED, NOT_WAITED, READ_EARLY, WRITTEN_EARLY, in_module
from mmulator.rules.operands import INSTRUCTION_DESCRIPTOR, SPARSE_SELECTOR
from mmulator.rules.rule import Rule
from mmulator.rules.text import WAIT_IGNORED
from mmulator.rules.values import OUT_OF_VARIABLE, UNDEFINED_ADDRESS, UNDEFINED_BRANCH, UNDEFINED_STORE


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
