"""Boxes that a chip refuses: maps that cannot be written, and places where a box must not begin.

Measured on an NVIDIA H200, which treats a copy of such a box as an illegal instruction. Restriction on Tensor Copy
instructions, im2col mode (PTX ISA 9.1) state a part of this.
"""

from collections.abc import Iterator, Sequence

from mmulator.layouts.tensormap.encoded import Encoded
from mmulator.layouts.tensormap.places import GRANULE

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
