"""A tree of causes as HTML: a page of its own, which a browser shows without a server, and a part for notebooks."""

from collections.abc import Sequence
from pathlib import Path

from mmulator.files import write
from mmulator.isa.types import type_bits
from mmulator.numerics.telling import html as html_of_sum
from mmulator.record.cause import Cause, place_text, thread_text
from mmulator.record.values import bits_text
from mmulator.tables import element, escape

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
