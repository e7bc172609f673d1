"""Where the results of an instruction come from: whether they have a value, and what becomes of addresses among its sources.

Two columns that few rows fill, so they are kept by opcode; what is not named is as most are.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Flow(Enum):
    """How the results of an instruction come by a value."""

    DEFINED = "they have one"
    EACH = "in a lane, if all its sources have one"
    ANY = "in a lane, if one of its sources has one: parts are put together, and nobody knows which are used"
    CHOICE = "as of the source that is chosen"
    LOGIC = "as EACH, or if one source decides alone"
    LOADED = "if the bytes have been written"
    ROWS = "the same, of rows that other lanes have the addresses of"
    PRODUCT = "an element, if its row of A, its column of B and what is added have one"
    TILE = "of an element, if the bytes of a tile that the warp has one address of have been written"
    WGMMA = "the same, of matrices in shared memory"
    LANES = "as of the lane that it is taken from"
    WARP = "if all lanes that take part have one"


_FLOWS: Mapping[str, Flow] = {
    "selp": Flow.CHOICE, "slct": Flow.CHOICE, "shfl": Flow.LANES, "vote": Flow.WARP, "redux": Flow.WARP, "match": Flow.WARP,
    "mma": Flow.PRODUCT, "ldmatrix": Flow.ROWS, "atom": Flow.LOADED, "ld": Flow.LOADED, "ldu": Flow.LOADED, "prmt": Flow.ANY,
    "bfi": Flow.ANY, "shf": Flow.ANY,
}  # fmt: skip


def usual(opcode: str) -> Flow:
    """How results come by a value: EACH says what is so of arithmetic, and nothing of whatever does more."""
    return _FLOWS.get(opcode, Flow.EACH)


def cancels(opcode: str) -> bool:
    """Whether it makes zero of two times the same."""
    return opcode in ("xor", "sub")


def joins(opcode: str, vector: bool, sources: int) -> bool:
    """Whether it puts its sources side by side. vector: one of them is written in braces, and the form is none of vectors."""
    return (opcode == "mov" and vector) or (opcode == "cvt" and sources > 1)


class Place(Enum):
    """What becomes of an address among the sources of an instruction."""

    OTHER = "nobody knows"
    SAME = "it stays an address in the same variable"
    CHOICE = "one of two"
    SUM = "a number is added, to either"
    DIFFERENCE = "a number is taken from the first"
    ADDEND = "a product is added to the last"


_PLACES: Mapping[str, Place] = {
    **dict.fromkeys(("mov", "cvta", "cvt"), Place.SAME), "selp": Place.CHOICE, "add": Place.SUM, "sub": Place.DIFFERENCE,
    "mad": Place.ADDEND,
}  # fmt: skip


def place(opcode: str) -> Place:
    return _PLACES.get(opcode, Place.OTHER)
