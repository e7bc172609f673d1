"""Tables as text and as HTML, for terminals and notebooks."""

from collections.abc import Iterable, Sequence


def text_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines with columns side by side, two blanks between them; none if there are no rows."""
    cells = [[str(cell) for cell in row] for row in rows]
    if not cells:
        return []
    widths = [max(len(row[n]) for row in [list(columns), *cells]) for n in range(len(columns))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [list(columns), *cells]]


def short(number: int) -> str:
    """`831`, `12.3 k`, `1.2 G`: three digits or four."""
    if number < 1000:
        return str(number)
    unit, size = next((u, s) for u, s in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)) if number >= 0.99995 * s)
    return f"{number / size:.1f} {unit}"


def escape(text: str) -> str:
    """A text as HTML."""
    from html import escape  # its table of names is large

    return escape(text)


def element(tag: str, text: object) -> str:
    """`<tag>text</tag>`, the text escaped."""
    return f"<{tag}>{escape(str(text))}</{tag}>"


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a head."""
    head = "".join(f'<th scope="col">{escape(c)}</th>' for c in columns)
    body = "".join("<tr>" + "".join(element("td", cell) for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
