"""`mmulator descriptor from-cute`: the descriptors of a CuTe layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from mmulator.cli.descriptor import options as o
from mmulator.cli.parser import Positional

if TYPE_CHECKING:
    from mmulator.inspect.descriptors.from_cute import CuteAnswer

_Layout = Annotated[str, Positional("As CuTe prints it: first mode M or N, second K.", "LAYOUT")]
_Units = Annotated[
    o.Text, o.what("Of the layout's strides: elements (default), bytes or bits.", "UNIT", offer="elements bytes bits")
]


def from_cute(
    layout: _Layout, wanted: o.OutputOptions, words: o.Instruction = None, instruction: o.For = None, operand: o.Operand = None,
    type: o.Type = None, units: _Units = None, base: o.Base = None,
) -> None:  # fmt: skip
    """Derive the descriptors of a CuTe layout, one for each instruction over it, or say why there are none.

    It reads what CuTe prints, the notation of the specification, and CUTLASS's atoms. The exit code is 1 if no
    descriptor has the layout's addresses.

    Examples:
        mmulator descriptor from-cute "Sw<3,4,3> o (64,64):(64,1)"
        mmulator descriptor from-cute "Layout_K_SW128_Atom<half_t>" wgmma m64n8 f16
    """
    from mmulator.cli.descriptor.tell import tell
    from mmulator.cli.output import exclude

    asked = o.instruction_of(words, instruction)
    exclude({"--for": asked, "--type": type}, "the instruction says it")
    wanted.check()
    start = o.number("--base", base)
    derived = _derived(layout, asked, operand or "b", type or "f16", start, units or "elements")
    tell(derived.tiles[0].word, derived.tile, start, wanted, derived)


def _derived(text: str, instruction: str | None, operand: str, type: str, base: int | None, units: str) -> CuteAnswer:
    from mmulator.inspect.descriptors.describe import make_tile
    from mmulator.inspect.descriptors.from_cute import descriptor_from_cute, tile_of_layout

    if instruction is None:
        tile = tile_of_layout(text, operand, type, units)
    else:
        tile = make_tile(instruction, operand, mn_major=False)
    return descriptor_from_cute(text, tile, base=base, units=units)
