"""Operations of a program: what they use, where two meet, and words about both (order.py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.base.findings import Place
from mmulator.host.driver.happens import Moment
from mmulator.sanitizer.diagnostics.footprint import NONE, Used

if TYPE_CHECKING:
    from mmulator.host.driver.functions import Function
    from mmulator.sanitizer.diagnostics.touched import Runs

ALLOCATION = "an allocation"  # on a stream: what its operation is called
_LINE = re.compile(r"(?:.* at )?([^\s:]+:\d+)(?::.*)?", re.DOTALL)


@dataclass(eq=False)
class StreamOperation:
    """An operation of a stream.

    what, stream: in words.
    used: the bytes that it uses.
    place: the line of the program that asked for it, or "".
    number: among all operations.
    function, params: of a launch, for the names of its memory.
    sources: memory of the host that it reads: address, what was there when it was called, and who keeps it there.
    """

    what: str
    stream: str
    moment: Moment
    used: Used
    place: Callable[[], str]
    number: int
    function: Function | None = None
    params: bytes = b""
    sources: Sequence[tuple[int, bytes, Any]] = ()

    @property
    def allocates(self) -> bool:
        """Whether it gives memory out, which is no use of it."""
        return self.what.startswith(ALLOCATION)

    def at(self) -> Place:
        """The operation as the other side of a conflict."""
        return Place(self.what, *located(self.place, self.number), "")

    def __str__(self) -> str:
        return f"{self.what} on {self.stream}"


def located(place: Callable[[], str], number_: int) -> tuple[str, str]:
    """(file and line, or a number for an operation whose line is not known; what else is known of its place)."""
    said = place()
    found = _LINE.fullmatch(said)
    return (found[1], "") if found else (f"<operations>:{number_}", said)


def span(address: int, size: int) -> Runs:
    """Bytes as one run."""
    return np.array([[address, address + size]], np.int64) if size else NONE


def meeting(a: Runs, b: Runs) -> tuple[int, int] | None:
    """The first bytes that two sets of runs have in common."""
    if not (len(a) and len(b)) or a[0, 0] >= b[-1, 1] or b[0, 0] >= a[-1, 1]:
        return None
    at = np.searchsorted(b[:, 1], a[:, 0], "right")
    there = at < len(b)
    hit = np.flatnonzero(there & (b[np.minimum(at, len(b) - 1), 0] < a[:, 1]))
    if not len(hit):
        return None
    mine, theirs = a[hit[0]], b[at[hit[0]]]
    return int(max(mine[0], theirs[0])), int(min(mine[1], theirs[1]))


def conflict(a: Used, b: Used) -> tuple[str, str, tuple[int, int]] | None:
    """(what the first does, what the second does, bytes) where one writes; None where they do not meet. Two that meet in strong
    operations may order themselves, by a flag that one sets and the other waits for."""
    pairs = (
        ("writes", "reads", a.written, b.read), ("reads", "writes", a.read, b.written),
        ("writes", "writes", a.written, b.written), ("changes", "reads", a.strong, b.read),
        ("reads", "changes", a.read, b.strong), ("changes", "writes", a.strong, b.written),
        ("writes", "changes", a.written, b.strong),
    )  # fmt: skip
    return next(((x, y, at) for x, y, p, q in pairs if (at := meeting(p, q)) is not None), None)


def without(runs: Runs, gone: Runs) -> Runs:
    """Runs without the bytes of one run."""
    (begin, end), *_ = gone.tolist()
    left, right = runs.copy(), runs.copy()
    left[:, 1], right[:, 0] = np.minimum(left[:, 1], begin), np.maximum(right[:, 0], end)
    both = np.concatenate([left, right])
    both = both[both[:, 0] < both[:, 1]]
    return both[np.argsort(both[:, 0], kind="stable")]


def numbered(what: str, first: int, last: int) -> str:
    """`byte 3`, `bytes 3 to 7`."""
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"


def pointers(o: StreamOperation) -> Iterator[tuple[int, str, int, str]]:
    """(number, name, value, type of an element) of each parameter of a launch that may be an address."""
    if o.function is None:
        return
    from mmulator.ptx.program.parameters import called, kinds

    f = o.function
    names, types = called(f.kernel.function), kinds(f.name)
    for n, (p, at) in enumerate(zip(f.params, f.offsets)):
        if p.size == 8:
            kind = types[n][0] if n < len(types) and types[n][1] else ""
            yield n, names[n], int.from_bytes(o.params[at : at + 8], "little"), kind
