"""Fixpoints of analyses: facts at the nodes of a graph, and facts that grow until nothing changes any more."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeVar

from mmulator.base.codegen.locks import remaining
from mmulator.ptx.program.blocks import FunctionBlocks, instructions
from mmulator.ptx.tree import Instruction

State = TypeVar("State")
Ways = Callable[[int], Iterable[int]]


def solve(
    start: Mapping[int, State], ways: Ways, through: Callable[[int, State], State], meet: Callable[[State, State], State]
) -> dict[int, State]:
    """The state of each node that ways lead to: `meet` of all that comes to it.

    start: states to begin with, by node; the last node comes first.
    ways: a function from a node to those that come after it; for facts that go backwards, to those before it.
    through: a function from a node and its state to the state that it passes on.
    meet: a function of two states.
    """
    states, waiting = {**start}, dict.fromkeys(start)
    while waiting:
        remaining()
        node, _ = waiting.popitem()
        passed = through(node, states[node])
        for target in ways(node):
            met = passed if target not in states else meet(states[target], passed)
            if target not in states or met != states[target]:
                states[target] = met
                waiting[target] = None
    return states


def forward(
    function: FunctionBlocks, start: State, step: Callable[[State, Instruction], State], meet: Callable[[State, State], State]
) -> dict[int, State]:
    """The state at the start of each reachable block: `meet` of the states at the ends of all its predecessors.

    function: the function.
    start: state at the entry.
    step: a function from a state and an instruction to the state after it.
    meet: a function of two states.
    """
    first = function.entry

    def through(block: int, state: State) -> State:
        for ins in instructions(function.blocks[block - first]):
            state = step(state, ins)
        return state

    return solve({first: start}, lambda block: function.blocks[block - first].targets, through, meet)


def turned(ways: Mapping[int, Iterable[int]]) -> dict[int, list[int]]:
    """The nodes from which each node is reached in one step. ways: those that each node leads to."""
    before: dict[int, list[int]] = defaultdict(list)
    for node, targets in ways.items():
        for target in targets:
            before[target].append(node)
    return before


def live_out(
    ways: Mapping[int, Iterable[int]], reads: Mapping[int, AbstractSet[str]], writes: Mapping[int, AbstractSet[str]]
) -> dict[int, AbstractSet[str]]:
    """Names that are read after each node before they are written. reads: before they are written there. writes: surely."""
    nothing: AbstractSet[str] = frozenset()
    before = turned(ways)
    return solve(
        dict.fromkeys(ways, nothing), before.__getitem__, lambda n, out: reads[n] | (out - writes[n]), lambda a, b: a | b
    )


def settle(step: Callable[[], object], before: object = None) -> None:
    """Repeat a step until it returns what it returned before, as the number of facts that only become more. before: it."""
    while before != (before := step()):
        remaining()


def spread(found: set[str], rows: Collection[tuple[AbstractSet[str], AbstractSet[str]]]) -> None:
    """Add to names those that are made of them. rows: (names, what is made of any of these)."""

    def step() -> int:
        for sources, made in rows:
            if not sources.isdisjoint(found):
                found.update(made)
        return len(found)

    settle(step, len(found))
