"""Moves from fragments in registers to lines of a matrix in memory, and back: vectors and shuffles, unrolled from the places.

Registers and lines both consist of chunks of 64 bytes; a chunk of one side is shuffled from chunks of the other.
"""

# The functions are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type, arg-type, index"

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.ops import bitcast, load, select, shuffle, store
from mmulator.base.codegen.store import digest_of
from mmulator.base.codegen.types import Ty, boolean, i32, i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.base.codegen.values import Value
from mmulator.isa.form import Form
from mmulator.matrix.layouts import Fragment, fragment
from mmulator.matrix.layouts.operands import BY_LANE, BY_REGISTER, operand_places, register_elements

Index = NDArray[np.int64]
Where = Callable[[int], Value]  # a chunk's number to its address
CHUNK = 64  # bytes
# Where a register's lanes lie, as an i32: bytes from the first of two bases (the register file), or with OWN set from the second.
OWN = 1 << 31
_UNITS: dict[int, Ty] = {8: u8, 16: u16, 32: u32, 64: u64}
_SPREAD = {4: ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F))}


def coarse(places: Index, bits: int, most: int) -> tuple[int, Index]:
    """(bits of a piece, places of the pieces): elements [..., elements] that are adjacent on both sides, combined into pieces
    of at most `most` bits.
    """
    for size in (128, 64, 32, 16, 8):
        count = size // bits
        if size > most or count < 2 or places.shape[-1] % count:
            continue
        groups = places.reshape(*places.shape[:-1], -1, count)
        first = groups[..., :1]
        if (groups == first + np.arange(count)).all() and not (first % count).any():
            return size, first[..., 0] // count
    return bits, places


Lanes = Sequence[Any]  # lanes of a vector: (vector, lane) of others, or None for an arbitrary value


def shuffled(read: Callable[[Hashable], Value], wanted: Sequence[Lanes]) -> list[Value]:
    """Vectors built from lanes of other vectors, all of one type. A part that several of them take from one half of the others
    is computed once.
    """
    numbers: dict[Hashable, int] = {}
    for lane in (lane for lanes in wanted for lane in lanes if lane is not None):
        numbers.setdefault(lane[0], len(numbers))
    width = read(next(iter(numbers))).ty.lanes
    found: dict[int, Value] = {}
    # by source vectors: lanes of the first half, of the second, and the numbers of the `wanted` vectors
    halves: dict[tuple[Hashable, ...], list[tuple[list[Any], list[Any], list[int]]]] = {}
    for n, lanes in enumerate(wanted):
        keys = sorted({lane[0] for lane in lanes if lane is not None}, key=numbers.__getitem__)
        if len(keys) <= 2:
            x, y = (read(key) for key in (keys[0], keys[-1]))
            at = [-1 if lane is None else lane[1] + (0 if lane[0] == keys[0] else width) for lane in lanes]
            found[n] = shuffle(x, y if len(keys) == 2 else None, at)
            continue
        first = set(keys[: (len(keys) + 1) // 2])
        own = [list(dict.fromkeys(lane for lane in lanes if lane and (lane[0] in first) == low)) for low in (True, False)]
        several = halves.setdefault(tuple(keys), [])
        if several and all(len({*have, *more}) <= width for have, more in zip(several[-1], own)):
            for have, more in zip(several[-1], own):
                have += [lane for lane in more if lane not in have]
            several[-1][2].append(n)
        else:
            several.append((*own, [n]))
    pairs = [pair for several in halves.values() for pair in several]
    sizes = [max(width, len(low), len(high)) for low, high, _ in pairs]
    padded = [half + [None] * (size - len(half)) for pair, size in zip(pairs, sizes) for half in pair[:2]]
    vectors = shuffled(read, padded) if padded else []
    for (low, high, several_of), size, x, y in zip(pairs, sizes, vectors[::2], vectors[1::2]):
        at_of = {lane: n for n, lane in enumerate(low)} | {lane: n + size for n, lane in enumerate(high)}
        for n in several_of:
            found[n] = shuffle(x, y, [-1 if lane is None else at_of[lane] for lane in wanted[n]])
    return [found[n] for n in range(len(wanted))]


def collect(where: Where, places: Index, bits: int, out: Value, pitch: Any, shift: int = 0, width: int = 0) -> None:
    """Macro: write the elements of a fragment as lines; line n is at out + n * pitch bytes.

    where: a function from a chunk to its address.
    places: [lines, elements], counted in elements.
    bits: bits of an element; elements of less than 8 bits get a byte each.
    out, pitch: destination, and bytes between lines.
    shift, width: place of an element in its bits, if it does not fill them.
    """
    size, pieces = coarse(places, bits, 32 if bits < 8 or width else 128)
    if size == 128:
        at = u8.vec(16)
        for line, row in enumerate(pieces.tolist()):
            for n, place in enumerate(row):
                chunk, inside = divmod(place * 16, CHUNK)
                store(load(at, where(chunk), inside), out + pitch * line, 16 * n)
        return
    unit = _UNITS[size]
    per = CHUNK * 8 // size
    known: dict[Hashable, Value] = {}

    def read(chunk: Any) -> Value:
        if chunk not in known:
            known[chunk] = load(unit.vec(per), where(chunk))
        return known[chunk]

    length = pieces.shape[1]
    together = max(1, per // length)
    wanted: dict[tuple[int, int], Lanes] = {}
    for line in range(0, len(pieces), together):
        flat = pieces[line : line + together].reshape(-1).tolist()
        for start in range(0, len(flat), per):
            wanted[line, start] = [divmod(place, per) for place in flat[start : start + per]]
    for (line, start), vector in zip(wanted, shuffled(read, [*wanted.values()])):
        for n in range(0, vector.ty.lanes, length):
            part = vector if length >= vector.ty.lanes else shuffle(vector, None, range(n, n + length))
            value = bytes_of(part, bits, shift, width)
            store(value, out + pitch * (line + n // length), start * max(bits, 8) // bits * size // 8)


def bytes_of(vector: Value, bits: int, shift: int, width: int) -> Value:
    """Units in the format of the matrix: elements of less than 8 bits in a byte each, without surrounding bits."""
    total = vector.ty.lanes * vector.ty.bits
    if bits == 1:
        return u8.vec(total)(bitcast(boolean.vec(total), vector))
    if bits < 8:
        wide = u64.vec(vector.ty.lanes)(vector)
        for step, mask in _SPREAD[bits]:
            wide = (wide | (wide << step)) & mask
        return bitcast(u8.vec(wide.ty.lanes * 8), wide)
    if width:
        return (bitcast(u8.vec(total // 8), vector) >> shift) & ((1 << width) - 1)
    return vector


def spread(where: Where, elements: Index, bits: int, source: Value, pitch: Any, length: int) -> None:
    """Macro, the inverse for accumulators: place n in the registers receives the matrix element number elements[n].

    where: a function from a chunk to its address.
    elements: numbers of elements, line after line.
    bits: bits of an element.
    source, pitch: first line, and bytes between lines.
    length: elements of a line.
    """
    size, numbers = coarse(elements[None], bits, 64)
    pieces, length = numbers[0].tolist(), length * bits // size
    unit = _UNITS[size]
    per = CHUNK * 8 // size
    each = min(per, length)
    known: dict[Hashable, Value] = {}

    def read(key: Any) -> Value:
        if key not in known:
            line, part = key
            known[key] = load(unit.vec(each), source + pitch * line, part * each * size // 8)
        return known[key]

    wanted = []
    for chunk in range(0, len(pieces), per):
        lines = (divmod(number, length) for number in pieces[chunk : chunk + per])
        wanted.append([((line, column // each), column % each) for line, column in lines])
    for n, vector in enumerate(shuffled(read, wanted)):
        store(vector, where(n))


# functions of a form's operands -----------------------------------------------------------------------------------------
def place_of(at: Value, regs: Value, own: Value) -> Value:
    """Macro: address of a place."""
    return select(at < 0, own, regs) + i64(at & (OWN - 1))


def registers_at(at: Value, regs: Value, own: Value, f: Fragment, order: str) -> Where:
    """Macro: a function from chunks of a fragment to addresses, for registers at the places at[0], at[1], ...; in the order by
    lane, at `regs`.

    at, regs, own: places, and their two bases.
    f: the fragment.
    order: order of the registers.
    """
    if order == BY_LANE:
        return lambda chunk: regs + chunk * CHUNK
    known: dict[int, Value] = {}
    chunks = f.lanes * f.register_bits // 8 // CHUNK

    def where(chunk: int) -> Value:
        register, part = divmod(chunk, chunks)
        if register not in known:
            known[register] = place_of(at[register], regs, own)
        return known[register] + part * CHUNK

    return where


def _symbol(kind: str, f: Fragment, places: Index) -> str:
    """A symbol for a function; fragments with equal places share one."""
    told = digest_of(f"{f.lanes} {f.register_bits} {f.bits} {f.shift} {f.width} {places.shape}".encode())
    told.update(places.astype(np.int64).tobytes())
    return f"{kind}_{f.bits}_{told.hexdigest()[:16]}"


_functions: dict[str, Native] = {}


@lru_cache(maxsize=2048)
def lines_function(form: Form, name: str, swap: bool, order: str = BY_REGISTER) -> Native:
    """A function that writes operand a, b or c of a form as lines along k (c: along n), of the transposed product if `swap`.

    regs, own: bases of the places at[0], at[1], ... of its registers. pitch: bytes from a line to the next.
    """
    f = fragment(form, name)
    places = operand_places(form, name, (name == "b") if name in "ab" else swap, order)[0]
    partly = (f.shift, f.width) if f.width < f.bits else (0, 0)

    def lines(at: ptr_to(i32), regs: ptr, own: ptr, out: ptr, pitch: i64) -> None:
        collect(registers_at(at, regs, own, f, order), places, f.bits, out, pitch, *partly)

    symbol = _symbol("lines" if order == BY_REGISTER else "lines_of_lanes", f, places)
    return _functions.setdefault(symbol, Native(lines, symbol))


@lru_cache(maxsize=2048)
def registers_function(form: Form, swap: bool, order: str = BY_REGISTER) -> Native:
    """A function that writes the registers of d from lines along n, or along m if `swap`."""
    f = fragment(form, "d")
    elements, length = register_elements(form, "d", swap, order), form.m if swap else form.n

    def registers(at: ptr_to(i32), regs: ptr, own: ptr, lines: ptr, pitch: i64) -> None:
        spread(registers_at(at, regs, own, f, order), elements, f.bits, lines, pitch, length)

    symbol = _symbol(f"registers_{length}" if order == BY_REGISTER else f"lanes_{length}", f, elements)
    return _functions.setdefault(symbol, Native(registers, symbol))
