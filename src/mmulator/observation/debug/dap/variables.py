"""Variables as a client sees them: a tree that is read where it is opened, in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from mmulator.base.errors import MmulatorError
from mmulator.observation.debug.dap.client import RefusedRequest
from mmulator.observation.debug.dap.messages import Object

if TYPE_CHECKING:
    from mmulator.observation.debug.dap.standing import Standing

LONGEST = 120  # characters of a value in one line
PAGE = 512  # children of a variable that a client gets without asking for more


@dataclass(frozen=True)
class VariableNode:
    """A variable.

    name, value, type: for people.
    named: gives its members.
    count: of its elements, which `element` gives.
    element: number -> element.
    memory: generic address, for a view of memory; None without one.
    watch: the name by which data breakpoints and `evaluate` find it, or "".
    hint: how a client may show it.
    """

    name: str
    value: str = ""
    type: str = ""
    named: Callable[[], Iterable[VariableNode]] | None = None
    count: int = 0
    element: Callable[[int], VariableNode] | None = None
    memory: int | None = None
    watch: str = ""
    hint: Object = field(default_factory=Object)

    @property
    def opens(self) -> bool:
        return self.named is not None or self.count > 0

    def children(self, which: str | None, start: int, count: int) -> list[VariableNode]:
        """Members (`named`), elements (`indexed`) or both (None); a page of them. count: 0 for all that a page has."""
        found: list[VariableNode] = []
        if which != "indexed" and self.named is not None:
            found = list(self.named())
        last = len(found) + (self.count if which != "named" else 0)
        numbers = range(start, min(last, start + (count or PAGE)))
        rest = [
            VariableNode(f"[{numbers.stop} to {last - 1}]", "more", named=lambda: self.children(which, numbers.stop, 0))
        ] if not count and numbers.stop < last else []  # fmt: skip
        return [found[n] if n < len(found) else self._element(n - len(found)) for n in numbers] + rest

    def _element(self, number: int) -> VariableNode:
        if self.element is None:
            raise RefusedRequest(f"{self.name} has no elements")
        return self.element(number)

    def shown(self, standing: Standing) -> Object:
        """The variable as the protocol has it."""
        value = self.value if len(self.value) <= LONGEST or "\n" in self.value else self.value[: LONGEST - 3] + "..."
        out: Object = {"name": self.name, "value": value, "variablesReference": standing.show(self) if self.opens else 0}
        if self.type:
            out["type"] = self.type
        if self.opens and self.count:
            out["indexedVariables"] = self.count
        if self.watch:
            out["evaluateName"] = self.watch
        if self.memory is not None:
            out["memoryReference"] = f"0x{self.memory:x}"
        if self.hint:
            out["presentationHint"] = self.hint
        return out


def group(name: str, members: Callable[[], Iterable[VariableNode]], value: str = "") -> VariableNode:
    """A variable that has members alone."""
    return VariableNode(name, value, named=members)


def array(
    name: str, shape: Sequence[int], leaf: Callable[[tuple[int, ...]], VariableNode], type: str, memory: int | None = None,
    at: tuple[int, ...] = (),
) -> VariableNode:  # fmt: skip
    """An array: its elements, or those of its first extent as arrays.

    name: of the array.
    shape: extents that are left.
    leaf: index -> element.
    type: for people.
    memory: generic address of its first byte.
    at: index in the extents before.
    """
    title = f"{type} [{' x '.join(map(str, shape))}]"

    def element(number: int) -> VariableNode:
        index = (*at, number)
        return array(f"[{','.join(map(str, index))}]", shape[1:], leaf, type, None, index) if len(shape) > 1 else leaf(index)

    return VariableNode(name, title, title, count=shape[0] if prod(shape) else 0, element=element, memory=memory)


def safely(make: Callable[[], Iterable[VariableNode]]) -> Iterable[VariableNode]:
    """Nodes, or one that says why there are none."""
    try:
        return list(make())
    except (MmulatorError, RefusedRequest) as error:
        return [VariableNode("not known", str(error))]
