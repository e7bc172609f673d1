"""What is wrong with the operands of an instruction: how many, and each by its kind. Instruction Operands (PTX ISA 9.1)."""

from __future__ import annotations

from collections.abc import Iterator

from mmulator.isa.row import OperandSpec, Signature
from mmulator.ptx import fragments, operands, selectors
from mmulator.ptx.calls import check_call
from mmulator.ptx.operands import Context, Problem

CHECKS = {**operands.CHECKS, **selectors.CHECKS, **fragments.CHECKS}


def check_operands(context: Context) -> Iterator[Problem]:
    """Problems of the operands, against the signature that is nearest to what is written."""
    form, given = context.form, context.instruction.operands
    if form.name == "call":
        yield from check_call(context)
        return
    fitting = [s for s in form.signatures if _least(s) <= len(given) <= len(s)]
    if not fitting:
        yield _number(context)
        return
    if form.opcode == "cvta" and form["type"] == "u32" and context.module.address_size == 64:
        yield Problem("addresses have 64 bits in this module", context.instruction.mnemonic_span, "write .u64")
    signature = fitting[0] if len(fitting) == 1 else max(fitting, key=lambda s: fragments.likeness(given, s))
    spare = len(given) - _least(signature)
    rest = iter(given)
    for spec in signature:
        if spec.optional:
            if not spare:
                continue
            spare -= 1
            yield from _since(spec, context)
        yield from CHECKS[spec.kind](next(rest), spec, context)


def _least(signature: Signature) -> int:
    return sum(not spec.optional for spec in signature)


def _number(context: Context) -> Problem:
    form = context.form
    least, most = min(map(_least, form.signatures)), max(map(len, form.signatures))
    names = ", ".join(f"{{{o.name}}}" if o.optional else o.name for o in form.signatures[-1]) or "none"
    return Problem(
        f"{form.name} takes {least}{'' if least == most else f' to {most}'} operands; "
        f"there are {len(context.instruction.operands)}",
        context.instruction.span, f"the operands are {names}",
    )  # fmt: skip


def _since(spec: OperandSpec, context: Context) -> Iterator[Problem]:
    """An operand that came later than its instruction."""
    (version, sm), module = spec.since, context.module
    if module.version < version or module.target.number < sm:
        yield Problem(
            f"operand {spec.name} of {context.form} needs PTX {version[0]}.{version[1]} and .target sm_{sm} or higher; this "
            f"module says {module.version[0]}.{module.version[1]} and {module.target}", context.instruction.span, "leave it out",
        )  # fmt: skip
