"""Layouts as drawings, in the manner of the specification's figures: lanes as colours, registers as labels.

A matrix too large for a page is drawn as an overview of its repeating blocks, and one part in detail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmulator.matrix.inspect.views.svg import PAGE_HEIGHT, PAGE_WIDTH, Canvas, fit, lane_class, text_width, wrap
from mmulator.matrix.inspect.views.tables import Repeat, cells, label, names, repeat_of, run_of

if TYPE_CHECKING:
    from mmulator.matrix.inspect.layouts.answer import Layout

_MARGIN = 18
_INNER = PAGE_WIDTH - 2 * _MARGIN
_LABEL = 11.0  # font size of a cell
_SMALL = 7.5  # below it a label takes two lines
_HEAD = 9.5
_AIR = 8  # between the label of a cell, or a heading, and the next
_GAP = 26


def draw(layout: Layout, theme: str = "auto", full: bool = False) -> str:
    """The SVG text of a layout. full: draw all of a large one."""
    repeat = None if full else repeat_of(layout)
    rows, columns = range(layout.rows), range(layout.columns)
    if repeat is not None:
        rows = range(repeat.rows)
        columns = range(min(layout.columns, 8 * run_of(layout).right if layout.kind == "elements" else layout.columns))
    tail = _notes(layout)
    grid = _Grid(layout, rows, columns)
    top = _MARGIN + 42 + (_overview_height(layout, repeat) if repeat else 0)
    words = _words_height(layout)
    below = 14 * len(tail) + 26 + words
    grid.set_height(PAGE_HEIGHT - top - below - _MARGIN)
    height = top + grid.height + below + _MARGIN
    canvas = Canvas(PAGE_WIDTH, max(height, 200), f"{layout.instruction}, operand {layout.operand}", theme)
    _titles(canvas, layout)
    if repeat is not None:
        _overview(canvas, layout, repeat, rows, columns)
    grid.draw(canvas, top)
    y = top + grid.height
    if words:
        _words(canvas, layout, y)
        y += words
    _legend(canvas, y + 8, layout.lanes)
    for number, line in enumerate(tail):
        canvas.text(_MARGIN, y + 38 + 14 * number, line, 10.5, "dim", mono=False, width=_INNER)
    return canvas.svg()


def _titles(canvas: Canvas, layout: Layout) -> None:
    canvas.text(_MARGIN, _MARGIN + 12, layout.instruction, 14, bold=True, width=_INNER)
    canvas.text(_MARGIN, _MARGIN + 30, subtitle(layout), 11, "dim", mono=False, width=_INNER)


def subtitle(layout: Layout) -> str:
    """The line below the title: what is shown."""
    size = f"{layout.rows} x {layout.columns}"
    if layout.where == "column":
        kinds = {"metadata": " chunks of A, 4 bits each", "scales": f" scale factors .{layout.type}"}
        cells = f"{layout.registers} column{'s' * (layout.registers > 1)} of 32 bits"
        per = f", up to {layout.per_register} in a cell" if layout.per_register > 1 else ""
        return f"operand {layout.operand} in tensor memory: {size}{kinds.get(layout.kind, f' .{layout.type}')}; {cells}{per}"
    if layout.kind == "metadata":
        what = f"operand {layout.operand}: metadata of {size} chunks of A, 4 bits each"
        return f"{what}; Tk:[m..n] are bits m to n of lane k's register"
    if layout.kind == "scales":
        what = f"operand {layout.operand}: {size} scale factors .{layout.type}"
        return f"{what}; Tk:[m..n] are bits m to n of lane k's register"
    stored = "compressed A, " if layout.spans else ""
    count = f"{layout.copies} matrices of " if layout.copies > 1 else ""
    several = "s" if layout.registers > 1 else ""
    per = f", {layout.per_register} elements in each" if layout.per_register > 1 else ""
    last = layout.registers * layout.per_register - 1
    names = f"{layout.letter}0 to {layout.letter}{last}" if last else f"{layout.letter}0"
    return (
        f"operand {layout.operand}: {stored}{count}{size} .{layout.type}; a lane has {layout.registers} register{several} "
        f"of {layout.register_bits} bits{per}: {names}"
    )


def _notes(layout: Layout) -> list[str]:
    sums = [f"{name} = {text}" for name, text in layout.rule]
    rule = ";  ".join(sums) if layout.kind != "elements" else f"In lane, register and index: {';  '.join(sums)}"
    source = f"{layout.section}: {layout.evidence}."
    return [line for text in (rule, *layout.notes, source) for line in wrap(text, _INNER, 10.5)]


def _legend(canvas: Canvas, y: float, lanes: int) -> None:
    """Draw a hue for each group of four lanes."""
    x: float = _MARGIN
    for group in range(8):
        for lane in range(4 * group, 4 * group + 4):
            canvas.rect(x, y, 11, 11, f"{lane_class(lane)} grid")
            x += 11
        text = f"T{4 * group}..T{4 * group + 3}"
        canvas.text(x + 4, y + 9, text, 9, "dim")
        x += text_width(text, 9) + 14
    if lanes > 32:
        canvas.text(x, y + 9, "other warps alike", 9, "dim", mono=False)


# The matrix ----------------------------------------------------------------------------------------------------------
class _Grid:
    """Rows and columns of cells: one panel for each copy and, where the width does not do, for each part of the columns."""

    def __init__(self, layout: Layout, rows: range, columns: range) -> None:
        self.layout, self.rows, self.columns = layout, rows, columns
        self.run = run = run_of(layout)
        held = layout.cells[0, 0, 0]
        self.lines = len(held)
        texts = [
            (label(layout, h, run.length), f"T{h.lane}", names(layout, h, run.length))
            for copy in range(layout.copies)
            for _, _, holders in cells(layout, copy, rows, columns)
            for h in holders
        ]
        longest = max(text_width(t[0], _LABEL) for t in texts)
        count = len(columns) // run.right
        self.corner = f"row\\{'col' if layout.column_name == 'column' else layout.column_name}"
        widest = str(layout.rows - 1) if run.down == 1 else f"{layout.rows - run.down}..{layout.rows - 1}"
        self.left = max(text_width(widest, _HEAD), text_width(self.corner, 8.5)) + 8
        room = _INNER - self.left
        self.across = 1  # panels beside each other
        if layout.copies > 1:
            self.across = max(1, min(layout.copies, int((_INNER + _GAP) // (self.left + count * (longest + 8) + _GAP))))
            room = (_INNER + _GAP) / self.across - self.left - _GAP
        self.per_panel = count
        while room / self.per_panel < 46 and self.per_panel % 2 == 0:
            self.per_panel //= 2
        self.cell = min(longest + (14 if self.across > 1 else 40), room / self.per_panel)
        self.split = fit(max((t[0] for t in texts), key=len), self.cell - _AIR, _LABEL) or 0
        if self.split < _SMALL:  # lane above, registers below
            self.lines *= 2
            self.font = min(fit(t, self.cell - _AIR, _LABEL) or 6 for row in texts for t in row[1:])
            self.two = True
        else:
            self.font, self.two = self.split, False
        self.font = min(self.font, _LABEL)
        parts = len(columns) // (self.per_panel * run.right)
        self.panels = [
            (copy, columns[part * self.per_panel * run.right : (part + 1) * self.per_panel * run.right])
            for copy in range(layout.copies)
            for part in range(parts)
        ]
        self.head = 16 + (12 if layout.spans else 0) + (15 if layout.copies > 1 else 0)
        self.row = 0.0

    def set_height(self, room: float) -> None:
        """Make rows as high as the page allows, within what looks right."""
        stacked = -(-len(self.panels) // self.across)
        count = len(self.rows) // self.run.down
        each = (room / stacked - self.head - 8) / count
        self.font = min(self.font, max(9.0, (each - 3) / self.lines - 1.5))
        least = self.lines * (self.font + 1.5) + 3
        self.row = max(least, min(least + 9, each))

    @property
    def panel_height(self) -> float:
        return self.head + 8 + self.row * (len(self.rows) // self.run.down)

    @property
    def height(self) -> float:
        return self.panel_height * -(-len(self.panels) // self.across)

    def draw(self, canvas: Canvas, top: float) -> None:
        for number, (copy, columns) in enumerate(self.panels):
            down, right = divmod(number, self.across)
            x = _MARGIN + right * (self.left + self.cell * self.per_panel + _GAP) + self.left
            self._panel(canvas, x, top + down * self.panel_height, copy, columns)

    def _panel(self, canvas: Canvas, x: float, y: float, copy: int, columns: range) -> None:
        layout, run, run_rows = self.layout, self.run, len(self.rows) // self.run.down
        if layout.copies > 1:
            canvas.text(x, y + 9, f"matrix {copy}", 10, mono=False, bold=True)
        self._columns(canvas, x, y + self.head, columns)
        canvas.text(x - 6, y + self.head - 5, self.corner, 8.5, "dim", anchor="end")
        body = y + self.head
        for n in range(run_rows):
            first = self.rows[n * run.down]
            text = _span(first, first + run.down - 1)
            canvas.text(x - 6, body + (n + 0.5) * self.row + 3.3, text, _HEAD, "dim", anchor="end")
        for row, column, holders in cells(layout, copy, self.rows, columns):
            cx = x + (column - columns[0]) // run.right * self.cell
            cy = body + row // run.down * self.row
            texts = []
            for h in holders:
                whole = f"T{h.lane}:", names(layout, h, run.length)
                texts += [whole[0][:-1], whole[1]] if self.two else ["".join(whole)]
            tip = self._tip(row, column, texts)
            canvas.rect(cx, cy, self.cell, self.row, f"{lane_class(holders[0].lane)} grid", tip=tip)
            pitch = self.font + 1.5
            base = cy + self.row / 2 - pitch * (len(texts) - 1) / 2 + 0.35 * self.font
            for line, text in enumerate(texts):
                middle = cx + self.cell / 2
                canvas.text(middle, base + line * pitch, text, self.font, anchor="middle", width=self.cell - 4)
        canvas.frame(x, body, self.cell * self.per_panel, self.row * run_rows, line=1.5)

    def _tip(self, row: int, column: int, texts: list[str]) -> str:
        run = self.run
        rows = f"row {row}" if run.down == 1 else f"rows {row} to {row + run.down - 1}"
        name = self.layout.column_name
        columns = f"{name} {column}" if run.right == 1 else f"{name}s {column} to {column + run.right - 1}"
        return f"{rows}, {columns}: {' '.join(texts)}"

    def _columns(self, canvas: Canvas, x: float, body: float, columns: range) -> None:
        layout, run = self.layout, self.run
        spans = [f"A {_span(s[0], s[1])}" for s in layout.spans]
        size = min((fit(text, self.cell - _AIR, 9) or 6 for text in spans), default=0)
        single = text_width(str(layout.columns - 1), _HEAD) + 4 <= self.cell / run.right  # all columns are headed alike
        for n in range(self.per_panel):
            first = columns[n * run.right]
            last = first + run.right - 1
            middle = x + (n + 0.5) * self.cell
            each = self.cell / run.right
            if layout.spans:
                text = f"A {_span(layout.spans[first][0], layout.spans[last][1])}"
                canvas.text(middle, body - 17, text, size, "dim", anchor="middle", width=self.cell - _AIR)
            if single:
                for c in range(first, last + 1):
                    at = x + n * self.cell + (c - first + 0.5) * each
                    canvas.text(at, body - 5, str(c), _HEAD, "dim", anchor="middle")
            else:
                canvas.text(middle, body - 5, _span(first, last), _HEAD, "dim", anchor="middle", width=self.cell - _AIR)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


# Large ones ----------------------------------------------------------------------------------------------------------
_BLOCK = 25.0


def _overview_height(layout: Layout, repeat: Repeat) -> float:
    blocks = _BLOCK * (layout.rows // repeat.rows) if layout.kind == "elements" else 0
    return 18 + (24 if layout.columns > repeat.columns else 0) + blocks + 28


def _overview(canvas: Canvas, layout: Layout, repeat: Repeat, rows: range, columns: range) -> None:
    """Draw the whole matrix as blocks, with the lanes and names of each; the part in detail is marked."""
    y: float = _MARGIN + 44
    count = layout.columns // repeat.columns
    canvas.text(_MARGIN, y + 10, f"All {layout.rows} x {layout.columns}:", 10.5, mono=False, bold=True)
    words = f"16 rows further down: {repeat.lanes} lanes further (the next warp)"
    if count > 1:
        words += f"; {repeat.columns} columns further right: {repeat.names} elements further"
        last = f"{layout.letter}{repeat.names - 1}"
        words += f"; {layout.letter}0 over {last} in a block: {layout.letter}0 to {last}"
    canvas.text(_MARGIN + 110, y + 10, words + ".", 10.5, "dim", mono=False, width=_INNER - 110)
    y += 18
    left = 132.0
    cell = min(64.0, (_INNER - left) / count) if count > 1 else 320.0
    if count > 1:
        for n in range(count):
            middle = _MARGIN + left + (n + 0.5) * cell
            for line, c in enumerate((n * repeat.columns, (n + 1) * repeat.columns - 1)):
                canvas.text(middle, y + 9 + 10 * line, str(c), 8.5, "dim", anchor="middle", width=cell)
        y += 24
    blocks = layout.rows // repeat.rows if layout.kind == "elements" else 0
    for block in range(blocks):
        first, lane = block * repeat.rows, block * repeat.lanes
        where = f"{first}..{first + repeat.rows - 1}"
        canvas.text(_MARGIN + left - 6, y + 11, f"rows {where}", 9, "dim", anchor="end")
        canvas.text(_MARGIN + left - 6, y + 22, f"T{lane}..T{lane + 31}", 9, "ink", anchor="end")
        for n in range(count):
            _block(canvas, layout, _MARGIN + left + n * cell, y, cell, range(n * repeat.columns, (n + 1) * repeat.columns))
        y += _BLOCK
    if blocks:
        top, width = y - _BLOCK * blocks, cell * (len(columns) // repeat.columns)
        canvas.frame(_MARGIN + left, top, width, _BLOCK, "mark", 2)
    text = f"In detail: rows 0..{rows[-1]}, {layout.column_name}s 0..{columns[-1]}, held by T0..T31"
    canvas.text(_MARGIN, y + 18, text, 10.5, mono=False, bold=True)


def _block(canvas: Canvas, layout: Layout, x: float, y: float, width: float, columns: range) -> None:
    """Draw a block of the overview, with the first and last element that a lane has there."""
    canvas.rect(x, y, width, _BLOCK, "cell grid")
    numbers = [int(h.name[1:]) for row in (0, 8) for c in columns for h in layout.cells[0, row, c]]
    ends = [f"{layout.letter}{value}" for value in (min(numbers), max(numbers))]
    if width >= 62:
        canvas.centred(x, y, width, _BLOCK, "..".join(ends), 9)
        return
    for line, text in enumerate(ends):
        canvas.text(x + width / 2, y + 11 + 10 * line, text, 8.5, anchor="middle", width=width - 2)


# Metadata words ------------------------------------------------------------------------------------------------------
_WORD = 17.0


def _words_height(layout: Layout) -> float:
    return 24 + _WORD * len(_holding(layout)) if layout.kind == "metadata" else 0


def _holding(layout: Layout) -> list[int]:
    return [lane for lane in range(4) if layout.at(lane)]


def _words(canvas: Canvas, layout: Layout, y: float) -> None:
    """Draw the registers of the first lanes that hold metadata, nibble by nibble."""
    canvas.text(_MARGIN, y + 12, "The registers of these lanes, highest bits first (row, chunk):", 10.5, mono=False, bold=True)
    left = 28.0
    cell = (_INNER - left) / 8
    pitch = _WORD
    for number, lane in enumerate(_holding(layout)):
        top = y + 18 + number * pitch
        canvas.text(_MARGIN, top + 12, f"T{lane}", _HEAD)
        for place, element in enumerate(reversed(layout.at(lane))):
            h = element.holders[0]
            text = f"{h.high}..{h.low}: {element.row},{element.column}"
            canvas.rect(_MARGIN + left + place * cell, top, cell, pitch, f"{lane_class(lane)} grid")
            canvas.centred(_MARGIN + left + place * cell, top, cell, pitch, text, 9.5)

