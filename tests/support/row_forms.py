"""Forms and statements made from the rows of the scalar tables: what tests and comparisons with ptxas go through.

A row whose choices are few gives all its forms; of others, every choice of every group in some form, and a sample.
"""

import random
import zlib
from collections.abc import Iterator
from itertools import product
from math import prod

from mmulator.isa.fit import NoForm
from mmulator.isa.form import Form
from mmulator.isa.match import match, row_of
from mmulator.isa.row import OperandSpec, Row
from mmulator.isa.table import ROWS
from mmulator.isa.types import is_type, type_bits

Words = tuple[str, ...]
_BANKS = frozenset(("b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64", "pred", "b8"))


def rows() -> tuple[Row, ...]:
    return tuple(row for group in ROWS.values() for row in group if row.signatures is None)


def row_key(row: Row) -> str:
    """A name for a row that tells it from every other: `add .rnd? .ftz? .f32x2`."""
    groups = ("|".join(g.choices) + "?" * g.optional for g in row.slots)
    return " ".join((row.name, *(f".{g}" for g in groups)))


def forms(row: Row, most: int = 60) -> Iterator[tuple[Words, Form]]:
    """(modifiers as written, form) of a row: all of them, or about `most`; always the same ones."""
    choices = [(*g.choices, *([""] * g.optional)) for g in row.slots]
    if prod(map(len, choices)) <= most:
        picks: Iterator[Words] = product(*choices)
    else:
        picks = _sample(choices, most, random.Random(zlib.crc32(row_key(row).encode())))
    seen = set()
    for pick in picks:
        words = _written(row, pick)
        if words in seen:
            continue
        seen.add(words)
        form = match(row.opcode, words)
        if not isinstance(form, NoForm) and row_of(row.opcode, words) is row:
            yield words, form


def _sample(choices: list[Words], most: int, chance: random.Random) -> Iterator[Words]:
    for n, group in enumerate(choices):
        for word in group:
            for _ in range(6):  # a rule of the row may forbid some
                yield tuple(word if n == k else chance.choice(c) for k, c in enumerate(choices))
    for _ in range(most):
        yield tuple(chance.choice(c) for c in choices)


def _written(row: Row, pick: Words) -> Words:
    """Modifiers in an order that ptxas takes: the leading one, the fixed ones, the others."""
    by_group = {g.name: word for g, word in zip(row.slots, pick) if word}
    first = [by_group.pop(row.leading)] if row.leading in by_group else []
    return (*first, *row.fixed, *by_group.values())


def register_type(type_name: str) -> str:
    """Type of a register that can hold an operand of a type."""
    if type_name in _BANKS:
        return type_name
    return f"b{max(type_bits(type_name), 8)}" if is_type(type_name) else "b32"


def operand(spec: OperandSpec, number: int, form: Form) -> str:
    """An operand that fits; number: which register of its type."""
    bank = register_type(spec.type) if spec.type else "b32"
    reg = f"%{bank}_{number}"
    match spec.kind:
        case "imm" | "immediate":
            return str(spec.values[0] if spec.values else spec.lo if spec.lo is not None else 1)
        case "addr" | "address":
            return f"[{reg}]" if spec.space == "tensor" else f"[%b64_{number}]"
        case "address":
            return f"[%b64_{number}]"
        case "pred":
            return f"%pred_{number}"
        case "dstpair" | "pair":
            return f"{reg}|%pred_{number}"
        case "dstpred":
            return f"%pred_{number}|%pred_{number + 1}"
        case "vsrc" | "vsrc-" | "vmerge" if number % 4 == 1:
            return reg if spec.access == "w" else f"{reg}.h1"
        case "sink":
            return "_"
        case "group":
            return "{" + ", ".join(operand(part, number + i, form) for i, part in enumerate(spec.parts)) + "}"
        case "tensor" | "vector" | "registers":
            parts = "{" + ", ".join(f"%{bank}_{number + i}" for i in range(spec.count)) + "}"
            return f"[%b64_{number}, {parts}]" if spec.kind == "tensor" else parts
        case "src" if spec.values:
            return str(spec.values[-1])
        case "src" if spec.hi == 15:
            return "1"
    if spec.count > 1:
        return "{" + ", ".join(f"%{bank}_{number + i}" for i in range(spec.count)) + "}"
    return reg


def operands(form: Form, optional: bool = True) -> tuple[str, ...]:
    """One fitting operand for each of a form's; registers of their own, so that nothing depends on an alias."""
    made, at = [], 1
    for spec in form.operands:
        if not spec.optional or (optional and spec.since.minimum <= form.requires.minimum):
            made.append(operand(spec, at, form))
            at += max(spec.count, 2)
    return tuple(made)


def statement(opcode: str, words: Words, form: Form, optional: bool = True) -> str:
    mnemonic = ".".join((opcode, *words))
    listed = ", ".join(operands(form, optional))
    return f"{mnemonic} {listed};" if listed else f"{mnemonic};"
