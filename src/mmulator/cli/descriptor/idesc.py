"""Instruction descriptors of tcgen05.mma on the command line: `--operand idesc` of encode, decode and check."""

from collections.abc import Mapping
from typing import Any

from mmulator.base.errors import OperandError
from mmulator.cli.descriptor.options import number
from mmulator.cli.output import exclude, print_json


def is_asked(operand: str | None, others: Mapping[str, object]) -> bool:
    """Whether an instruction descriptor is asked about. Raises WrongUsage for options of matrices beside it.

    others: options that are of matrices alone, with their values.
    """
    if operand != "idesc":
        return False
    for name, value in others.items():
        exclude({"--operand idesc": True, name: value}, "it is of matrices")
    return True


def encode(instruction: str | None, word: str | None, given: list[str] | None, json: bool) -> None:
    """Print the word of an instruction, or of another word with other fields."""
    from mmulator.matrix.inspect.tcgen05.descriptor import instruction_word

    if word is not None:
        raise OperandError("a word is decoded, not encoded", hint=f"mmulator descriptor decode {word} {instruction or ''} ...")
    values = dict(_value(text) for text in given or ())
    tell(str(instruction_word(_needed(instruction), values)), instruction, json)


def tell(word: str | None, instruction: str | None, json: bool, verdict: bool = False) -> None:
    """Print what a word says to an instruction, or only what is wrong. Ends with exit code 1 where it is wrong."""
    from mmulator.cli.descriptor import text
    from mmulator.matrix.inspect.tcgen05.descriptor import instruction_fields

    if word is None:
        raise OperandError("no instruction descriptor is given", hint="its 32 bits, such as 0x8100010")
    found = instruction_fields(number("WORD", word) or 0, _needed(instruction))
    if json:
        print_json("instruction-descriptor", found.to_dict())
    else:
        text.print_instruction_fields(found, verdict)
    if not found.ok:
        raise SystemExit(1)


def _needed(instruction: str | None) -> str:
    if instruction is None:
        raise OperandError("which tcgen05.mma?", hint="its name, or words: tcgen05 m128n64 f16")
    return instruction


def _value(text: str) -> tuple[str, Any]:
    """`transpose_b=1` as (name, value); a number where it is one."""
    name, equals, value = text.partition("=")
    if not equals:
        raise OperandError(f"--set is {text!r}: NAME=VALUE is needed", hint="such as --set transpose_b=1")
    return name.strip().replace("-", "_"), number(f"--set {name}", value) if value[:1].isdigit() else value
