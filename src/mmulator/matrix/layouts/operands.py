"""The fragment of every operand of every form: one rule for m16n8 and wgmma, and a table of the exceptions."""

from functools import lru_cache

import numpy as np

from mmulator.base.errors import OperandError
from mmulator.isa.form import Form
from mmulator.isa.types import NO_TYPE, TYPES, ElementType
from mmulator.matrix.layouts.fragments import Fragment, Index, Step


def _down(*sizes: int) -> tuple[Step, ...]:
    return tuple((s, 0) for s in sizes)


def _right(*sizes: int) -> tuple[Step, ...]:
    return tuple((0, s) for s in sizes)


def _swap(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple((c, r) for r, c in steps)


def _doublings(start: int, stop: int) -> tuple[int, ...]:
    """start, 2 start, 4 start and so on, below stop."""
    out = []
    while start < stop:
        out.append(start)
        start *= 2
    return tuple(out)


def _element(form: Form, element: ElementType) -> tuple[int, int, int, int]:
    """(space, register width, shift, width) of an element of A or B, in bits."""
    if element.name == "f64":
        return 64, 64, 0, 64
    if element.is_float and element.bits < 8 and form.kind in ("f8f6f4", "mxf8f6f4"):
        # 8-bit container: 4-bit elements in its middle, 6-bit ones in its low bits
        return 8, 32, 2 if element.bits == 4 else 0, element.bits
    return element.bits, 32, 0, element.bits


_G = _down(1, 2, 4)
_WARPS = _down(16, 32)


def operand_a(rows: int, columns: int, room: int, width: int = 32, shift: int = 0, bits: int = 0) -> Fragment:
    """The fragment of A: row = g + 8 (r % 2), column = (r / 2) 4E + t E + e, with g = lane / 4, t = lane % 4 and E elements in
    a register.

    rows, columns: of the matrix.
    room: space for one element in a register, in bits.
    width, shift: width of the element and its place in that space, in bits.
    bits: size of a register.
    """
    e = width // room
    lane = _right(e, 2 * e) + _G + (_WARPS if rows == 64 else ())
    high_rows = _down(8) if rows > 8 else ()
    register = high_rows + _right(*_doublings(4 * e, columns))
    count = (1 << len(high_rows)) * max(1, columns // (4 * e))
    return Fragment(rows, columns, count, room, lane, register, _right(*_doublings(1, e)), width, shift=shift, width=bits)


def _operand_b(form: Form, rows: int, columns: int, element: ElementType) -> Fragment:
    """The fragment of B: k = r 4E + t E + e, n = g; with more than 8 columns (wmma) the next registers hold the columns 8 to
    the right.
    """
    room, width, shift, bits = _element(form, element)
    e = width // room
    down = _doublings(4 * e, rows)
    register = _down(*down) + _right(*_doublings(8, columns))
    count = max(1, rows // (4 * e)) * (columns // 8)
    lane = _down(e, 2 * e) + _swap(_G)
    return Fragment(rows, columns, count, room, lane, register, _down(*_doublings(1, e)), width, shift=shift, width=bits)


def accumulator(rows: int, columns: int, bits: int) -> Fragment:
    """The fragment of C and D. 32 bits, register i: row = g + 8 (i / 2 % 2), column = 8 (i / 4) + 2 t + i % 2; f16: two of
    these elements in a register.
    """
    pair = _right(1)
    lane = _right(2, 4) + _G + (_WARPS if rows == 64 else ())
    high = _down(8) if rows > 8 else ()
    blocks = high + _right(*_doublings(8, columns))
    words = (1 << len(high)) * (columns // 8)
    if bits == 16:
        return Fragment(rows, columns, words, 16, lane, blocks, pair)
    return Fragment(rows, columns, 2 * words, bits, lane, pair + blocks, (), max(32, bits))


def _wmma(form: Form, matrix: str, element: ElementType) -> Fragment:
    """The fragment of wmma: that of mma over wider shapes, with another order of registers if both extents exceed a tile."""
    m, n, k = form.m, form.n, form.k
    if element.name == "f64" or (m, n) == (8, 8):
        return _small(form, matrix, element)
    if matrix == "c":
        down, right = _doublings(8, m), _doublings(8, n)
        lane, pair = _right(2, 4) + _G, _right(1)
        if m == 8:  # computed as the transposed product
            lane, pair = _swap(lane), _swap(pair)
        halves = _down(*down[:1]) + _right(*right) + _down(*down[1:])
        if element.bits == 16:
            return Fragment(m, n, 4, 16, lane, halves, pair)
        return Fragment(m, n, 8, 32, lane, pair + halves)
    e = 32 // element.bits
    along = _doublings(4 * e, k)  # steps along k beyond one register
    across = _doublings(8, m if matrix == "a" else n)  # steps along m or n beyond one tile
    if matrix == "a":
        steps = _down(*across[:1]) + _right(*along) + _down(*across[1:])
        lane, index = _right(e, 2 * e) + _G, _right(*_doublings(1, e))
    else:
        steps = _down(*along) + _right(*across)
        if n == 32 and along:  # here the first step across comes before the step along k
            steps = _right(across[0]) + _down(*along) + _right(*across[1:])
        lane, index = _down(e, 2 * e) + _swap(_G), _down(*_doublings(1, e))
    count = 1 << len(steps)
    if element.name == "f16" and count < 8:  # eight registers, whose upper ones repeat the lower
        steps += ((0, 0),) * (3 - len(steps))
        count = 8
    rows, columns = (m, k) if matrix == "a" else (k, n)
    return Fragment(rows, columns, count, element.bits, lane, steps, index)


def _small(form: Form, matrix: str, element: ElementType) -> Fragment:
    if matrix == "a":
        return operand_a(form.m, form.k, *_element(form, element))
    if matrix == "b":
        return _operand_b(form, form.k, form.n, element)
    return accumulator(form.m, form.n, element.bits)


# mma.m8n8k4 with .f16: lanes 0-3 and 16-19 compute the first of four matrices, and so on.
def _quad_pairs(form: Form, matrix: str, element: ElementType) -> Fragment:
    four = _doublings(1, 4)
    if matrix in "ab":
        own_row = (form.alayout == "row") == (matrix == "a")
        rows, columns = (8, 4) if matrix == "a" else (4, 8)
        lane: tuple[Step, ...]
        if matrix == "a":
            lane, inner = (_down(*four), _right(*four)) if own_row else (_right(*four), _down(*four))
            high = _down(4)
        else:
            by_row = form.blayout == "row"
            lane, inner = (_down(*four), _right(*four)) if by_row else (_right(*four), _down(*four))
            high = _right(4)
        lane += ((0, 0), (0, 0), *high)
        return Fragment(rows, columns, 2, 16, lane, inner[1:], inner[:1], copies=4, copy=(0, 0, 1, 2))
    if element.bits == 16:
        lane = (*_down(1, 2), (0, 0), (0, 0), (4, 0))
        return Fragment(8, 8, 4, 16, lane, _right(2, 4), _right(1), copies=4, copy=(0, 0, 1, 2))
    lane = ((1, 0), (0, 2), (0, 0), (0, 0), (4, 0))
    return Fragment(8, 8, 8, 32, lane, ((0, 1), (2, 0), (0, 4)), copies=4, copy=(0, 0, 1, 2))


def _matrix_move(form: Form) -> Fragment:
    """The fragment of `r`, `d` and `a` of a matrix move: `num` matrices as copies.

    ldmatrix with .trans: the matrix after transposition. stmatrix with .trans: the matrix before it.
    """
    num = max(1, form.num)
    if (form.m, form.n) == (8, 8):
        one = Fragment(8, 8, num, 16, _right(2, 4) + _G, (), _right(1), copies=num, register_copies=1)
    elif (form.m, form.n) == (16, 16):
        one = Fragment(16, 16, 2 * num, 8, _right(4, 8) + _G, _down(8), _right(1, 2), copies=num, register_copies=2)
    elif (form.m, form.n) == (8, 16):
        one = Fragment(8, 16, num, 8, _right(4, 8) + _G, (), _right(1, 2), copies=num, register_copies=1)
    else:
        one = Fragment(16, 8, num, 8, _right(2, 4) + _G, (), _right(1) + _down(8), copies=num, register_copies=1)
    return one


def memory_bits(form: Form) -> int:
    """Bits of a matrix move's element in memory; elements of .b4x16_p64 and .b6x16_p32 lie at the beginning of a row."""
    return int(form.src_fmt[1]) if form.src_fmt else fragment(form, "r").bits


def row_bytes(form: Form) -> int:
    """Bytes of a matrix move's row in memory, with padding; rows are aligned to this number."""
    return 8 if form.src_fmt == "s4" else 16


@lru_cache(maxsize=1024)
def fragment(form: Form, name: str) -> Fragment:
    """The fragment of a form's operand `a`, `b`, `c`, `d`, or `r` of a load, store or matrix move.

    Raises OperandError for an operand that is not a fragment in registers.
    """
    if form.is_move:
        if name in ("r", "a", "d"):
            return _matrix_move(form)
    elif form.effects.opaque:
        if name == "r" and form.type:
            return _wmma(form, form.op[-1].replace("d", "c"), form.type)
        types = {"a": form.atype, "b": form.btype, "c": form.ctype, "d": form.dtype}
        if t := types.get(name, NO_TYPE):
            return _wmma(form, name.replace("d", "c"), t)
    elif not form.effects.tensor:  # whose matrices are in tensor memory
        types = {"a": form.atype, "b": form.btype, "c": form.ctype, "d": form.dtype}
        t = types.get(name, NO_TYPE)
        if t and not (form.lanes > 32 and name == "b"):
            if form.products > 1:
                return _quad_pairs(form, name, t)
            if name == "a":
                return operand_a(form.m, form.k // 2 if form.sparse else form.k, *_element(form, t))
            if name == "b":
                return _operand_b(form, form.k, form.n, t)
            return accumulator(form.m, form.n, t.bits)
    raise OperandError(
        f"operand {name} of {form} is no register fragment",
        hint="fragments: " + ", ".join(s.name for s in form.signatures[-1] if s.kind in ("registers", "register")),
    )


def element_of(form: Form, name: str) -> ElementType:
    """Element type of a register operand."""
    if name == "r" or not form.atype:
        return TYPES["s8" if form.dst_fmt == "s8" else "b8"] if form.dst_fmt else form.type
    return {"a": form.atype, "b": form.btype, "c": form.ctype, "d": form.dtype}.get(name, NO_TYPE)


# fragments whose registers lie in memory one after another --------------------------------------------------------------
# How registers lie in memory: register after register with its lanes together, or lane after lane with its registers.
BY_REGISTER, BY_LANE = "by register", "by lane"


def _place(f: Fragment, lane: Index, register: Index, index: Index, order: str) -> Index:
    word = register * f.lanes + lane if order == BY_REGISTER else lane * f.registers + register
    return word * f.per_register + index


def operand_places(form: Form, name: str, transposed: bool = False, order: str = BY_REGISTER) -> Index:
    """For each matrix element (copies, rows, columns) its place in the registers, counted in elements.

    form, name: the form and its operand.
    transposed: whether the result is in the order (copies, columns, rows).
    order: order of registers in memory.
    """
    f = fragment(form, name)
    copies, rows, columns = np.meshgrid(np.arange(f.copies), np.arange(f.rows), np.arange(f.columns), indexing="ij")
    places = _place(f, *f.locate(rows, columns, copies), order)
    return places.transpose(0, 2, 1) if transposed else places


def register_elements(form: Form, name: str, transposed: bool = False, order: str = BY_REGISTER) -> Index:
    """For each place in the registers, the number of the matrix element (copies, rows, columns) that it holds.

    form, name: the form and its operand.
    transposed: whether elements are numbered in the order (copies, columns, rows).
    order: order of registers in memory.
    """
    f = fragment(form, name)
    number = np.arange(f.copies * f.rows * f.columns).reshape(f.copies, f.rows, f.columns)
    if transposed:
        number = np.arange(number.size).reshape(f.copies, f.columns, f.rows).transpose(0, 2, 1)
    held = number.reshape(-1)[f.flat].reshape(f.lanes, f.registers, f.per_register)
    return (held.transpose(1, 0, 2) if order == BY_REGISTER else held).reshape(-1)
