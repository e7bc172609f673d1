"""The call graph, and the places of each function's frames in a warp's register file.

Lanes of one warp can be in different functions, and in different calls of one function. A register is a slot of 32 lanes, so
frames of different functions must not overlap. Lanes at the same call depth of the same function share a frame, in which each
has its own element. So every function has its own place, callers before callees; a recursive function has a place for each
level of the recursion.

The shared memory of a kernel, which the functions that it reaches declare, and the outline of a module are here, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias, cast

from mmulator.base.classes import dataclass
from mmulator.base.errors import LaunchError, must_be
from mmulator.isa.effects import Ends
from mmulator.ptx.program.addresses import SHARED_BASE
from mmulator.ptx.program.image import Abi, SharedLayout, abi_of, align_up, prototype_abi
from mmulator.ptx.program.outline import KernelHead, Outline
from mmulator.ptx.program.runnable import Unsupported, first_unsupported
from mmulator.ptx.program.uses import callee_of
from mmulator.ptx.resources import named_symbols
from mmulator.ptx.tree import Function, Instruction, ParsedModule, Reg, Symbol

MAX_DEPTH = 64  # calls of a recursion
MAX_FRAMES = 1 << 31  # bytes of all frames


Aim: TypeAlias = "Abi | tuple[str, ...]"  # what a call through a pointer says of the function: its parameters, or its names


@dataclass
class References:
    """The functions to which a function refers.

    calls: functions that are called by name.
    aims: what its calls through pointers say.
    """

    calls: set[str] = field(default_factory=set)
    aims: set[Aim] = field(default_factory=set)


@dataclass
class Reached:
    """The call graph of a kernel.

    functions: the kernel first, and every function that it can reach, by name.
    calls: name of each function -> functions that it can call, in order of their names.
    pointed: what a call through a pointer says -> functions of the module that it can reach.
    """

    functions: dict[str, Function]
    calls: dict[str, list[str]]
    pointed: dict[Aim, tuple[str, ...]]


def defined(module: ParsedModule, name: str) -> Function | None:
    """The definition of a function, or None."""
    found = module.function(name)
    return found if found is not None and found.is_defined else None


def aim_of(module: ParsedModule, function: Function, ins: Instruction) -> Aim:
    """Conditions that a call through a pointer sets for the functions that the call reaches."""
    name = must_be(ins.operands[-1], Symbol).name
    if name in function.prototypes:
        return prototype_abi(function.prototypes[name])
    listed = (module.function(target.name) for target in function.targets[name].targets)
    return tuple(sorted({f.name for f in listed if f is not None}))


def _references(module: ParsedModule, function: Function) -> References:
    found = References()
    for ins in function.instructions:
        if ins.effects.ends is not Ends.CALL:
            continue
        callee = callee_of(ins)
        if isinstance(callee, Reg):
            found.aims.add(aim_of(module, function, ins))
        elif (called := defined(module, callee.name)) is not None:
            found.calls.add(called.name)
    return found


def addressed(module: ParsedModule) -> tuple[Function, ...]:
    """Functions whose address is used anywhere in a module, in an instruction or in the initial value of a variable: a pointer
    may come from another kernel, as the table of an object's virtual functions does.
    """
    if "addressed" not in module.known:
        every = (*module.variables, *(v for f in module.functions for v in f.variables))
        names = {reference.symbol for v in every for reference in v.symbols}
        for ins in (i for f in module.functions for i in f.instructions):
            callee = callee_of(ins) if ins.effects.ends is Ends.CALL else None
            names.update(o.name for o in ins.leaves if isinstance(o, Symbol) and o.space == "func" and o is not callee)
        found = {f.name: f for n in sorted(names) if (f := defined(module, n)) is not None and not f.is_entry}
        module.known["addressed"] = tuple(found.values())
    return cast("tuple[Function, ...]", module.known["addressed"])


def fits(function: Function, aim: Aim) -> bool:
    """Whether a call through a pointer may reach a function."""
    return function.name in aim if isinstance(aim, tuple) else abi_of(function.returns, function.params) == aim


def reached(module: ParsedModule, entry: Function) -> Reached:
    """The call graph of a kernel. A function that only pointers lead to is left out if it, or what it calls, cannot be run."""
    graph: dict[str, tuple[Function, References]] = {}
    _close(module, entry, graph)
    pointed: dict[Aim, tuple[str, ...]] = {}
    while left := set().union(*(r.aims for _, r in graph.values())) - pointed.keys():
        for aim in sorted(left, key=repr):
            pointed[aim] = tuple(f.name for f in addressed(module) if fits(f, aim) and _follow(module, f, graph))
    calls = {n: sorted(r.calls.union(*(pointed[a] for a in r.aims))) for n, (_, r) in graph.items()}
    return Reached({n: f for n, (f, _) in graph.items()}, calls, pointed)


def _close(module: ParsedModule, first: Function, graph: dict[str, tuple[Function, References]]) -> None:
    """Add a function, and all that it reaches by name, to a graph."""
    waiting = [first]
    while waiting:
        function = waiting.pop()
        if function.name not in graph:
            mentions = _references(module, function)
            graph[function.name] = function, mentions
            waiting += [f for n in sorted(mentions.calls) if (f := defined(module, n)) is not None]


def _follow(module: ParsedModule, function: Function, graph: dict[str, tuple[Function, References]]) -> bool:
    """Add what a pointer reaches to a graph, unless it cannot be run; whether it was added."""
    more = dict(graph)
    _close(module, function, more)
    if any(first_unsupported(module, f) for n, (f, _) in more.items() if n not in graph):
        return False
    graph.update(more)
    return True


def obstacle(module: ParsedModule, function: Function) -> Unsupported | None:
    """The first part of a function, or of what it calls by name, that cannot be run; None if all can."""
    graph: dict[str, tuple[Function, References]] = {}
    _close(module, function, graph)
    return next((found for f, _ in graph.values() if (found := first_unsupported(module, f))), None)


def cycles(edges: Mapping[str, Sequence[str]]) -> list[tuple[tuple[str, ...], bool]]:
    """Functions that can call each other, callers first; each group with whether a function can be active twice.

    edges: name of each function -> functions that it can call.
    """
    found: list[tuple[tuple[str, ...], bool]] = []
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    place: dict[str, int] = {}  # on the stack
    closed: set[str] = set()
    for root in edges:
        if root in number:
            continue
        path = [(root, iter(edges[root]))]
        number[root] = low[root] = len(number)
        place[root] = len(stack)
        stack.append(root)
        while path:  # Tarjan's algorithm without recursion: programs may nest calls deeper than Python does
            name, callees = path[-1]
            following = next(callees, None)
            if following is not None:
                if following not in number:
                    number[following] = low[following] = len(number)
                    place[following] = len(stack)
                    stack.append(following)
                    path.append((following, iter(edges[following])))
                elif following not in closed:
                    low[name] = min(low[name], number[following])
                continue
            path.pop()
            if path:
                low[path[-1][0]] = min(low[path[-1][0]], low[name])
            if low[name] == number[name]:
                members = tuple(stack[place[name] :])
                del stack[place[name] :]
                closed.update(members)
                found.append((members, len(members) > 1 or name in edges[name]))
    return found[::-1]


@dataclass(frozen=True)
class FramePlace:
    """The place of a function's frames: the first at `offset`, each further level `stride` bytes on, all below `end`.

    cycle: number of the group of functions that can call each other.
    """

    cycle: int
    offset: int
    stride: int
    end: int


def place_frames(groups: Sequence[tuple[tuple[str, ...], bool]], sizes: Mapping[str, int]) -> tuple[dict[str, FramePlace], int]:
    """(place of each function, bytes of all frames)."""
    places: dict[str, FramePlace] = {}
    at = 0
    for cycle, (members, recursive) in enumerate(groups):
        stride = sum(sizes[n] for n in members)
        end = at + stride * (MAX_DEPTH if recursive else 1)
        offset = at
        for name in members:
            places[name] = FramePlace(cycle, offset, stride, end)
            offset += sizes[name]
        at = end
    return places, at


def deepest(groups: Sequence[tuple[tuple[str, ...], bool]], sizes: Mapping[str, int]) -> int:
    """An upper bound of the sum of `sizes` over all calls in which a thread can be at once."""
    each = [max(sizes[n] for n in members) * (MAX_DEPTH if recursive else 1) for members, recursive in groups]
    return sum(each) + max(sizes.values())  # of one more, whose parameters are written before the call is refused


def check_frames(kernel: Function, registers: int, local: int) -> None:
    """Raise LaunchError if the frames of a kernel's functions, at greatest depth, exceed the address range of a warp's
    registers or of a thread's local memory.
    """
    for size, what in ((registers, "registers of a warp"), (local, "local memory of a thread")):
        if size > MAX_FRAMES:
            raise LaunchError(
                f"{kernel.name} and the functions it calls take {size} bytes for the {what}; at most {MAX_FRAMES} are allowed",
                span=kernel.span, hint="fewer functions that can call each other again, or fewer registers and variables in them",
            )  # fmt: skip


# shared memory, and the outline of a module ---------------------------------------------------------------------------
def shared_layout(module: ParsedModule, functions: Iterable[Function]) -> SharedLayout:
    """The places of the variables in shared memory that a kernel and the functions which it reaches name."""
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
