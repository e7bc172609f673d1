"""A profile as text and as one HTML page that needs no other file and no script; files of profiles by their endings: .json,
.html, .info for lcov, .txt."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import PurePath

from mmulator.base.demangle import demangle
from mmulator.base.schemas import document
from mmulator.base.tables import element, escape, short
from mmulator.observation.record.profile.data import SPACES, Executed, ProfileData, Tally, Unreached, lcov, unreached, work_of

WIDTH = 80
ROWS = 20  # of lines, those with most executed instructions
COLUMNS = ("line", "executed", "share", "lanes", "sectors", "conflicts")
_UNITS = {"global": "sectors", "shared": "wavefronts", "local": "sectors", "bulk": "sectors", "matrix": "wavefronts"}


def head(profile: ProfileData) -> list[str]:
    """Sentences about all instructions together."""
    total, o = profile.total, profile.occupancy
    times = f"{profile.launches} launch{'es' * (profile.launches != 1)}"
    said = [
        f"profile of {demangle(profile.kernel)} on {profile.device}, {times}: {total.executions:,} PTX instructions of warps, "
        f"{total.active:.1f} of 32 lanes active" + f", {total.off:,} lanes guarded off" * bool(total.off)
    ]
    for space in SPACES:
        t = total.in_(space)
        if t.requests:
            each = f"{t.requests:,} requests, {t.units / t.requests:.1f} {_UNITS[space]} each, {t.bytes:,} bytes"
            conflicts = f"; bank conflicts {t.units - t.ideal:,} of {t.units:,} wavefronts" * (space == "shared")
            moved = {"bulk": "bulk copies", "matrix": "matrices through descriptors"}.get(space)
            said.append(f"{moved}: {t.bytes:,} bytes, {t.units:,} {_UNITS[space]}" if moved else f"{space}: {each}{conflicts}")
    if total.macs:
        said.append(f"multiply-accumulates: {total.macs:,}")
    if total.met or total.polls:
        said.append(f"waits for mbarriers: {total.met:,} met, {total.polls:,} polls in vain")
    said.append(
        f"occupancy: {o.warps} of {o.most} warps of a multiprocessor, limited by {o.limit}; with {o.registers} registers a "
        "thread or fewer (ptxas decides)"
    )
    return said


def cells(items: Sequence[Executed], total: int) -> list[str]:
    """The columns of a line behind its number. total: executions of all instructions."""
    work = work_of(items)
    traffic = [work.in_(s) for s in ("global", "local", "bulk")]
    requests, sectors = sum(t.requests for t in traffic), sum(t.units for t in traffic)
    shared = work.in_("shared")
    return [
        short(work.executions), f"{work.executions / max(total, 1):.1%}", f"{work.active:.1f}" if work.executions else "",
        f"{short(sectors)} ({sectors / requests:.1f})" if requests else "",
        f"{short(shared.units - shared.ideal)} of {short(shared.units)}" if shared.units else "",
    ]  # fmt: skip


def text_of(items: Sequence[Executed]) -> str:
    """The text of a line of the program, if it is known; else its first PTX instruction."""
    return items[0].source or items[0].text


def by_file(lines: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Lines (file, number) in order; those that are of no file last."""
    return sorted(lines, key=lambda at: (not at[0], *at))


def table(profile: ProfileData, most_rows: int = ROWS) -> str:
    """The lines with most executed instructions."""
    total = profile.total.executions
    lines = profile.by_line()
    works = {at: work_of(items) for at, items in lines.items()}
    weights = {at: (-w.executions, -sum(t.units for t in w.traffic.values())) for at, w in works.items()}
    most = sorted(lines, key=weights.__getitem__)[:most_rows]
    out = [row for sentence in head(profile) for row in _wrapped(sentence)]
    for file, group in groupby(by_file(most), key=lambda at: at[0]):
        rows = [[str(line or ""), *cells(lines[file, line], total), text_of(lines[file, line])] for _, line in group]
        name = PurePath(file).name or "without a line"
        out += [f"{name}:", *_aligned([[*COLUMNS, ""], *rows])]
    if len(lines) > len(most):
        out.append(f"{len(lines) - len(most)} more lines")
    return "\n".join([*out, *never(unreached([profile]))])


def never(found: Unreached) -> list[str]:
    """Sentences about what no launch reached."""
    out = []
    for file, group in groupby(found.lines, key=lambda at: at[0]):
        numbers = runs([line for _, line in group])
        out += _wrapped(f"not reached in {PurePath(file).name}: line{'s' * (',' in numbers or '-' in numbers)} {numbers}")
    for (file, line, way), times in Counter(found.branches).items():
        which = "branch" if times == 1 else f"{times} branches"
        out.append(f"{PurePath(file).name}:{line}: {which} {'not ' * (way == 'taken')}taken by all warps that came here")
    return out


def runs(numbers: Iterable[int]) -> str:
    """Numbers in ascending order as `3, 7-9`."""
    found: list[list[int]] = []
    for n in numbers:
        if found and n == found[-1][1] + 1:
            found[-1][1] = n
        else:
            found.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def annotated(profile: ProfileData) -> str:
    """All PTX instructions, with the columns of the table before each."""
    total = profile.total.executions
    rows = [[str(i.line), *cells([i], total), i.text] for i in profile.instructions]
    return "\n".join([f"{PurePath(profile.file).name}:", *_aligned([[*COLUMNS, ""], *rows], cut=False)])


def _aligned(rows: Sequence[Sequence[str]], cut: bool = True) -> Iterator[str]:
    """Rows with numbers to the right; the last column, a text, fills the line."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]) - 1)]
    for row in rows:
        line = "  ".join(cell.rjust(width) for cell, width in zip(row, widths)) + f"  {row[-1]}"
        yield (line[:WIDTH] if cut else line).rstrip()


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


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


def _json(profiles: Sequence[ProfileData]) -> str:
    return json.dumps(document("profiles", {"profiles": [p.as_dict() for p in profiles]}), indent=1) + "\n"


def _text(profiles: Sequence[ProfileData]) -> str:
    return "\n\n".join(f"{table(p, len(p.instructions))}\n\n{annotated(p)}" for p in profiles) + "\n"


FORMATS: dict[str, Callable[[Sequence[ProfileData]], str]] = {".json": _json, ".html": page, ".info": lcov, ".txt": _text}


def written(profiles: Sequence[ProfileData], file: str) -> str:
    """The contents of a file of that name."""
    return FORMATS[PurePath(file).suffix](profiles)
