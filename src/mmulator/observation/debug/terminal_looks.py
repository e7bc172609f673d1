"""Commands of the terminal that show the machine: values, memory, lines, tables, matrices."""

import re
from collections.abc import Callable
from typing import Any

from mmulator.observation.debug import terminal_texts as texts
from mmulator.observation.debug import views
from mmulator.observation.debug.expressions import expression
from mmulator.observation.debug.machine import extent_text
from mmulator.observation.debug.stops import DebugError
from mmulator.observation.debug.terminal_commands import GROUPS, Console, command, number_in
from mmulator.observation.record.values import text_of

COUNT = 10  # lines that `list` and `disassemble` show


GROUPS.append("looking")
@command("print", "p", "inspect", "output")
def print_(t: Console, rest: str) -> None:
    """print EXPRESSION: its value in the lane in focus: print %r5, print $r5.f32 * 2, print tid.x, print C[3,5]; print/l: in
    all lanes; print/x: in hexadecimal digits."""
    form, rest = _form(rest)
    if not rest:
        raise DebugError("print what?", hint="print %r5, print C[3,5]")
    rest = _indexed(t, rest)
    array = next((a for a in t.session.names.arrays if rest in (a.name, a.also)), None)
    if array is not None and not form:
        shape = "x".join(map(str, array.shape)) or f"{array.size} bytes"
        first = ",".join("0" * max(1, len(array.shape)))
        t.say(f"{rest} = 0x{array.start:x}: {array.dtype or 'memory'}, {shape}; print {rest}[{first}] shows an element")
        return
    if re.fullmatch(r"[^%$\s]+\[[^\]]*\](:\w+)?|[^%$\s:]+:0x[0-9a-fA-F]+:\w+|0x[0-9a-fA-F]+:\w+", rest):
        asked, bits = t.session.value(rest)
        t.say(f"{asked.name} = {hex(bits) if 'x' in form else text_of(bits, asked.type)}")
        return
    machine, focus = t.session.machine, t.session.focus
    e = expression(rest)
    try:
        values = e.lanes(machine, machine.warp(focus.block, focus.warp), t.session.value_of)
    except DebugError as error:
        if not rest.isidentifier() or not t.session.names.arrays:
            raise
        raise DebugError(error.message, hint=f"{error.hint}; arrays: {_names(t)}; info locals has the line's registers") from None
    if "x" in form:
        values = [hex(v) if isinstance(v, int) else v for v in values]
    if "l" in form or "a" in form:
        t.say(*texts.lanes_lines(values))
    else:
        t.say(f"{rest} = {texts.value_text(values[focus.lane])}")


def _names(t: Console) -> str:
    return ", ".join(a.name for a in t.session.names.arrays)


def _indexed(t: Console, text: str) -> str:
    """An element as typed, with the values that the expressions of its index have in the lane in focus: x[3] of x[i + 1]."""
    found = re.fullmatch(r"([A-Za-z_]\w*)\[([^\]]*[A-Za-z%$][^\]]*)\](:\w+)?", text)
    if found is None or re.fullmatch(r"[\s,0-9xXa-fA-F]*", found[2]):
        return text
    machine, focus = t.session.machine, t.session.focus
    warp = machine.warp(focus.block, focus.warp)
    index = (expression(e).lanes(machine, warp, t.session.value_of)[focus.lane] for e in found[2].split(","))
    return f"{found[1]}[{','.join(map(str, index))}]{found[3] or ''}"


def _form(rest: str) -> tuple[str, str]:
    """The format behind a slash, and the rest: ("8xw", "0x400") of `/8xw 0x400`."""
    found = re.match(r"/(\w*)\s*", rest)
    return (found[1], rest[found.end() :].strip()) if found else ("", rest.strip())


def _address(t: Console, text: str) -> int:
    """An address as typed: a shared variable with an offset, or an expression; of an element its own."""
    found = re.fullmatch(r"([A-Za-z_]\w*)\s*(?:\+\s*(\w+))?", text)
    if found is not None and found[1] in t.session.machine.kernel.shared.addresses:
        return t.session.machine.kernel.shared.addresses[found[1]] + number_in(found[2] or "", 0)
    machine, focus = t.session.machine, t.session.focus
    return int(expression(text).lanes(machine, t.state(), lambda name: t.session.element(name).start)[focus.lane])


_SIZES = {"b": (1, "u8"), "h": (2, "u16"), "w": (4, "u32"), "g": (8, "u64")}


@command("x")
def examine(t: Console, rest: str) -> None:
    """x/NFU ADDRESS: memory, N numbers of format x, d, u or f and size b, h, w or g: x/8xw 0x400 (shared memory of the block in
    focus), x/4fw %rd5."""
    form, rest = _form(rest)
    found = re.fullmatch(r"(\d*)([a-z]*)", form)
    letters = found[2] if found else ""
    count, unit = int(found[1] or 1) if found else 1, next((c for c in letters if c in _SIZES), "w")
    kind = next((c for c in letters if c in "xduf"), "x")
    size, type_name = _SIZES[unit]
    type_name = {"d": "s", "f": "f"}.get(kind, "u") + type_name[1:]
    machine, focus = t.session.machine, t.session.focus
    start = _address(t, rest)
    out: list[str] = []
    each = max(1, {"x": 32, "d": 24, "u": 24, "f": 32}[kind] // size // 2)
    for n in range(0, count, each):
        row = []
        for at in range(start + n * size, start + min(count, n + each) * size, size):
            bits = int.from_bytes(machine.read(at, size, focus.block), "little")
            row.append(f"0x{bits:0{2 * size}x}" if kind == "x" else text_of(bits, type_name))
        out.append(f"0x{start + n * size:x}: " + "  ".join(row))
    t.say(*out)


@command("list", "l")
def list_(t: Console, rest: str) -> None:
    """list [LINE]: lines of the program around the stop, or a line; of the PTX where no program is known."""
    ins = t.instruction()
    location = texts.readable(ins.span.location) if ins.span.location is not None else None
    if location is None or location.quote() is None:
        disassemble(t, rest)
        return
    centre = number_in(rest, location.line)
    t.say(*texts.listing(location, centre - COUNT // 2, COUNT, location.line))


@command("disassemble", "disas")
def disassemble(t: Console, rest: str) -> None:
    """disassemble [LINE]: lines of the PTX around the next instruction, or around a line; B marks breakpoints."""
    ins = t.instruction()
    ptx = t.session.ptx_lines
    breaks = {ptx[n] for b in t.breakpoints if b.enabled for n in b.sites}
    t.say(*texts.ptx_listing(ins, number_in(rest, ins.span.line) - COUNT // 2, COUNT, breaks))


@command("backtrace", "bt", "where")
def backtrace(t: Console, _: str) -> None:
    """backtrace: the functions that the lane in focus is in, also those that the compiler inlined."""
    place = t.place()
    out: list[str] = []
    for name, ins, location in t.session.calls(place):
        chain = [*location.chain] if location is not None else []
        for at in chain[:-1]:
            out.append(f"#{len(out):<2} {at.function or name} (inlined) at {at}")
        last = chain[-1] if chain else None
        out.append(f"#{len(out):<2} {name} at {f'{last} ' if last else ''}{ins.span.row if ins is not None else '?'}")
    t.say(*out)


@command("why")
def why(t: Console, rest: str) -> None:
    """why ELEMENT: which store gave it the value that it has now, and what that was computed from."""
    t.say(*t.session.why(rest).splitlines())


@command("digest")
def digest(t: Console, _: str) -> None:
    """digest: a hash of the machine's state at this step, the same whichever way one came."""
    t.say(f"step {t.session.stop.step:,}: {t.session.machine.digest()}")


@command("echo", running=False)
def echo(t: Console, rest: str) -> None:
    """echo TEXT: print it."""
    t.say(rest)


@command("info", "i", running=False)
def info(t: Console, rest: str) -> None:
    """info TABLE: cuda kernels|blocks|warps|threads|lanes, breakpoints, registers [%r1 ...], locals, line, args, barriers, waits,
    async, launch."""
    word, _, more = rest.strip().partition(" ")
    if word in ("c", "cuda"):
        word, more = more.strip() or "kernels", ""
    known = [name for name in INFOS if name.startswith(word)] if word else []
    if word in INFOS:
        known = [word]
    if len(known) != 1:
        said = f"which: {', '.join(known)}" if known else "there is no such table"
        raise DebugError(f"info {word}: {said}", hint=", ".join(INFOS))
    if known[0] != "breakpoints":
        _ = t.session
    t.say(*INFOS[known[0]](t, more.strip()))


def _kernels(t: Console, _: str) -> list[str]:
    s = t.session
    extents = (extent_text(s.grid), extent_text(s.block), extent_text(s.cluster))
    head = "launch", "device", "grid", "block", "cluster", "kernel"
    return texts.table(head, [(s.number, s.device, *extents, s.kernel_name)], [True])


def _line(t: Console, _: str) -> list[str]:
    s = t.session
    total = f" of {s.total:,}" if s.total is not None else ""
    return [f"step {s.stop.step:,}{total}, seed {s.seed}", *texts.focus_lines(s)]


def _args(t: Console, _: str) -> list[str]:
    rows = []
    for a in t.session.names.arrays:
        shape = "x".join(map(str, a.shape)) if a.shape else f"{a.size} bytes"
        rows.append((a.name, f"0x{a.start:x}", str(a.dtype or ""), shape))
    return texts.table(("array", "address", "type", "shape"), rows)


def _locals(t: Console, _: str) -> list[str]:
    found = t.session.line_registers(t.place())
    if not found:
        return ["the line has no registers"]
    return views.registers(t.session.scene(), " ".join(found), t.place().lanes).text(special=False).splitlines()


def _registers(t: Console, more: str) -> list[str]:
    """Registers by name or pattern; without one those whose values are read later."""
    names = " ".join("%" + word[1:] if word[0] == "$" else word for word in more.split()) or None
    found = views.registers(t.session.scene(), names, t.place().lanes)
    if names and not found.rows:
        _ = t.session.machine.register(t.state(), names.split()[0])  # says which there are
    return found.text(special=not names).splitlines()


def _view(show: Callable[[Any], Any]) -> Callable[[Console, str], list[str]]:
    """Lines of a view of the scene that the lane in focus sees."""
    def lines(t: Console, _: str) -> list[str]:
        return str(show(t.session.scene())).splitlines()

    return lines


INFOS: dict[str, Callable[[Console, str], list[str]]] = {
    "kernels": _kernels,
    "blocks": lambda t, _: texts.block_rows(t.session),
    "warps": lambda t, _: texts.warp_rows(t.session),
    "threads": lambda t, _: texts.thread_rows(t.session),
    "lanes": lambda t, _: texts.lane_rows(t.session),
    "breakpoints": lambda t, _: texts.breakpoint_rows(t.breakpoints),
    "watchpoints": lambda t, _: texts.breakpoint_rows(t.breakpoints),
    "registers": _registers,
    "locals": _locals,
    "line": _line,
    "args": _args,
    "launch": _kernels,
    "barriers": _view(lambda scene: views.barriers(scene)),
    "waits": _view(lambda scene: views.waits(scene)),
    "async": _view(lambda scene: views.flights(scene)),
}


@command("matrix", "mat")
def matrix(t: Console, rest: str) -> None:
    """matrix [A|B|C|D]: an operand of the next matrix instruction or copy as a matrix; without a name all of them."""
    scene = t.session.scene()
    found = [views.operand(scene, rest)] if rest else views.matrices(scene)
    if not found:
        raise DebugError("the next instruction has no matrix", hint="mma, wgmma, tcgen05, ldmatrix and tensor copies have")
    for m in found:
        t.say(*m.text().splitlines(), "")


@command("tile")
def tile(t: Console, rest: str) -> None:
    """tile ADDRESS ROWS COLUMNS TYPE: memory as an array: tile smem+1024 8 16 f32.
    tile desc VALUE ROWS COLUMNS TYPE: shared memory through a matrix descriptor: tile desc %rd4 64 16 f16.
    tile layout "LAYOUT" ADDRESS: through a CuTe layout."""
    import shlex

    words, scene = shlex.split(rest), t.session.scene()
    match words:
        case ["desc", value, rows, columns, kind]:
            found = views.by_descriptor(scene, value, number_in(rows), number_in(columns), kind)
        case ["layout", layout, address]:
            found = views.by_layout(scene, layout, address)
        case ["layout", layout, address, kind]:
            found = views.by_layout(scene, layout, address, kind)
        case [address, rows, columns, kind]:
            found = views.by_shape(scene, address, (number_in(rows), number_in(columns)), kind)
        case _:
            raise DebugError("tile: an address, rows, columns and a type", hint="tile smem+1024 8 16 f32; help tile")
    t.say(*found.text().splitlines())


@command("tensor")
def tensor(t: Console, rest: str) -> None:
    """tensor LANES COLUMNS [TYPE]: tensor memory: tensor 0:32 0:8 f32."""
    words = rest.split()
    if len(words) not in (2, 3):
        raise DebugError("tensor: lanes and columns", hint="tensor 0:32 0:8 f32")
    lanes, columns = (range(*(number_in(n) for n in word.split(":"))) for word in words[:2])
    kind = words[2] if len(words) > 2 else "b32"
    t.say(*views.tensor_memory(t.session.scene(), lanes, columns, kind).text().splitlines())
