"""Profiles as one HTML page that needs no other file and no script: all numbers are in it as text."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import PurePath

from mmulator.demangle import demangle
from mmulator.record.profile.data import Executed, ProfileData, Tally, unreached, work_of
from mmulator.record.profile.text import COLUMNS, by_file, cells, head, never, text_of
from mmulator.tables import element, escape

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif }
body { margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
.wide { overflow-x: auto }
th, td { padding: .1rem .5rem; text-align: right; white-space: nowrap }
th:last-child, td:last-child { text-align: left; width: 100%; white-space: pre; font-family: ui-monospace, monospace }
th { border-bottom: 1px solid; font-weight: 600 }
tr.never td { color: light-dark(#a00, #f88) }
td.share { background: linear-gradient(to left, light-dark(#bcd6f5, #2b4a6f) var(--part), transparent 0) }
h2 { margin-top: 2rem } summary { cursor: pointer; margin: .6rem 0 }
"""


def page(profiles: Sequence[ProfileData]) -> str:
    """The page, in full."""
    names = ", ".join(dict.fromkeys(demangle(p.kernel) for p in profiles)) or "no launches"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{element('title', f'Profile of {names}')}<style>{_STYLE}</style></head>\n<body>{element('h1', 'Profile')}\n"
        "<p>Counts are of PTX instructions that warps executed; ptxas makes other instructions of them. "
        "sectors: of 32 bytes, in brackets for each request; conflicts: wavefronts of shared memory that are "
        f"bank conflicts, of all.</p>\n{body(profiles)}</body></html>\n"
    )


def body(profiles: Sequence[ProfileData]) -> str:
    """A section for each profile."""
    return "".join(_section(p) for p in profiles)


def _section(profile: ProfileData) -> str:
    first, *rest = head(profile)
    missed = "".join(element("li", said) for said in never(unreached([profile])))
    parts = [element("h2", demangle(profile.kernel)), element("p", first), f"<ul>{''.join(element('li', s) for s in rest)}</ul>"]
    if missed:
        parts += [element("h3", "Not reached"), f"<ul>{missed}</ul>"]
    lines, total = profile.by_line(), profile.total.executions
    for file, group in groupby(by_file(lines), key=lambda at: at[0]):
        name = PurePath(file).name or "without a line"
        parts += [element("h3", name), _table([(at[1], lines[at], text_of(lines[at])) for at in group], total)]
    each = [(i.line, [i], i.text) for i in profile.instructions]
    parts.append(f"<details><summary>PTX instructions ({escape(profile.file)})</summary>{_table(each, total)}</details>")
    return f"<section>{''.join(parts)}</section>\n"


def _table(rows: Sequence[tuple[int, Sequence[Executed], str]], total: int) -> str:
    heads = "".join(f'<th scope="col">{c}</th>' for c in (*COLUMNS, "text"))
    body = "".join(_row(*row, total) for row in rows)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide" tabindex="0" role="region" aria-label="lines">{table}</div>'


def _row(line: int, items: Sequence[Executed], text: str, total: int) -> str:
    work: Tally = work_of(items)
    executed, share, *others = cells(items, total)
    kind = "" if work.executions else ' class="never"'
    return (
        f'<tr{kind}>{element("td", line or "")}{element("td", executed)}<td class="share" style="--part: {share}">{share}</td>'
        f"{''.join(element('td', cell) for cell in others)}{element('td', text)}</tr>"
    )
