# mypy: disable-error-code="valid-type, arg-type, index"
"""Native code that moves fragments without arithmetic: ldmatrix, stmatrix, movmatrix, wmma.load and wmma.store, and the
registers of wgmma. All of it is unrolled from `Fragment`s, or follows tables made from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.ops import cast_ptr, concat, load, shuffle, store
from mmulator.base.codegen.types import Struct, i32, i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.base.codegen.values import Value
from mmulator.base.lazy import cached_property
from mmulator.isa.form import Form
from mmulator.matrix.layouts import Fragment, fragment
from mmulator.matrix.layouts.operands import memory_bits, operand_places, register_elements
from mmulator.matrix.twin.doors import Door

# Everywhere: registers lie one after the other, the lanes of each together.
ROWS = tuple(range(8))  # of a matrix move, which are unrolled
CONTAINER = {1: u8, 4: u8, 8: u8, 16: u16, 32: u32, 64: u64}


def additive(number: Any, steps: Sequence[int]) -> Any:
    """The sum of the steps of the bits that are set in a number, which is a constant or a value. Steps that double are one
    product.
    """
    total, bit = 0, 0
    while bit < len(steps):
        count = 1
        while bit + count < len(steps) and steps[bit + count] == steps[bit] << count:
            count += 1
        if steps[bit]:
            total = ((number >> bit) & ((1 << count) - 1)) * steps[bit] + total
        bit += count
    return total


# ldmatrix, stmatrix, movmatrix ------------------------------------------------------------------------------------------
@lru_cache(maxsize=256)
def lines(form: Form) -> NDArray[np.int64]:
    """Rows of a matrix move as in memory: for each [row, element] its place in the registers."""
    places = operand_places(form, "r", transposed=bool(form.trans))
    return places.reshape(-1, places.shape[-1])


@lru_cache(maxsize=256)
def _steps(form: Form) -> list[int]:
    """The step of the places for each bit of a row's number."""
    places = lines(form)
    first = places[:, 0]
    steps = [int(first[1 << bit]) for bit in range((len(places) - 1).bit_length())]
    if (places != [places[0] + additive(number, steps) for number in range(len(places))]).any():
        raise ValueError(f"rows of {form} are not alike")
    return steps


def runs(places: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first, where, count): `count` elements from number `first` on are adjacent from place `where` on."""
    out: list[tuple[int, int, int]] = []
    for number, place in enumerate(map(int, places)):
        if out and place == out[-1][1] + out[-1][2]:
            first, where, count = out[-1]
            out[-1] = first, where, count + 1
        else:
            out.append((number, place, 1))
    return out


def symbol(form: Form) -> str:
    """The part of a matrix move's name on which its code depends."""
    return "_".join(x for x in (form.family, form.shape, f"x{max(1, form.num)}", form.trans and "trans", form.src_fmt) if x)


def matrices(form: Form) -> int:
    """Number of groups of ROWS in a matrix move."""
    return len(lines(form)) // len(ROWS)


def registers_of(form: Form, number: Any, registers: Value) -> Value:
    """Macro: the registers of group `number` of ROWS."""
    return cast_ptr(CONTAINER[fragment(form, "r").bits], registers) + additive(number, _steps(form)[len(ROWS).bit_length() - 1 :])


@lru_cache(maxsize=256)
def _order(form: Form) -> list[int] | None:
    """For each place of the registers, the element of contiguous ROWS that it holds; None if the elements do not fill
    registers.
    """
    places = lines(form)[: len(ROWS)].reshape(-1)
    filled = fragment(form, "r").bits == memory_bits(form) and sorted(places) == list(range(len(places)))
    return [int(n) for n in np.argsort(places)] if filled else None


def rows_to_registers(form: Form, rows: Sequence[Value], registers: Value) -> None:
    """Macro: ldmatrix for ROWS, from pointers to them."""
    order, ty = _order(form), CONTAINER[fragment(form, "r").bits]
    if order is None:
        for number, row in enumerate(rows):
            _row_to_registers(form, number, row, registers)
        return
    row_ty = ty.vec(len(order) // len(rows))
    whole = concat([load(row_ty, cast_ptr(row_ty, row)) for row in rows])
    store(shuffle(whole, None, order), cast_ptr(whole.ty, registers))


def registers_to_rows(form: Form, registers: Value, rows: Sequence[Value]) -> None:
    """Macro: stmatrix for ROWS in their order, to pointers to them."""
    order, ty = _order(form), CONTAINER[fragment(form, "r").bits]
    if order is None:
        for number, row in enumerate(rows):
            _registers_to_row(form, number, registers, row)
        return
    held = load(ty.vec(len(order)), cast_ptr(ty, registers))
    per, places = len(order) // len(rows), lines(form)
    for number, row in enumerate(rows):
        store(shuffle(held, None, [int(p) for p in places[number][:per]]), cast_ptr(ty.vec(per), row))


def _row_to_registers(form: Form, number: int, row: Value, registers: Value) -> None:
    room, bits, out = fragment(form, "r").bits, memory_bits(form), registers + additive(number, _steps(form))
    if bits == room:
        for first, where, count in runs(lines(form)[0]):
            _copy(CONTAINER[room], count, row, first, out, where)
    else:
        for first, where in enumerate(lines(form)[0]):
            element = _narrow(row, bits * first, bits)
            out[int(where)] = ((element ^ 8) - 8) if form.src_fmt == "s4" else element


def _registers_to_row(form: Form, number: int, registers: Value, row: Value) -> None:
    ty, source = CONTAINER[fragment(form, "r").bits], registers + additive(number, _steps(form))
    for first, where, count in runs(lines(form)[0]):
        _copy(ty, count, source, where, row, first)


def _copy(ty: Any, count: int, source: Value, at: int, target: Value, to: int) -> None:
    """Copy `count` elements from number `at` of the source to number `to` of the target.

    ty: type of the elements.
    count: number of elements.
    source, at: the source.
    target, to: the target.
    """
    store(load(ty.vec(count) if count > 1 else ty, cast_ptr(ty, source) + at), cast_ptr(ty, target) + to)


def _narrow(row: Value, bit: int, bits: int) -> Value:
    """An element of less than a byte, possibly across two bytes."""
    first = bit // 8
    value = u32(row[first]) >> bit % 8
    if bit % 8 + bits > 8:
        value = value | u32(row[first + 1]) << (8 - bit % 8)
    return u8(value & ((1 << bits) - 1))


@lru_cache(maxsize=16)
def register_move(form: Form) -> Native:
    """A function that moves each element of d from its place in the registers of a, as the row says (Row.moves)."""
    assert form.row.moves is not None
    source = form.row.moves(operand_places(form, "a"))
    target = operand_places(form, "d").reshape(-1)
    pairs = [(int(x), int(y)) for x, y in zip(source.reshape(-1), target)]
    ty = CONTAINER[fragment(form, "d").bits]

    def move(a: ptr, d: ptr) -> None:
        source = cast_ptr(ty, a)
        target = cast_ptr(ty, d)
        for where, to in pairs:
            target[to] = source[where]

    return Native(move, symbol(form))


# wmma.load and wmma.store -------------------------------------------------------------------------------------------
WmmaTable = Struct("WmmaTable", [
    ("places", i64),  # elements of a fragment over all lanes
    ("major", ptr_to(i32)), ("minor", ptr_to(i32)),  # of each place: line of the leading dimension, position in it
])  # fmt: skip


def wmma_table(keep: list[Any], form: Form) -> NDArray[Any]:
    """The table of a wmma.load or wmma.store. keep: collects objects that must live as long as the table."""
    f = fragment(form, "r")
    row, column = divmod(register_elements(form, "r"), f.columns)
    table = np.zeros(1, WmmaTable.numpy_dtype())
    table["places"] = row.size
    for name, values in zip(("major", "minor"), (row, column) if form.layout == "row" else (column, row)):
        array = np.ascontiguousarray(values, np.int32)
        keep.append(array)
        table[name] = array.ctypes.data
    keep.append(table)
    return table


def line_alignment(form: Form) -> int:
    """Required alignment of every line of the matrix of a wmma.load or .store, in bytes: the size of the fragment, at most 32,
    or the size of a line if that is less, since lines begin there at the default stride. Matrix Storage for WMMA, Address
    Alignment (PTX ISA 9.1).
    """
    f = fragment(form, "r")
    return min(f.registers * f.register_bits // 8, default_stride(form) * form.type.bits // 8, 32)


def default_stride(form: Form) -> int:
    """The least stride: the extent of the leading dimension, in elements."""
    f = fragment(form, "r")
    return f.columns if form.layout == "row" else f.rows


@cache
def wmma_load_function(door: Door, bits: int, held: int) -> Native:
    """A function for wmma.load: place i of the fragment receives element [major[i]][minor[i]] at p + (major * stride + minor) *
    size.

    held: elements in a register. door.place(context, lane, address, bytes, access, number), with the element's lane.
    """
    ty = CONTAINER[bits]
    per = max(1, 8 // bits)  # elements of a byte

    def wmma_load(c: ptr_to(door.context), table: ptr_to(WmmaTable), p: u64, stride: i64, registers: ptr, number: u32) -> u32:
        out = cast_ptr(ty, registers)
        for i in range(table.places):
            at = i64(table.major[i]) * stride + i64(table.minor[i])
            lane = u32(i) // held & 31
            if bits >= 8:
                host = door.place(c, lane, p + u64(at * (bits // 8)), bits // 8, door.access, number)
                if u64(host) == 0:
                    return u32(0)
                out[i] = cast_ptr(ty, host)[0]
            else:
                host = door.place(c, lane, p + u64(at >> (per.bit_length() - 1)), 1, door.access, number)
                if u64(host) == 0:
                    return u32(0)
                value = (host[0] >> u8((at & (per - 1)) * bits)) & ((1 << bits) - 1)
                shift = u8((i % per) * bits)
                old = u8(0)
                if (i % per) != 0:
                    old = registers[i // per]
                registers[i // per] = old | (value << shift)
        return u32(1)

    return Native(wmma_load, f"wmma_load_{door.name}_{bits}")


@cache
def wmma_store_function(door: Door, bits: int, held: int) -> Native:
    """A function for wmma.store, the inverse of wmma.load."""
    ty = CONTAINER[bits]

    def wmma_store(c: ptr_to(door.context), table: ptr_to(WmmaTable), p: u64, stride: i64, registers: ptr, number: u32) -> u32:
        source = cast_ptr(ty, registers)
        for i in range(table.places):
            at = i64(table.major[i]) * stride + i64(table.minor[i])
            lane = u32(i) // held & 31
            host = door.place(c, lane, p + u64(at * (bits // 8)), bits // 8, door.access, number)
            if u64(host) == 0:
                return u32(0)
            cast_ptr(ty, host)[0] = source[i]
        return u32(1)

    return Native(wmma_store, f"wmma_store_{door.name}_{bits}")


# wgmma --------------------------------------------------------------------------------------------------------------
class WarpTile:
    """The part of a fragment that one warp holds, between registers and the rows of a plain matrix: vectors of whole registers.

    `registers` of them form a block, whose words are adjacent in every row; all blocks are alike.
    """

    def __init__(self, whole: Fragment) -> None:
        self.fragment = whole
        _, row, column = (places[:32] for places in whole.maps)
        byte = column * whole.bits // 8
        inside = np.arange(whole.per_register) * whole.bits // 8
        if whole.register_bits != 32 or (row != row[..., :1]).any() or (byte != byte[..., :1] + inside).any():
            raise ValueError(f"registers of {whole} hold no pieces of rows")
        self._row, self._byte = row[..., 0], byte[..., 0]
        self.registers = next(n for n in (1, 2) if all(len(runs(self._words(n, r))) == 1 for r in self._rows(n)))

    def _rows(self, count: int) -> list[int]:
        return sorted(set(self._row[:, :count].flat))

    def _held(self, count: int, row: int) -> list[tuple[int, int, int]]:
        """(byte, register, lane) of a row's words, in order."""
        lane, register = np.nonzero(self._row[:, :count] == row)
        return sorted((int(self._byte[x, r]), int(r), int(x)) for x, r in zip(lane, register))

    def _words(self, count: int, row: int) -> list[int]:
        return [byte // 4 for byte, _, _ in self._held(count, row)]

    @cached_property
    def rows(self) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """The rows of a block: (row, first byte in it, (register, lane) of the words there)."""
        held = [(row, self._held(self.registers, row)) for row in self._rows(self.registers)]
        return [(row, words[0][0], [(register, lane) for _, register, lane in words]) for row, words in held]

    def offset(self, block: Any, line_bytes: Any) -> Any:
        """Offset of a block in the matrix, in bytes. block: its number, a constant or a value."""
        f = self.fragment
        steps = f.register[self.registers.bit_length() - 1 :]
        right = [across * f.bits // 8 for _, across in steps]
        return additive(block, [down for down, _ in steps]) * line_bytes + additive(block, right)

    def to_matrix(self, registers: Sequence[Value], matrix: Value, line_bytes: Value) -> None:
        """Macro: store a block's registers at its place, at `matrix`."""
        words = [load(u32.vec(32), cast_ptr(u32, r)) for r in registers]
        order = [32 * register + lane for _, _, held in self.rows for register, lane in held]
        block = words[0] if order == list(range(32)) else shuffle(words[0], words[-1], order)
        at = 0
        for row, byte, held in self.rows:
            part = shuffle(block, None, range(at, at + len(held)))
            store(part, cast_ptr(u32, matrix + (row * line_bytes + byte)))
            at += len(held)

    def to_registers(self, matrix: Value, line_bytes: Value, registers: Sequence[Value]) -> None:
        """Macro: load a block's registers from its place; the inverse of `to_matrix`."""
        for row, byte, held in self.rows:
            part = load(u32.vec(len(held)), cast_ptr(u32, matrix + (row * line_bytes + byte)))
            for number, register in enumerate(registers):
                own = [n for n, (r, _) in enumerate(held) if r == number]
                for first, lane, count in runs([held[n][1] for n in own]):
                    mine = shuffle(part, None, own[first : first + count])
                    store(mine, cast_ptr(u32, register) + lane)
