"""`mmulator descriptor encode`: fields to a word."""

from mmulator.cli.descriptor import idesc
from mmulator.cli.descriptor import options as o
from mmulator.cli.output import exclude


def encode(
    fields: o.FieldOptions, matrix: o.MatrixOptions, wanted: o.OutputOptions, words: o.Words = None, set: o.Set = None
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
    from mmulator.cli.descriptor.tell import tell

    word, rest = o.split(words)
    of_matrices = {f"--{name.replace('_', '-')}": value for name, value in vars(fields).items()}
    of_matrices |= {"--major": matrix.major, "--type": matrix.type, "--base": matrix.base, **wanted.of_a_matrix()}
    if idesc.is_asked(matrix.operand, of_matrices):
        idesc.encode(o.instruction_of(rest, matrix.instruction), word, set, wanted.json)
        return
    exclude({"--set": set, "a matrix": True}, "it goes with --operand idesc")
    tile = o.tile_of(o.instruction_of(rest, matrix.instruction), matrix, {}, word)
    given, start = fields.given(), o.number("--base", matrix.base)
    if not (word or given or tile or any(wanted.of_a_matrix().values())):
        o.nothing_given()
    tell(o.word_of(word, given, tile, start), tile, start, wanted)
