"""Shared memory of a kernel, and the outline of a module."""

from collections.abc import Iterable

from mmulator.program.addresses import SHARED_BASE
from mmulator.program.calls import reached
from mmulator.program.image import SharedLayout, align_up
from mmulator.program.outline import KernelHead, Outline
from mmulator.ptx.resources import named_symbols
from mmulator.ptx.tree import Function, ParsedModule


def shared_layout(module: ParsedModule, functions: Iterable[Function]) -> SharedLayout:
    functions = list(functions)
    used = named_symbols(functions)
    variables = [v for v in module.variables if v.space == "shared" and v.name in used]  # as ptxas: others take no room
    for f in functions:
        variables += [v for v in f.variables if v.space == "shared"]
    addresses: dict[str, int] = {}
    at = 0
    dynamic = [v for v in variables if v.linkage == "extern"]
    for v in variables:
        if v.linkage != "extern":
            at = align_up(at, max(v.align, 1))
            addresses[v.name] = SHARED_BASE + at
            at += v.size
    if dynamic:
        at = align_up(at, max(16, *(v.align for v in dynamic)))
    for v in dynamic:
        addresses[v.name] = SHARED_BASE + at
    return SharedLayout(addresses, at)


def outline_of(module: ParsedModule) -> Outline:
    """The outline of a verified module."""

    def head(entry: Function) -> KernelHead:
        static = shared_layout(module, reached(module, entry).functions.values()).static
        return KernelHead(entry.name, entry.params, entry.directives, static)

    every = (*module.variables, *(v for f in module.functions for v in f.variables))
    return Outline(
        module.version, module.target, tuple(map(head, module.entries)),
        tuple(v for v in every if v.space in ("global", "const")), tuple(f.name for f in module.functions if f.is_defined),
    )  # fmt: skip
