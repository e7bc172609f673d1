"""Registers that no instruction writes, and constant places beyond a variable (rules/values.py)."""

from __future__ import annotations

from collections.abc import Iterator

from mmulator.findings import Finding
from mmulator.isa.effects import Ends, MemoryEffect
from mmulator.program.blocks import Program
from mmulator.program.provenance import accessed_bytes, variables_of
from mmulator.program.static.flow import found
from mmulator.program.uses import accesses, registers_of, uses_and_defs
from mmulator.ptx.tree import Address, Instruction, Reg, Symbol
from mmulator.rules.rule import Rule
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
