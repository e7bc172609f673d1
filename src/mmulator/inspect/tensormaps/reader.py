"""Whether a wgmma finds a box where a tensor copy left it."""

from collections.abc import Iterator

import numpy as np

from mmulator.inspect.descriptors.checks import Diagnostic
from mmulator.inspect.descriptors.tile import Placed
from mmulator.inspect.tensormaps.box import TensorBox
from mmulator.inspect.tensormaps.checks import SWIZZLES


def check_reader(box: TensorBox, read: Placed) -> tuple[Diagnostic, ...]:
    """Diagnostics of a descriptor that reads a box: each element of its matrix must be the box's at the same distance from the
    first,
    row by row.
    """
    return tuple(_reader(box, read))


def _reader(box: TensorBox, read: Placed) -> Iterator[Diagnostic]:
    tile, kind = read.tile, box.map.fields.type
    swizzle, mode = box.map.swizzle, read.descriptor.mode.name
    if kind.elements > 1 or 8 * kind.memory != tile.element.bits:
        yield Diagnostic("error", f"the box has elements of {kind}, and wgmma reads .{tile.element}", SWIZZLES)
        return
    if swizzle != mode:
        yield Diagnostic("error", f"the map swizzles {swizzle}, and the descriptor {mode}", SWIZZLES,
                         "make both the same")  # fmt: skip
    lies = box.placed.shared.reshape(-1, box.placed.shared.shape[-1])
    rows, columns = lies.shape
    flat = lies.reshape(-1)
    order = np.argsort(flat)
    wanted = read.addresses.T if tile.mn_major else read.addresses
    near = np.minimum(np.searchsorted(flat[order], wanted.reshape(-1)), len(order) - 1)
    found = np.where(flat[order][near] == wanted.reshape(-1), order[near], -1).reshape(wanted.shape)
    first = int(found[0, 0])
    if first < 0:
        yield Diagnostic("error", f"wgmma reads its first element at {int(wanted[0, 0]):#x}, where this box has none", SWIZZLES,
                         "start address = (address of the box) + (bytes of what is skipped)")  # fmt: skip
        return
    row, column = np.ogrid[: wanted.shape[0], : wanted.shape[1]]
    row, column = row + first // columns, column + first % columns
    meant = np.where((row < rows) & (column < columns), row * columns + column, -2)
    wrong = np.argwhere(found != meant)
    if not len(wrong):
        return
    i, j = (int(n) for n in wrong[0])
    at, name = found[i, j], _names(tile.mn_major, tile.letter)
    holds = "nothing of this box" if at < 0 else f"row {int(at) // columns}, column {int(at) % columns} of the box"
    should = "beyond the box" if meant[i, j] < 0 else f"row {meant[i, j] // columns}, column {meant[i, j] % columns}"
    yield Diagnostic(
        "error", f"of {name[0]} {i}, {name[1]} {j} wgmma reads {holds} at {int(wanted[i, j]):#x}; it should be {should}: "
        f"{len(wrong)} of {found.size} elements are others", "Strides (PTX ISA 9.1)",
        "`mmulator descriptor encode` makes the descriptor of a packed layout",
    )  # fmt: skip


def _names(mn_major: bool, letter: str) -> tuple[str, str]:
    return ("k", letter) if mn_major else (letter, "k")
