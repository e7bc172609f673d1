"""Tensor maps that CUDA's driver refuses, and boxes that a chip refuses, with the reasons.

The driver: cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col (CUDA driver API). The chip: measured on an NVIDIA H200, which treats
a copy of such a box as an illegal instruction; Restriction on Tensor Copy instructions, im2col mode (PTX ISA 9.1) state a part.
"""

from collections.abc import Iterator, Sequence

from mmulator.base.classes import dataclass
from mmulator.base.errors import OperandError, shown
from mmulator.matrix.layouts.tensormap.encoded import Encoded
from mmulator.matrix.layouts.tensormap.fields import MOST_RANK
from mmulator.matrix.layouts.tensormap.places import GRANULE

MOST_SIZE = 1 << 32
MOST_STRIDE = 1 << 40  # bytes, exclusive
MOST_BOX = 256
MOST_STEP = 8
MOST_ADDRESS = 1 << 57
MOST_PIXELS = 1024
SLICED_RANK = 3  # the least of an interleaved map, and of im2col
PADDED_ROW = 128  # elements of a row of a type with padding
PADDED_SWIZZLES = ("none", "128B", "128B_atom_32B", "128B_atom_64B")  # that such a type takes
MOST_BYTES = 227 * 1024  # of a box, as the driver counts them: Encoded.described_bytes
# im2col, by rank: the least and the most of a corner.
CORNERS = {3: (-(1 << 15), (1 << 15) - 1), 4: (-(1 << 7), (1 << 7) - 1), 5: (-(1 << 4), (1 << 4) - 1)}


@dataclass(frozen=True)
class Refusal:
    """A reason why the driver refuses a map.

    parameter: name of the parameter here.
    message: what is wrong with it.
    rule: the driver's rule.
    hint: how to repair it, or None.
    """

    parameter: str
    message: str
    rule: str
    hint: str | None = None

    def error(self) -> OperandError:
        return OperandError(f"{self.parameter} {self.message}", rule=self.rule, hint=self.hint)


def rule_of(m: Encoded) -> str:
    """The section of the driver API that has the rules of a map."""
    return f"cuTensorMapEncode{'Im2col' if m.im2col else 'Tiled'} (CUDA driver API)"


def refusals(m: Encoded) -> Iterator[Refusal]:
    """All reasons why the driver refuses a map; empty for a legal map. Dimensions are named in the array's order."""
    rule = rule_of(m)
    found = list(_rank(m))
    if not found:
        found = [*_tensor(m), *(_im2col(m) if m.im2col else _tiled(m)), *_row(m), *_modes(m)]
    for parameter, message, hint in found:
        yield Refusal(parameter, message, rule, hint)


def check(m: Encoded) -> Encoded:
    """The map itself, if the driver accepts it. Raises OperandError with the first reason otherwise."""
    for refusal in refusals(m):
        raise refusal.error()
    return m


_Found = Iterator[tuple[str, str, str | None]]


def _alignment(m: Encoded) -> int:
    """Required alignment of the address and the strides, in bytes."""
    return 32 if m.interleave == "32B" or m.type.padded else 16


def _why_aligned(m: Encoded) -> str:
    return " with interleave 32B" if m.interleave == "32B" else f" for type {m.type}" if m.type.padded else ""


def _outer(m: Encoded, dimension: int) -> int:
    """Number of a dimension in the array's order."""
    return m.rank - 1 - dimension


def _rank(m: Encoded) -> _Found:
    least = SLICED_RANK if m.im2col or m.slice else 1
    if not least <= m.rank <= MOST_RANK:
        why = "im2col" if m.im2col else f"interleave {m.interleave}" if m.slice else "a tiled map"
        yield "array", f"has {m.rank} dimensions: {why} takes {least} to {MOST_RANK}", "reshape it, or merge dimensions"


def _tensor(m: Encoded) -> _Found:
    unit = _alignment(m)
    if m.address % unit:
        yield (
            "address",
            f"is {m.address:#x}: it must be a multiple of {unit} bytes{_why_aligned(m)}",
            "take an array that starts there",
        )
    if not 0 <= m.address < MOST_ADDRESS:
        yield "address", f"is {shown(m.address)}: addresses of global memory have 57 bits", None
    for n, size in enumerate(m.sizes):
        if not 1 <= size <= MOST_SIZE:
            yield f"shape[{_outer(m, n)}]", f"is {shown(size)}: a dimension has 1 to 2**32 elements", None
    for n, stride in enumerate(m.strides):
        if stride % unit or not 0 <= stride < MOST_STRIDE:
            yield (
                f"strides[{_outer(m, n + 1)}]",
                f"is {shown(stride)} bytes: it must be a multiple of {unit} below 2**40{_why_aligned(m)}",
                f"pad the rows of the array to a multiple of {unit} bytes" if stride >= 0 else "copy the array: x.copy()",
            )
    for n, step in enumerate(m.element_strides):
        if not 1 <= step <= MOST_STEP:
            yield f"element_strides[{_outer(m, n)}]", f"is {shown(step)}: it must be 1 to {MOST_STEP}", None
    if m.type.padded and m.sizes[0] % PADDED_ROW:
        must = f"for type {m.type} it must be a multiple of {PADDED_ROW}"
        yield f"shape[{_outer(m, 0)}]", f"is {m.sizes[0]} elements: {must}", None
    if m.type.name == "b4x16" and m.sizes[0] % 2:
        yield f"shape[{_outer(m, 0)}]", f"is {m.sizes[0]} elements: for type {m.type} it must be a multiple of 2", None


def _tiled(m: Encoded) -> _Found:
    for n, box in enumerate(m.box):
        if not 1 <= box <= MOST_BOX:
            yield f"box[{_outer(m, n)}]", f"is {shown(box)}: it must be 1 to {MOST_BOX}", "copy several boxes"
    if m.described_bytes > MOST_BYTES:
        yield "box", f"has {m.described_bytes} bytes: a box has at most {MOST_BYTES}", "copy several boxes"
    if m.type.padded and m.box[0] != PADDED_ROW:
        yield f"box[{_outer(m, 0)}]", f"is {m.box[0]}: for type {m.type} it must be {PADDED_ROW}", None


def _im2col(m: Encoded) -> _Found:
    low, high = CORNERS.get(m.rank, CORNERS[3])
    for name, corner in (("lower", m.lower), ("upper", m.upper)):
        for n, value in enumerate(corner):
            if not low <= value <= high:
                yield (
                    f"{name}[{len(corner) - 1 - n}]",
                    f"is {shown(value)}: corners of a tensor of rank {m.rank} are {low} to {high}",
                    None,
                )
    for n, (lower, upper) in enumerate(zip(m.lower, m.upper)):
        # Interleaved, the driver looks at dimensions 0, 1, 2 for W, H, D. It adds in 32 bits.
        end = (m.sizes[n + (not m.slice)] + upper + (1 << 31)) % (1 << 32) - (1 << 31)
        if end <= lower:
            yield (
                f"lower[{len(m.lower) - 1 - n}], upper[{len(m.lower) - 1 - n}]",
                f"are {lower} and {upper}: nothing is left of {m.sizes[n + 1]} elements",
                "the bounding box is from lower to size - 1 + upper",
            )
    if not 1 <= m.channels <= MOST_BOX:
        yield "channels", f"is {shown(m.channels)}: it must be 1 to {MOST_BOX}", None
    if m.described_bytes > MOST_BYTES:
        yield "pixels", f"is {m.pixels}: a column of {m.described_bytes} bytes; {MOST_BYTES} at most", "copy several columns"
    if not 1 <= m.pixels <= MOST_PIXELS:
        yield "pixels", f"is {shown(m.pixels)}: it must be 1 to {MOST_PIXELS}", None
    if m.type.padded and m.channels != PADDED_ROW:
        yield "channels", f"is {m.channels}: for type {m.type} it must be {PADDED_ROW}", None


def _row(m: Encoded) -> _Found:
    """Refusals of a row of the box, without interleaving."""
    row = m.channels if m.im2col else m.box[0]
    size = m.type.bytes_of(row)
    name = "channels" if m.im2col else f"box[{_outer(m, 0)}]"
    if not 1 <= row <= MOST_BOX:
        return
    if row * m.type.bits % 128:
        yield name, f"is {row} elements of {m.type}, {size} bytes: a row of the box must be a multiple of 16 bytes", None
    # of padded types the row takes 128 bytes of shared memory
    width = 0 if m.slice else m.mode.width
    in_shared = row // m.type.elements * m.type.shared
    if width and in_shared > width:
        yield (
            name,
            f"is {row} elements of {m.type}, {in_shared} bytes: with swizzle {m.swizzle} a row has at most {width}",
            f"copy boxes of {width * m.type.elements // m.type.shared} elements" + ", or take a wider swizzle" * (width < 128),
        )


def _modes(m: Encoded) -> _Found:
    if m.oob_fill == "nan" and not m.type.is_float:
        yield "oob_fill", f"is nan: elements of type {m.type} have none", 'say oob_fill="zero", or a floating-point type'
    if m.type.padded and m.swizzle not in PADDED_SWIZZLES:
        *others, last = PADDED_SWIZZLES
        yield "swizzle", f"is {m.swizzle}: type {m.type} takes {', '.join(others)} or {last}", None
    if m.type.elements > 1 and m.slice:
        yield "interleave", f"is {m.interleave}: type {m.type} takes none", None


# boxes that a chip refuses ---------------------------------------------------------------------------------------------
_RESTRICTION = "Restriction on Tensor Copy instructions (PTX ISA 9.1)"
_MEASURED = "measured on an NVIDIA H200: an illegal instruction"


def cannot_be_written(m: Encoded) -> Iterator[tuple[str, str]]:
    """Reasons why no box of a map can be written, each as (reason, rule); empty if some box can."""
    if any(corner < 0 for corner in m.lower) or any(corner > 0 for corner in m.upper):
        corners = f"lower {m.lower[::-1]}, upper {m.upper[::-1]}"
        yield f"the bounding box leaves the tensor, {corners}: of what is written lower is >= 0, upper <= 0", _RESTRICTION
    if m.type.name == "b4x16_p64" or m.swizzle.endswith("flip_8B"):
        yield f"{f'type {m.type}' if m.type.padded else f'swizzle {m.swizzle}'} is for loads alone", _RESTRICTION


def begins_wrong(m: Encoded, coordinates: Sequence[int], store: bool = False) -> Iterator[tuple[str, str]]:
    """Reasons why a box must not begin at the coordinates, each as (reason, rule); empty if it may. coordinates: dimension 0
    first.
    """
    if not m.slice and coordinates[0] * m.type.bits % (8 * GRANULE):
        yield (
            f"coordinate 0 is {coordinates[0]}, of elements of {m.type}: a box begins at a multiple of {GRANULE} bytes of a row",
            _MEASURED,
        )
    if store:
        yield from cannot_be_written(m)
        for n, at in enumerate(coordinates):
            if at < 0:
                yield f"coordinate {n} is {at}: a box that is written begins inside the tensor", _RESTRICTION
    first = 0 if m.slice else 1
    for n, (lower, upper) in enumerate(zip(m.lower, m.upper), first):
        last = m.sizes[n] - 1 + upper
        if not lower <= coordinates[n] <= last:
            yield (
                f"coordinate {n} is {coordinates[n]}: the filter's corner must be in the bounding box, {lower} to {last}",
                "im2col mode (PTX ISA 9.1)",
            )
