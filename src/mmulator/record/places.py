"""Places of elements that an instruction read: in a register, in memory, in tensor memory."""

from dataclasses import dataclass


@dataclass(frozen=True)
class InRegister:
    """An element in a register. lane, name, low: the lane, the register and the element's lowest bit."""

    lane: int
    name: str
    low: int


@dataclass(frozen=True)
class InMemory:
    """An element in memory.

    address: generic address of its first byte.
    before: number of the step before which it was read.
    low: its lowest bit in that byte.
    """

    address: int
    before: int
    low: int = 0


@dataclass(frozen=True)
class InCell:
    """An element in tensor memory.

    cta: number of its CTA in the cluster.
    lane, column: of the cell.
    low: lowest bit of the element in it.
    before: number of writes to tensor memory before it was read.
    """

    cta: int
    lane: int
    column: int
    low: int
    before: int

    @property
    def text(self) -> str:
        """`tensor memory [lane 3, column 5]`."""
        return f"tensor memory [lane {self.lane}, column {self.column}]" + (f" of CTA {self.cta}" if self.cta else "")


Place = InRegister | InMemory | InCell
