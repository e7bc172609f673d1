"""The facts of a module's text, besides code, that a launch needs, as plain data: declarations of kernels, and variables."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from mmulator.base.classes import dataclass
from mmulator.base.source import Source, Span
from mmulator.isa.targets import Target
from mmulator.ptx.symbols import Parameter, SymbolReference, Variable


@dataclass(frozen=True)
class KernelHead:
    """The declaration of a kernel. static_shared: bytes of shared memory that it and the functions which it reaches declare."""

    name: str
    params: tuple[Parameter, ...]
    directives: Mapping[str, tuple[int | str, ...]]
    static_shared: int


@dataclass(frozen=True)
class Outline:
    """The declarations of a module.

    version, target: .version and .target.
    entries: the kernels, in order.
    variables: .global and .const variables, those of functions behind those of the module.
    functions: names of the defined functions.
    """

    version: tuple[int, int]
    target: Target
    entries: tuple[KernelHead, ...]
    variables: tuple[Variable, ...]
    functions: tuple[str, ...]


def as_data(outline: Outline) -> dict[str, Any]:
    """An outline as data for JSON, the inverse of `of_data`."""
    return {
        "version": outline.version,
        "target": (outline.target.number, outline.target.suffix),
        "entries": [(e.name, [_row(p) for p in e.params], {**e.directives}, e.static_shared) for e in outline.entries],
        "variables": [_row(v) for v in outline.variables],
        "functions": outline.functions,
    }


def _row(item: Any) -> list[Any]:
    """The fields of an object, in order: bytes as text, a span as its two ends."""
    return [_plain(getattr(item, f.name)) for f in fields(item)]


def _plain(value: Any) -> Any:
    match value:
        case Span(start=start, end=end):
            return start, end
        case bytes():
            return value.decode("latin-1")
        case SymbolReference():
            return _row(value)
        case tuple():
            return [_plain(v) for v in value]
    return value


def of_data(data: Mapping[str, Any], source: Source) -> Outline:
    """The outline in `data` for a text. Raises LookupError, TypeError or ValueError for data that is not an outline."""

    def span(ends: Any) -> Span:
        start, end = ends
        return Span(source, int(start), int(end))

    def parameter(row: list[Any]) -> Parameter:
        name, type, bits, shape, size, align, space, pointer, pointer_space, pointer_align, where = row
        return Parameter(name, type, bits, tuple(shape), size, align, space, pointer, pointer_space, pointer_align, span(where))

    def reference(row: list[Any]) -> SymbolReference:
        offset, size, symbol, addend, generic, mask, where = row
        return SymbolReference(offset, size, symbol, addend, generic, mask, span(where))

    def variable(row: list[Any]) -> Variable:
        space, align, type, name, shape, vector, size, initial, symbols, linkage, attributes, where = row
        return Variable(
            space, align, type, name, tuple(shape), vector, size, None if initial is None else initial.encode("latin-1"),
            tuple(map(reference, symbols)), linkage, tuple(attributes), span(where),
        )  # fmt: skip

    major, minor = data["version"]
    return Outline(
        (major, minor), Target(*data["target"]),
        tuple(
            KernelHead(name, tuple(map(parameter, params)), {d: tuple(values) for d, values in directives.items()}, shared)
            for name, params, directives, shared in data["entries"]
        ),
        tuple(map(variable, data["variables"])), tuple(data["functions"]),
    )  # fmt: skip
