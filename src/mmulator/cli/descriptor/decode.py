"""`mmulator descriptor decode`: what a word says."""

from mmulator.cli.descriptor import idesc
from mmulator.cli.descriptor import options as o


def decode(word: o.Word, matrix: o.MatrixOptions, wanted: o.OutputOptions, words: o.Instruction = None) -> None:
    """Take a descriptor's word apart, and say what it means for a matrix.

    The fields alone, or with an instruction (or --type, --mn, --k) which addresses are read and where an element lies.
    Numbers may be hexadecimal. The exit code is 1 if a check fails.

    Examples:
        mmulator descriptor decode 0x4000004000010040
        mmulator descriptor decode 0x4000004000010040 wgmma m64n128 f16
        mmulator descriptor decode 0x4000004000010040 --type f16 --element 3,40
        mmulator descriptor decode 0x8100490 tcgen05 bf16 --operand idesc
    """
    from mmulator.cli.descriptor.tell import tell

    of_matrices = {"--major": matrix.major, "--type": matrix.type, "--base": matrix.base, **wanted.of_a_matrix()}
    if idesc.is_asked(matrix.operand, of_matrices):
        idesc.tell(word, o.instruction_of(words, matrix.instruction), wanted.json)
        return
    tile = o.tile_of(o.instruction_of(words, matrix.instruction), matrix, {"--base": matrix.base}, word)
    tell(o.word_of(word, {}, tile, None), tile, o.number("--base", matrix.base), wanted)
