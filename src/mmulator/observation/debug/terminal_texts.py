"""Texts of the terminal: a session's stop, blocks, warps, lanes, registers and lines, 80 columns wide."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mmulator.base.location import Location, printable
from mmulator.base.tables import text_table
from mmulator.observation.debug.machine import LanesAt, Machine, WarpState, block_of, extent_in, line_text
from mmulator.observation.debug.stops import DebugError, Focus, Reason
from mmulator.runtime.native.state import LANES
from mmulator.sanitizer.diagnostics.whereabouts import lanes_text

if TYPE_CHECKING:
    from mmulator.observation.debug.breakpoints import Breakpoints
    from mmulator.observation.debug.session import Session
    from mmulator.ptx.tree import Instruction

WIDTH = 80
_MANY = re.compile(r"\{([^,{}]+)((?:,[^,{}]+){8,}),([^,{}]+)\}")
_REASONS = {
    Reason.ENTRY: "at its first instruction", Reason.STEP: "", Reason.INTERRUPTED: "interrupted",
    Reason.BEGIN: "at its first instruction: nothing is before it", Reason.FAULT: "fault", Reason.DEADLOCK: "deadlock",
}  # fmt: skip


def filled(text: str, indent: str = "") -> list[str]:
    """Lines of a text, none longer than the terminal's."""
    out = []
    for line in text.splitlines():
        out += textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_long_words=True, break_on_hyphens=False) or [""]
    return out


def table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]], marked: Iterable[bool] = ()) -> list[str]:
    """Columns under their names, the rows of the focus with a star; the last column is cut at the terminal's width."""
    lines, stars = text_table(head, rows) or ["  ".join(head)], [False, *marked]
    every = (("* " if n < len(stars) and stars[n] else "  ") + line for n, line in enumerate(lines))
    return [line if len(line) <= WIDTH else line[: WIDTH - 3] + "..." for line in every]


# places -----------------------------------------------------------------------------------------------------------------
def thread_text(machine: Machine, focus: Focus) -> str:
    """`block (1,0,0), thread (37,0,0), warp 1 lane 5`."""
    at = extent_in(machine.grid.shape.block, focus.thread)
    return f"block {machine.extent(focus.block)}, thread {at}, warp {focus.warp} lane {focus.lane}"


def instruction_text(ins: Instruction | None) -> str:
    """An instruction as it is written, in one line; of many registers in braces the first and the last."""
    text = printable(" ".join(ins.span.text.split())) if ins is not None else "?"
    return re.sub(
        r"\{([^,{}]+)((?:,[^,{}]+){8,}),([^,{}]+)\}", lambda m: f"{{{m[1]}, ... {m[2].count(',')} more, {m[3].strip()}}}", text
    )


def stop_lines(session: Session) -> list[str]:
    """Where a session stands: why, the lane in focus, the line of the program, and the instruction."""
    stop, out = session.stop, list[str]()
    for number in stop.hits:
        b = next((b for b in session.breakpoints if b.number == number), None)
        what = {"watch": "Watchpoint", "mbarrier": "Mbarrier", "rule": "Rule"}.get(b.kind if b else "", "Breakpoint")
        out += filled(f"{what} {number}{f': {b.place}' if b else ''}", "    ")
    if stop.reason is Reason.EXITED:
        return [*out, f"[launch {session.number} of {session.kernel_name} is over: {stop.step:,} steps]"]
    if _REASONS.get(stop.reason):
        out += filled(f"{session.kernel_name}: {_REASONS[stop.reason]}")
    out += filled(stop.text, "    ")
    if stop.focus is not None:
        out += focus_lines(session)
    return out


def focus_lines(session: Session) -> list[str]:
    """The lane in focus, its line and its next instruction."""
    machine, focus = session.machine, session.focus
    out = [f"[{thread_text(machine, focus)}; step {session.stop.step:,}]"]
    state = machine.warp(focus.block, focus.warp)
    place = state.at(focus.lane)
    if place is None:
        return [*out, "the thread has exited"]
    out += divided(state, place)
    out += source_line(place.instruction)
    ins = place.instruction
    if ins is not None:
        out += filled(f"{ins.span.row}  {instruction_text(ins)}", "    ")
    guard = guard_text(machine, state, place, focus.lane)
    return [*out, *([guard] if guard else []), *(filled(place.waits_for, "    ") if place.waits_for else [])]


def divided(state: WarpState, here: LanesAt) -> list[str]:
    """A line about lanes of the warp that are elsewhere, or have exited; none if all are together."""
    if here.lanes == (1 << LANES) - 1:
        return []
    others = [f"{lanes_text(p.lanes)} at {line_text(p.instruction)}" for p in state.places if p is not here]
    gone = ~state.live & int(state.cta.warps[state.warp]["lanes"])
    others += [f"{lanes_text(gone)} exited"] if gone else []
    return filled("; ".join([f"{lanes_text(here.lanes)} here", *others]), "    ")


def guard_text(machine: Machine, state: WarpState, place: LanesAt, lane: int) -> str:
    """A line about the guard of the next instruction: the lanes for which it holds."""
    ins = place.instruction
    if ins is None or ins.guard is None:
        return ""
    try:
        value = machine.register(state, ins.guard[0].name, place.frame)
    except DebugError:
        return ""
    held = sum(1 << n for n in range(LANES) if bool(value[n]) != ins.guard[1]) & place.lanes
    word = ("!" if ins.guard[1] else "") + ins.guard[0].name
    if held == place.lanes:
        return f"@{word} holds for all of them"
    return f"@{word} holds for {lanes_text(held)}" if held else f"@{word} holds for none: nothing is done"


def source_line(ins: Instruction | None) -> list[str]:
    """The line of the program that an instruction is of, with the call that it was inlined at, and its text."""
    location = ins.span.location if ins is not None else None
    if location is None:
        return []
    shown = readable(location)
    inside = f" in {location.function}" if location.function else ""
    out = filled(f"{location}{inside}" + (f", from {shown}" if shown is not location else ""), "    ")
    text = shown.quote()
    return out if text is None else [*out, f"{shown.line}\t{text}".expandtabs(8)[:WIDTH]]


def readable(location: Location) -> Location:
    """The innermost of a location and the calls that it was inlined at whose file can be read; else the kernel's own."""
    chain = [*location.chain]
    return next((at for at in chain if at.quote() is not None), chain[-1])


def listing(location: Location, first: int, count: int, marked: int) -> list[str]:
    """Lines of a file of the program, that of the stop with an arrow."""
    out = []
    for number in range(max(1, first), max(1, first) + count):
        text = replace(location, line=number).indented()
        if text is not None:
            out.append(f"{'=>' if number == marked else '  '}{number:5}  {text}".rstrip()[:WIDTH])
    return out


def ptx_listing(ins: Instruction, first: int, count: int, breaks: set[int]) -> list[str]:
    """Lines of the PTX: the next instruction's with an arrow, those of breakpoints with a `B`."""
    source, out = ins.span.source, []
    last = source.text.count("\n") + 1
    for number in range(max(1, first), min(last, max(1, first) + count - 1) + 1):
        mark = "=>" if number == ins.span.line else "B " if number in breaks else "  "
        out.append(printable(f"{mark}{number:5}  {source.line_text(number)}".expandtabs(4).rstrip())[:WIDTH])
    return out


# lists --------------------------------------------------------------------------------------------------------------------
def block_rows(session: Session) -> list[str]:
    """Blocks on the machine."""
    machine = session.machine
    rows, stars = [], []
    for cta in machine.blocks():
        live = [w for w in cta.warps if w["live"]]
        running = [w for w in live if int(w["live"]) & ~(int(w["waiting"]) | int(w["at_barrier"]))]
        cluster = f"{cta.resident.number}:{cta.rank}" if cta.resident.size > 1 else "-"
        rows.append((machine.extent(block_of(cta)), cluster, len(live), len(running), len(live) - len(running)))
        stars.append(block_of(cta) == session.focus.block)
    return table(("block", "cluster:rank", "warps", "run", "wait"), rows, stars)


def warp_rows(session: Session) -> list[str]:
    """Warps of the block in focus, a row for lanes at one place."""
    machine, focus = session.machine, session.focus
    rows, stars = [], []
    for w in machine.warps(focus.block):
        for p in w.places:
            running = machine.running == (w.block, w.warp) and p is w.places[0]
            state = "next" if running else p.state
            ins = p.instruction
            rows.append((w.warp, lanes_text(p.lanes).partition(" ")[2], state, line_text(ins), instruction_text(ins)))
            stars.append(w.warp == focus.warp and bool(p.lanes >> focus.lane & 1))
        if not w.places:
            rows.append((w.warp, "-", "exited", "", ""))
            stars.append(False)
    return table(("warp", "lanes", "state", "at", "instruction"), rows, stars)


def thread_rows(session: Session) -> list[str]:
    """Threads of the block in focus, neighbours at one place together."""
    machine, focus = session.machine, session.focus
    named = partial(extent_in, machine.grid.shape.block)
    rows, stars = [], []
    for first, last, place in _threads(machine.warps(focus.block)):
        at = line_text(place.instruction) if place is not None else "exited"
        rows.append((named(first), named(last), last - first + 1, at))
        stars.append(first <= focus.thread <= last)
    return table(("from", "to", "count", "at"), rows, stars)


def _threads(warps: list[WarpState]) -> Iterator[tuple[int, int, LanesAt | None]]:
    found: list[tuple[int, int, LanesAt | None]] = []
    for w in warps:
        there = int(w.cta.warps[w.warp]["lanes"])
        for lane in (n for n in range(LANES) if there >> n & 1):
            place, thread = w.at(lane), LANES * w.warp + lane
            if found:
                first, last, before = found[-1]
                if last == thread - 1 and (before.site if before else None) == (place.site if place else None):
                    found[-1] = first, thread, before
                    continue
            found.append((thread, thread, place))
    yield from found


def lane_rows(session: Session) -> list[str]:
    """Lanes of the warp in focus."""
    machine, focus = session.machine, session.focus
    w = machine.warp(focus.block, focus.warp)
    rows = []
    for lane in range(LANES):
        thread = LANES * w.warp + lane
        if not int(w.cta.warps[w.warp]["lanes"]) >> lane & 1:
            continue
        place = w.at(lane)
        state = "exited" if place is None else place.state if place is not w.places[0] or place.state != "runs" else "next"
        if place is not None and "for none" not in (guard := guard_text(machine, w, place, lane)) and guard and place.instruction:
            value = machine.register(w, place.instruction.guard[0].name, place.frame)  # type: ignore[index]
            state += "" if bool(value[lane]) != place.instruction.guard[1] else ", off"  # type: ignore[index]
        at = line_text(place.instruction) if place is not None else ""
        rows.append((lane, extent_in(machine.grid.shape.block, thread), state, at))
    return table(("lane", "thread", "state", "at"), rows, [n == focus.lane for n in range(len(rows))])


def breakpoint_rows(breakpoints: Breakpoints) -> list[str]:
    """Breakpoints, with what they are in the launch at hand."""
    out, rows = list[str](), []
    for b in breakpoints:
        what = b.place + (f" if {b.condition}" if b.condition else "")
        rows.append((b.number, b.kind, "y" if b.enabled else "n", b.hits, what))
    out = table(("num", "kind", "on", "hits", "what"), rows) if rows else ["there are no breakpoints"]
    return out + [line for b in breakpoints if b.problem for line in filled(f"  {b.number}: {b.problem}", "     ")]


def lanes_lines(values: list[Any]) -> list[str]:
    """A value of each lane, in rows."""
    texts = [value_text(v) for v in values]
    if len(set(texts)) == 1:
        return [f"{texts[0]} in all lanes"]
    width = max(map(len, texts))
    each = max(n for n in (1, 2, 4, 8, 16) if 8 + n * (width + 2) <= WIDTH or n == 1)
    return [
        f"lane {n:2}: " + "  ".join(text.rjust(width) for text in texts[n : n + each]) for n in range(0, LANES, each)
    ]  # fmt: skip


def value_text(value: Any) -> str:
    """A value of an expression: floats as short as they are exact, booleans as C writes them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value!r}" if isinstance(value, float) else str(value)
