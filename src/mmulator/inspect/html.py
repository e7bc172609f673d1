"""Answers as plain semantic HTML for notebooks: headings, tables, preformatted text; nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from mmulator.inspect.arithmetic import by_devices, numbers
from mmulator.tables import element
from mmulator.tables import html_table as table

__all__ = ["element", "explanation", "table"]

if TYPE_CHECKING:
    from mmulator.inspect.explanation import Explanation


def explanation(e: Explanation) -> str:
    """An Explanation as a section."""
    parts = [
        f"<h3><code>{escape(e.mnemonic)}</code></h3>",
        element("p", e.computes),
        element("p", f"{e.section}. Target: {e.requires}; PTX {e.ptx_version} or higher."),
    ]
    if e.operands:
        rows = [(o.name, o.direction, o.registers or "constant", o.type and f".{o.type}", o.what) for o in e.operands]
        parts += [element("h4", "Operands"), table(("operand", "in/out", "registers", "type", "holds"), rows)]
    if e.arithmetic:
        groups = by_devices(e.arithmetic)
        parts += [element("h4", "Arithmetic"), table(
            ("device", "L", "F", "floor", "rounding", "NaN", "confidence"), [(names, *numbers(a)) for names, a in groups]
        )]  # fmt: skip
        parts += [element("p", f"{names}: {a.words} {a.note}") for names, a in groups]
    rules = "".join(
        "<li>" + escape(r.text) + (" <strong>Otherwise undefined.</strong>" if r.undefined else "")
        + f" <cite>{escape(r.section)}</cite></li>" for r in e.rules
    )  # fmt: skip
    parts += [element("h4", "Rules"), f"<ul>{rules}</ul>"]
    parts += [element("h4", "PTX"), element("pre", e.ptx), element("h4", "CUDA"), element("pre", e.cuda)]
    if e.related:
        links = [(r.relation, r.instruction, r.also) for r in e.related]
        parts += [element("h4", "Related"), table(("relation", "instruction", ""), links)]
    return "<section>" + "\n".join(parts) + "</section>"
