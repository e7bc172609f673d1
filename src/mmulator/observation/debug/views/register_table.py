"""Registers of a warp at a stop: as the types that instructions give them, packed ones unpacked, equal lanes folded."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.demangle import base_name
from mmulator.base.errors import OperandError
from mmulator.isa.types import TYPES, is_type, type_bits
from mmulator.matrix.layouts.operands import element_of, fragment
from mmulator.matrix.numerics.formats import container
from mmulator.observation.debug.machine import first_lane
from mmulator.observation.debug.views.matrix import element_texts
from mmulator.observation.debug.views.scene import Scene, lanes_in
from mmulator.observation.record.addresses import elements, special_value
from mmulator.observation.record.trail import TrailStep
from mmulator.observation.record.values import bits_text, parts_of, text_of
from mmulator.ptx.program.frames import liveness
from mmulator.ptx.program.uses import signature_of, uses_and_defs
from mmulator.ptx.tree import Address, Instruction, Reg, SpecialRegister
from mmulator.runtime.native.state import FULL, LANES
from mmulator.sanitizer.diagnostics.whereabouts import LaneGroup, lanes_text

if TYPE_CHECKING:
    from mmulator.runtime.compiled import CompiledKernel

ALWAYS = ("tid.x", "tid.y", "tid.z", "ctaid.x", "ctaid.y", "ctaid.z", "laneid", "warpid")
_POINTER = "address"
_FEW = 4  # groups of lanes that one line names


@dataclass(frozen=True, eq=False)
class RegisterView:
    """One register of a warp.

    name: as the PTX has it; of a special register with its percent sign.
    declared: its PTX type.
    shown: the type in which it is shown: of the instructions that compute with it, such as `f16x2`.
    values: bits in each lane, uint64 [32].
    lanes: mask of the lanes that are asked for.
    role: what the next instruction does with it: `read`, `written`, `read, written`, or "".
    made: the line of the program that computes it, where there is one such line.
    points: what it is the address of, if all lanes have one address.
    """

    name: str
    declared: str
    shown: str
    values: NDArray[np.uint64] = field(repr=False)
    lanes: int = FULL
    role: str = ""
    made: str = ""
    points: str = ""

    def value(self, lane: int, form: str = "") -> str:
        """The text of a lane's value. form: `hex`, `int`, `uint`, `float` or a PTX type; "": as `shown`."""
        bits = int(self.values[lane])
        return self._text(bits, form)

    def _text(self, bits: int, form: str) -> str:
        width = type_bits(self.declared)
        if self.declared == "pred":
            return "true" if bits & 1 else "false"
        if form == "hex":
            return bits_text(bits, width)
        kinds = {"int": f"s{width}", "uint": f"u{width}", "float": {16: "f16", 32: "f32", 64: "f64"}.get(width, f"u{width}")}
        name = kinds.get(form, form) or self.shown
        if name.startswith("b") and name[1:].isdigit():
            return bits_text(bits, width)
        return text_of(bits, name)

    @property
    def groups(self) -> list[tuple[int, int]]:
        """(mask of lanes, bits) of each value, in the order of lanes."""
        found: dict[int, int] = {}
        for lane in lanes_in(self.lanes):
            bits = int(self.values[lane])
            found[bits] = found.get(bits, 0) | 1 << lane
        return [(mask, bits) for bits, mask in found.items()]

    def text(self, form: str = "", width: int = 80) -> list[str]:
        """Lines for a terminal: one value for all lanes, a progression, a few groups of lanes, or all values."""
        found = enumerate(self._lines(form, width, len(self.label)))
        return [self.label + line if n == 0 else " " * 4 + line for n, line in found]

    @property
    def label(self) -> str:
        """Name and type in front of the value."""
        return f"{self.name:<8} {self.shown:<6} "

    def _lines(self, form: str, width: int, used: int) -> list[str]:
        groups = self.groups
        if self.declared == "pred":
            on = sum(m for m, bits in groups if bits & 1)
            said = "true" if on == self.lanes else f"true in {lanes_text(on)}" if on else "false"
            return wrap(said, width - used)
        if len(groups) == 1:
            said = self._text(groups[0][1], form) + f" = {self.points}" * bool(self.points)
            return [said if used + len(said) <= width else f"{said[: width - used - 3]}..."]
        formula = self._formula(form)
        if formula and used + len(formula) <= width:
            return [formula]
        if len(groups) <= _FEW:
            said = "; ".join(f"{lanes_text(m)}: {self._text(bits, form)}" for m, bits in groups)
            if used + len(said) <= width:
                return [said]
            return ["", *(part for m, bits in groups for part in wrap(f"{lanes_text(m)}: {self._text(bits, form)}", width - 4))]
        return ["", *self._table(form, width)]

    def _table(self, form: str, width: int) -> Iterator[str]:
        lanes = lanes_in(self.lanes)
        texts = _short_floats(form or self.shown, self.values[lanes]) or [self._text(int(self.values[n]), form) for n in lanes]
        cell = max(map(len, texts)) + 1
        per = next((n for n in (16, 8, 4, 2) if 9 + n * cell <= width), 1)
        for at in range(0, len(lanes), per):
            yield f"{f'[{lanes[at]}]':<5}" + "".join(f"{t:>{cell}}" for t in texts[at : at + per])

    def _formula(self, form: str) -> str:
        """An integer register as a sum over the lane's number: `64 + 4 * (lane % 4) + 512 * (lane / 4)`; "" if it is none."""
        kind = TYPES.get(self.shown)
        if kind is None or kind.is_float or self.lanes != FULL:
            return ""
        size = type_bits(self.declared)
        wide = 1 << size
        values = [int(v) for v in self.values]
        steps = [(values[1 << bit] - values[0]) % wide for bit in range(5)]
        if any(v != (values[0] + sum(s for b, s in enumerate(steps) if n >> b & 1)) % wide for n, v in enumerate(values)):
            return ""
        parts = []
        for first, count, step in _runs([s - (s >> size - 1 << size) for s in steps]):
            high = f"lane / {1 << first}" if first else "lane"
            lane = f"({high} % {1 << count})" if first + count < 5 else f"({high})" if first else high
            said = f"{abs(step):#x}" if form == "hex" or kind.kind == "bits" else str(abs(step))
            parts.append((" - " if step < 0 else " + ") + (f"{said} * " if abs(step) != 1 else "") + lane)
        base = self._text(values[0], form)
        return "".join(parts).removeprefix(" + ") if values[0] == 0 and parts[0].startswith(" +") else base + "".join(parts)

    def as_dict(self) -> dict[str, Any]:
        lanes = lanes_in(self.lanes)
        return {
            "name": self.name, "declared": self.declared, "shown": self.shown, "lanes": self.lanes, "role": self.role,
            "made": self.made, "points": self.points, "uniform": len(self.groups) == 1,
            "bits": [int(self.values[n]) for n in lanes], "values": [self.value(n) for n in lanes],
        }  # fmt: skip


def _number(name: str) -> int:
    """The number at the end of a register's name; -2 if there is none."""
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits else -2


def _short_floats(kind: str, values: NDArray[np.uint64]) -> list[str]:
    """Texts of floats, also packed ones, with few digits; none for other types."""
    element, count = parts_of(kind)
    t = TYPES.get(element)
    if t is None or not t.is_float:
        return []
    size = type_bits(kind) // count
    mask, digits = np.uint64((1 << size) - 1), 6 if count == 1 else 4
    raw = [(values >> np.uint64(size * n) & mask).astype(container(t)) for n in range(count)]
    each = [", ".join(one) for one in zip(*(element_texts(t, part, digits=digits).tolist() for part in raw))]
    return [f"{{{text}}}" for text in each] if count > 1 else each


def _runs(steps: list[int]) -> Iterator[tuple[int, int, int]]:
    """(first bit, bits, step) of runs of bits whose steps double; bits without a step are left out."""
    bit = 0
    while bit < len(steps):
        count = 1
        while bit + count < len(steps) and steps[bit + count] == steps[bit] << count:
            count += 1
        if steps[bit]:
            yield bit, count, steps[bit]
        bit += count


@dataclass(frozen=True)
class RegisterTable:
    """Registers of a warp.

    warp: its number. function: whose registers these are. lanes: mask of the lanes that are asked for.
    rows: the registers. special: special registers.
    hidden: number of registers that hold nothing that is read later, and are not shown.
    """

    warp: int
    function: str
    lanes: int
    rows: tuple[RegisterView, ...]
    special: tuple[RegisterView, ...]
    hidden: int = 0

    def __getitem__(self, name: str) -> RegisterView:
        return next(r for r in (*self.rows, *self.special) if r.name == name)

    def text(self, form: str = "", width: int = 80, special: bool = True) -> str:
        """A line for each register that is alike in all lanes, more for others. form: as in `RegisterView.value`."""
        lanes = lanes_text(self.lanes) if self.lanes != FULL else "all lanes"
        lines = wrap(f"warp {self.warp}, {lanes}, in {base_name(self.function)}", width, subsequent_indent="    ")
        for alike in self._alike(form, width):
            first, own = alike[0], alike[0].text(form, width)
            if len(alike) > 1:
                own[0] = f"{first.name} to {alike[-1].name}  {first.shown}  {own[0][len(first.label) :]}"
            tail = f"  ({first.role})" * bool(first.role) + f"  {first.made}" * bool(first.made)
            if len(own[0]) + len(tail) <= width:
                own[0] += tail
            lines += own
        if special:
            lines += [line for r in self.special for line in r.text(form, width)]
        if self.hidden:
            lines.append(f"{self.hidden} more registers hold nothing that is read later")
        return "\n".join(lines)

    def _alike(self, form: str, width: int) -> list[list[RegisterView]]:
        """The registers; neighbours that show alike in one line are together."""
        out: list[list[RegisterView]] = []
        last: Any = None
        for r in self.rows:
            own = r.text(form, width)
            key = r.name.rstrip("0123456789"), r.shown, own[0][len(r.label) :], r.role
            if len(own) == 1 and key == last and _number(r.name) == _number(out[-1][-1].name) + 1:
                out[-1].append(r)
            else:
                out.append([r])
            last = key if len(own) == 1 else None
        return out

    def __str__(self) -> str:
        return self.text()

    def as_dict(self) -> dict[str, Any]:
        return {
            "warp": self.warp, "function": self.function, "lanes": self.lanes, "registers": [r.as_dict() for r in self.rows],
            "special": [r.as_dict() for r in self.special], "hidden": self.hidden,
        }  # fmt: skip


def registers(
    scene: Scene, names: str | None = None, lanes: int | None = None, warp: int | None = None, all: bool = False
) -> RegisterTable:
    """Registers of a warp.

    names: a pattern such as `%r1*`, or several with blanks between them; None: those that are read later.
    lanes: mask of lanes; None: those that execute the next instruction.
    warp: number of a warp of the CTA; None: whose turn it is.
    all: registers that hold nothing that is read later, too.
    """
    own = warp is None or warp == scene.place.warp
    place = scene.place if own else scene.warp_at(scene.place.cta, warp or 0)
    function, frame, ins, asked = _where(scene, None if own else warp, lanes)
    known = scene.frame(function)
    types = scene.kernel.once(shown_types)[function]
    made = scene.kernel.once(lines_of)[function]
    reads, writes = uses_and_defs(ins) if ins is not None else (frozenset(), frozenset())
    live = _live(scene, function, own, warp) | reads | writes
    patterns = names.split() if names else []
    rows, hidden = [], 0
    for name in sorted(known.slots, key=_by_number):
        if "?" in name or (name == "%CC" and name not in live):
            continue
        if patterns and not any(fnmatchcase(name, p) or fnmatchcase(name, "%" + p) for p in patterns):
            continue
        if not patterns and not all and name not in live:
            hidden += 1
            continue
        value = scene.register(name, place, function, frame)
        if value is not None:
            role = ", ".join(["read"] * (name in reads) + ["written"] * (name in writes))
            shown, points = types.get(name, known.types[name]), _points(scene, known.types[name], value, asked)
            shown = "b64" if points else shown
            rows.append(RegisterView(name, known.types[name], shown, value, asked, role, made.get(name, ""), points))
    special = tuple(_special(scene, place.warp, asked, function)) if not patterns else ()
    return RegisterTable(place.warp, function, asked, tuple(rows), special, hidden)


def _points(scene: Scene, declared: str, values: NDArray[np.uint64], lanes: int) -> str:
    """The name of the memory that a register of 64 bits addresses in all lanes; "" for other numbers."""
    value = int(values[first_lane(lanes)])
    if type_bits(declared) != 64 or any(int(values[n]) != value for n in lanes_in(lanes)):
        return ""
    found = next((r for r in scene.grid.memory if r.start <= value < r.start + r.size), None)
    if found is None:
        return ""
    return found.label + f" + {value - found.start}" * (value > found.start)


def _where(scene: Scene, warp: int | None, lanes: int | None) -> tuple[str, int, Instruction | None, int]:
    """(function, byte where its frame begins, next instruction, lanes) of a warp."""
    if warp is None and scene.site >= 0:
        return scene.function, scene.frame_at, scene.kernel.executed[scene.site], scene.lanes if lanes is None else lanes
    found = _groups(scene, warp)
    if not found:
        return scene.kernel.name, 0, None, FULL if lanes is None else lanes
    g = next((g for g in found if lanes is None or g.lanes & lanes), found[0])
    return scene.function_of(g), g.frame, g.instruction, g.lanes if lanes is None else lanes


def _groups(scene: Scene, warp: int | None) -> list[LaneGroup]:
    """The groups of lanes of a warp of the CTA; None: of that whose turn it is."""
    return [g for g in scene.groups_of(scene.cta) if g.warp == (scene.place.warp if warp is None else warp)]


def _by_number(name: str) -> tuple[str, int, str]:
    head = name.rstrip("0123456789")
    return head, len(name), name


# what is read later --------------------------------------------------------------------------------------------------------
def _live(scene: Scene, function: str, own: bool, warp: int | None) -> frozenset[str]:
    """Registers that are read later by the lanes of a warp."""
    if own and scene.block is not None:
        ins = scene.kernel.executed[scene.site]
        return _live_before(scene.kernel, scene.block, ins)
    out: frozenset[str] = frozenset()
    for g in _groups(scene, warp):
        if g.pc >= 0 and scene.function_of(g) == function:
            out |= _live_before(scene.kernel, scene.kernel.program.blocks[g.pc], None)
    return out


def _live_before(kernel: CompiledKernel, block: Any, ins: Instruction | None) -> frozenset[str]:
    found = kernel.once(_livenesses)[block.function.function.name]
    first = block.function.blocks[0].index
    if ins is None:
        return frozenset(found.into[block.index - first])
    live = set(found.out[block.index - first])
    for i in reversed([*block.body, *([block.last] if block.last is not None else [])]):
        uses, defs = uses_and_defs(i)
        live = (live - (defs if i.guard is None else frozenset())) | uses
        if i is ins:
            break
    return frozenset(live)


def _livenesses(kernel: CompiledKernel) -> dict[str, Any]:
    return {name: liveness(blocks) for name, blocks in kernel.program.functions.items()}


# types and lines ---------------------------------------------------------------------------------------------------------------
def shown_types(kernel: CompiledKernel) -> dict[str, dict[str, str]]:
    """For each function the type in which each register is shown: the one that most instructions compute with it in."""
    out: dict[str, dict[str, str]] = {}
    for name, item in kernel.program.functions.items():
        votes: dict[str, Counter[str]] = defaultdict(Counter)
        for block in item.blocks:
            for ins in (*block.body, block.last):
                if ins is not None:
                    for register, kind in _typed(ins):
                        votes[register][kind] += 1
        types = kernel.frames[name].types
        out[name] = {r: best for r, v in votes.items() if (best := _best(v, types.get(r, "b32")))}
    return out


def _best(votes: Counter[str], declared: str) -> str:
    if votes.pop(_POINTER, 0):  # an address is shown in hexadecimal
        return f"b{type_bits(declared)}"
    fit = [(kind, n) for kind, n in votes.items() if type_bits(kind) == type_bits(declared)]
    if not fit:
        return declared
    return max(fit, key=lambda x: (_rank(x[0]), x[1]))[0]


def _rank(kind: str) -> int:
    """How much a type says: packed types and floats more than integers, these more than plain bits."""
    t = TYPES.get(kind)
    if t is None or t.is_float:
        return 2
    return 1 if t.is_integer else 0


def _typed(ins: Instruction) -> Iterator[tuple[str, str]]:
    """(register, type) of each operand that an instruction gives a type to."""
    form = ins.form
    for operand in ins.operands:
        if isinstance(operand, Address) and isinstance(operand.base, Reg):
            yield operand.base.name, f"b{type_bits(operand.base.type)}"
            yield operand.base.name, _POINTER
    for spec, operand in zip(signature_of(form, ins.operands), ins.operands):
        kind = _fragment_type(form, spec.name) if form.is_matrix and spec.kind == "registers" else spec.type
        if spec.name.endswith("-desc"):  # a matrix descriptor
            kind = _POINTER
        if kind == _POINTER or (kind and is_type(kind)):
            for part in elements(operand):
                if isinstance(part, Reg):
                    yield part.name, kind


def _fragment_type(form: Any, name: str) -> str:
    """The type of a register of a fragment: `f16x2`, `f32`."""
    try:
        f, t = fragment(form, name), element_of(form, name)
    except OperandError:
        return ""
    if f.per_register == 1:
        return t.name
    packed = f"{t.name}x{f.per_register}"
    return packed if is_type(packed) else ""


def lines_of(kernel: CompiledKernel) -> dict[str, dict[str, str]]:
    """For each function and register the line of the program that computes it, where it is one line."""
    out: dict[str, dict[str, str]] = {}
    for name, item in kernel.program.functions.items():
        places: dict[str, set[str]] = defaultdict(set)
        for block in item.blocks:
            for ins in (block.after, *block.body, block.last):
                if ins is not None:
                    brief = ins.original.span.brief
                    for register in uses_and_defs(ins)[1]:
                        places[register].add(brief)
        out[name] = {r: next(iter(found)) for r, found in places.items() if len(found) == 1}
    return out


# special registers -----------------------------------------------------------------------------------------------------------
def _special(scene: Scene, warp: int, lanes: int, function: str) -> Iterator[RegisterView]:
    """Special registers that say who a thread is, and those that the function reads."""
    place = scene.warp_at(scene.place.cta, warp)
    step = TrailStep(scene.step, place, place.block, lanes, scene.site, place.frame, ())
    read = scene.kernel.once(_special_names)[function]
    extents = {"tid": scene.grid.shape.block, "ctaid": scene.grid.shape.grid}
    flat = {f"{who}.{axis}" for who, extent in extents.items() for axis, n in zip("yz", extent[1:]) if n == 1}
    for name in dict.fromkeys((*(a for a in ALWAYS if a not in flat), *sorted(read))):
        found = [special_value(scene.grid.shape, step, lane, name) for lane in range(LANES)]
        if found[0] is not None:
            yield RegisterView("%" + name, "u32", "u32", np.array(found, np.uint64), lanes)


def _special_names(kernel: CompiledKernel) -> dict[str, set[str]]:
    return {
        name: {
            o.name for b in item.blocks for i in (*b.body, b.last) if i is not None for o in i.leaves
            if isinstance(o, SpecialRegister)
        } for name, item in kernel.program.functions.items()
    }  # fmt: skip
