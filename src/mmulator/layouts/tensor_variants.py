"""Variants of tcgen05.mma: what the name of an instruction says, as a number that native code carries."""

from __future__ import annotations

from mmulator.classes import dataclass
from mmulator.isa.form import Form
from mmulator.layouts.instruction_descriptor import KINDS, InstructionDescriptor, decode

_FACTORS = {"": 0, "1X": 1, "2X": 2, "4X": 4}
BLOCKS = {"mxf8f6f4": {32: 1}, "mxf4": {32: 2}, "mxf4nvf4": {32: 2, 16: 4}}  # factors of a row, by elements of a block


@dataclass(frozen=True)
class Variant:
    """Properties that the name of a tcgen05.mma states.

    kind: without `kind::`.
    pair: whether it has .cta_group::2.
    ws, sparse: whether it has .ws, and .sp.
    scale_vec: scale factors of a row of A; 0 without block scaling.
    """

    kind: str
    pair: bool = False
    ws: bool = False
    sparse: bool = False
    scale_vec: int = 0

    @property
    def number(self) -> int:
        """The variant as an integer of 9 bits."""
        return KINDS.index(self.kind) | self.pair << 3 | self.ws << 4 | self.sparse << 5 | self.scale_vec << 6

    @classmethod
    def of_number(cls, number: int) -> Variant:
        return cls(KINDS[number & 7], bool(number >> 3 & 1), bool(number >> 4 & 1), bool(number >> 5 & 1), number >> 6)

    @classmethod
    def of_form(cls, form: Form) -> Variant:
        words = form.row.name.split(".")
        size = form["scale_vec"]
        if size.startswith("block"):
            factors = BLOCKS[form.kind][int(size.removeprefix("block").removeprefix("::"))]
        else:
            factors = _FACTORS[size.removeprefix("scale_vec::")]
        scaled = form.kind in BLOCKS
        return cls(
            form.kind, form["cta_group"] == "cta_group::2", "ws" in words, form.sparse,
            (factors or next(iter(BLOCKS[form.kind].values()))) if scaled else 0,
        )  # fmt: skip

    def decode(self, word: int) -> InstructionDescriptor:
        """Fields of an instruction descriptor for this variant. Raises OperandError for one that it does not take."""
        return decode(word, self.kind, pair=self.pair, ws=self.ws, sparse=self.sparse, scale_vec=self.scale_vec)
