"""Two explanations of one element side by side: where the values of two runs part."""

from dataclasses import dataclass
from itertools import zip_longest

from mmulator.isa.types import type_bits
from mmulator.numerics.element import parted
from mmulator.record.cause import Cause, place_text
from mmulator.record.values import bits_text


@dataclass(frozen=True)
class BesideAnother:
    """An element in another run of its launch.

    label: the other run: `sm_80`, `seed 7`.
    cause: why the element has its value there; None if nothing was stored there.
    here, there: the values in which the runs part, though what they were computed from agrees; None if nothing differs.
    """

    label: str
    cause: Cause | None
    here: Cause | None = None
    there: Cause | None = None

    def __str__(self) -> str:
        if self.cause is None:
            return f"beside {self.label}: nothing was stored there"
        bits = bits_text(self.cause.bits, type_bits(self.cause.type))
        head = f"beside {self.label}: {self.cause.name} = {self.cause.text} (bits {bits})"
        if self.here is None or self.there is None:
            return f"{head}, no difference"
        x, y = self.here, self.there
        at = f" at {place_text(x.at)}" if x.at else ""
        said = f"{head}; the first values that differ: {x.name} of {x.how}{at} is {x.text} here and {y.text} there"
        if x.element is not None and y.element is not None:
            n = parted(x.element, y.element)
            said += "" if n is None else f"; their sums differ from that of the first {n} products on"
        return said


def beside(label: str, here: Cause, there: Cause | None) -> BesideAnother:
    """The explanation of another run beside that of a first one."""
    pair = None if there is None else first_difference(here, there)
    return BesideAnother(label, there, *(pair or (None, None)))


def first_difference(x: Cause, y: Cause) -> tuple[Cause, Cause] | None:
    """The values farthest from the store that differ while all that they were computed from agrees; None if none differ."""
    if x.bits == y.bits and x.how == y.how:
        return None
    if x.how == y.how:
        for one, other in zip_longest(x.inputs, y.inputs):
            if one is None or other is None:
                break
            found = first_difference(one, other)
            if found is not None:
                return found
    return x, y
