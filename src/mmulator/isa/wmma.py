"""`wmma`: load, multiply-accumulate and store of opaque warp-level fragments.

Matrix multiply-accumulate operation using wmma instructions (PTX ISA 9.1).
"""

from collections.abc import Iterator

from mmulator.isa.effects import ACTS, Addressed, Flow, MemoryEffect, Stored, Together
from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec, Requirement, Row, Section, Signature, Slot
from mmulator.isa.shapes import (
    REGISTERS_ADDRESS,
    REGISTERS_ANY32,
    REGISTERS_ANY64,
    REGISTERS_B32,
    REGISTERS_F16,
    REGISTERS_F32,
    REGISTERS_F64,
    REGISTERS_INTEGER,
    REGISTERS_S32,
    Access,
    Choice,
    matrix_row,
    operand,
    optional,
    slots,
)
from mmulator.isa.types import ElementType

LOAD = Section("Warp-level Matrix Load Instruction: wmma.load")
STORE = Section("Warp-level Matrix Store Instruction: wmma.store")
MMA = Section("Warp-level Matrix Multiply-and-Accumulate Instruction: wmma.mma")

# Before this PTX version .aligned is implied, and may not be written.
ALIGNED = Slot("aligned", ("aligned",), optional=True, default="aligned", since=(6, 3))

_REGISTERS = {
    "f16": REGISTERS_F16,
    "bf16": REGISTERS_B32,
    "tf32": REGISTERS_B32,
    "f32": REGISTERS_F32,
    "f64": REGISTERS_F64,
    "s32": REGISTERS_S32,
    "s8": REGISTERS_INTEGER,
    "u8": REGISTERS_INTEGER,
}


def fragment(name: str, matrix: str, element: ElementType, m: int, n: int, k: int, access: Access = "r") -> OperandSpec:
    """The register vector of one matrix. Matrix Fragments for WMMA.

    name: name of the operand.
    matrix: `a`, `b`, or `c` for accumulators.
    element: type of the elements.
    m, n, k: shape of the product.
    access: "r", "w" or "rw".
    """
    # only the loads of 4- and 1-bit types take any register
    types = _REGISTERS.get(element.name, REGISTERS_ANY32 if name == "r" else REGISTERS_INTEGER)
    if element.name == "f64" and name in "cd":
        types = REGISTERS_ANY64
    elements = {"a": m * k, "b": k * n, "c": m * n}[matrix]
    width = 64 if element.name == "f64" else 32
    count = max(1, elements * element.bits // (32 * width))
    if element.name == "f16" and matrix != "c":
        count = 8
    return operand(name, "registers", types, count, access)


def _move(form: Form) -> tuple[Signature, ...]:
    matrix = form.op[-1].replace("d", "c")
    load = form.op.startswith("load")
    r = fragment("r", matrix, form.type, form.m, form.n, form.k, "w" if load else "r")
    p = operand("p", "address", REGISTERS_ADDRESS)
    stride = operand("stride", "integer", ("b32", "u32", "s32"))
    operands = (r, p) if load else (p, r)
    return operands, (*operands, stride)


def _mma(form: Form) -> tuple[Signature, ...]:
    shape = form.m, form.n, form.k
    return (
        (
            fragment("d", "c", form.dtype, *shape, "w"),
            fragment("a", "a", form.atype, *shape),
            fragment("b", "b", form.btype, *shape),
            fragment("c", "c", form.ctype, *shape),
        ),
    )


_ROWCOL: Choice = ("row", "col")
_WIDE = ("m8n32k16", "m32n8k16")
_SQUARE = "m16n16k16"

# (shape, first PTX version, lowest target, A and B types, accumulator types, layouts of A and B)
_KINDS: tuple[tuple[str, tuple[int, int], int, tuple[str, ...], tuple[str, ...], tuple[Choice, Choice]], ...] = (
    (_SQUARE, (6, 0), 70, ("f16",), ("f16", "f32"), (_ROWCOL, _ROWCOL)),
    *((s, (6, 1), 70, ("f16",), ("f16", "f32"), (_ROWCOL, _ROWCOL)) for s in _WIDE),
    *((s, (6, 3), 72, ("s8", "u8"), ("s32",), (_ROWCOL, _ROWCOL)) for s in (_SQUARE, *_WIDE)),
    *((s, (7, 0), 80, ("bf16",), ("f32",), (_ROWCOL, _ROWCOL)) for s in (_SQUARE, *_WIDE)),
    ("m16n16k8", (7, 0), 80, ("tf32",), ("f32",), (_ROWCOL, _ROWCOL)),
    ("m8n8k4", (7, 0), 80, ("f64",), ("f64",), (_ROWCOL, _ROWCOL)),
    ("m8n8k32", (6, 3), 75, ("s4", "u4"), ("s32",), ("row", "col")),
    ("m8n8k128", (6, 3), 75, ("b1",), ("s32",), ("row", "col")),
)


_WARP = ACTS.but(together=Together.WARP, opaque=True)
_MULTIPLIES = _WARP.but(multiplies=True, counted_as="wmma", flow=Flow.PRODUCT)
_LOADS = _WARP.but(memory=MemoryEffect.READ, counted_as="wmma.load", flow=Flow.TILE, addressed=Addressed.WARP)
_STORES = _WARP.but(memory=MemoryEffect.WRITE, counted_as="wmma.store", stored=Stored.TILE, addressed=Addressed.WARP)


def _mma_rows() -> Iterator[Row]:
    for shape, ptx, minimum, types, acc, (alayout, blayout) in _KINDS:
        head: dict[str, Choice] = {"sync": "sync", "aligned": ALIGNED}
        head |= {"alayout": alayout, "blayout": blayout, "shape": shape}
        since = Requirement(ptx, minimum)
        for t in types:
            if t == "f16":
                implied = (("atype", "f16"), ("btype", "f16"))
                yield matrix_row("wmma.mma", slots(**head, dtype=acc, ctype=acc), since, MMA, _mma, _MULTIPLIES, implied)
                continue
            (a,) = acc
            full: dict[str, Choice] = {"dtype": a, "atype": t, "btype": t, "ctype": a}
            if t == "b1":
                for op, first, lowest in (("xor", ptx, minimum), ("and", (7, 1), 80)):
                    more: dict[str, Choice] = {"bit_op": op, "popc": "popc", **head, **full}
                    yield matrix_row("wmma.mma", slots(**more), Requirement(first, lowest), MMA, _mma, _MULTIPLIES)
                continue
            if t == "f64":
                full = {"rounding": optional("rn", "rz", "rm", "rp"), **full}
            elif a == "s32":
                full |= {"satfinite": optional("satfinite")}
            yield matrix_row("wmma.mma", slots(**head, **full), since, MMA, _mma, _MULTIPLIES)


def _move_rows() -> Iterator[Row]:
    for shape, ptx, minimum, types, acc, (alayout, blayout) in _KINDS:
        # ptxas moves .f32 accumulators of the integer shapes that have no .f32 arithmetic, too
        moved = (*acc, "f32") if shape in ("m8n8k32", "m8n8k128") else acc
        for op, layout, elements in (
            ("load.a", alayout, types),
            ("load.b", blayout, types),
            ("load.c", _ROWCOL, moved),
            ("store.d", _ROWCOL, moved),
        ):
            section, effects = (STORE, _STORES) if op == "store.d" else (LOAD, _LOADS)
            spaces = (optional("global", "shared"), ptx), (("shared::cta",), max(ptx, (7, 8)))
            for space, since in spaces:
                # The accumulators of one shape are listed once, with the first of the kinds that has them.
                new = tuple(t for t in elements if (op, shape, t, space) not in _seen)
                _seen.update((op, shape, t, space) for t in new)
                if new:
                    row = slots(sync="sync", aligned=ALIGNED, layout=layout, shape=shape, space=space, type=new)
                    yield matrix_row(f"wmma.{op}", row, Requirement(since, minimum), section, _move, effects)


_seen: set[tuple[object, ...]] = set()
ROWS: tuple[Row, ...] = (*_mma_rows(), *_move_rows())
_seen.clear()
