"""A value that one other element would make the reference's: each element of the arrays that it was computed from is tried in
place of the one that was read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.effects import Algebra, Pointer
from mmulator.isa.table import ROWS
from mmulator.record.cause import Cause
from mmulator.record.losses import SAME, number_of
from mmulator.record.origins import summary

Values = NDArray[np.float64]
_LEAF = re.compile(r"(.*)\[([\d,]+)\]")
_FEW = 3  # elements that are named; where more would do, nothing is known
_MOST = 1 << 16  # elements of an array that are tried; of a larger one those with the same indices in another order
_NEARLY = 2.0**-9  # how near an element with the same indices in another order may come: sums of products round, too
_DOES: dict[Algebra | Pointer, Callable[..., Any]] = {
    Algebra.SUM: lambda a, b: a + b, Algebra.DIFFERENCE: lambda a, b: a - b, Algebra.PRODUCT: lambda a, b: a * b,
    Algebra.QUOTIENT: lambda a, b: a / b, Algebra.FUSED: lambda a, b, c: a * b + c, Algebra.NEGATION: lambda a: -a,
    Pointer.ADDEND: lambda a, b, c: a * b + c,
}  # fmt: skip


@cache
def _does(opcode: str) -> Callable[..., Any] | None:
    """The function that instructions of a name compute; None of others."""
    effects = (e for r in ROWS.get(opcode, ()) for e in (r.effects.algebra, r.effects.pointer))
    return next((_DOES[e] for e in effects if e in _DOES), None)


def instead(cause: Cause, want: float, room: float, values: Callable[[str], NDArray[Any] | None]) -> str:
    """A sentence about the element that would make a value the reference's; "" if no single one does.

    cause: the value.
    want, room: the reference, and how far from it the value may be.
    values: gives an array of the launch by its name.
    """
    leaves = {c.name: m for c in cause.walk() if c.how.startswith("as the launch") and (m := _LEAF.fullmatch(c.name))}
    for name, match in leaves.items():
        array = values(match[1])
        if array is None or array.dtype.kind not in "fiuV":
            continue
        index = tuple(map(int, match[2].split(",")))
        index = index if len(index) == array.ndim else tuple(map(int, np.unravel_index(index[0], array.shape)))
        with np.errstate(all="ignore"):
            made = _with(cause, name, array.astype(np.float64))
            off = np.abs(made - want) if made is not None and made.shape == array.shape else np.full(1, np.inf)
        for most, is_ in ((room, "it is"), (max(room, abs(want) * _NEARLY), "it is nearly")):
            found = np.argwhere(off <= most).tolist()
            if array.size > _MOST or most > room:
                found = [at for at in found if sorted(at) == sorted(index)]
            names = [f"{match[1]}[{','.join(map(str, at))}]" for at in found if tuple(at) != index]
            if 0 < len(names) <= _FEW and len(names) == len(found):
                return f"with {summary(names)} in place of {name} {is_} the reference's"
    return ""


def _with(cause: Cause, leaf: str, values: Values) -> Any:
    """A value for each of the values of a leaf; None where it is not known how it depends on them."""
    if cause.name == leaf and not cause.inputs:
        return values
    does = cause.how.partition(".")[0]
    given = [_with(c, leaf, values) for c in cause.inputs] if cause.element is None else []
    if any(isinstance(g, np.ndarray) for g in given):
        if any(g is None for g in given):
            return None
        if (make := _does(does)) is not None:
            return make(*given) if len(given) == make.__code__.co_argcount else None
        return given[0] if len(given) == 1 and cause.how.startswith(SAME) else None
    if None in given and any(c.name == leaf for c in cause.walk()):
        return None
    number = number_of(cause)
    return None if number is None else float(number)
