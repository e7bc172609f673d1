"""Matrix descriptors of wgmma explained: fields, what the offsets mean for a tile, which addresses are read, what is wrong.

`descriptor_fields` reads a word, `describe_descriptor` says what it means for an operand of an instruction.
"""

from __future__ import annotations

from mmulator.errors import OperandError
from mmulator.inspect.descriptors.answer import DescriptorAnswer, DescriptorField, DescriptorFields, OffsetMeaning
from mmulator.inspect.descriptors.checks import FORMAT, LEADING, check_tile, check_word, pattern_start
from mmulator.inspect.descriptors.tile import Placed, Tile, free_tile, tile_of
from mmulator.inspect.search import form_of
from mmulator.isa.form import Form
from mmulator.layouts.descriptors import FIELDS, MatrixDescriptor

STRIDE = "Stride Dimension Byte Offset (PTX ISA 9.1)"


def descriptor_fields(word: int) -> DescriptorFields:
    """The fields of a 64-bit word. Matrix Descriptor Format (PTX ISA 9.1). Raises OperandError for a larger number."""
    if not 0 <= word < 1 << 64:
        raise OperandError(f"{word:#x} is no 64-bit word", rule=FORMAT)
    d = MatrixDescriptor.decode(word)
    fields = []
    for name, low, bits in FIELDS:
        raw = word >> low & ((1 << bits) - 1)
        value = getattr(d, name)
        text = f"{value:#x} ({value} bytes)" if bits == 14 else str(value)
        fields.append(DescriptorField(name, f"{low + bits - 1}-{low}", raw, text))
    reserved = MatrixDescriptor.unused_bits(word)
    return DescriptorFields(word, tuple(fields), reserved, check_word(word, reserved))


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
            text = f"not used in K-major swizzled layouts, assumed to be 1, says the specification. Hardware: {text}"
        out.append(OffsetMeaning(name, value, along, step, steps, text, rule))
    return out[0], out[1]


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
    """Meaning of a descriptor for operand `a` or `b` of a wgmma, or for a matrix by itself.

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
    d = descriptor if isinstance(descriptor, MatrixDescriptor) else MatrixDescriptor.decode(descriptor)
    word_findings = () if isinstance(descriptor, MatrixDescriptor) else descriptor_fields(descriptor).findings
    tile = make_tile(instruction, operand, mn_major=mn_major, type=type, mn=mn, k=k)
    start = pattern_start(d) if base is None else base
    meanings = _meanings(tile, d)
    placed = Placed(tile, d)
    findings = (*word_findings, *check_tile(placed, meanings[0].steps, base, shared, shared_base))
    return DescriptorAnswer(d, tile, start, meanings, findings)


def make_tile(
    instruction: Form | str | None, operand: str, *, mn_major: bool, type: str = "f16", mn: int = 64, k: int = 64
) -> Tile:
    """The tile of an instruction's operand, or one by itself; see `describe_descriptor`."""
    if instruction is None:
        return free_tile(operand, mn, k, type, mn_major)
    return tile_of(form_of(instruction, lambda form: form.op == "mma_async", "wgmma m64n128 bf16"), operand, mn_major)
