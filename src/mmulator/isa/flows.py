"""The effect of an instruction on addresses among its sources: a column that few rows fill, so it is kept by opcode."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


def cancels(opcode: str) -> bool:
    """Whether it makes zero of two times the same."""
    return opcode in ("xor", "sub")


class Place(Enum):
    """The effect of an instruction on an address among its sources."""

    OTHER = "nobody knows"
    SAME = "it stays an address in the same variable"
    MAPPED = "the first becomes one in the variable of another block"
    CHOICE = "one of two"
    SUM = "a number is added, to either"
    DIFFERENCE = "a number is taken from the first"
    ADDEND = "a product is added to the last"


_PLACES: Mapping[str, Place] = {
    **dict.fromkeys(("mov", "cvta", "cvt"), Place.SAME), "selp": Place.CHOICE, "add": Place.SUM, "sub": Place.DIFFERENCE,
    "mad": Place.ADDEND, "mapa": Place.MAPPED,
}  # fmt: skip


def place(opcode: str) -> Place:
    return _PLACES.get(opcode, Place.OTHER)
