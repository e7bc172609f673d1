"""Checks of a matrix descriptor. What is wrong is reported with the rule that it breaks."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from mmulator.matrix.inspect.descriptors.tile import MAJORNESS, Placed, Tile
from mmulator.matrix.layouts.descriptors import MatrixDescriptor, SharedDescriptor
from mmulator.matrix.layouts.swizzle import ATOM_32B

FORMAT = "Matrix Descriptor Format (PTX ISA 9.1)"
CANONICAL = "Canonical Layouts (PTX ISA 9.1)"
LEADING = "Leading Dimension Byte Offset (PTX ISA 9.1)"
# Shared memory of an sm_90 multiprocessor: the 227 KiB of a block, and the 1 KiB below it that the system keeps.
SM_SHARED = 228 * 1024


@dataclass(frozen=True)
class Diagnostic:
    """Something that is wrong with a descriptor or a tensor map.

    level: `error` (hardware reads something else than the matrix, or traps), `warning` (outside the specification's rules,
        though
    hardware has a definite answer), or `note`.
    text: what is wrong.
    rule: section of the specification.
    hint: what to do.
    """

    level: str
    text: str
    rule: str
    hint: str = ""

    def to_dict(self) -> dict[str, str]:
        return {"level": self.level, "text": self.text, "rule": self.rule, "hint": self.hint}


def check_word(word: int, reserved: int, of: type[MatrixDescriptor] = MatrixDescriptor) -> tuple[Diagnostic, ...]:
    """Diagnostics of bits outside the fields, and of fields with one legal value.

    word: the descriptor.
    reserved: its bits that belong to no field.
    of: class of descriptors.
    """
    found = []
    if of is SharedDescriptor and (constant := word >> 46 & 7) != 1:
        hint = "a descriptor of wgmma has other codes of swizzles, too" if not constant else "bit 46 alone is set there"
        found.append(Diagnostic("error", f"bits 46-48 are {constant:#05b}: they must be 0b001", of.rule, hint))
    if of is SharedDescriptor and word >> 52 & 1:
        text = "bit 52 is set: LBO is an absolute address, which sm_103a takes for K = 96 alone; here LBO is read as an offset"
        found.append(Diagnostic("error", text, of.rule, "clear it"))
    if not reserved:
        return tuple(found)
    bits = ", ".join(str(b) for b in range(64) if reserved >> b & 1)
    if of is SharedDescriptor:
        return (*found, Diagnostic("error", f"bits {bits} are set: they belong to no field and must be 0", of.rule, "clear them"))
    # tcgen05's descriptors, which look alike, have the constant 0b001 here.
    other = "bit 46 is set in the descriptors of tcgen05, whose swizzle codes differ" if reserved >> 46 & 1 else ""
    return (Diagnostic("warning", f"bits {bits} are set: they belong to no field", FORMAT, other or "clear them"),)


def pattern_start(d: MatrixDescriptor) -> int:
    """Where the pattern that holds the start address begins, if the base offset is right."""
    mode = d.mode
    if not mode.mask:
        return d.start_address
    return d.start_address - (d.start_address - (d.base_offset & mode.mask) * 128) % mode.repeat


def check_tile(
    placed: Placed, leading_steps: int, base: int | None, shared: int | None, shared_base: int
) -> tuple[Diagnostic, ...]:
    """Diagnostics of a tile at its descriptor, the worst first.

    placed: the tile at its descriptor.
    leading_steps: how often the leading byte offset is added in the tile.
    base: where the pattern starts, None if it is not known.
    shared, shared_base: size and first address of the shared window.
    """
    found = [
        *_majorness(placed.tile),
        *_atom(placed),
        *_base_offset(placed.descriptor, base),
        *_inside_atom(placed, base),
        *_overlap(placed),
        *_window(placed, shared, shared_base),
        *_leading(placed, leading_steps),
        *_phase(placed),
    ]
    order = ("error", "warning", "note")
    return tuple(sorted(found, key=lambda f: order.index(f.level)))


def _majorness(tile: Tile) -> Iterator[Diagnostic]:
    """Diagnostics of a matrix by itself, which may lie as in the specification's figures although no instruction reads it so."""
    if tile.mn_major and tile.element.bits != 16 and tile.generation is MatrixDescriptor:
        yield Diagnostic(
            "error",
            f"no wgmma reads this matrix: of .{tile.element} it reads K-major ones only",
            f"{MAJORNESS}: imm-trans-{tile.operand} exists for .f16 and .bf16",
            "store the matrix with k contiguous",
        )


def _atom(placed: Placed) -> Iterator[Diagnostic]:
    """Diagnostics of tcgen05's modes, of which some go with 32-bit elements and some with others."""
    tile, d = placed.tile, placed.descriptor
    if not isinstance(d, SharedDescriptor):
        return
    wide = tile.mn_major and tile.element.bits == 32
    if wide != (d.mode is ATOM_32B):
        only = f"of {tile.element} {tile.major}" if wide else f"{tile.major} of {tile.element}"
        text = f"a matrix {only} is read only with 128B_atom_32B" if wide else f"128B_atom_32B does not go with a {only} matrix"
        hint = "take it, or store the matrix with k contiguous" if wide else "it is for tf32, M- or N-major"
        yield Diagnostic("error", text, "Valid Combinations of Type-Size, Major-ness and Swizzling (PTX ISA 9.1)", hint)


def _base_offset(d: MatrixDescriptor, base: int | None) -> Iterator[Diagnostic]:
    mode = d.mode
    if not mode.mask:
        if d.base_offset:
            yield Diagnostic(
                "warning", f"base offset {d.base_offset} without swizzling: it is not valid there", FORMAT, "leave it 0"
            )
        if base is not None and d.start_address < base:
            yield _before(d, base)
        return
    if base is None:
        return
    if d.start_address < base:
        yield _before(d, base)
    if base % 128:
        yield Diagnostic(
            "error",
            f"the {mode.name} pattern cannot start at {base:#x}: the base offset counts lines of 128 bytes",
            FORMAT,
            f"align the buffer to {mode.repeat} bytes, then the base offset is 0",
        )
    elif ((base >> 7) ^ d.base_offset) & mode.mask:
        want = (base >> 7) & 7
        yield Diagnostic(
            "error",
            f"base offset is {d.base_offset}, but the {mode.name} pattern starts at {base:#x}: ({base:#x} >> 7) & 7 = {want}",
            FORMAT,
            f"base offset {want}, or align the buffer to {mode.repeat} bytes; leave the base out if the data were swizzled by "
            "absolute address bits",
        )


def _before(d: MatrixDescriptor, base: int) -> Diagnostic:
    return Diagnostic("error", f"start address {d.start_address:#x} is below the base {base:#x}", FORMAT, "check both")


def _inside_atom(placed: Placed, base: int | None) -> Iterator[Diagnostic]:
    """Diagnostics of a start inside an atom: right only if the tile stays in rows of that atom, or all rows are packed."""
    d, tile, mode = placed.descriptor, placed.tile, placed.descriptor.mode
    if not mode.mask:
        return
    origin = pattern_start(d) if base is None else base
    if d.start_address < origin or (base is not None and base % 128):
        return
    into = (d.start_address - origin) % mode.repeat
    if not into:
        return
    row, byte = divmod(into, mode.width)
    where = f"the matrix starts {into} bytes into the {mode.name} pattern at {d.start_address - into:#x}"
    inner, outer = tile.contiguous[0], tile.strided[0]
    skip = byte // 16 * tile.per_chunk
    place = " and ".join([*([f"{skip} {inner}"] * bool(byte)), *([f"{row} {outer}"] * bool(row))])
    wrong = _first_stray(placed, d.start_address - into, row, skip)
    if wrong is None:
        text = f"{where}: {place} further on in the atom"
        hint = f"right for an advance inside a larger matrix; a matrix that begins here needs {mode.repeat}-byte alignment"
        yield Diagnostic("note", text, FORMAT, f"{hint} or base offset {(d.start_address >> 7) & 7}" * (base is None))
        return
    mn, k, got, want = wrong
    if byte and byte + min(mode.width, tile.contiguous[1] * 16 // tile.per_chunk) > mode.width:
        why = f"its rows end after {mode.width - byte} more bytes"
        hint = f"advance along {inner} only as far as the tile still fits into the {mode.width} bytes of an atom's row"
    else:
        why = f"SBO {d.stride_byte_offset} is not {mode.repeat}, so the next {mode.lines} {outer} lie elsewhere"
        hint = f"start at a whole atom, or let SBO be {mode.repeat}"
    yield Diagnostic(
        "error",
        f"{where} and straddles atoms: {why}. {tile.name(mn, k)} is read at {got:#x}, it lies at {want:#x}",
        MAJORNESS,
        hint,
    )


def _first_stray(placed: Placed, origin: int, row: int, skip: int) -> tuple[int, int, int, int] | None:
    """First element that is not where the atoms at `origin` hold it, `row` lines and `skip` elements of a line further on: (mn,
    k, address read, address held).
    """
    tile = placed.tile
    mn_skip, k_skip = (skip, row) if tile.mn_major else (row, skip)
    larger: Tile = replace(tile, mn=tile.mn + mn_skip, k=tile.k + k_skip)
    whole = larger.addresses(replace(placed.descriptor, start_address=origin))
    held = whole[mn_skip:, k_skip:]
    stray = np.argwhere(held != placed.addresses)
    if not len(stray):
        return None
    mn, k = (int(x) for x in stray[0])
    return mn, k, int(placed.addresses[mn, k]), int(held[mn, k])


def _overlap(placed: Placed) -> Iterator[Diagnostic]:
    tile, d = placed.tile, placed.descriptor
    per_byte = tile.share
    addresses = placed.addresses[:, ::per_byte]  # sub-byte elements share bytes along k
    flat = addresses.reshape(-1)
    values, first, inverse = np.unique(flat, return_index=True, return_inverse=True)
    if len(values) == len(flat):
        return
    again = int(np.flatnonzero(first[inverse] != np.arange(len(flat)))[0])
    one, two = (divmod(int(i), addresses.shape[1]) for i in (first[inverse[again]], again))
    a, b = ((mn, k * per_byte) for mn, k in (one, two))
    packed = tile.packed(d.swizzle)
    yield Diagnostic(
        "error",
        f"rows overlap: {tile.name(*a)} and {tile.name(*b)} both lie at {int(flat[again]):#x} "
        f"(LBO {d.leading_byte_offset}, SBO {d.stride_byte_offset})",
        CANONICAL,
        f"packed, this tile has LBO {packed.leading_byte_offset} and SBO {packed.stride_byte_offset}",
    )


def _window(placed: Placed, shared: int | None, shared_base: int) -> Iterator[Diagnostic]:
    first, last = placed.bytes
    size = SM_SHARED - shared_base if shared is None else shared
    if first >= shared_base and last < shared_base + size:
        return
    what = f"the {size} bytes of shared memory from {shared_base:#x}" if shared is not None else "shared memory (228 KiB)"
    yield Diagnostic(
        "error",
        f"bytes {first:#x} to {last:#x} are read, outside {what}: hardware traps with an illegal address",
        "Shared State Space (PTX ISA 9.1)",
        "check start address, LBO and SBO",
    )


def _leading(placed: Placed, steps: int) -> Iterator[Diagnostic]:
    """Diagnostics of K-major, swizzled tiles wider than an atom: the specification has no LBO there, hardware has."""
    d, tile = placed.descriptor, placed.tile
    if tile.mn_major or tile.instruction is None or not d.mode.mask or not steps:
        return
    yield Diagnostic(
        "warning",
        f"k spans {tile.k_bytes} bytes, more than the {d.mode.width} of the swizzle: {_reads(d)} LBO "
        f"({d.leading_byte_offset}) for the bytes beyond, although the specification says `not used`",
        LEADING,
        f"set LBO to the distance of the two halves; packed it is {tile.packed(d.swizzle).leading_byte_offset}",
    )


def _reads(d: MatrixDescriptor) -> str:
    return "an H200 reads, and so tcgen05 does here (inferred)," if isinstance(d, SharedDescriptor) else "hardware reads"


def strides_used(placed: Placed) -> Iterator[tuple[str, int]]:
    """Name and value of the byte offsets by which the tile goes from an atom to the next; 0 reads one atom again and again."""
    d, tile = placed.descriptor, placed.tile
    if tile.strided[1] > d.mode.lines:
        yield "SBO", d.stride_byte_offset
    if tile.contiguous[1] > tile.per_chunk * d.mode.width // 16:
        yield "LBO", d.leading_byte_offset


def _phase(placed: Placed) -> Iterator[Diagnostic]:
    """Diagnostics of atoms that start in the middle of the pattern."""
    mode = placed.descriptor.mode
    if not mode.mask:
        return
    for name, value in strides_used(placed):
        if value % mode.repeat:
            yield Diagnostic(
                "note",
                f"{name} {value} is no multiple of {mode.repeat}: the next atom starts in the middle of the {mode.name} pattern",
                FORMAT,
                "right only if the data were written so; a tensor copy writes whole patterns",
            )
