"""A view of the explorer: its parameters, the choices that there are of them, and the document of each choice."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mmulator.explore.blocks import Block

Choices = dict[str, Any]  # value of the first parameter -> choices of the others; of the last one: {value: None}
Document = list[Block]


@dataclass(frozen=True)
class View:
    """A page of the explorer.

    name, title: in links, and for people.
    about: what the page shows, in a sentence or two.
    parameters: (name, label) of each, in the order of `choices`.
    choices: makes the tree of the parameters' values.
    document: makes the document of a choice, from its values.
    free: (name, label, example) of texts that a reader may give; only a server can answer them.
    same: key of a choice; choices of one key have one document.
    chips: makes, for each instruction among the values, a number whose bit n says whether device n has it.
    """

    name: str
    title: str
    about: str
    parameters: tuple[tuple[str, str], ...]
    choices: Callable[[], Choices]
    document: Callable[..., Document]
    free: tuple[tuple[str, str, str], ...] = ()
    chips: Callable[[], dict[str, int]] = field(default=dict)
    same: Callable[..., object] = field(default=lambda *values: values)


def leaves(choices: Choices, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The values of every choice of a tree."""
    for value, rest in choices.items():
        if rest is None:
            yield (*before, value)
        else:
            yield from leaves(rest, (*before, value))
