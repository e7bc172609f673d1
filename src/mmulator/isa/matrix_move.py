"""`ldmatrix`, `stmatrix`, `movmatrix`: matrices of 8 by 8 and similar shapes between shared memory and fragments.

Warp-level matrix load, store and transpose instructions (PTX ISA 9.1, 9.4).
"""

from mmulator.isa.effects import ACTS, Addressed, Flow, MemoryEffect, Stored, Together
from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec, Requirement, Row, Section, Signature
from mmulator.isa.shapes import (
    REGISTERS_ADDRESS,
    REGISTERS_ANY32,
    REGISTERS_OFFSET,
    Access,
    Choice,
    matrix_row,
    operand,
    optional,
    slots,
)

LDMATRIX = Section("Warp-level matrix load instruction: ldmatrix")
STMATRIX = Section("Warp-level matrix store instruction: stmatrix")
MOVMATRIX = Section("Warp-level matrix transpose instruction: movmatrix")


def _vector(form: Form, access: Access) -> OperandSpec:
    # m16n16 has 256 bytes: two registers a matrix; the others have one
    count = form.num * (2 if (form.m, form.n) == (16, 16) else 1)
    return operand("r", "registers", REGISTERS_ANY32, count, access)


def _address(form: Form) -> OperandSpec:
    return operand("p", "address", REGISTERS_OFFSET if form.space else REGISTERS_ADDRESS)


def _load(form: Form) -> tuple[Signature, ...]:
    return ((_vector(form, "w"), _address(form)),)


def _store(form: Form) -> tuple[Signature, ...]:
    return ((_address(form), _vector(form, "r")),)


def _across(form: Form) -> tuple[Signature, ...]:
    d = operand("d", "register", REGISTERS_ANY32, access="w")
    return ((d, operand("a", "register", REGISTERS_ANY32)),)


_NUM = ("x1", "x2", "x4")
_SHARED = optional("shared")
_CTA = ("shared::cta",)
_BLACKWELL = Requirement((8, 6), 100, "af")
_FORMATS = ("b6x16_p32", "b4x16_p64")


_MOVES = ACTS.but(together=Together.WARP, counted_as="matrix move")
_LOADS = _MOVES.but(memory=MemoryEffect.READ, pure=True, flow=Flow.ROWS, addressed=Addressed.ROWS)
_STORES = _MOVES.but(memory=MemoryEffect.WRITE, stored=Stored.ROWS, addressed=Addressed.ROWS)
ACROSS = _MOVES.but(flow=Flow.MOVED)


def _load_row(requires: Requirement, shape: str, num: Choice, trans: Choice, space: Choice, **types: Choice) -> Row:
    choices: dict[str, Choice] = {"sync": "sync", "aligned": "aligned", "shape": shape, "num": num}
    if trans:
        choices["trans"] = trans
    return matrix_row("ldmatrix", slots(**choices, space=space, **types), requires, LDMATRIX, _load, _LOADS)


def _store_row(requires: Requirement, shape: str, trans: Choice, element: str) -> Row:
    space = optional("shared", *_CTA)
    choices = slots(sync="sync", aligned="aligned", shape=shape, num=_NUM, trans=trans, space=space, type=element)
    return matrix_row("stmatrix", choices, requires, STMATRIX, _store, _STORES)


ROWS: tuple[Row, ...] = (
    _load_row(Requirement((6, 5), 75), "m8n8", _NUM, optional("trans"), _SHARED, type="b16"),
    _load_row(Requirement((7, 8), 75), "m8n8", _NUM, optional("trans"), _CTA, type="b16"),
    _load_row(_BLACKWELL, "m16n16", _NUM[:2], "trans", optional("shared", *_CTA), type="b8"),
    _load_row(
        _BLACKWELL, "m16n16", _NUM[:2], "trans", optional("shared", *_CTA), dst_fmt="b8x16", src_fmt=_FORMATS
    ),
    _load_row(_BLACKWELL, "m8n16", _NUM, (), optional("shared", *_CTA), dst_fmt="b8x16", src_fmt=_FORMATS),
    _load_row(Requirement((9, 4), 90, "af"), "m8n16", _NUM, (), optional("shared", *_CTA), dst_fmt="s8", src_fmt="s4"),
    _store_row(Requirement((7, 8), 90), "m8n8", optional("trans"), "b16"),
    _store_row(_BLACKWELL, "m16n8", "trans", "b8"),
    matrix_row(
        "movmatrix",
        slots(sync="sync", aligned="aligned", shape="m8n8", trans="trans", type="b16"),
        Requirement((7, 8), 75),
        MOVMATRIX,
        _across,
        ACROSS,
        moves=lambda places: places.swapaxes(-1, -2),
    ),
)
