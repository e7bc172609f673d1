"""Symbols that a module declares: the facts of its text, besides code, that a launch needs. Part of the tree (tree.py).

State Spaces, Types, and Variables; Kernel and Function Directives (PTX ISA 9.1).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from mmulator.base.source import Span

Space = Literal["global", "const", "shared", "local", "param", "reg", "func", "label", "prototype", ""]
Linkage = Literal["", "visible", "extern", "weak", "common"]


@dataclass(frozen=True, slots=True)
class SymbolReference:
    """An address inside an initialiser.

    offset, size: the bytes of the variable that the address fills.
    symbol, addend: the symbol whose address it is, plus a number of bytes.
    generic: whether it is `generic(symbol)`, a generic address.
    mask: the mask of `0xFF00(symbol)`, which selects the bits of the address that are stored, shifted down to bit 0; None for
        all bits.
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

    space: its state space.
    align: alignment in bytes.
    type: type of one element.
    name: its unique name.
    shape: array dimensions, () for a scalar. An extern array of unknown size has a first dimension of 0.
    vector: elements in a vector, 1, 2, 4 or 8.
    size: bytes.
    initial: bytes from the start, with zeros behind them; None without an initialiser.
    symbols: addresses inside the initialiser.
    linkage, attributes: as declared.
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
    """A parameter or return value.

    name: its name.
    type, bits: type and size of one element.
    shape: array dimensions, () for a scalar.
    size, align: bytes.
    space: `param`, or `reg` (functions only).
    is_pointer: whether it has `.ptr`.
    pointer_space, pointer_align: what `.ptr` declares; "" and 0 where it declares nothing.
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
    """The declaration of a kernel: its name, parameters and directives."""

    @property
    def name(self) -> str: ...
    @property
    def params(self) -> tuple[Parameter, ...]: ...
    @property
    def directives(self) -> Mapping[str, tuple[int | str, ...]]: ...


def parameter_offsets(params: Iterable[Parameter]) -> tuple[int, ...]:
    """Byte offsets of a kernel's parameters in its parameter space: in order, each parameter at its alignment."""
    offsets, end = [], 0
    for parameter in params:
        start = -(-end // parameter.align) * parameter.align
        offsets.append(start)
        end = start + parameter.size
    return tuple(offsets)


def parameter_bytes(params: Sequence[Parameter]) -> int:
    """Size of a kernel's parameter space."""
    return parameter_offsets(params)[-1] + params[-1].size if params else 0
