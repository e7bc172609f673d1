"""A tile in shared memory as a picture: 16-byte chunks where they lie, and where they belong.

The picture is in the manner of figures 156 to 165 of the specification: the unit is 128 bits. Left the lines of 128 bytes of
shared memory, right the matrix. A chunk has one colour in both, so the XOR of the swizzle shows as the diagonals on the left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from mmulator.inspect.descriptors.checks import pattern_start
from mmulator.inspect.views.lines import GAP, HEIGHT, LINE, WIDTH, Drawn, as_text, draw

if TYPE_CHECKING:
    from mmulator.inspect.descriptors.answer import DescriptorAnswer
    from mmulator.inspect.descriptors.tile import Tile
    from mmulator.inspect.views.svg import Canvas

ROWS, CHUNKS = 16, 8  # of the matrix that a picture shows
MOST_LINES = 32


@dataclass(frozen=True)
class Cell:
    """A chunk of 16 bytes.

    address: of the first byte.
    strided, chunk: its place in the matrix, in elements and chunks from the atom's corner on.
    mn, k: its first element, counted from the tile's.
    read: whether the instruction reads it.
    """

    address: int
    strided: int
    chunk: int
    mn: int
    k: int
    read: bool

    @property
    def line(self) -> int:
        return self.address // LINE

    @property
    def hue(self) -> int:
        """Colour of the chunk, 0..31: eight hues for the chunks of a row, two tints in turn for groups of eight rows."""
        return 4 * (self.chunk % 8) + (1, 3)[self.strided // 8 % 2]

    @property
    def inside(self) -> bool:
        return self.mn >= 0 and self.k >= 0


def cells(answer: DescriptorAnswer) -> tuple[Cell, ...]:
    """The chunks of all atoms that the tile has a part in, by strided index, then along the contiguous dimension."""
    tile, d, mode = answer.tile, answer.descriptor, answer.descriptor.mode
    origin, row, byte = d.start_address, 0, 0
    if mode.mask:
        into = (d.start_address - pattern_start(d)) % mode.repeat
        origin, (row, byte) = origin - into, divmod(into, mode.width)
    t = tile.per_chunk
    skip = byte * t // 16
    run = mode.width // 16 * t
    inner = -(-(skip + tile.contiguous[1]) // run) * run
    outer = -(-(row + tile.strided[1]) // mode.lines) * mode.lines
    whole = replace(tile, mn=inner, k=outer) if tile.mn_major else replace(tile, mn=outer, k=inner)
    table = whole.addresses(replace(d, start_address=origin))
    table = table.T if tile.mn_major else table
    read = set(np.unique(answer.addresses // 16).tolist())
    found = []
    for i in range(outer):
        for c in range(inner // t):
            address = int(table[i, c * t])
            place = (c * t - skip, i - row)
            mn, k = place if tile.mn_major else place[::-1]
            found.append(Cell(address, i, c, mn, k, address // 16 in read))
    return tuple(found)


def _lines(shown: Iterable[Cell], most: int) -> list[int]:
    """The 128-byte lines that the cells lie in, by address."""
    return sorted({c.line for c in shown})[:most]


def _name(tile: Tile, cell: Cell) -> str:
    """Name of a chunk: `row,column` of its first element."""
    return "{},{}".format(*tile.matrix(cell.mn, cell.k))


def draw_text(answer: DescriptorAnswer, lines: int = 8, colour: bool = False) -> str:
    """The first lines of 128 bytes, as text for a terminal of 80 columns. A cell is a chunk of 16 bytes, named by row and
    column of its
    first element; `-`: of the same atoms, but not read; `.`: no part of this matrix.

    colour: show each chunk of a row in a colour of its own.
    """
    every = cells(answer)
    shown = _lines((c for c in every if c.read), 1 << 30)
    drawn = {c.address // 16: Drawn(_name(answer.tile, c) if c.read else "-", c.hue if c.read else None) for c in every}
    out = as_text(drawn, shown[:lines], str(answer.tile.axes), colour)
    if len(shown) > lines:
        out.append(f"{'':>8}  ... {len(shown) - lines} more lines")
    return "\n".join(out)


# SVG ------------------------------------------------------------------------------------------------------------------
_LEFT, _TOP = 74, 96
_BETWEEN = 66


def draw_tile(answer: DescriptorAnswer, theme: str = "auto") -> str:
    """The picture as SVG. theme: `auto`, `light` or `dark`. Large tiles show their first atoms."""
    from mmulator.inspect.views.svg import PAGE_WIDTH, Canvas, wrap

    tile, mode = answer.tile, answer.descriptor.mode
    every = cells(answer)
    window = [c for c in every if c.strided < ROWS and c.chunk < CHUNKS]
    lines = _lines(window, MOST_LINES)
    more = [n for n in _lines((c for c in every if c.read), 1 << 30) if n not in lines]
    lines = sorted(lines + more[: max(0, ROWS - len(lines))])
    gaps = sum(b > a + 1 for a, b in pairwise(lines))
    rows, chunks = max(c.strided for c in window) + 1, max(c.chunk for c in window) + 1
    captions = [line for text in _captions(answer, every, window) for line in wrap(text, PAGE_WIDTH - 48, 12)]
    body = max(len(lines) * HEIGHT + gaps * GAP, rows * HEIGHT)
    width = _LEFT + 8 * WIDTH + _BETWEEN + chunks * WIDTH + 24
    canvas = Canvas(max(width, PAGE_WIDTH), _TOP + body + 26 + 17 * len(captions), str(tile), theme)
    canvas.text(24, 30, f"{tile}", 17, mono=False, bold=True)
    what = f"{mode.name} swizzle" if mode.mask else "no swizzle"
    read_by = f", read by {tile.reader}" if tile.reader else ""
    canvas.text(24, 51, f"{what}, descriptor {answer.word:#018x}{read_by}", 13, "dim", mono=False, width=PAGE_WIDTH - 48)
    _memory(canvas, tile, every, lines)
    _matrix(canvas, answer, every, window, lines[0] * 8, rows, chunks)
    for i, line in enumerate(captions):
        canvas.text(24, _TOP + body + 32 + 17 * i, line, 12, "ink", mono=False)
    return canvas.svg()


def _captions(answer: DescriptorAnswer, every: tuple[Cell, ...], window: list[Cell]) -> list[str]:
    mode = answer.descriptor.mode
    out = []
    for name, o in zip(("LBO", "SBO"), answer.offsets):
        out.append(f"{name}: {o.text}.")
    if mode.mask:
        low = mode.unit.bit_length() - 1
        out.append(
            f"Swizzle: address bits {low} to {low - 1 + mode.mask.bit_length()} (the chunk) are XORed with bits 7 to "
            f"{6 + mode.mask.bit_length()} (the line); the pattern repeats every {mode.repeat} bytes."
        )
    out.append("Colours: the chunks of a row, in two tints by turns for groups of 8 rows.")
    if any(not c.read for c in window):
        out.append("Grey: chunks of the same atoms that this instruction does not read.")
    if len(window) < len(every):
        out.append(f"The matrix on the right shows {len(window)} of {len(every)} chunks.")
    return out


def _shade(cell: Cell) -> tuple[str, str]:
    return (f"l{cell.hue}", "ink") if cell.read else ("cell", "dim")


def _memory(canvas: Canvas, tile: Tile, every: tuple[Cell, ...], lines: list[int]) -> None:
    """Draw, on the left, shared memory, 128 bytes a line."""
    canvas.text(_LEFT, _TOP - 24, f"shared memory, 16 bytes a cell: first element {tile.axes}", 12, "dim", mono=False)
    drawn = {}
    for cell in every:
        tip = f"{cell.address // 16 * 16:#x}: {tile.name(cell.mn, cell.k)}"
        drawn[cell.address // 16] = Drawn(_name(tile, cell) if cell.inside else "", cell.hue if cell.read else None, tip)
    draw(canvas, _LEFT, _TOP, drawn, lines)


def _extent(every: tuple[Cell, ...], name: str) -> int:
    return 1 + max(int(getattr(c, name)) for c in every)


def _matrix(
    canvas: Canvas, answer: DescriptorAnswer, every: tuple[Cell, ...], window: list[Cell], first: int, rows: int, chunks: int
) -> None:
    """Draw, on the right, the matrix, each chunk with its number in shared memory."""
    tile, mode = answer.tile, answer.descriptor.mode
    left = _LEFT + 8 * WIDTH + _BETWEEN
    across, down = tile.contiguous[0], tile.strided[0]
    title = f"matrix: {down} down, {across} across; number of the chunk" if chunks > 4 else "matrix: number of the chunk"
    canvas.text(left, _TOP - 24, title, 12, "dim", mono=False)
    for c in window:
        x, y = left + c.chunk * WIDTH, _TOP + c.strided * HEIGHT
        fill, ink = _shade(c)
        canvas.rect(x, y, WIDTH, HEIGHT, fill, f"{tile.name(c.mn, c.k)}: {c.address:#x}")
        canvas.centred(x, y, WIDTH, HEIGHT, str(c.address // 16 - first), 11, ink)
        canvas.frame(x, y, WIDTH, HEIGHT, "grid", 0.7)
        inner, outer = (c.mn, c.k) if tile.mn_major else (c.k, c.mn)
        if c.strided == 0 and inner >= 0:
            canvas.text(x + WIDTH / 2, _TOP - 7, f"{across} {inner}", 11, "dim", anchor="middle", width=WIDTH)
        if c.chunk == 0 and outer >= 0:
            canvas.text(left - 8, y + HEIGHT / 2 + 4, f"{down} {outer}", 11, "dim", anchor="end")
    strided, contiguous = (_extent(every, name) for name in ("strided", "chunk"))
    if strided > rows:
        canvas.text(left - 8, _TOP + rows * HEIGHT + 14, f"... {strided - rows} more {down}", 11, "dim")
    if contiguous > chunks:
        canvas.text(left + chunks * WIDTH + 6, _TOP + HEIGHT / 2 + 4, "...", 11, "dim")
    wide = mode.width // 16
    for i in range(0, rows, mode.lines):
        for j in range(0, chunks, wide):
            size = min(wide, chunks - j) * WIDTH, min(mode.lines, rows - i) * HEIGHT
            canvas.frame(left + j * WIDTH, _TOP + i * HEIGHT, *size, "rule", 1.8)
