"""The registers that an instruction reads and writes, and the operands of calls."""

from collections.abc import Iterator

from mmulator.isa.effects import Ends
from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec
from mmulator.ptx.tree import Address, ArgumentList, Immediate, Instruction, Operand, Reg, Symbol, VectorOperand, flatten

CARRY = "%CC"  # the condition code register of add.cc and its kin, as a predicate register of each function


def registers_of(operand: Operand) -> Iterator[str]:
    """The names of the registers in an operand."""
    for o in flatten((operand,)):
        if isinstance(o, Reg):
            yield o.name


def uses_and_defs(ins: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """(registers that an instruction reads, registers that it writes). A guarded write also reads, since the old value may
    stay.
    """
    found = ins.accessed
    if found is None:
        found = _uses_and_defs(ins)
        ins.accessed = found  # type: ignore[misc] # a cache: computed many times otherwise
    return found


def _uses_and_defs(ins: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    uses: set[str] = set()
    defs: set[str] = set()
    effects = ins.effects
    if effects.ends is Ends.CALL:
        results, arguments = call_operands(ins)
        defs.update(n for o in results for n in registers_of(o))
        uses.update(n for o in arguments for n in registers_of(o))
        uses.update(n for o in ins.operands if isinstance(o, Reg) for n in registers_of(o))
    else:
        for access, operand in accesses(ins):
            if type(operand) is Reg:
                if "w" in access:
                    defs.add(operand.name)
                if "r" in access:
                    uses.add(operand.name)
            elif isinstance(operand, Address):
                uses.update(registers_of(operand))
            elif not isinstance(operand, Immediate):
                names = [*registers_of(operand)]
                if "w" in access:
                    defs.update(names)
                if "r" in access:
                    uses.update(names)
    if effects.carry:
        if "r" in effects.carry:
            uses.add(CARRY)
        if "w" in effects.carry:
            defs.add(CARRY)
    if ins.guard is not None:
        uses.add(ins.guard[0].name)
        uses |= defs
    return frozenset(uses), frozenset(defs)


def accesses(ins: Instruction) -> Iterator[tuple[str, Operand]]:
    """Each operand with its access: "r", "w" or "rw"."""
    specs = signature_of(ins.form, ins.operands)
    for number, operand in enumerate(ins.operands):
        yield (specs[number].access if number < len(specs) else "r"), operand


def pinned_by(ins: Instruction) -> Iterator[str]:
    """Registers that the hardware reads or writes after the instruction."""
    for spec, operand in zip(signature_of(ins.form, ins.operands), ins.operands):
        if spec.name in ins.effects.pinned:
            yield from registers_of(operand)


def signature_of(form: Form, operands: tuple[Operand, ...]) -> tuple[OperandSpec, ...]:
    """The operand list of a form in which these operands are written."""
    signatures = form.signatures
    for signature in signatures if len(signatures) > 1 else ():
        if (len(signature) == len(operands) or not form.is_matrix) and all(
            (spec.kind in ("registers", "group")) == isinstance(o, VectorOperand)
            and (spec.kind == "addr") <= isinstance(o, Address)
            for spec, o in zip(signature, operands)
        ):
            return signature
    return signatures[0]


# operands of calls ----------------------------------------------------------------------------------------------------
def call_operands(ins: Instruction) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """(results, arguments) of a call."""
    callee_at = next(n for n, o in enumerate(ins.operands) if isinstance(o, Reg | Symbol))

    def elements(at: int) -> tuple[Operand, ...]:
        operand = ins.operands[at] if 0 <= at < len(ins.operands) else None
        return operand.elements if isinstance(operand, ArgumentList) else ()

    return elements(callee_at - 1), elements(callee_at + 1)


def callee_of(ins: Instruction) -> Reg | Symbol:
    """The function that a call names, or the register with its address."""
    return next(o for o in ins.operands if isinstance(o, Reg | Symbol))
