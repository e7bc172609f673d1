"""Whether a kernel uses tensor memory for single blocks or for pairs of blocks: all its instructions must agree.

TensorCore 5th Generation Family Instructions: CTA pair (PTX ISA 9.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from mmulator.errors import InvalidInstructionError
from mmulator.isa.effects import Ends
from mmulator.ptx.tree import Function, Instruction, ParsedModule, Symbol

_RULE = "TensorCore 5th Generation Family Instructions: CTA pair (PTX ISA 9.1)"


def check_pairs(module: ParsedModule, kernel: Function) -> Iterator[InvalidInstructionError]:
    """The error of a kernel whose tcgen05 instructions differ in .cta_group. As in ptxas those of functions that it calls count,
    those that no thread reaches as well, and those of tensor copies do not.
    """
    if not module.target.suffix or not kernel.is_entry:
        return
    first: Instruction | None = None
    functions, seen = [kernel], {kernel.name}
    for function in functions:
        for ins in function.instructions:
            if ins.opcode == "tcgen05" and _group(ins):
                first = first or ins
                if _group(ins) != _group(first):
                    yield InvalidInstructionError(
                        f"`.{_group(ins)}` in a kernel that has `.{_group(first)}` in line {first.span.line}: all tcgen05 "
                        f"instructions of {kernel.name}, and of functions that it calls, must have one .cta_group",
                        span=ins.mnemonic_span, rule=_RULE,
                    )  # fmt: skip
                    return
            elif ins.effects.ends is Ends.CALL:
                named = (module.function(o.name) for o in ins.operands if isinstance(o, Symbol) and o.space == "func")
                for called in named:
                    if called is not None and called.name not in seen:
                        seen.add(called.name)
                        functions.append(called)


def _group(ins: Instruction) -> str:
    return next((m for m in ins.modifiers if m.startswith("cta_group::")), "")
