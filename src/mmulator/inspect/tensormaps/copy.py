"""A tensor copy as written in PTX, or its name alone."""

import re
from dataclasses import dataclass

from mmulator.errors import InvalidInstructionError, OperandError
from mmulator.isa.form import Form
from mmulator.isa.match import match

_EXAMPLE = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
NAMES = ("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async.bulk.prefetch.tensor")
_GUARD = re.compile(r"^\s*@!?\S+\s+")  # a predicate
# [dstMem], [tensorMap, {c0, c1}], ...
_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Copy:
    """A tensor copy.

    form: of the instruction.
    coordinates, offsets: as written, dimension 0 first; None for one that is no number; empty where only the name is given.
    """

    form: Form
    coordinates: tuple[int | None, ...] = ()
    offsets: tuple[int | None, ...] = ()

    @property
    def rank(self) -> int:
        return int(self.form["dim"][0])

    @property
    def mode(self) -> str:
        """PTX's name of the mode: `tile`, `tile::gather4`, `im2col`, ... ."""
        return self.form["mode"] or "tile"

    @property
    def im2col(self) -> bool:
        return self.mode.startswith("im2col")

    @property
    def to_global(self) -> bool:
        return self.form["dst"] == "global"

    @property
    def operation(self) -> str:
        """The operation of a reduction, `add`, ...; empty for other copies."""
        return self.form["op"]

    def known(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """(coordinates, offsets) where all of them are numbers, else None."""
        if not self.coordinates or None in self.coordinates or None in self.offsets:
            return None
        return tuple(c for c in self.coordinates if c is not None), tuple(c for c in self.offsets if c is not None)


def parse_copy(text: str) -> Copy:
    """A tensor copy from its text. Raises InvalidInstructionError for other texts, OperandError for a wrong number of
    coordinates.
    """
    name, _, operands = _GUARD.sub("", text).strip().rstrip(";").partition(" ")
    opcode, *modifiers = name.split(".")
    found = match(opcode, tuple(modifiers))
    if not isinstance(found, Form):
        raise InvalidInstructionError(found.message, rule=found.rule, hint=found.hint)
    if found.name not in NAMES:
        raise InvalidInstructionError(f"`{name}` copies no tensor", hint=f"such as {_EXAMPLE}")
    lists = [tuple(_number(part) for part in braces.split(",")) for braces in _BRACES.findall(operands)]
    copy = Copy(found, *lists[:2])
    wanted = 5 if copy.mode.endswith("4") else copy.rank
    if copy.coordinates and len(copy.coordinates) != wanted:
        raise OperandError(
            f"the instruction has {len(copy.coordinates)} coordinates: .{copy.rank}d.{copy.mode} takes {wanted}",
            rule=f"{found.section}",
        )  # fmt: skip
    return copy


def _number(text: str) -> int | None:
    try:
        return int(text.strip(), 0)
    except ValueError:
        return None
