"""`mmulator descriptor encode`: fields to a word."""

from __future__ import annotations

from mmulator.cli.descriptor import idesc
from mmulator.cli.descriptor import options as o
from mmulator.cli.output import exclude


def encode(
    words: o.Words = None,
    start_address: o.StartAddress = None,
    lbo: o.Lbo = None,
    sbo: o.Sbo = None,
    base_offset: o.BaseOffset = None,
    swizzle: o.Swizzle = None,
    set: o.Set = None,
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
    """Make the word of a descriptor from its fields, and say what it means.

    Fields that are left out are those of WORD, or else of the packed layout of the matrix that an instruction (or
    --type, --mn, --k) says. Numbers may be hexadecimal. The exit code is 1 if a check fails.

    Examples:
        mmulator descriptor encode wgmma m64n128 f16 --swizzle 128B
        mmulator descriptor encode --type bf16 --mn 128 --swizzle 64B --svg tile.svg
        mmulator descriptor encode --lbo 16 --sbo 1024 --swizzle 128B
        mmulator descriptor encode tcgen05 m128n64 bf16 --operand idesc --set transpose_b=1
    """
    from mmulator.cli.descriptor.tell import DescriptorQuestions, tell

    word, rest = o.split(words)
    of_matrices = {
        "--start-address": start_address, "--lbo": lbo, "--sbo": sbo, "--base-offset": base_offset, "--swizzle": swizzle,
        "--major": major, "--type": type, "--base": base, "--element": element, "--address": address, "--cute": cute,
        "--svg": svg, "--png": png,
    }  # fmt: skip
    if idesc.is_asked(operand, of_matrices):
        idesc.encode(o.instruction_of(rest, instruction), word, set, json)
        return
    exclude({"--set": set, "a matrix": True}, "it goes with --operand idesc")
    tile = o.tile_of(o.instruction_of(rest, instruction), operand, major, type, mn, k, {}, word)
    given = o.fields_of(start_address, lbo, sbo, base_offset, swizzle)
    start = o.number("--base", base)
    wanted = DescriptorQuestions(element, address, cute, svg, png, theme, lines, json)
    if not (word or given or tile or wanted.of_a_matrix):
        o.nothing_given()
    tell(o.word_of(word, given, tile, start), tile, start, wanted)
