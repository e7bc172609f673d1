"""The parts of matrix rows: slots, operands in registers, and numbers that follow from a form's shape."""

from collections.abc import Callable
from typing import Any, Literal

from mmulator.isa.effects import Effects
from mmulator.isa.form import Form
from mmulator.isa.row import Kind, OperandSpec, Requirement, Row, Section, Signature, Slot
from mmulator.isa.types import ElementType

Choice = str | tuple[str, ...] | Slot
Access = Literal["r", "w", "rw"]

# Register types that ptxas takes for a vector of elements, the specification's own first.
REGISTERS_F16 = ("f16x2", "b32")
REGISTERS_B32 = ("b32",)
REGISTERS_F32 = ("f32", "b32")
REGISTERS_F64 = ("f64", "b64")
REGISTERS_ANY64 = ("f64", "b64", "u64", "s64")
REGISTERS_S32 = ("s32", "u32", "b32")
REGISTERS_INTEGER = ("b32", "u32", "s32")
REGISTERS_ANY32 = ("b32", "u32", "s32", "f32", "f16x2")
REGISTERS_ADDRESS = ("b64", "u64", "s64", "b32", "u32", "s32")
REGISTERS_OFFSET = (*REGISTERS_ADDRESS, "b16", "u16", "s16", "b8", "u8", "s8")

# ptxas takes these twice, or leaves out what is always meant.
_USUAL: dict[str, dict[str, Any]] = {
    "sync": {"twice": True},
    "satfinite": {"twice": True},
    "aligned": {"default": "aligned"},
    "rounding": {"default": "rn", "tacit": True},
}


def optional(*choices: str) -> tuple[str, ...]:
    """Choices of a modifier that may be omitted."""
    return ("", *choices)


def slots(**choices: Choice) -> tuple[Slot, ...]:
    """Slots in printing order, from `name="choice"` or `name=("one", "another")`."""
    return tuple(c if isinstance(c, Slot) else _slot(name, c) for name, c in choices.items())


def _slot(name: str, choice: str | tuple[str, ...]) -> Slot:
    choices = (choice,) if isinstance(choice, str) else choice
    given = tuple(c for c in choices if c)
    # without .scale_vec a row has the one size that its kind allows
    more = {"default": given[0]} if name == "scale_vec" else _USUAL.get(name, {})
    return Slot(name, given, "" in choices, **more)


def matrix_row(
    name: str,
    slots: tuple[Slot, ...],
    requires: Requirement,
    section: Section,
    signatures: Callable[[Form], tuple[Signature, ...]],
    effects: Effects,
    implied: tuple[tuple[str, str], ...] = (),
    moves: Callable[[Any], Any] | None = None,
) -> Row:
    """A row whose operands follow from the shape and the types. All parameters: as in `Row`."""
    return Row(name, slots, (), section, requires, effects=effects, signatures=signatures, implied=implied, moves=moves)


def operand(name: str, kind: Kind, types: tuple[str, ...] = (), count: int = 1, access: Access = "r", **more: Any) -> OperandSpec:
    """An operand in registers of these types.

    name: as the specification spells it.
    kind: kind of operand.
    types: accepted register types.
    count: number of registers.
    access: "r", "w" or "rw".
    """
    return OperandSpec(name, kind, types[0] if types else "", access, count=count, types=types, **more)


def stored_bits(form: Form, element: ElementType) -> int:
    """Bits that an element of A or B takes in a register: 6- and 4-bit floats sit in bytes, except in .kind::mxf4*."""
    if element.is_float and element.bits < 8 and form.kind in ("f8f6f4", "mxf8f6f4"):
        return 8
    return element.bits
