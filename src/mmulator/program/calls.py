"""The call graph, and the places of each function's frames in a warp's register file.

Lanes of one warp can be in different functions, and in different calls of one function. A register is a slot of 32 lanes, so
frames of different functions must not overlap. Lanes at the same call depth of the same function share a frame, in which each
has its own element. So every function has its own place, callers before callees; a recursive function has a place for each
level of the recursion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mmulator.errors import LaunchError
from mmulator.isa.effects import Ends
from mmulator.program.operands import callee_of
from mmulator.ptx.tree import Function, Instruction, ParsedModule, Reg, Symbol, Variable, flatten

MAX_DEPTH = 64  # calls of a recursion
MAX_FRAMES = 1 << 31  # bytes of all frames


@dataclass
class References:
    """The functions to which a function refers.

    calls: functions that are called by name.
    taken: functions whose address is used.
    indirect: whether it calls through pointers.
    """

    calls: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    indirect: bool = False


def defined(module: ParsedModule, name: str) -> Function | None:
    """The definition of a function, or None."""
    found = module.function(name)
    return found if found is not None and found.is_defined else None


def references(module: ParsedModule, function: Function) -> References:
    """The functions to which a function refers: in its instructions, and in the tables of addresses that these name."""
    found = References()
    own = {v.name: v for v in function.variables}
    waiting = list(_mentioned(module, function.instructions, found))
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if (callee := defined(module, name)) is not None:
            found.taken.add(callee.name)
        variable: Variable | None = own.get(name) or module.variable(name)
        if variable is not None and name not in seen:
            seen.add(name)
            waiting += [reference.symbol for reference in variable.symbols]
    return found


def reached(module: ParsedModule, entry: Function) -> dict[str, tuple[Function, References]]:
    """A kernel and every function that it can reach, each with its references."""
    found: dict[str, tuple[Function, References]] = {}
    waiting = [entry]
    while waiting:
        function = waiting.pop()
        if function.name in found:
            continue
        mentions = references(module, function)
        found[function.name] = function, mentions
        waiting += [f for n in sorted(mentions.calls | mentions.taken) if (f := defined(module, n)) is not None]
    return found


def _mentioned(module: ParsedModule, instructions: Iterable[Instruction], found: References) -> Iterator[str]:
    for ins in instructions:
        callee = callee_of(ins) if ins.effects.ends is Ends.CALL else None
        found.indirect |= isinstance(callee, Reg)
        for operand in flatten(ins.operands):
            if not isinstance(operand, Symbol):
                continue
            if operand is not callee:
                yield operand.name
            elif (function := defined(module, operand.name)) is not None:
                found.calls.add(function.name)


def cycles(references: Mapping[str, References]) -> list[tuple[tuple[str, ...], bool]]:
    """Functions that can call each other, callers first; each group with whether a function can be active twice.

    A call through a pointer can reach every function whose address is taken anywhere.
    """
    taken = sorted(set().union(*(r.taken for r in references.values())))
    edges = {n: sorted(r.calls | set(taken if r.indirect else ())) for n, r in references.items()}
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
