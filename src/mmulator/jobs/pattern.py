"""Where the wrong elements of an array lie: runs and periods of rows and columns; lanes and registers of accumulators.

Only facts are said: a sentence holds for every wrong element, and tells how many of the elements it speaks of are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mmulator.errors import MmulatorError

if TYPE_CHECKING:
    from mmulator.isa.form import Form

Array = NDArray[Any]
_FEW = 6  # wrong elements that are listed one by one
_PERIODS = tuple(1 << n for n in range(1, 10))


@dataclass(frozen=True)
class Accumulator:
    """Who holds which element of a matrix instruction's result: lane, register and index of every [row, column]."""

    name: str
    lane: Array
    register: Array
    index: Array
    lanes: int
    registers: int
    per_register: int


def accumulator(form: Form) -> Accumulator | None:
    """The layout of an instruction's result d; None for an instruction without a result in registers."""
    from mmulator.layouts import fragment

    if not form.dtype:
        return None
    try:
        f = fragment(form, "d")
    except (MmulatorError, KeyError):
        return None
    if f.copies > 1 or f.lanes * f.registers * f.per_register != f.rows * f.columns:  # several holders of an element
        return None
    places = np.indices(f.maps[0].shape)
    rows, columns = f.maps[1].reshape(-1), f.maps[2].reshape(-1)
    own = rows >= 0
    lane, register, index = (_table(np.asarray(v), rows, columns, own, (f.rows, f.columns)) for v in places)
    return Accumulator(str(form), lane, register, index, f.lanes, f.registers, f.per_register)


def _table(values: Array, rows: Array, columns: Array, own: Array, shape: tuple[int, int]) -> Array:
    """Values of the registers' places at the elements that lie there."""
    table = np.zeros(shape, np.int64)
    table[rows[own], columns[own]] = values.reshape(-1)[own]
    return table


def accumulators(forms: Iterable[Form]) -> tuple[Accumulator, ...]:
    """Layouts of the results of several instructions, one of those that differ in their names alone."""
    out: dict[bytes, Accumulator] = {}
    for form in dict.fromkeys(forms):
        found = accumulator(form)
        if found is not None:
            out.setdefault(found.lane.tobytes() + found.register.tobytes() + found.index.tobytes(), found)
    return tuple(out.values())


@dataclass(frozen=True)
class Part:
    """Some of the numbers 0 to n - 1 in words, and which they are."""

    text: str
    own: Array

    @property
    def share(self) -> float:
        return float(self.own.mean())


def part_of(values: Array, limit: int) -> Part | None:
    """The narrowest simple set that holds the values: one number, a run, a residue or a run of residues. None if no such set
    does.
    """
    low, high = int(values.min()), int(values.max())
    numbers = np.arange(limit)
    run = (numbers >= low) & (numbers <= high)
    text = str(low) if low == high else f"{low} to {high}"
    best = Part(text, run)
    for period in _PERIODS:
        if period * 2 > limit:
            break
        left = np.unique(values % period)
        first, last = int(left[0]), int(left[-1])
        residues = (numbers % period >= first) & (numbers % period <= last)
        name = f"{first} mod {period}" if first == last else f"{first} to {last} mod {period}"
        both = residues & run
        whole = run.mean() > 0.75
        found = Part(name, residues) if whole else Part(f"{name} of {text}", both)
        if last - first + 1 <= period // 2 and found.own.sum() * 1.5 < best.own.sum():
            best = found
    return best if best.share <= 0.75 else None


def where_wrong(wrong: Array, accumulators: Sequence[Accumulator] = ()) -> tuple[str, ...]:
    """Sentences about the places of the wrong elements.

    wrong: boolean array, True where an element is wrong.
    accumulators: layouts of the results of the kernel's matrix instructions.
    """
    count = int(wrong.sum())
    if wrong.ndim == 0 or not count:
        return ()
    if count == wrong.size:
        return ("every element",) if count > 1 else ()
    if count > 0.95 * wrong.size:
        return (f"every element but {wrong.size - count:,}",)
    at = np.argwhere(wrong)
    out = []
    if count <= _FEW:
        out.append("at " + ", ".join(str([int(i) for i in place]) for place in at))
    else:
        names = {1: ("index",), 2: ("row", "column")}.get(wrong.ndim) or tuple(f"axis {n}" for n in range(wrong.ndim))
        out += _axes(at, wrong.shape, names, count)
    if len(accumulators) == 1 and wrong.ndim >= 2:
        out += _held(at, wrong.shape, accumulators[0], count)
    return tuple(out)


def _axes(at: Array, shape: Sequence[int], names: Sequence[str], count: int) -> list[str]:
    parts = [part_of(np.unique(at[:, n]), extent) for n, extent in enumerate(shape)]
    said = [f"{name} {p.text}" for name, p in zip(names, parts) if p is not None]
    if not said or not _told(parts, count):
        return ["no simple pattern of " + " and ".join(f"{n}s" if n != "index" else "indices" for n in names)]
    room = math.prod(int(p.own.sum()) if p else extent for p, extent in zip(parts, shape))
    return [f"{', '.join(said)}: {_of(count, room)}"]


def _told(parts: Sequence[Part | None], count: int) -> bool:
    """Whether a pattern is worth a sentence: so many elements would hardly lie so by chance."""
    share = math.prod(p.share for p in parts if p is not None)
    return share < 1 and -count * math.log(share) > 8


def _of(count: int, room: int) -> str:
    return f"all {room:,} elements there" if count == room else f"{count:,} of the {room:,} elements there"


def _held(at: Array, shape: Sequence[int], a: Accumulator, count: int) -> list[str]:
    """Sentences about lanes and registers, if the array consists of the instruction's tiles (the last of them may be cut)."""
    rows, columns = a.lane.shape
    if shape[-2] < rows or shape[-1] < columns:
        return []
    row, column = at[:, -2] % rows, at[:, -1] % columns
    tables = ((a.lane, a.lanes), (a.register, a.registers), (a.index, a.per_register))
    parts = [part_of(np.unique(table[row, column]), limit) if limit > 1 else None for table, limit in tables]
    if not any(parts) or (count > _FEW and not _told(parts, count)):
        return []
    names = ("lane", "register", "element of a register")
    text = ", ".join(f"{name} {p.text}" for name, p in zip(names, parts) if p is not None)
    if count > _FEW:
        there = np.ones((rows, columns), np.int64)
        for (table, _), p in zip(tables, parts):
            there *= 1 if p is None else p.own[table]
        often = (np.bincount(np.arange(extent) % n, minlength=n) for extent, n in zip(shape[-2:], (rows, columns)))
        down, across = often
        text += ": " + _of(count, int(math.prod(shape[:-2]) * (down @ there @ across)))
    return [f"as d of {a.name}, in tiles of {rows} x {columns} from the first element on: {text}"]


def where_in_registers(wrong: Array) -> str:
    """Sentence about the lanes and registers of the wrong words of results [executions, lanes, registers]; empty without a
    pattern.
    """
    if wrong.ndim != 3:
        return ""
    count = int(wrong.sum())
    at = np.argwhere(wrong)
    parts = [part_of(np.unique(at[:, n + 1]), wrong.shape[n + 1]) if wrong.shape[n + 1] > 1 else None for n in (0, 1)]
    if not any(parts) or (count > _FEW and not _told(parts, count)):
        return ""
    return ", ".join(f"{name} {p.text}" for name, p in zip(("lane", "register"), parts) if p is not None)
