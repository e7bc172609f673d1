"""Matrix descriptors of wgmma and tcgen05 explained: fields, what the offsets mean, which addresses are read, what is wrong.

`descriptor_fields` reads a word, `describe_descriptor` says what it means for an operand of an instruction.
"""

import builtins

from mmulator.base.errors import OperandError
from mmulator.isa.form import Form
from mmulator.matrix.inspect.descriptors.answer import DescriptorAnswer, DescriptorField, DescriptorFields, OffsetMeaning
from mmulator.matrix.inspect.descriptors.checks import FORMAT, LEADING, Diagnostic, check_tile, check_word, pattern_start
from mmulator.matrix.inspect.descriptors.tile import Placed, Tile, free_tile, tile_of
from mmulator.matrix.inspect.search import form_of
from mmulator.matrix.layouts.descriptors import MatrixDescriptor, SharedDescriptor, generation
from mmulator.matrix.layouts.sparse.metadata import whole_number

STRIDE = "Stride Dimension Byte Offset (PTX ISA 9.1)"


def descriptor_fields(word: int, of: type[MatrixDescriptor] | None = None) -> DescriptorFields:
    """The fields of a 64-bit word. Matrix Descriptor Format; Shared memory descriptor (PTX ISA 9.1).

    of: class of descriptors; None: that of the word, see `generation`.

    Raises OperandError for a larger number, or one that no descriptor of the class has.
    """
    word = whole_number("matrix descriptor", word)
    if not 0 <= word < 1 << 64:
        raise OperandError(f"{word:#x} is no 64-bit word", rule=FORMAT)
    of = of or generation(word)
    d = of.decode(word)
    fields = []
    for name, low, bits in of.table:
        raw = word >> low & ((1 << bits) - 1)
        value = getattr(d, name, raw)
        text = f"{value:#x} ({value} bytes)" if bits == 14 else str(value)
        fields.append(DescriptorField(name, f"{low + bits - 1}-{low}" if bits > 1 else str(low), raw, text))
    reserved = of.unused_bits(word)
    return DescriptorFields(word, tuple(fields), reserved, check_word(word, reserved, of), of)


def _meanings(tile: Tile, d: MatrixDescriptor) -> tuple[OffsetMeaning, OffsetMeaning]:
    mode, mn = d.mode, tile.letter
    atom_mn, atom_k = tile.atom(mode)
    leading_along, stride_along = (mn, "k") if tile.mn_major and mode.mask else ("k", mn)
    every = {mn: atom_mn, "k": atom_k}
    extent = {mn: tile.mn, "k": tile.k}
    out = []
    for name, along, rule in (
        ("leading_byte_offset", leading_along, LEADING), ("stride_byte_offset", stride_along, STRIDE),
    ):  # fmt: skip
        step, value = every[along], getattr(d, name)
        steps = max(0, -(-extent[along] // step) - 1)
        short = "LBO" if rule is LEADING else "SBO"
        text = f"{value} bytes from {step} {along} to the next {step} {along}"
        if steps:
            text += f"; this tile has {extent[along]} {along}: {_times(steps)}"
        else:
            text += f"; this tile has no more than {step} {along}: not read"
        if short == "LBO" and not tile.mn_major and mode.mask:
            text = f"not used in K-major swizzled layouts, assumed to be 1, says the specification. {_whose(d)}: {text}"
        out.append(OffsetMeaning(name, value, along, step, steps, text, rule))
    return out[0], out[1]


def _whose(d: MatrixDescriptor) -> str:
    """Who reads LBO where the specification does not."""
    return "Inferred from an H200" if isinstance(d, SharedDescriptor) else "Hardware"


def _times(n: int) -> str:
    return "one step" if n == 1 else f"{n} steps"


def describe_descriptor(
    descriptor: MatrixDescriptor | int,
    instruction: Form | str | None = None,
    operand: str = "b",
    *,
    mn_major: bool = False,
    base: int | None = None,
    type: str = "f16",
    mn: int = 64,
    k: int = 64,
    shared: int | None = None,
    shared_base: int = 0,
) -> DescriptorAnswer:
    """Meaning of a descriptor for operand `a` or `b` of a wgmma or tcgen05.mma, or for a matrix by itself.

    descriptor: the descriptor, or its 64-bit word.
    instruction: a form, its name, or a few words (`wgmma m64n128 bf16`); None: a matrix by `type`, `mn` and `k`.
    operand: `a` or `b`.
    mn_major: m or n contiguous (imm-trans-a/-b = 1).
    base: shared address where the repeating pattern starts, if it is known; else it follows from start address and base offset.
    type: element type of a matrix by itself.
    mn, k: extents of a matrix by itself, in elements.
    shared: bytes of the shared window; None: what an SM has.
    shared_base: first address of the shared window.

    Raises OperandError for an instruction without descriptors, or a type it cannot read MN-major; InvalidInstructionError for
    an
    unknown name. What is wrong with the descriptor itself is in `findings`.
    """
    d = descriptor if isinstance(descriptor, MatrixDescriptor) else whole_number("matrix descriptor", descriptor)
    of: builtins.type[MatrixDescriptor] = generation(d) if isinstance(d, int) else builtins.type(d)
    tile = make_tile(
        instruction, operand, mn_major=mn_major, type=type, mn=mn, k=k,
        generation=of,
    )  # fmt: skip
    word_findings: tuple[Diagnostic, ...] = ()
    if not isinstance(d, MatrixDescriptor):
        word_findings = descriptor_fields(d, tile.generation).findings
        d = tile.generation.decode(d)
    start = pattern_start(d) if base is None else base
    meanings = _meanings(tile, d)
    placed = Placed(tile, d)
    findings = (*word_findings, *check_tile(placed, meanings[0].steps, base, shared, shared_base))
    return DescriptorAnswer(d, tile, start, meanings, findings)


def make_tile(
    instruction: Form | str | None, operand: str, *, mn_major: bool, type: str = "f16", mn: int = 64, k: int = 64,
    generation: builtins.type[MatrixDescriptor] = MatrixDescriptor,
) -> Tile:  # fmt: skip
    """The tile of an instruction's operand, or one by itself, with descriptors of a generation; see `describe_descriptor`."""
    if instruction is None:
        return free_tile(operand, mn, k, type, mn_major, generation)
    form = form_of(instruction, lambda form: form.effects.multiplies, "wgmma m64n128 bf16")
    return tile_of(form, operand, mn_major)
