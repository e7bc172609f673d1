"""Checks of an instruction's operands: their number, and each operand by its kind. Instruction Operands (PTX ISA 9.1)."""

from collections.abc import Iterator

from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec
from mmulator.ptx import fragments, operands, selectors
from mmulator.ptx.calls import check_call
from mmulator.ptx.fits import fits, type_class
from mmulator.ptx.operands import NO_CONSTANT, OperandContext, OperandProblem
from mmulator.ptx.tree import Address, Immediate, LabelRef, Operand, Reg

CHECKS = {**operands.CHECKS, **selectors.CHECKS, **fragments.CHECKS}
_REGISTERS = frozenset(("dst", "src", "reg", "move"))  # kinds whose check of a register is `fits`
_PREDICATES = frozenset(("pred", "dstpred"))  # whose check is that it is a predicate
_CONSTANTS = frozenset(("src", "imm", "move"))
_ADDRESSES = frozenset(("b64", "u64", "s64"))


def are_plain(form: Form, given: tuple[Operand, ...]) -> bool:
    """Whether it takes one look to see that the operands have no problem, as nearly all do: a form with one signature, which has
    nothing optional, and registers, integers, labels and addresses in registers where these are taken.
    """
    signatures = form.signatures
    if len(signatures) > 1 or len(given) != len(signatures[0]) or form.opcode == "cvta":
        return False
    return all(map(_is_plain, given, signatures[0]))


def _is_plain(operand: Operand, spec: OperandSpec) -> bool:
    kind = spec.kind
    if spec.optional:
        return False
    match operand:
        case Reg():
            if operand.component or operand.negated:
                return False
            if kind in _PREDICATES:
                return operand.type == "pred"
            return kind in _REGISTERS and spec.count == 1 and not spec.types and fits(operand.type, spec.type, spec.wider)
        case Address(base=Reg() as base):
            return kind == "addr" and base.type in _ADDRESSES and not operand.extra and spec.space != "tensor"
        case Immediate(literal="int"):
            taken = kind in _CONSTANTS and spec.count == 1 and spec.type not in NO_CONSTANT
            anything = not spec.values and spec.lo is spec.hi is None and not spec.later
            return taken and anything and type_class(spec.type) not in ("f32", "f64")
    return kind == "label" and isinstance(operand, LabelRef)


def check_operands(context: OperandContext) -> Iterator[OperandProblem]:
    """Problems of the operands, against the signature of the form that resembles them most."""
    form, given = context.form, context.instruction.operands
    if form.name == "call":
        yield from check_call(context)
        return
    number = len(given)
    fitting = [i for i, (least, most) in enumerate(form.counts) if least <= number <= most]
    if not fitting:
        yield _number(context)
        return
    if form.opcode == "cvta" and form["type"] == "u32" and context.module.address_size == 64:
        yield OperandProblem("addresses have 64 bits in this module", context.instruction.mnemonic_span, "write .u64")
    chosen = max(fitting, key=lambda i: fragments.likeness(given, form.signatures[i])) if len(fitting) > 1 else fitting[0]
    spare = number - form.counts[chosen][0]
    rest = iter(given)
    for spec in form.signatures[chosen]:
        if spec.optional:
            if not spare:
                continue
            spare -= 1
            yield from _since(spec, context)
        yield from CHECKS[spec.kind](next(rest), spec, context)


def _number(context: OperandContext) -> OperandProblem:
    form = context.form
    least, most = min(least for least, _ in form.counts), max(most for _, most in form.counts)
    names = ", ".join(f"{{{o.name}}}" if o.optional else o.name for o in form.signatures[-1]) or "none"
    return OperandProblem(
        f"{form.name} takes {least}{'' if least == most else f' to {most}'} operands; "
        f"there are {len(context.instruction.operands)}",
        context.instruction.span, f"the operands are {names}",
    )  # fmt: skip


def _since(spec: OperandSpec, context: OperandContext) -> Iterator[OperandProblem]:
    """The problem of an operand that this PTX version or this target does not have."""
    module, since, ptx = context.module, spec.since, spec.since.ptx
    if module.version < ptx or not since.admits(module.target):
        yield OperandProblem(
            f"operand {spec.name} of {context.form} needs PTX {ptx[0]}.{ptx[1]} and .target {since.describe_targets()}; this "
            f"module says {module.version[0]}.{module.version[1]} and {module.target}", context.instruction.span, "leave it out",
        )  # fmt: skip
