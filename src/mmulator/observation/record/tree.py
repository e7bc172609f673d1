"""A tree of causes as text, each value under the one that was computed from it, as JSON data, and as HTML: a page of its own and
a part for notebooks."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mmulator.base.files import write
from mmulator.base.tables import element, escape
from mmulator.isa.types import type_bits
from mmulator.matrix.numerics.telling import html as html_of_sum
from mmulator.matrix.numerics.telling import tail
from mmulator.matrix.numerics.telling import text as text_of_sum
from mmulator.observation.record.birth import Birth
from mmulator.observation.record.cause import Cause, CauseAt, place_text, thread_text
from mmulator.observation.record.values import bits_text
from mmulator.observation.record.why import DEPTH

WHOLE = 1 << 20  # values behind each other, of a tree that is told as a whole
ROWS = (8, 0)  # lines of a sum that are told of a short tree, before its end: first so many, then, for more levels, fewer
_DEEPER = f"--why-depth {2 * DEPTH}"
_COLUMNS = re.compile(r"\S {2,}\S")


def _leaf(cause: Cause) -> bool:
    """Whether a value is told where it is used, in no line of its own."""
    return not cause.inputs and not cause.remarks and cause.at is None and cause.element is None


def _used(cause: Cause) -> str:
    return cause.name if cause.name == cause.text else f"{cause.name} = {cause.text}"


def lines(cause: Cause, most: int = WHOLE, rows: int = WHOLE, indent: int = 0, seen: CauseAt | None = None) -> Iterator[str]:
    """The lines of a cause and of all behind it.

    most: of a tree that is to be short, the values behind each other that are told.
    rows: of a sum that is to be short, the lines before its end.
    indent: how many values are told before it, each computed from the next one.
    seen: the place of the cause that is told before it.
    """
    margin = "  " * indent
    head = f"{margin}{cause.name} = {cause.text}"
    if cause.at is None:
        yield f"{head}: {cause.how}"
    else:
        inputs = ", ".join(map(_used, cause.inputs))
        made = f"{cause.how}({inputs})" if inputs else cause.how
        yield f"{head} <- {made}"
        again = seen is not None and (seen.source, seen.quoted) == (cause.at.source, cause.at.quoted)
        quoted = f"  {cause.at.quoted}" if cause.at.quoted and not again else ""
        where = "" if seen is not None and _same_thread(seen, cause.at) else f", {thread_text(cause.at)}"
        yield f"{margin}    at {place_text(cause.at)}{where}{quoted}"
    for remark in cause.remarks:
        yield f"{margin}    {remark}"
    if cause.element is not None:
        told, end = text_of_sum(cause.element).splitlines(), tail(cause.element).splitlines()
        if len(told) > rows + len(end) + 1:
            told = [*told[:rows], f"... {len(told) - rows - len(end)} more lines: {_DEEPER}", *end]
        yield from (f"{margin}    {line}" for line in told)
    if cause.more:
        yield f"{margin}    ({cause.more})"
    behind = [one for one in cause.inputs if not _leaf(one)]
    if indent >= most and behind:
        yield f"{margin}    ({_DEEPER} goes on from here)"
        return
    for one in cause.inputs:
        if not _leaf(one):
            yield from lines(one, most, rows, indent + 1, cause.at or seen)
        elif one.how not in ("a constant", "a special register"):
            yield f"{margin}  {_used(one)}: {one.how}"


def _same_thread(a: CauseAt, b: CauseAt) -> bool:
    return (a.block, a.thread) == (b.block, b.thread)


def wrapped(text: str, width: int) -> str:
    """Text whose lines have at most some columns; a line that goes on is indented, and tables stay as they are."""
    out: list[str] = []
    for line in text.splitlines():
        body = line.strip()
        margin = line[: len(line) - len(line.lstrip())]
        head, _, quoted = body.partition("  ") if body.startswith("at ") else (body, "", "")
        if len(line) <= width or (_COLUMNS.search(line) and not quoted):
            out.append(line)
        elif quoted:
            out += [*_folded(head, margin, width), *_folded(quoted, f"{margin}  ", width)]
        else:
            out += _folded(body, margin, width)
    return "\n".join(out)


def _folded(body: str, margin: str, width: int) -> list[str]:
    return textwrap.wrap(
        body, width, initial_indent=margin, subsequent_indent=f"{margin}    ", break_long_words=False, break_on_hyphens=False
    )


def as_dict(cause: Cause) -> dict[str, Any]:
    """A cause as JSON can hold it."""
    return {
        "name": cause.name, "bits": cause.bits, "type": cause.type, "value": cause.text, "how": cause.how,
        "at": asdict(cause.at) if cause.at else None, "remarks": list(cause.remarks), "products": cause.products,
        "sum": cause.element.to_dict() if cause.element is not None else None, "more": bool(cause.more),
        "inputs": [as_dict(one) for one in cause.inputs],
    }  # fmt: skip


def text(cause: Cause, birth: Birth | None = None, most: int = WHOLE, rows: int = WHOLE) -> str:
    """The whole answer. birth: of a NaN or an infinity, which is told in place of the tree. most, rows: as in `lines`."""
    width = type_bits(cause.type)
    if birth is not None:
        head = f"{cause.name} = {cause.text} (bits {bits_text(cause.bits, width)}): {birth.kind} since {birth.said}"
        return "\n".join([head, *birth.lines()])
    first, *rest = lines(cause, most, rows)
    return "\n".join([first.replace(f"= {cause.text}", f"= {cause.text} (bits {bits_text(cause.bits, width)})", 1), *rest])


STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:1.5rem;max-width:70rem;color-scheme:light dark}"
    "details details{margin-left:1.4rem}summary{cursor:pointer}code{font-size:.95em}p{margin:.2rem 1.4rem;opacity:.85}"
    "table{border-collapse:collapse;margin:.4rem 1.4rem;display:block;overflow-x:auto}"
    "td,th{padding:.1rem .6rem;text-align:left;white-space:nowrap}"
)


def part(cause: Cause) -> str:
    """A cause and all behind it, each under what was computed from it."""
    made = element("code", f"{cause.name} = {cause.text}")
    bits = bits_text(cause.bits, type_bits(cause.type))
    lines = [f"bits {bits}"]
    if cause.at is not None:
        lines += [f"at {place_text(cause.at)}, {thread_text(cause.at)}, step {cause.at.step:,}", cause.at.quoted]
    lines += [*cause.remarks, cause.more]
    inside = "".join(element("p", line) for line in lines if line)
    inside += html_of_sum(cause.element) if cause.element is not None else ""
    inside += "".join(map(part, cause.inputs))
    return f"<details open><summary>{made} &larr; {escape(cause.how)}</summary>{inside}</details>"


def page(parts: Sequence[str], title: str) -> str:
    """A whole page. parts: HTML of each answer. title: of the page."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{"<hr>".join(parts)}</body></html>\n'


def write_page(path: Path, parts: Sequence[str], about: str) -> None:
    """Write HTML of answers as a page. about: a kernel, or kernels. Raises MmulatorError where it cannot be written."""
    write(path, page(parts, f"why: {about}"))
