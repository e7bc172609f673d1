"""The scopes of a frame: registers, operands, matrices, arguments, memory, barriers, and operations in flight."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from mmulator.base.errors import MmulatorError
from mmulator.isa.types import type_bits
from mmulator.observation.debug.dap.client import RefusedRequest
from mmulator.observation.debug.dap.messages import Object
from mmulator.observation.debug.dap.standing import LanesFrame, Standing
from mmulator.observation.debug.dap.variables import LONGEST, VariableNode, array, group, safely
from mmulator.observation.debug.expressions import expression, number_of
from mmulator.observation.debug.machine import first_lane, line_text
from mmulator.observation.debug.stops import DebugError
from mmulator.observation.debug.views import (
    InFlight,
    MatrixView,
    RegisterView,
    Scene,
    barriers,
    flights,
    matrices,
    registers,
    tensor_memory,
    waits,
)
from mmulator.observation.debug.views.register_table import shown_types
from mmulator.observation.debug.views.scene import of_block
from mmulator.observation.record.names import DeviceArray, ptx_type
from mmulator.observation.record.steps import WarpPlace
from mmulator.observation.record.values import bits_text, text_of
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.program.parameters import called
from mmulator.runtime.launch.arguments import Signature
from mmulator.sanitizer.diagnostics.whereabouts import lanes_text

_HOLE = re.compile(r"\{([^{}]+)\}")
_ELEMENT = re.compile(r"(?:[\w.]+:)?\w[\w .]*\[[^\]]*\](?::\w+)?|0[xX][0-9a-fA-F]+(?::\w+)?")


def scopes_of(at: Standing, frame: LanesFrame) -> list[Object]:
    """The scopes of a frame. What takes long to gather is marked as expensive."""
    found: list[Object] = []
    for name, members, expensive in SCOPES:
        node = group(name, partial(safely, partial(members, at, frame)))
        scope: Object = {"name": name, "variablesReference": at.show(node), "expensive": expensive}
        if name == "Registers":
            scope["presentationHint"] = "registers"
        found.append(scope)
    return found


def lane_of(at: Standing, frame: LanesFrame) -> int:
    """The lane whose values are shown: the one in focus, if it is in the frame, else the frame's first."""
    focus, lanes = at.session.focus, frame.at.lanes
    if (focus.block, focus.warp) == (frame.warp.block, frame.warp.warp) and lanes >> focus.lane & 1:
        return focus.lane
    return max(0, first_lane(lanes))


def scene_at(at: Standing, frame: LanesFrame) -> Scene:
    """The machine as the views of observation/debug/views have it, with the frame's lanes as those whose turn it is."""
    cta = frame.warp.cta
    place = WarpPlace(cta.resident, cta.rank * at.machine.grid.shape.warps + frame.warp.warp)
    return Scene(at.machine.grid, place, frame.at.lanes, frame.at.site, at.session.stop.step)


def scene_of(at: Standing, frame: LanesFrame) -> Scene:
    """The machine with the warp whose turn it is, if it is one of the frame's cluster; else, and where no warp can go on, without
    any.
    """
    top, cta = at.top(), frame.warp.cta
    if top is not None and top.warp.cta.resident is cta.resident and not at.session.stop.over:
        return scene_at(at, top)
    place = WarpPlace(cta.resident, cta.rank * at.machine.grid.shape.warps + frame.warp.warp)
    return Scene(at.machine.grid, place, step=at.session.stop.step)


# registers ----------------------------------------------------------------------------------------------------------------
def register_node(at: Standing, frame: LanesFrame, r: RegisterView) -> VariableNode:
    """A register: its value in the lane that is shown, and those of all lanes inside."""
    lane, form = lane_of(at, frame), "hex" if at.hex else ""
    same = len(r.groups) == 1
    said = r.text(form, LONGEST)

    def of_lane(number: int) -> VariableNode:
        off = "" if frame.at.lanes >> number & 1 else " (not in this frame)"
        return VariableNode(f"lane {number}", r.value(number, form) + off, r.shown)

    rest = said[0][len(r.label) :] if len(said) == 1 else ""
    value = r.value(lane, form)
    about = "; ".join(filter(None, (r.shown, r.role, r.made)))
    return VariableNode(
        r.name, value if same or rest == value else f"{value} (lane {lane}){': ' + rest if rest else ''}", about,
        count=len(r.values), element=of_lane, watch=r.name,
    )  # fmt: skip


def raw_register(at: Standing, frame: LanesFrame, name: str) -> RegisterView:
    """A register of a frame, whether or not its value is read later."""
    bits = at.machine.register(frame.warp, name, frame.at.frame)
    kind = at.machine.types(frame.warp, frame.at.frame)[name]
    shown = shown_types(at.machine.kernel)[frame.at.function].get(name, kind)
    return RegisterView(name, kind, shown, bits if bits.ndim == 1 else bits[:, 0], frame.at.lanes)


def registers_of(at: Standing, frame: LanesFrame) -> Iterator[VariableNode]:
    """Registers that are read later, and a group of all others."""
    every = at.machine.types(frame.warp, frame.at.frame)
    rows = registers(scene_at(at, frame), lanes=frame.at.lanes).rows if frame.top and frame.at.site >= 0 else ()
    yield from (register_node(at, frame, r) for r in rows)
    rest = [name for name in every if name not in {r.name for r in rows}]
    others = partial(map, lambda name: register_node(at, frame, raw_register(at, frame, name)), rest)
    if rows and rest:
        yield group("others", others, f"{len(rest)} registers hold nothing that is read later")
    else:
        yield from others()


def special(at: Standing, frame: LanesFrame) -> Iterator[VariableNode]:
    """Special registers."""
    table = registers(scene_at(at, frame), lanes=frame.at.lanes)
    return (register_node(at, frame, r) for r in table.special)


# the next instruction -----------------------------------------------------------------------------------------------------
def next_instruction(at: Standing, frame: LanesFrame) -> Iterator[VariableNode]:
    """The instruction, its operands in the lane that is shown, and matrices that it reads or writes."""
    ins, lane = frame.at.instruction, lane_of(at, frame)
    if ins is None:
        return
    yield VariableNode("instruction", " ".join(ins.span.text.split()), "PTX")
    yield VariableNode("lanes", f"0x{frame.at.lanes:08x}", "mask")
    if frame.at.waits_for:
        yield VariableNode("waits for", frame.at.waits_for)
    if not frame.top or frame.at.site < 0:
        return
    scene = scene_at(at, frame)
    if ins.guard is not None:
        yield VariableNode("guard", f"0x{scene.guarded:08x}", "mask of the lanes for which it holds")
    for name, operand in scene.operands.items():
        value = scene.value(operand, lane)
        if value is not None:
            yield VariableNode(name, bits_text(value, 64 if value >> 32 else 32), "operand")
    yield from map(matrix_node, matrices(scene))


def matrix_node(view: MatrixView) -> VariableNode:
    """A matrix: rows, and in these elements."""
    rows, columns = view.shape
    element = view.type.name

    def row(r: int) -> VariableNode:
        texts = marked(view.part(range(r, r + 1), range(columns)))
        return VariableNode(
            view.row_name(r), " ".join(texts[:32]) + " ..." * (columns > 32), f"{element} [{columns}]", count=columns,
            element=lambda c: VariableNode(view.column_name(c), texts[c], element),
        )  # fmt: skip

    more, title = "; ".join(filter(None, (view.what, *view.notes))), f"{element} [{rows} x {columns}]"
    return VariableNode(view.name, f"{title}: {more}", title, count=rows, element=row)


def marked(view: MatrixView) -> list[str]:
    """The texts of a matrix of one row: `?` for what is not known, `.` for what is not stored."""
    texts = [str(t) for t in view.cells()[0]]
    for mask, sign in ((view.left_out, "."), (view.unread, "?")):
        if mask is not None:
            texts = [sign if off else t for t, off in zip(texts, mask[0])]
    return texts


def number_text(at: Standing, bits: int, type_name: str) -> str:
    """Bits in memory as a number of their type."""
    return bits_text(bits, type_bits(type_name)) if at.hex or type_name[0] == "b" else text_of(bits, type_name)


# arguments and device memory -------------------------------------------------------------------------------------------------
def arguments(at: Standing, frame: LanesFrame) -> Iterator[VariableNode]:
    """The kernel's parameters, and arrays that the launch knows."""
    known = list(at.session.names.arrays)
    kernel = at.machine.kernel
    function = kernel.program.functions[kernel.name].function
    signature = Signature(function)
    data = at.machine.grid.params.tobytes()
    for parameter, offset, name in zip(signature.params, signature.offsets, called(function)):
        size = parameter.size
        value = int.from_bytes(data[offset : offset + size], "little")
        found = next((a for a in known if a.start == value), None) if size == 8 else None
        if found is not None:
            known.remove(found)
            yield array_node(at, found, name)
        elif parameter.shape:
            text = f"{size} bytes: {data[offset : offset + size].hex(' ', 4)}"
            yield VariableNode(name, text, f"{parameter.type} [{size}]")
        else:
            yield VariableNode(name, number_text(at, value, parameter.type), parameter.type, watch=name)
    for a in known:
        yield array_node(at, a, a.name)


def array_node(at: Standing, a: DeviceArray, name: str) -> VariableNode:
    """An array in device memory."""
    type_name = ptx_type(a.dtype) if a.dtype is not None else at.session.launch.stored() or "b32"
    size = max(1, type_bits(type_name) // 8)
    shape = a.shape if a.dtype is not None and a.shape else (a.size // size,)

    def leaf(index: tuple[int, ...]) -> VariableNode:
        start = a.start + (a.offset(index) if a.dtype is not None and a.shape else index[0] * size)
        text = ",".join(map(str, index))
        return memory_node(at, f"[{text}]", start, type_name, f"{a.name}[{text}]")

    title = name if a.name == name else f"{name} ({a.name})"
    return array(title, shape, leaf, type_name, a.start)


def memory_node(at: Standing, name: str, start: int, type_name: str, watch: str, block: int | None = None) -> VariableNode:
    """An element in memory."""
    size = max(1, type_bits(type_name) // 8)
    data = at.session.read(start, size) if block is None else at.machine.read(start, size, block)
    bits = int.from_bytes(data, "little")
    return VariableNode(name, number_text(at, bits, type_name), type_name, memory=start, watch=watch)


# memory of a block --------------------------------------------------------------------------------------------------------
def shared(at: Standing, frame: LanesFrame) -> Iterator[VariableNode]:
    """Shared variables of the block, and all of its shared memory, as words."""
    block, layout = frame.warp.block, at.machine.kernel.shared
    end = at.machine.grid.shared
    base = (SLOT_SHARED << SLOT_SHIFT) + (frame.warp.cta.rank << RANK_SHIFT)
    starts = sorted((int(address), name) for name, address in layout.addresses.items())
    limits = [*(a for a, _ in starts[1:]), SHARED_BASE + end]
    for (start, name), limit in zip(starts, limits):
        yield words_node(at, name, base + start, limit - start, block)
    if end:
        yield words_node(at, "all of it", base + SHARED_BASE, end, block)


def words_node(at: Standing, name: str, start: int, size: int, block: int) -> VariableNode:
    """Bytes of shared memory as words of 32 bits."""
    def leaf(index: tuple[int, ...]) -> VariableNode:
        address = start + 4 * index[0]
        low = address & (1 << RANK_SHIFT) - 1
        return memory_node(at, f"0x{low:x}", address, "b32", f"shared 0x{low:x}:b32", block)

    low = start & (1 << RANK_SHIFT) - 1
    return replace(array(name, (max(0, size) // 4,), leaf, "b32", start), value=f"{size} bytes from shared 0x{low:x}")


def tensor(at: Standing, frame: LanesFrame) -> Iterator[VariableNode]:
    """Tensor memory of the block: the columns that are allocated, a row for each lane."""
    if at.machine.kernel.matrix.tensor:
        yield matrix_node(tensor_memory(scene_at(at, frame)))


def paragraph(name: str, text: str, type_name: str = "") -> VariableNode:
    """A text: its first line, and the others inside."""
    first, *others = text.split("\n")
    inside = partial(map, lambda line: VariableNode(" ", line.strip()), others)
    return VariableNode(name, first, type_name, named=inside if others else None)


def barriers_of(at: Standing, frame: LanesFrame) -> Iterator[VariableNode]:
    """Named barriers, mbarriers and the cluster's barrier: who has arrived, who waits, who is missing."""
    found = barriers(scene_of(at, frame))
    for named in found.named:
        yield paragraph(f"barrier {named.number}{of_block(found.blocks, named.cta)}", named.text())
    for each in found.mbarriers:
        yield paragraph(each.name, each.text().removeprefix(f"{each.name}: "), "mbarrier")
    if found.cluster is not None:
        yield paragraph("cluster barrier", found.cluster.text(found.blocks))


def waits_of(at: Standing, frame: LanesFrame) -> Iterator[VariableNode]:
    """Who waits for whom."""
    found = waits(scene_of(at, frame))
    for w in found.waits:
        yield paragraph(w.who(found.blocks), w.text(found.blocks), "for ever" if w.for_ever else "")


def flights_of(at: Standing, frame: LanesFrame) -> Iterator[VariableNode]:
    """Asynchronous operations that are not complete."""
    found = flights(scene_of(at, frame))
    for f in found.flights:
        yield VariableNode(f"{f.kind} {f.number} of warp {f.warp}{of_block(found.blocks, f.cta)}", f.touches or f.waits, f.kind,
                   named=partial(flight_members, f))  # fmt: skip


def flight_members(f: InFlight) -> Iterator[VariableNode]:
    yield VariableNode("instruction", " ".join(f.instruction.span.text.split()), "PTX")
    yield VariableNode("lanes", f"0x{f.lanes:08x}", "mask")
    yield VariableNode("group", "not committed" if f.group is None else str(f.group))
    yield VariableNode("touches", f.touches)
    yield VariableNode("end", f.waits)
    yield VariableNode("done", f"{f.done:.0%}")


def lanes(at: Standing, frame: LanesFrame) -> Iterator[VariableNode]:
    """Where the lanes of the warp are."""
    for p in frame.warp.places:
        who = lanes_text(p.lanes)
        yield VariableNode(who, p.waits_for.removeprefix(f"{who} ") or f"{p.state} at {line_text(p.instruction)}")


SCOPES: tuple[tuple[str, Callable[[Standing, LanesFrame], Iterable[VariableNode]], bool], ...] = (
    ("Next instruction", next_instruction, False), ("Registers", registers_of, False), ("Arguments", arguments, False),
    ("Thread", special, False), ("Lanes", lanes, False), ("Shared memory", shared, True), ("Tensor memory", tensor, True),
    ("Barriers", barriers_of, True), ("Waits", waits_of, True), ("In flight", flights_of, True),
)  # fmt: skip


# names --------------------------------------------------------------------------------------------------------------------
def find(at: Standing, text: str, frame: LanesFrame | None) -> VariableNode | None:
    """The value of an expression: a register, an element, an argument, shared memory, a matrix, an address."""
    if frame is not None:
        types = at.machine.types(frame.warp, frame.at.frame)
        for name in (text, f"%{text}", "%" + text[1:]):
            if name in types:
                return register_node(at, frame, raw_register(at, frame, name))
        word = re.fullmatch(r"shared (0x[0-9a-fA-F]+|\d+)(?::(\w+))?", text)
        if word is not None:
            base = (SLOT_SHARED << SLOT_SHIFT) + (frame.warp.cta.rank << RANK_SHIFT)
            return memory_node(at, text, base + int(word[1], 0), word[2] or "b32", text, frame.warp.block)
        for members in (arguments, special, next_instruction, shared, tensor, barriers_of):
            nodes = safely(partial(members, at, frame))
            found = next((n for n in nodes if text in (n.name, n.name[1:], n.name.partition(" (")[0])), None)
            if found is not None:
                return found
    if _ELEMENT.fullmatch(text):
        asked = at.session.element(text)
        return memory_node(at, asked.name, asked.start, asked.type, text)
    return expression_node(at, text, frame) if frame is not None else None


def evaluated(at: Standing, text: str, frame: LanesFrame | None) -> VariableNode:
    """The value of an expression in a frame. Raises DebugError."""
    found = find(at, text.strip(), frame)
    if found is None:
        raise DebugError(f"{text.strip()!r} is not known here", hint="names: %r1, C[3,5], a variable")
    return found


def logged(at: Standing, text: str) -> dict[str, Any]:
    """The body of an output event for a log point: expressions in braces are replaced by their values."""
    top = at.top()

    def value(found: re.Match[str]) -> str:
        try:
            return evaluated(at, found[1], top).value
        except (MmulatorError, RefusedRequest) as error:
            return f"<{str(error).splitlines()[0]}>"

    said: dict[str, Any] = {"category": "console", "output": _HOLE.sub(value, text) + "\n"}
    if top is not None and top.at.instruction is not None:
        location = top.at.instruction.span.location
        source = at.places.source(location) if location is not None else None
        line = location.line if location is not None and source is not None else top.at.instruction.span.line
        said |= {"source": source or at.places.ptx, "line": line}
    return said


def expression_node(at: Standing, text: str, frame: LanesFrame) -> VariableNode:
    """The value of an expression over the lanes of a warp."""
    def element(name: str) -> Any:
        asked, bits = at.session.value(name)
        return number_of(bits, asked.type)

    values = expression(text).lanes(at.machine, frame.warp, element)
    lane = lane_of(at, frame)
    same = all(v == values[lane] for v in values)
    return VariableNode(
        text, str(values[lane]) + ("" if same else f" (lane {lane})"), "expression", count=0 if same else len(values),
        element=lambda n: VariableNode(f"lane {n}", str(values[n])),
    )  # fmt: skip


def parse_address(text: str) -> int:
    """An address as a client sends it. Raises Refused."""
    try:
        return int(text, 0)
    except ValueError:
        raise RefusedRequest(f"{text!r} is no address") from None


def data_of(at: Standing, name: str, parent: VariableNode | None, frame: LanesFrame | None) -> tuple[str, str]:
    """(what a data breakpoint watches, in words) of a variable; ("", why not) for what is not in memory.

    name: of the variable in its parent, or an expression.
    """
    if parent is not None:
        found = next((n for n in parent.children(None, 0, 1 << 16) if n.name == name), None)
    else:
        try:
            found = find(at, name, frame)
        except (DebugError, RefusedRequest):
            found = None
    if found is None:
        return "", f"{name} is not known here"
    if found.memory is None or not found.watch:
        return "", f"{name} is no single element in memory: registers and whole arrays are not watched"
    return found.watch, f"{found.watch}, now {found.value}"
