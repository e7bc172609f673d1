"""Declarations of a module: what a launch must know of its text besides code. Part of the tree (tree.py).

State Spaces, Types, and Variables; Kernel and Function Directives (PTX ISA 9.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from mmulator.source import Span

Space = Literal["global", "const", "shared", "local", "param", "reg", "func", "label", "prototype", ""]
Linkage = Literal["", "visible", "extern", "weak", "common"]


@dataclass(frozen=True, slots=True)
class SymbolReference:
    """An address inside an initialiser. offset, size: bytes of the variable it fills.

    symbol, addend: whose address, plus bytes. generic: `generic(symbol)`, a generic address.
    mask: of `0xFF00(symbol)`: the bits of the address that are stored, shifted down to bit 0; None for all.
    """

    offset: int
    size: int
    symbol: str
    addend: int
    generic: bool
    mask: int | None
    span: Span


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a state space.

    type: of one element. vector: 1, 2, 4 or 8 elements. shape: array dimensions, () for a scalar; an extern array of
    unknown size has a first dimension of 0. align, size: bytes. initial: bytes from the start; the rest is zero; None
    if it has no initialiser.
    """

    space: Space
    align: int
    type: str
    name: str
    shape: tuple[int, ...]
    vector: int
    size: int
    initial: bytes | None
    symbols: tuple[SymbolReference, ...]
    linkage: Linkage
    attributes: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter or return value. type, bits: of one element. shape: () for a scalar. size, align: bytes.

    pointer_space, pointer_align: of `.ptr`: "" and 0 where not given. space: `param`, or `reg` (functions only).
    """

    name: str
    type: str
    bits: int
    shape: tuple[int, ...]
    size: int
    align: int
    space: Space
    is_pointer: bool
    pointer_space: str
    pointer_align: int
    span: Span


class Declared(Protocol):
    """A kernel as it is declared."""

    @property
    def name(self) -> str: ...
    @property
    def params(self) -> tuple[Parameter, ...]: ...
    @property
    def directives(self) -> Mapping[str, tuple[int | str, ...]]: ...


def parameter_offsets(params: Iterable[Parameter]) -> tuple[int, ...]:
    """Byte offset of each parameter of a kernel in its parameter space: in order, each at its alignment."""
    offsets, end = [], 0
    for parameter in params:
        start = -(-end // parameter.align) * parameter.align
        offsets.append(start)
        end = start + parameter.size
    return tuple(offsets)


def parameter_bytes(params: Sequence[Parameter]) -> int:
    """Size of a kernel's parameter space."""
    return parameter_offsets(params)[-1] + params[-1].size if params else 0
