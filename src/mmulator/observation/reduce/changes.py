"""Candidates that are smaller than a failing launch: each function here gives candidates, the smallest first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from mmulator.base.source import Source
from mmulator.host.jobs.inputs import Argument
from mmulator.host.jobs.job import Job
from mmulator.isa.effects import Ends, MemoryEffect, Orders, Step
from mmulator.isa.types import type_bits
from mmulator.observation.reduce.program import KernelLines, LineKind, ProgramLine
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Function, Immediate, Instruction, Reg, Symbol

_GUARD = re.compile(r"^(\s*)@!?[\w%$]+\s+")
_OFFSET = re.compile(r"\+\s*-?\w+(?=\s*\])")
_NUMBER = re.compile(r"(?<=[\s,{])(?:0[fFdDxX]\w+|[0-9]{1,9}|-[0-9]+)(?=[,;}])")
_SIZE = re.compile(r"\[(\d+)\];$")
_FEW = 64  # pieces in which values are zeroed
Sites = dict[int, tuple[Function, Instruction]]  # number of a line -> its function and its instruction


def sites(lines: KernelLines) -> Sites:
    """The instructions of a program by the numbers of their lines."""
    tree = parse_module(Source("<lines>", lines.text()))
    return {i.span.line - 1: (f, i) for f in tree.functions for i in f.instructions}


# instructions -----------------------------------------------------------------------------------------------------------
def slices(lines: KernelLines, seeds: set[int]) -> Iterator[KernelLines]:
    """The program with only what some instructions are computed from; then with branches, what orders, and accesses, too."""
    places = sites(lines)
    accessed = {n: [{(f.name, r) for r in names} for names in uses_and_defs(i)] for n, (f, i) in places.items()}
    writers: dict[tuple[str, str], list[int]] = {}
    for n, (_, defs) in accessed.items():
        for register in defs:
            writers.setdefault(register, []).append(n)
    kept = {*seeds, *(n for n, (_, i) in places.items() if i.effects.ends in (Ends.RETURN, Ends.EXIT))}
    more = [
        set(),
        {n for n, (_, i) in places.items() if i.effects.ends not in (Ends.NO, Ends.BARRIER, Ends.WAIT)},
        {n for n, (_, i) in places.items() if _orders(i)},
        {n for n, (_, i) in places.items() if i.effects.memory is not MemoryEffect.NONE},
    ]
    other = {n for n in lines.of(LineKind.STATEMENT) if n not in places}  # labels
    for some in more:
        waiting = [*(kept | some)]
        kept = set()
        while waiting:
            if (n := waiting.pop()) not in kept:
                kept.add(n)
                waiting += [w for register in accessed.get(n, ((), ()))[0] for w in writers.get(register, ())]
        yield without(lines, {*lines.of(LineKind.STATEMENT)} - kept - other)


def _orders(i: Instruction) -> bool:
    e = i.effects
    return e.ends in (Ends.BARRIER, Ends.WAIT) or e.step is not Step.NONE or e.orders is not Orders.NONE


def without(lines: KernelLines, numbers: set[int]) -> KernelLines:
    """The program without some lines."""
    return lines.but([line for n, line in enumerate(lines.lines) if n not in numbers])


def forwarded(lines: KernelLines, near: Set[int] = frozenset()) -> Iterator[KernelLines]:
    """The program without one instruction, and with one of its sources wherever its result is read; or with 0 for all its
    results. near: numbers of lines; where there are any, only what these read becomes 0."""
    places = sites(lines)
    read = {r for n in near if n in places for r in uses_and_defs(places[n][1])[0]}
    for n, (function, i) in reversed(places.items()):
        if near and not read & uses_and_defs(i)[1]:
            continue
        types = function.registers
        results = [o for o in i.leaves if isinstance(o, Reg) and o.name in uses_and_defs(i)[1] & types.keys()]
        if not results or i.guard is not None or i.effects.ends is not Ends.NO:
            continue
        names, kinds = [o.span.text for o in results], {types[o.name] for o in results}
        rest = [*lines.lines[:n], *lines.lines[n + 1 :]]
        if not near and len(results) == 1 and (i.effects.still or i.effects.memory is MemoryEffect.READ):
            for source in sorted({o.span.text for o in i.leaves if _fits(o, *kinds)} - {*names}):
                yield lines.but(_with(rest, function.name, names, source))
        zeros = _zeros(min(kinds), names[0]) if len(kinds) == 1 else []
        for zero in zeros if lines.lines[n].text not in zeros else ():
            less = [*lines.lines[:n], lines.lines[n].but(zero), *rest[n:]]
            yield lines.but(_with(less, function.name, names[1:], names[0]))


def _with(lines: Sequence[ProgramLine], function: str, names: Sequence[str], instead: str) -> list[ProgramLine]:
    """Lines with another word for registers of a function."""
    word = re.compile(rf"(?<![\w$%.])(?:{'|'.join(map(re.escape, names))})(?![\w$])") if names else re.compile("(?!)")
    return [x.but(word.sub(lambda _: instead, x.text)) if x.function == function else x for x in lines]


def _zeros(kind: str, name: str) -> list[str]:
    """Statements that give a register a constant."""
    if kind == "pred":
        return [f"  setp.{word}.u32 {name}, 0, 0;" for word in ("ne", "eq")]
    return [f"  mov.b{type_bits(kind)} {name}, 0;"] if type_bits(kind) in (16, 32, 64) else []


def _fits(o: Any, kind: str) -> bool:
    if isinstance(o, Reg):
        return (o.type == "pred") == (kind == "pred") and type_bits(o.type) == type_bits(kind)
    return isinstance(o, Immediate | Symbol)


def simpler(lines: KernelLines, cut: bool = True) -> Iterator[KernelLines]:
    """The program with one statement or declaration simpler: no guard, no offset, 0 or 1 for a number; with `cut`, less memory.
    """
    for n, line in enumerate(lines.lines):
        if line.kind is LineKind.STATEMENT or (cut and line.kind is LineKind.DECLARATION):
            for text in dict.fromkeys(_simpler(line.text, line.kind)):
                if text != line.text:
                    yield lines.but([*lines.lines[:n], line.but(text), *lines.lines[n + 1 :]])


def _simpler(text: str, kind: LineKind) -> Iterator[str]:
    if kind is LineKind.DECLARATION:
        for found in _SIZE.finditer(text):
            yield from (f"{text[: found.start()]}[{size}];" for size in _smaller(int(found[1])))
        return
    yield _GUARD.sub(r"\1", text)
    yield _OFFSET.sub("", text)
    for found in _NUMBER.finditer(text):
        ones = {"f": ("0f00000000", "0f3F800000"), "d": ("0d0000000000000000", "0d3FF0000000000000")}
        simple = ones.get(found[0][1:2].lower(), ("0", "1"))
        if found[0] not in simple:
            yield from (text[: found.start()] + number + text[found.end() :] for number in simple)


# the launch -------------------------------------------------------------------------------------------------------------
def _smaller(n: int) -> Iterator[int]:
    """Numbers below n, from 1 on."""
    yield from dict.fromkeys(m for m in (1, 32, n // 8, n // 4, n // 2, n - 1) if 0 < m < n)


def _but(job: Job, name: str, value: Any) -> Job:
    """The launch with another value of a field."""
    changed: dict[str, Any] = {name: value}
    return replace(job, **changed)


def shapes(job: Job, cut: bool = True) -> Iterator[Job]:
    """The launch with less of a grid, a cluster or a block, less shared memory, or a plainer way."""
    plain: list[tuple[str, Any]] = [("cluster", None), ("cooperative", False), ("order", None), ("seed", 0), ("waits", False)]
    yield from (_but(job, name, value) for name, value in plain if getattr(job, name) != value)
    for name in ("grid", "cluster", "block"):
        extents = getattr(job, name)
        dims = [extents] if isinstance(extents, int) else [*(extents or ())]
        for d, n in enumerate(dims):
            yield from (_but(job, name, [*dims[:d], m, *dims[d + 1 :]]) for m in _smaller(n))
        if len(dims) > 1 and dims[-1] == 1:
            yield _but(job, name, dims[:-1])
    if cut:
        yield from (replace(job, shared=m) for m in (0, *_smaller(job.shared)) if m < job.shared)


def fewer(job: Job, lines: KernelLines) -> Iterator[tuple[Job, KernelLines]]:
    """The launch without a parameter, without other memory, without a variable's value."""
    for n, at in reversed([*enumerate(lines.of(LineKind.PARAM))]):
        yield replace(job, arguments=[a for k, a in enumerate(job.arguments) if k != n]), without(lines, {at})
    for name in ("memory", "variables"):
        given = getattr(job, name)
        yield from ((_but(job, name, [a for a in given if a is not one]), lines) for one in given)


def values(job: Job, cut: bool = True) -> Iterator[Job]:
    """The launch with less in one argument, in other memory or in a variable: zeros, small numbers; with `cut`, fewer elements.
    """
    for name in ("arguments", "memory", "variables"):
        given: list[Argument] = getattr(job, name)
        for n, a in enumerate(given):
            for value in _values(a.value, cut and name != "variables"):
                yield _but(job, name, [*given[:n], replace(a, value=value), *given[n + 1 :]])


def _values(value: Any, cut: bool) -> Iterator[Any]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from (v for v in (0, 1, value // 2) if abs(v) < abs(value))
    elif isinstance(value, bytes) and any(value):
        yield bytes(len(value))
    elif isinstance(value, np.ndarray) and value.size:
        flat = value.reshape(-1)
        if cut:
            yield from (flat[:m] for m in _smaller(flat.size))
        if flat.view(np.uint8).any():
            yield from _contents(value)


def _contents(value: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    yield np.zeros_like(value)
    pieces = np.array_split(np.arange(value.size), min(_FEW, value.size))
    for piece in pieces if value.size > 1 else ():
        if value.reshape(-1)[piece].view(np.uint8).any():
            less = value.copy()
            less.reshape(-1)[piece] = np.zeros((), value.dtype)
            yield less
