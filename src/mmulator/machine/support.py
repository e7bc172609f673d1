"""What of a module the machine cannot run: named by instruction, with the reason, before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator

from mmulator.isa.scalar import ScalarForm
from mmulator.machine.lower import LOWER, load_all
from mmulator.machine.ops import SEMANTICS
from mmulator.machine.program import BUILTINS
from mmulator.machine.special import SPECIAL_REGISTERS
from mmulator.ptx.tree import Instruction, Module, SpecialRegister, Symbol, flatten
from mmulator.ptx.verify import Unsupported

_CONTROL = frozenset(("bra", "brx", "call", "ret", "exit", "trap", "bar", "barrier"))


def unsupported(module: Module) -> tuple[Unsupported, ...]:
    """Every instruction of the module that would raise UnsupportedError, in order."""
    load_all()
    found = []
    for function in module.functions:
        for ins in function.instructions:
            for name, reason in reasons(ins, module):
                section = str(getattr(ins.form, "section", ""))
                found.append(Unsupported(name, reason, section, ins.mnemonic_span))
    return tuple(found)


def reasons(ins: Instruction, module: Module) -> Iterator[tuple[str, str]]:
    """(name, reason) of everything in an instruction that cannot be run."""
    form = ins.form
    if isinstance(form, ScalarForm):
        if form.unsupported:
            yield form.name, form.unsupported
        elif ins.opcode not in _CONTROL and not {form.name, ins.opcode} & (LOWER.keys() | SEMANTICS.keys()):
            yield form.name, "no semantics yet"
    for operand in flatten(ins.operands):
        if isinstance(operand, SpecialRegister) and not _has_special(operand.name):
            yield f"%{operand.name}", "special register that is not modelled"
        if ins.opcode == "call" and isinstance(operand, Symbol) and operand.space == "func" and operand.name not in BUILTINS:
            callee = module.function(operand.name)
            if callee is None or not callee.is_defined:
                yield f"call {operand.name}", "not defined in this module, and not printf or assert"


def _has_special(name: str) -> bool:
    return name in SPECIAL_REGISTERS or f"{name}.x" in SPECIAL_REGISTERS
