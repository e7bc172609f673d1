"""Rows of A and columns of B that the registers of a matrix product hold: what the elements of D come from."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mmulator.base.codegen.ops import select, trailing_zeros
from mmulator.base.codegen.values import Value, extract
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.emit.shadow import FULL
from mmulator.compiler.lowering.operands import elements
from mmulator.isa.form import Form
from mmulator.matrix.layouts import scales
from mmulator.matrix.layouts.fragments import Index
from mmulator.matrix.layouts.operands import fragment
from mmulator.matrix.layouts.sparse import metadata
from mmulator.ptx.tree import Instruction

NO_LINE = 63  # no product has so many rows or columns


class Held(NamedTuple):
    """A register of a source. side: 0 if it holds rows of A, 1 for columns of B. operand, register: which of the instruction's.
    lines: the row or column of each lane, or NO_LINE. thread: the thread-id for which it counts, if a register has it.
    """

    side: int
    operand: int
    register: int
    lines: Index
    thread: int | None = None


@lru_cache(maxsize=256)
def held(form: Form, chosen: tuple[int | None, ...]) -> tuple[Held, ...]:
    """The registers of A, B, metadata and scale factors. C is among them, by rows, if its registers are unlike those of D.

    chosen: the values of the operands from the fifth on that are constants.
    """
    found = [*_of(form, "a", 0), *_of(form, "b", 1)]
    if fragment(form, "c").registers != fragment(form, "d").registers:
        found += _of(form, "c", 0)
    if form.sparse:
        selector = chosen[1] if chosen[1] in metadata.selectors(form) else 0
        lanes = metadata.places(form, selector or 0)[0]
        for first in range(0, form.m, 8):
            found += [Held(0, 4, 0, _at(part, first)) for part in np.unique(lanes[first : first + 8], axis=1).T]
    if form.block_scale:
        at = 2 * form.sparse
        for side, name in enumerate("ab"):
            thread = chosen[at + 3 * side + 2]
            for t in range(scales.THREADS[name]) if thread is None else (thread,):
                lines = _at(scales.places(form, name, 0, t)[0], 0)
                found.append(Held(side, 4 + at + 2 * side, 0, lines, t if thread is None else None))
    return tuple(found)


def _of(form: Form, name: str, side: int) -> Iterator[Held]:
    """The registers of a fragment, each as often as its elements have different lines; those of the second of several matrices
    come behind the first's.
    """
    f = fragment(form, name)
    lines = f.maps[0] * (f.rows, f.columns)[side] + f.maps[1 + side]
    for n in range(f.registers):
        yield from (Held(side, "dabc".index(name), n, each) for each in np.unique(lines[:, n], axis=1).T)


def _at(lanes: Index, first: int) -> Index:
    """The line in each lane, of lines from `first` on that are in these lanes."""
    lines = np.full(LANES, NO_LINE, np.int64)
    lines[lanes] = first + np.arange(len(lanes))
    return lines


def table(form: Form, sources: tuple[Held, ...]) -> np.ndarray:
    """The table of `events.product_of`, int32: the numbers of registers with rows, with columns, and of D, and the elements of
    D's registers; then the lines of each register and lane, and row and column of each element of D.
    """
    d = fragment(form, "d")
    lines = [s.lines for side in range(2) for s in sources if s.side == side]
    places = np.stack([d.maps[0] * extent + d.maps[1 + n] for n, extent in enumerate((d.rows, d.columns))], -1)
    head = [sum(s.side == side for s in sources) for side in range(2)]
    return np.concatenate([head, [d.registers, d.per_register], *lines, places.transpose(1, 0, 2, 3).ravel()]).astype(np.int32)


def of_thread(e: Emitter, ins: Instruction, held: Held, mask: Value | None) -> Value | None:
    """The mask of a source; all lanes if the warp's thread-id says that its factors are another's."""
    if mask is None or held.thread is None:
        return mask
    thread = e.source(elements(ins.operands[held.operand + 1])[1], "b16")
    return select(extract(thread, trailing_zeros(e.mask)) == held.thread, mask, FULL)
