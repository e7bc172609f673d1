"""A cause: a value of a run and what it was computed from, as a tree; texts of the places in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mmulator.base.source import Span
from mmulator.matrix.numerics.element import ElementSum
from mmulator.observation.record.values import text_of


@dataclass(frozen=True)
class CauseAt:
    """Where an instruction of a thread is.

    file, line: of the PTX.
    source, quoted: line of the program, `mm.py:17`, and its text; "" where it is not known.
    block, thread: (x, y, z).
    step: number of the step in the launch.
    """

    file: str
    line: int
    source: str
    quoted: str
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    step: int


@dataclass(frozen=True)
class Cause:
    """A value and what it was computed from.

    name: register, element or constant, as the instruction that used it has it.
    bits, type: the value, and the PTX type by which it was used.
    how: instruction or other origin: `add.f32`, `argument 0 (x)`, `as the launch found it`.
    at: where the instruction is, if there is one.
    inputs: the values that it read.
    remarks: sentences about it: what was left out under a predicate, which of two was selected.
    element: the sum, of a matrix product.
    operands: names of the elements of A, and of those of B, that are multiplied, along k.
    products: how many matrix products follow each other in this sum.
    more: why its causes are not told, though they exist; or "".
    """

    name: str
    bits: int
    type: str
    how: str
    at: CauseAt | None = None
    inputs: tuple[Cause, ...] = ()
    remarks: tuple[str, ...] = ()
    element: ElementSum | None = field(default=None, compare=False)
    operands: tuple[tuple[str, ...], tuple[str, ...]] = field(default=((), ()), compare=False)
    products: int = 0
    more: str = ""

    @property
    def text(self) -> str:
        """The value in its type."""
        return text_of(self.bits, self.type)

    def walk(self) -> Iterator[Cause]:
        """This cause and all behind it, each before its inputs."""
        yield self
        for one in self.inputs:
            yield from one.walk()


def thread_text(at: CauseAt) -> str:
    """`block (0, 0, 0), thread (14, 0, 0)`."""
    return f"block {at.block}, thread {at.thread}"


def place_text(at: CauseAt) -> str:
    """`k.ptx:81 (add.py:9)`."""
    return f"{at.file}:{at.line}" + (f" ({at.source})" if at.source else "")


def span_text(span: Span) -> str:
    """`k.ptx:81 (add.py:9)` of a place in a text."""
    return span.place + (f" ({span.brief})" if span.brief else "")
