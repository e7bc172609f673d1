"""Chunks of 16 bytes of shared memory, as text and as a picture: where they lie, and where they belong.

A picture is in the manner of figures 156 to 165 of the specification, whose unit is 128 bits: left the lines of 128 bytes of
shared memory, right the tile's matrix or the tensor's box. A chunk has one colour in both, so the XOR of the swizzle shows as the
diagonals on the left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from mmulator.matrix.inspect.descriptors.checks import pattern_start

if TYPE_CHECKING:
    from mmulator.matrix.inspect.descriptors.answer import DescriptorAnswer
    from mmulator.matrix.inspect.descriptors.tile import Tile
    from mmulator.matrix.inspect.tensormaps.box import Chunk, TensorBox
    from mmulator.matrix.inspect.views.svg import Canvas

LINE, CHUNK = 128, 16  # bytes
WIDTH, HEIGHT, GAP = 50, 24, 9  # of a cell in px; where lines are left out
ROWS, CHUNKS, MOST_LINES = 16, 8, 32  # of the matrix or box, and of shared memory, that a picture shows
_LEFT, _TOP = 74, 96
_COLOURS = "Colours: the chunks of a row, in two tints by turns for groups of 8 rows."
# SGR codes of eight hues: chunks of a row.
_SGR = (34, 33, 31, 32, 35, 36, 95, 96)


def hue_of(chunk: int, row: int) -> int:
    """Colour of a chunk of a row, 0..31: eight hues for the chunks, two tints in turn for groups of eight rows."""
    return 4 * (chunk % 8) + (1, 3)[row // 8 % 2]


@dataclass(frozen=True)
class Drawn:
    """A cell. label: its text, may be empty. hue: 0 to 31, a colour of lanes; None: grey. tip: shown when hovering."""

    label: str
    hue: int | None
    tip: str = ""

    @property
    def shade(self) -> tuple[str, str]:
        """(class of the ground, class of the text)."""
        return ("cell", "dim") if self.hue is None else (f"l{self.hue}", "ink")

    def coloured(self, text: str) -> str:
        return text if self.hue is None else f"\x1b[{_SGR[self.hue // 4]}m{text}\x1b[0m"


def as_text(
    cells: Mapping[int, Drawn], every: Sequence[int], most: int, head: str, colour: bool, wide: int = 8, across: int = 8
) -> str:
    """Lines of 128 bytes as text, the first with offsets.

    cells: by number of the chunk of 16 bytes.
    every: numbers of the lines of 128 bytes, ascending.
    most: how many of them are printed.
    head: text at the end of the first line.
    colour: show the cells' colours.
    wide: letters of a cell.
    across: cells of a printed line, 8, 4 or 2.
    """
    lines = every[:most]
    out = [f"{'address':>8}" + "".join(f"{CHUNK * i:>+{wide}}" for i in range(across)) + f"   {head}".rstrip()]
    last = lines[0] if lines else 0
    for line in lines:
        if line > last + 1:
            out.append(f"{'':>8}  ...")
        for part in range(0, 8, across):
            row = ""
            for slot in range(part, part + across):
                cell = cells.get(8 * line + slot)
                label = f"{cell.label if cell else '.':>{wide}}"
                row += cell.coloured(label) if colour and cell else label
            if across == 8 or any(8 * line + slot in cells for slot in range(part, part + across)):
                out.append(f"{line * LINE + part * CHUNK:#8x}{row}")
        last = line
    if len(every) > most:
        out.append(f"{'':>8}  ... {len(every) - most} more lines")
    return "\n".join(out)


def _draw_lines(canvas: Canvas, cells: Mapping[int, Drawn], lines: Sequence[int]) -> None:
    """Draw lines of 128 bytes on the left of a picture."""
    for slot in range(8):
        canvas.text(_LEFT + (slot + 0.5) * WIDTH, _TOP - 7, f"+{CHUNK * slot}", 11, "dim", anchor="middle")
    y, last = float(_TOP), lines[0]
    for line in lines:
        if line > last + 1:
            canvas.text(_LEFT - 10, y + 7, "...", 10, "dim", anchor="end")
            y += GAP
        canvas.text(_LEFT - 8, y + HEIGHT / 2 + 4, f"{line * LINE:#x}", 11, "dim", anchor="end")
        for slot in range(8):
            x = _LEFT + slot * WIDTH
            cell = cells.get(8 * line + slot)
            if cell is not None:
                fill, ink = cell.shade
                canvas.rect(x, y, WIDTH, HEIGHT, fill, cell.tip)
                if cell.label:
                    canvas.centred(x, y, WIDTH, HEIGHT, cell.label, 11, ink)
            canvas.frame(x, y, WIDTH, HEIGHT, "grid", 0.7)
        if line % 8 == 0:
            canvas.line(_LEFT - 6, y, _LEFT + 8 * WIDTH, y, "rule", 1.8)
        for x in (_LEFT, _LEFT + 8 * WIDTH):
            canvas.line(x, y, x, y + HEIGHT, "rule", 1.8)
        y, last = y + HEIGHT, line


@dataclass(frozen=True)
class _Square:
    """A chunk in the matrix or box on the right of a picture.

    row, column: its place there.
    drawn: how it looks; the label is its number in shared memory.
    above, beside: name of its column, in the first row, and of its row, in the first column.
    """

    row: int
    column: int
    drawn: Drawn
    above: str
    beside: str


@dataclass(frozen=True)
class _Picture:
    """Titles and texts of a picture, and the widths in which tiles and boxes differ.

    title, size, room: of the first line, its font size, and its width if it shrinks to fit.
    said: second line.
    memory, matrix: headings of the two parts.
    more_rows: what follows below the right part where it has more rows; or "".
    more: whether it has more columns.
    between, beside: px between the parts, and for the name of a row; None: as long as it is.
    below: px below the right part.
    """

    title: str
    size: float
    said: str
    memory: str
    matrix: str
    more_rows: str
    more: bool
    between: int
    room: float | None = None
    beside: float | None = None
    below: int = 0

    def draw(
        self, cells: Mapping[int, Drawn], lines: Sequence[int], squares: Sequence[_Square], captions: Iterable[str], theme: str,
        least: float = 0, frames: tuple[int, int] | None = None,
    ) -> str:  # fmt: skip
        """The picture as SVG. least: px of width. frames: rows and chunks of an atom, if atoms are framed."""
        from mmulator.matrix.inspect.views.svg import PAGE_WIDTH, Canvas, wrap

        gaps = sum(b > a + 1 for a, b in pairwise(lines))
        rows, chunks = max(s.row for s in squares) + 1, max(s.column for s in squares) + 1
        said = [line for text in captions for line in wrap(text, PAGE_WIDTH - 48, 12)]
        body = max(len(lines) * HEIGHT + gaps * GAP, rows * HEIGHT + self.below)
        left = _LEFT + 8 * WIDTH + self.between
        width = max(left + chunks * WIDTH + 24, PAGE_WIDTH, least)
        canvas = Canvas(width, _TOP + body + 26 + 17 * len(said), self.title, theme)
        room = None if self.room is None else width - self.room
        canvas.text(24, 30, self.title, self.size, mono=False, bold=True, width=room)
        canvas.text(24, 51, self.said, 13, "dim", mono=False, width=PAGE_WIDTH - 48)
        canvas.text(_LEFT, _TOP - 24, self.memory, 12, "dim", mono=False)
        _draw_lines(canvas, cells, lines)
        canvas.text(left, _TOP - 24, self.matrix if chunks > 4 else f"{self.matrix.partition(':')[0]}: number of the chunk", 12,
                    "dim", mono=False)  # fmt: skip
        for s in squares:
            x, y = left + s.column * WIDTH, _TOP + s.row * HEIGHT
            fill, ink = s.drawn.shade
            canvas.rect(x, y, WIDTH, HEIGHT, fill, s.drawn.tip)
            canvas.centred(x, y, WIDTH, HEIGHT, s.drawn.label, 11, ink)
            canvas.frame(x, y, WIDTH, HEIGHT, "grid", 0.7)
            if s.row == 0 and s.above:
                canvas.text(x + WIDTH / 2, _TOP - 7, s.above, 11, "dim", anchor="middle", width=WIDTH)
            if s.column == 0 and s.beside:
                canvas.text(left - 8, y + HEIGHT / 2 + 4, s.beside, 11, "dim", anchor="end", width=self.beside)
        if self.more_rows:
            canvas.text(left - 8, _TOP + rows * HEIGHT + 14, self.more_rows, 11, "dim")
        if self.more:
            canvas.text(left + chunks * WIDTH + 6, _TOP + HEIGHT / 2 + 4, "...", 11, "dim")
        down, across = frames or (rows, chunks)
        for i in range(0, rows, down) if frames else ():
            for j in range(0, chunks, across):
                size = min(across, chunks - j) * WIDTH, min(down, rows - i) * HEIGHT
                canvas.frame(left + j * WIDTH, _TOP + i * HEIGHT, *size, "rule", 1.8)
        for i, caption in enumerate(said):
            canvas.text(24, _TOP + body + 32 + 17 * i, caption, 12, "ink", mono=False)
        return canvas.svg()


# tiles of a matrix descriptor ---------------------------------------------------------------------------------------------
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
    def hue(self) -> int | None:
        """Colour of the chunk; None, grey, if it is not read."""
        return hue_of(self.chunk, self.strided) if self.read else None

    @property
    def inside(self) -> bool:
        return self.mn >= 0 and self.k >= 0


def tile_cells(answer: DescriptorAnswer) -> tuple[Cell, ...]:
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


def _name(tile: Tile, cell: Cell) -> str:
    """Name of a chunk: `row,column` of its first element."""
    return "{},{}".format(*tile.matrix(cell.mn, cell.k))


def tile_text(answer: DescriptorAnswer, lines: int = 8, colour: bool = False) -> str:
    """The first lines of 128 bytes, as text for a terminal of 80 columns. A cell is a chunk of 16 bytes, named by row and
    column of its
    first element; `-`: of the same atoms, but not read; `.`: no part of this matrix.

    colour: show each chunk of a row in a colour of its own.
    """
    every = tile_cells(answer)
    drawn = {c.address // 16: Drawn(_name(answer.tile, c) if c.read else "-", c.hue) for c in every}
    return as_text(drawn, sorted({c.line for c in every if c.read}), lines, str(answer.tile.axes), colour)


def draw_tile(answer: DescriptorAnswer, theme: str = "auto") -> str:
    """The picture as SVG. theme: `auto`, `light` or `dark`. Large tiles show their first atoms."""
    tile, mode = answer.tile, answer.descriptor.mode
    every = tile_cells(answer)
    window = [c for c in every if c.strided < ROWS and c.chunk < CHUNKS]
    lines = sorted({c.line for c in window})[:MOST_LINES]
    more = [n for n in sorted({c.line for c in every if c.read}) if n not in lines]
    lines = sorted(lines + more[: max(0, ROWS - len(lines))])
    (across, _), (down, _) = tile.contiguous, tile.strided
    cells = {}
    for c in every:
        tip = f"{c.address // 16 * 16:#x}: {tile.name(c.mn, c.k)}"
        cells[c.address // 16] = Drawn(_name(tile, c) if c.inside else "", c.hue, tip)
    squares = []
    for c in window:
        inner, outer = (c.mn, c.k) if tile.mn_major else (c.k, c.mn)
        drawn = Drawn(str(c.address // 16 - lines[0] * 8), c.hue, f"{tile.name(c.mn, c.k)}: {c.address:#x}")
        names = f"{across} {inner}" * (inner >= 0), f"{down} {outer}" * (outer >= 0)
        squares.append(_Square(c.strided, c.chunk, drawn, *names))
    swizzle = f"{mode.name} swizzle" if mode.mask else "no swizzle"
    read_by = f", read by {tile.reader}" if tile.reader else ""
    left = max(c.strided for c in every) - max(c.strided for c in window)
    picture = _Picture(
        str(tile), 17, f"{swizzle}, descriptor {answer.word:#018x}{read_by}",
        f"shared memory, 16 bytes a cell: first element {tile.axes}",
        f"matrix: {down} down, {across} across; number of the chunk",
        f"... {left} more {down}" * bool(left), max(c.chunk for c in every) > max(c.chunk for c in window), 66,
    )  # fmt: skip
    captions = _tile_captions(answer, every, window)
    return picture.draw(cells, lines, squares, captions, theme, frames=(mode.lines, mode.width // 16))


def _tile_captions(answer: DescriptorAnswer, every: tuple[Cell, ...], window: list[Cell]) -> list[str]:
    mode = answer.descriptor.mode
    out = [f"{name}: {o.text}." for name, o in zip(("LBO", "SBO"), answer.offsets)]
    if mode.mask:
        low = mode.unit.bit_length() - 1
        out.append(
            f"Swizzle: address bits {low} to {low - 1 + mode.mask.bit_length()} (the chunk) are XORed with bits 7 to "
            f"{6 + mode.mask.bit_length()} (the line); the pattern repeats every {mode.repeat} bytes."
        )
    out.append(_COLOURS)
    if any(not c.read for c in window):
        out.append("Grey: chunks of the same atoms that this instruction does not read.")
    if len(window) < len(every):
        out.append(f"The matrix on the right shows {len(window)} of {len(every)} chunks.")
    return out


# boxes of a tensor map ----------------------------------------------------------------------------------------------------
def _fill(box: TensorBox) -> str:
    """Text of a chunk that is out of bounds."""
    return "-" if box.store else "NaN" if box.map.oob_fill == "nan" else "0"


def box_cell(box: TensorBox, chunk: Chunk) -> Drawn:
    """A chunk as a cell: the coordinates of its first element, or what fills it."""
    tip = f"{chunk.address:#x}: element {chunk.name}"
    if chunk.filled:
        return Drawn(_fill(box), None, f"{tip}, out of bounds: {'not written' if box.store else f'filled with {_fill(box)}'}")
    return Drawn(chunk.name, hue_of(chunk.number, chunk.row), tip)


def box_text(box: TensorBox, lines: int = 8, colour: bool = False, width: int = 80) -> str:
    """The first lines of 128 bytes, as text for a terminal. A cell is a chunk of 16 bytes, named by the coordinates of the
    element at
    its lowest address, with a star where a part is out of bounds; `0`, `NaN` or, of stores, `-` if all of it is.

    box: the box.
    lines: number of lines.
    colour: show each chunk of a row in a colour of its own.
    width: columns of the terminal; long names take several printed lines for one of 128 bytes.
    """
    cells = {c.address // CHUNK: box_cell(box, c) for c in box.chunks}
    wide = max(8, 1 + max((len(c.label) for c in cells.values()), default=0))
    across = next((count for count in (8, 4, 2) if 8 + count * wide <= width), 1)
    head = axes(box) if 11 + across * wide + len(axes(box)) <= width else ""
    return as_text(cells, sorted({c.line for c in box.chunks}), lines, head, colour, wide, across)


def axes(box: TensorBox) -> str:
    """Names of the dimensions, in the array's order, as coordinates are written."""
    return ",".join(axis_names(box))


def axis_names(box: TensorBox) -> list[str]:
    """Names of the dimensions, in the array's order."""
    rank, m = len(box.map.shape), box.map.fields
    if m.slice:
        return ["n", "slice", *("d", "h", "w")[5 - rank :]]
    if m.im2col:
        return ["n", *("d", "h", "w")[5 - rank :], "c"]
    return [f"d{n}" for n in range(rank)] if rank > 2 else ["row", "col"][2 - rank :]


def draw_box(box: TensorBox, theme: str = "auto") -> str:
    """The picture as SVG: chunks out of bounds are grey, and say what fills them. theme: `auto`, `light` or `dark`. Large boxes
    show their first rows.
    """
    from mmulator.matrix.inspect.views.svg import text_width

    every = box.chunks
    window = [c for c in every if c.row < ROWS and c.number < CHUNKS]
    first, (*outer, inner) = min(c.address for c in every) // 128 * 8, axis_names(box)
    squares = []
    for c in window:
        drawn = replace(box_cell(box, c), label=str(c.address // CHUNK - first), tip=f"element {c.name}: {c.address:#x}")
        where = ",".join(map(str, c.at[:-1]))
        beside = (where if len(c.at) <= 2 else f"r{c.row}: {where}") * bool(outer)
        squares.append(_Square(c.row, c.number, drawn, f"{inner} {c.at[-1]}", beside))
    title, between = repr(box.map), 96
    at = f".{box.mode} at {box.coordinates}" + (f", offsets {box.offsets}" if box.offsets else "")
    what = "written from" if box.store else "lands at"
    left = max(c.row for c in every) - max(c.row for c in window)
    picture = _Picture(
        title, 15, f"{at}, {what} {box.shared:#x}; {box.map.box_bytes} bytes",
        f"shared memory, 16 bytes a cell: first {axes(box)}",
        f"box: {','.join(outer) or 'one row'} down, {inner} across; number of the chunk", f"... {left} more rows" * bool(left),
        max(c.number for c in every) > max(c.number for c in window), between, room=48, beside=between - 14, below=14,
    )  # fmt: skip
    cells = {c.address // CHUNK: _short(box, c) for c in every}
    lines = sorted({c.line for c in window})[:MOST_LINES]
    smallest = text_width(title, 9, mono=False, bold=True) + 48
    return picture.draw(cells, lines, squares, _box_captions(box, every, window), theme, smallest)


def _short(box: TensorBox, chunk: Chunk) -> Drawn:
    """A cell of the picture; with many dimensions its name has the row of the box and the innermost coordinate alone."""
    cell = box_cell(box, chunk)
    if chunk.filled or len(chunk.at) <= 2:
        return cell
    return replace(cell, label=f"r{chunk.row},{chunk.at[-1]}" + "*" * chunk.name.endswith("*"))


def _box_captions(box: TensorBox, every: tuple[Chunk, ...], window: list[Chunk]) -> list[str]:
    mode, m = box.map.fields.mode, box.map.fields
    out = []
    for to, source, bits in mode.exchanges:
        these, those = (f"bit{'s' * (bits > 1)} {at}{f' to {at + bits - 1}' * (bits > 1)}" for at in (to, source))
        out.append(f"Swizzle {m.swizzle}: address {these} XORed with {those}; the pattern repeats every {mode.alignment} bytes.")
    out.append(_COLOURS)
    if any(c.filled for c in every):
        what = "not written" if box.store else f"filled with {_fill(box)}"
        out.append(f"Grey: out of bounds, {what}; {box.filled} of {box.placed.shared.size} elements.")
    if any(0 < c.inside < c.units for c in every):
        out.append("A star: a part of the 16 bytes is out of bounds.")
    if m.type.padded:
        out.append(f"Of each 16 bytes {m.type.memory} are written; the others stay as they are.")
    if len(window) < len(every):
        out.append(f"The box on the right shows {len(window)} of {len(every)} chunks.")
    return out
