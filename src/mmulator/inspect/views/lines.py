"""Lines of 128 bytes of shared memory, a cell of 16 bytes each, as text and in a drawing. Contents of the cells are the
caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmulator.inspect.views.svg import Canvas

LINE, CHUNK = 128, 16  # bytes
WIDTH, HEIGHT, GAP = 50, 24, 9  # of a cell in px; where lines are left out
# SGR codes of eight hues: chunks of a row.
_SGR = (34, 33, 31, 32, 35, 36, 95, 96)


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
    cells: Mapping[int, Drawn], lines: Sequence[int], head: str, colour: bool, wide: int = 8, across: int = 8
) -> list[str]:
    """The lines as text, the first with offsets.

    cells: by number of the chunk of 16 bytes.
    lines: numbers of the lines of 128 bytes, ascending.
    head: text at the end of the first line.
    colour: show the cells' colours.
    wide: letters of a cell.
    across: cells of a printed line, 8, 4 or 2.
    """
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
    return out


def draw(canvas: Canvas, left: float, top: float, cells: Mapping[int, Drawn], lines: Iterable[int]) -> None:
    """Draw lines as a picture. left, top: corner of the first cell."""
    lines = list(lines)
    for slot in range(8):
        canvas.text(left + (slot + 0.5) * WIDTH, top - 7, f"+{CHUNK * slot}", 11, "dim", anchor="middle")
    y, last = float(top), lines[0]
    for line in lines:
        if line > last + 1:
            canvas.text(left - 10, y + 7, "...", 10, "dim", anchor="end")
            y += GAP
        canvas.text(left - 8, y + HEIGHT / 2 + 4, f"{line * LINE:#x}", 11, "dim", anchor="end")
        for slot in range(8):
            x = left + slot * WIDTH
            cell = cells.get(8 * line + slot)
            if cell is not None:
                fill, ink = cell.shade
                canvas.rect(x, y, WIDTH, HEIGHT, fill, cell.tip)
                if cell.label:
                    canvas.centred(x, y, WIDTH, HEIGHT, cell.label, 11, ink)
            canvas.frame(x, y, WIDTH, HEIGHT, "grid", 0.7)
        if line % 8 == 0:
            canvas.line(left - 6, y, left + 8 * WIDTH, y, "rule", 1.8)
        for x in (left, left + 8 * WIDTH):
            canvas.line(x, y, x, y + HEIGHT, "rule", 1.8)
        y, last = y + HEIGHT, line
