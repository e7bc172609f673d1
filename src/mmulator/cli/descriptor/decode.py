"""`mmulator descriptor decode`: what a word says."""

from __future__ import annotations

from mmulator.cli.descriptor import idesc
from mmulator.cli.descriptor import options as o


def decode(
    word: o.Word,
    words: o.Instruction = None,
    instruction: o.For = None,
    operand: o.Operand = None,
    major: o.Major = None,
    type: o.Type = None,
    mn: o.Mn = None,
    k: o.K = None,
    base: o.Base = None,
    element: o.Element = None,
    address: o.Address = None,
    cute: o.Cute = False,
    svg: o.Svg = None,
    png: o.Png = None,
    theme: o.Theme = None,
    lines: o.Lines = 8,
    json: o.Json = False,
) -> None:
    """Take a descriptor's word apart, and say what it means for a matrix.

    The fields alone, or with an instruction (or --type, --mn, --k) which addresses are read and where an element lies.
    Numbers may be hexadecimal. The exit code is 1 if a check fails.

    Examples:
        mmulator descriptor decode 0x4000004000010040
        mmulator descriptor decode 0x4000004000010040 wgmma m64n128 f16
        mmulator descriptor decode 0x4000004000010040 --type f16 --element 3,40
        mmulator descriptor decode 0x8100490 tcgen05 bf16 --operand idesc
    """
    from mmulator.cli.descriptor.tell import DescriptorQuestions, tell

    of_matrices = {
        "--major": major, "--type": type, "--base": base, "--element": element, "--address": address, "--cute": cute,
        "--svg": svg, "--png": png,
    }  # fmt: skip
    if idesc.is_asked(operand, of_matrices):
        idesc.tell(word, o.instruction_of(words, instruction), json)
        return
    tile = o.tile_of(o.instruction_of(words, instruction), operand, major, type, mn, k, {"--base": base}, word)
    wanted = DescriptorQuestions(element, address, cute, svg, png, theme, lines, json)
    tell(o.word_of(word, {}, tile, None), tile, o.number("--base", base), wanted)
