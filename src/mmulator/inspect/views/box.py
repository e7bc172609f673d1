"""A box of a tensor in shared memory: 16-byte chunks where they lie, and where they belong.

The drawing is like that of a matrix (`tile.py`): left the lines of 128 bytes of shared memory, right the box. A chunk has one
colour in both, so the XOR of the swizzle shows as the diagonals on the left. Chunks out of bounds are grey, and say what fills
them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from mmulator.inspect.views.lines import CHUNK, GAP, HEIGHT, WIDTH, Drawn, as_text, draw

if TYPE_CHECKING:
    from mmulator.inspect.tensormaps.box import Chunk, TensorBox
    from mmulator.inspect.views.svg import Canvas

ROWS, CHUNKS = 16, 8  # of the box that a picture shows
MOST_LINES = 32


def _hue(chunk: Chunk) -> int:
    """Colour of a chunk, 0..31: eight hues for the chunks of a row, two tints in turn for groups of eight rows."""
    return 4 * (chunk.number % 8) + (1, 3)[chunk.row // 8 % 2]


def _fill(box: TensorBox) -> str:
    """Text of a chunk that is out of bounds."""
    return "-" if box.store else "NaN" if box.map.oob_fill == "nan" else "0"


def shown(box: TensorBox, chunk: Chunk) -> Drawn:
    """A chunk as a cell: the coordinates of its first element, or what fills it."""
    tip = f"{chunk.address:#x}: element {chunk.name}"
    if chunk.filled:
        return Drawn(_fill(box), None, f"{tip}, out of bounds: {'not written' if box.store else f'filled with {_fill(box)}'}")
    return Drawn(chunk.name, _hue(chunk), tip)


def draw_text(box: TensorBox, lines: int = 8, colour: bool = False, width: int = 80) -> str:
    """The first lines of 128 bytes, as text for a terminal. A cell is a chunk of 16 bytes, named by the coordinates of the
    element at
    its lowest address, with a star where a part is out of bounds; `0`, `NaN` or, of stores, `-` if all of it is.

    box: the box.
    lines: number of lines.
    colour: show each chunk of a row in a colour of its own.
    width: columns of the terminal; long names take several printed lines for one of 128 bytes.
    """
    cells = {c.address // CHUNK: shown(box, c) for c in box.chunks}
    every = sorted({c.line for c in box.chunks})
    wide = max(8, 1 + max((len(c.label) for c in cells.values()), default=0))
    across = next((count for count in (8, 4, 2) if 8 + count * wide <= width), 1)
    head = axes(box) if 11 + across * wide + len(axes(box)) <= width else ""
    out = as_text(cells, every[:lines], head, colour, wide, across)
    if len(every) > lines:
        out.append(f"{'':>8}  ... {len(every) - lines} more lines")
    return "\n".join(out)


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


# SVG ------------------------------------------------------------------------------------------------------------------
_LEFT, _TOP = 74, 96
_BETWEEN = 96


def draw_box(box: TensorBox, theme: str = "auto") -> str:
    """The picture as SVG. theme: `auto`, `light` or `dark`. Large boxes show their first rows."""
    from mmulator.inspect.views.svg import PAGE_WIDTH, Canvas, text_width, wrap

    every = box.chunks
    window = [c for c in every if c.row < ROWS and c.number < CHUNKS]
    lines = sorted({c.line for c in window})[:MOST_LINES]
    gaps = sum(b > a + 1 for a, b in pairwise(lines))
    rows, chunks = max(c.row for c in window) + 1, max(c.number for c in window) + 1
    captions = [line for said in _captions(box, every, window) for line in wrap(said, PAGE_WIDTH - 48, 12)]
    body = max(len(lines) * HEIGHT + gaps * GAP, rows * HEIGHT + 14)
    title = repr(box.map)
    smallest = text_width(title, 9, mono=False, bold=True) + 48
    width = max(_LEFT + 8 * WIDTH + _BETWEEN + chunks * WIDTH + 24, PAGE_WIDTH, smallest)
    canvas = Canvas(width, _TOP + body + 26 + 17 * len(captions), title, theme)
    canvas.text(24, 30, title, 15, mono=False, bold=True, width=width - 48)
    at = f".{box.mode} at {box.coordinates}" + (f", offsets {box.offsets}" if box.offsets else "")
    what = "written from" if box.store else "lands at"
    canvas.text(24, 51, f"{at}, {what} {box.shared:#x}; {box.map.box_bytes} bytes", 13, "dim", mono=False, width=PAGE_WIDTH - 48)
    canvas.text(_LEFT, _TOP - 24, f"shared memory, 16 bytes a cell: first {axes(box)}", 12, "dim", mono=False)
    draw(canvas, _LEFT, _TOP, {c.address // CHUNK: _short(box, c) for c in every}, lines)
    _matrix(canvas, box, window, every, rows, chunks)
    for i, caption in enumerate(captions):
        canvas.text(24, _TOP + body + 32 + 17 * i, caption, 12, "ink", mono=False)
    return canvas.svg()


def _short(box: TensorBox, chunk: Chunk) -> Drawn:
    """A cell of the picture; with many dimensions its name has the row of the box and the innermost coordinate alone."""
    cell = shown(box, chunk)
    if chunk.filled or len(chunk.at) <= 2:
        return cell
    return Drawn(f"r{chunk.row},{chunk.at[-1]}" + "*" * chunk.name.endswith("*"), cell.hue, cell.tip)


def _matrix(canvas: Canvas, box: TensorBox, window: list[Chunk], every: tuple[Chunk, ...], rows: int, chunks: int) -> None:
    """Draw, on the right, the box row by row, each chunk with its number in shared memory."""
    left, first = _LEFT + 8 * WIDTH + _BETWEEN, min(c.address for c in every) // 128 * 8
    *outer, inner = axis_names(box)
    head = f"box: {','.join(outer) or 'one row'} down, {inner} across; number of the chunk"
    canvas.text(left, _TOP - 24, head if chunks > 4 else "box: number of the chunk", 12, "dim", mono=False)
    for c in window:
        x, y = left + c.number * WIDTH, _TOP + c.row * HEIGHT
        fill, ink = shown(box, c).shade
        canvas.rect(x, y, WIDTH, HEIGHT, fill, f"element {c.name}: {c.address:#x}")
        canvas.centred(x, y, WIDTH, HEIGHT, str(c.address // CHUNK - first), 11, ink)
        canvas.frame(x, y, WIDTH, HEIGHT, "grid", 0.7)
        if c.row == 0:
            canvas.text(x + WIDTH / 2, _TOP - 7, f"{inner} {c.at[-1]}", 11, "dim", anchor="middle", width=WIDTH)
        if c.number == 0 and outer:
            where = ",".join(map(str, c.at[:-1]))
            label = where if len(c.at) <= 2 else f"r{c.row}: {where}"
            canvas.text(left - 8, y + HEIGHT / 2 + 4, label, 11, "dim", anchor="end", width=_BETWEEN - 14)
    more_rows, more = max(c.row for c in every) + 1 - rows, max(c.number for c in every) + 1 - chunks
    if more_rows:
        canvas.text(left - 8, _TOP + rows * HEIGHT + 14, f"... {more_rows} more rows", 11, "dim")
    if more:
        canvas.text(left + chunks * WIDTH + 6, _TOP + HEIGHT / 2 + 4, "...", 11, "dim")


def _captions(box: TensorBox, every: tuple[Chunk, ...], window: list[Chunk]) -> list[str]:
    mode, m = box.map.fields.mode, box.map.fields
    out = []
    for to, source, bits in mode.exchanges:
        these, those = (f"bit{'s' * (bits > 1)} {at}{f' to {at + bits - 1}' * (bits > 1)}" for at in (to, source))
        out.append(f"Swizzle {m.swizzle}: address {these} XORed with {those}; the pattern repeats every {mode.alignment} bytes.")
    out.append("Colours: the chunks of a row, in two tints by turns for groups of 8 rows.")
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
