"""Code of blocks that is joined from stencils, so that a new kernel needs no compiler.

The LLVM lines of one instruction differ from those of another of the same form only in the names of values and in numbers. Such
lines with names and numbers left open are a stencil: a native function that is compiled once and found by its name, which is
made of its text. A record has what was left open: the address of the stencil, then for each value its place in the block's room,
and for each number the number. A stencil ends with a jump to that of the next record, so that a block is records in memory, which
run_records (runtime/native/threads/scheduler.py) begins. A stencil has no meaning of its own: the same lines pass through the
same compiler, and between stencils values go through memory. Lines whose stencil was never compiled are taken in pieces
(pieces.py), if these were.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from mmulator.base.classes import dataclass
from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.loading import is_stored
from mmulator.base.codegen.pieces import PieceLines, calls, common
from mmulator.base.codegen.store import digest_of
from mmulator.base.codegen.values import WIDE, Builder
from mmulator.base.errors import must_be
from mmulator.base.lazy import cached_property

ROOM = 1 << 17  # bytes of a block's room, on the stack
_WORD = (1 << 64) - 1
_UNIT = 64  # bytes to which a value's place is aligned
_ACTIVE = "  %v1 = bitcast i32 %mask to <32 x i1>"  # the first line of a block; each stencil that needs it has its own
_GIVEN = {"%w": "%w", "%regs": "%regs", "%mask": "%mask"}
_GIVEN_ACTIVE = {**_GIVEN, "%v1": "%active"}
# Each way begins with a letter, which makes the search fast.
_VECTORS = r"%[\w.]+|\n\w+:$|<i\d+ [^>\n]*>|splat\([^)]*\)|splat \(i(?:8|16|32|64) -?\d+\)|, i64 -?\d+$"
_SOME = re.compile(f"({_VECTORS})", re.MULTILINE)
_ALL = re.compile(
    rf"({_VECTORS}|i(?:8|16|32|64) %[\w.]+, -?\d+$|i(?:32|64) -?\d+(?=[,)])"
    r"|(?:ret|freeze) i(?:8|16|32|64) -?\d+$)", re.MULTILINE
)
_NUMBER = re.compile(r"(splat \(|ret |freeze |, )?i(\d+) (?:(%[\w.]+), )?(-?\d+)(\)?)")
_SYMBOL = re.compile(r"@([\w.]+)")
# One value as another type of its size; a register that is read
_SAME = re.compile(r"  (%\w+) = bitcast <32 x (?:i32|float)> (%\w+) to <32 x (?:i32|float)>")
_LOADED = re.compile(r"  (%\w+) = getelementptr i8, ptr %regs, i64 (\d+)\n  (%\w+) = load ([^,]+), ptr \1, align (\d+)")
_LOCAL = re.compile(r"%([vsxc])[\w.]*")


class Stencil(Native):
    """A native function made of LLVM lines. Its name is made of them and of the names of its results: they say all of it.

    lines: the lines, with `%v0` for a value that they are given, `%s0` for stack memory, `%c32.0` for a number of 32 bits and
        `%x32.0` for one in each lane.
    types: LLVM type of each `%v0`, and of each result.
    results: names of the values that are stored for later stencils.
    declared: declarations of what the lines call, by name.
    calls: the native functions among them.
    """

    quick = True

    def __init__(
        self, lines: str, types: Mapping[str, str], results: Sequence[str], declared: dict[str, str], calls: Sequence[Native]
    ) -> None:
        self.lines, self.types, self.results, self.declared, self.calls = lines, types, results, declared, calls
        digest = digest_of("\n".join([lines, *results]).encode()).hexdigest()
        super().__init__(_body, f"stencil_{digest[:40]}")
        self.ready = False  # whether it is known to be compiled, or is going to be

    def is_stored(self) -> bool:
        """Whether it is compiled already."""
        self.ready = self.ready or is_stored(self.name)
        return self.ready

    @cached_property
    def body(self) -> str:
        return _body(self.lines, self.types, self.results)

    def build(self) -> tuple[Any, list[Native]]:
        return self, [*self.calls]

    def is_like(self, other: Native) -> bool:
        return self.name == other.name

    def text(self) -> str:
        """The definition, as Builder.text writes one."""
        return f"define i32 @{self.name}(ptr %w, ptr %regs, i32 %mask, ptr %room, ptr %record) {WIDE} {{\n{self.body}\n}}\n"


def _body(lines: str, types: Mapping[str, str], results: Sequence[str]) -> str:
    out = ["  %active = bitcast i32 %mask to <32 x i1>"] if "%active" in lines else []
    words, seen = 0, set()

    def word(name: str, ty: str = "i64") -> None:
        nonlocal words
        words += 1
        out.append(f"  {name}.at = getelementptr i8, ptr %record, i64 {8 * words}\n  {name} = load {ty}, ptr {name}.at, align 8")

    def place(name: str) -> None:
        word(f"{name}.offset")
        out.append(f"  {name} = getelementptr i8, ptr %room, i64 {name}.offset")

    for found in _LOCAL.finditer(lines):
        name, kind = found[0], found[1]
        if name in seen:
            continue
        seen.add(name)
        if kind == "s":
            place(name)
        elif kind == "v":
            place(f"{name}.place")
            out.append(f"  {name} = load {types[name]}, ptr {name}.place, align {_align(types[name])}")
        else:
            bits = name[2:].partition(".")[0]
            word(name if kind == "c" else f"{name}.one", f"i{bits}")
            if kind == "x":
                before = lines[lines.rfind("\n", 0, found.start()) + 1 : found.start()]
                ty = re.findall(rf"<\d+ x i{bits}>", before)[-1]
                lanes = ty[1 : ty.index(" ")]
                out.append(
                    f"  {name}.first = insertelement {ty} poison, i{bits} {name}.one, i32 0\n"
                    f"  {name} = shufflevector {ty} {name}.first, {ty} poison, <{lanes} x i32> zeroinitializer"
                )
    out.append(lines)
    if lines.rpartition("\n")[2].startswith("  ret"):
        return "\n".join(out)
    for name in results:
        place(f"{name}.place")
        out.append(f"  store {types[name]} {name}, ptr {name}.place, align {_align(types[name])}")
    words += 1
    out.append(f"  %next = getelementptr i8, ptr %record, i64 {8 * words}\n  %then = load ptr, ptr %next, align 8")
    out.append("  %end = musttail call i32 %then(ptr %w, ptr %regs, i32 %mask, ptr %room, ptr %next)\n  ret i32 %end")
    return "\n".join(out)


def _align(ty: str) -> int:
    return 8 if ty[0] != "<" or "x i1>" in ty else _UNIT


@dataclass
class _Part:
    """Lines between two cuts.

    lines: the lines as they stand in the block.
    text: the lines, with names and numbers left open.
    given: what a record has: numbers, and names of values and of stack memory.
    defined: name of each computed value -> its name in the text.
    local: name -> its name in the text.
    acts: whether it does more than compute values.
    """

    lines: str
    text: str
    given: list[int | str]
    defined: dict[str, str]
    local: dict[str, str]
    acts: bool
    results: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)  # values that nothing reads from here on


def _needs_numbers(text: str) -> bool:
    """Whether LLVM itself needs some of the numbers."""
    return "@llvm." in text or "extractvalue" in text or " asm " in text


def _acts(text: str) -> bool:
    """Whether lines do more than compute values. (A search for any of these words takes five times as long.)"""
    return (
        " store " in text or " call " in text or "  br " in text or "  ret " in text or "  fence " in text
        or " atomicrmw " in text or " cmpxchg " in text
    )  # fmt: skip


def _part(text: str, rooms: Mapping[str, Any], known: Mapping[str, str]) -> _Part | None:
    """The lines with names and numbers left open; None if they jump to other lines. known: names with one meaning everywhere."""
    pieces = (_SOME if _needs_numbers(text) else _ALL).split(f"\n{text}")
    local, defined = dict(known), dict[str, str]()
    given: list[int | str] = []
    labels: dict[str, bool] = {}

    def name_of(token: str, n: int) -> str:
        """The name in the text of a name that stands there for the first time."""
        if pieces[n + 1][:3] == " = ":
            found = defined[token] = f"%d{len(local)}"
        elif pieces[n - 1][-6:] == "label ":
            found = f"%l{len(local)}"
            labels.setdefault(token, False)
        else:
            given.append(token)
            found = f"%s{len(local)}" if token in rooms else f"%v{len(local)}"
        local[token] = found
        return found

    for n in range(1, len(pieces), 2):
        token = pieces[n]
        first = token[0]
        if first == "%":
            pieces[n] = local.get(token) or name_of(token, n)
        elif first == ",":  # the commonest number: ", i64 16" ends a line
            pieces[n] = f", i64 %c64.{len(given)}"
            given.append(int(token[6:]))
        elif first == "\n":
            label = f"%{token[1:-1]}"
            pieces[n] = f"\n{local.setdefault(label, f'%l{len(local)}')[1:]}:"
            labels[label] = True
        elif first != "<" and token[:6] != "splat(":
            before, bits, name, number, after = must_be(_NUMBER.fullmatch(token), re.Match).groups()
            if name:
                name = f"{local.get(name) or name_of(name, n)}, "
            where = f"%x{bits}" if after else f"{before or ''}i{bits} {name or ''}%c{bits}"
            pieces[n] = f"{where}.{len(given)}"
            given.append(int(number))
    if not all(labels.values()):
        return None
    return _Part(text, "".join(pieces)[1:], given, defined, local, _acts(text))


_stencils: dict[tuple[str, ...], Stencil] = {}  # by the text of a part, and the names of its results


@dataclass
class Records:
    """The records of some blocks.

    blocks: (number of a block, position of its first word).
    words: the words.
    uses: (position of a word, the stencil whose address it is).
    """

    blocks: list[tuple[int, int]] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    uses: list[tuple[int, Stencil]] = field(default_factory=list)

    def take(self, builders: Mapping[int, Builder], natives: Mapping[str, Native]) -> bool:
        """Append the records of blocks, by their numbers. Returns False, and takes none, if one has none: it jumps between
        instructions, or needs too much room.
        """
        before = len(self.blocks), len(self.words), len(self.uses)
        if all(self._add(number, b, natives) for number, b in builders.items()):
            return True
        del self.blocks[before[0] :], self.words[before[1] :], self.uses[before[2] :]
        return False

    def _add(self, number: int, b: Builder, natives: Mapping[str, Native]) -> bool:
        block = _Block(b, natives)
        if block.parts is None:
            return False
        joined = block.joined()
        places = _Places(b, block.same)
        of = places.of
        words: list[int] = []
        uses = []
        start = len(self.words)
        for part, stencil in joined:
            uses.append((start + len(words), stencil))
            words.append(0)
            words += [of(item) if isinstance(item, str) else item & _WORD for item in part.given]
            places.end(part.ended)
            words += map(of, part.results)
        if places.end_ > ROOM:
            return False
        self.blocks.append((number, start))
        self.words += words
        self.uses += uses
        return True

    def stencils(self) -> list[Native]:
        """The stencils, each once."""
        return [*{stencil.name: stencil for _, stencil in self.uses}.values()]

    def data(self) -> bytes:
        """The records, for storing."""
        names = sorted({stencil.name for _, stencil in self.uses})
        number = {name: n for n, name in enumerate(names)}
        uses = [(at, number[stencil.name]) for at, stencil in self.uses]
        head = json.dumps({"names": names, "blocks": self.blocks, "words": len(self.words)}, separators=(",", ":"))
        return head.encode() + b"\n" + np.array(self.words, np.uint64).tobytes() + np.array(uses, np.uint32).tobytes()


@dataclass
class _Pieces:
    """Pieces that stand for a part. needed: what they and the parts behind them read. parts: the last first."""

    needed: set[str]
    parts: list[tuple[_Part, Stencil]] = field(default_factory=list)


def chosen(whole: Stencil, split: Callable[[], _Pieces]) -> _Pieces | None:
    """The pieces that stand for a part whose stencil was never compiled, if they were; else that is going to be."""
    if whole.is_stored():
        return None
    pieces = split()
    if all(stencil.is_stored() for _, stencil in pieces.parts):
        return pieces
    whole.ready = True
    return None


class _Block:
    """A block's parts.

    parts: the parts; None if it jumps between instructions.
    same: for each value that is another one's bits as another type, or under another name, that one.
    """

    def __init__(self, b: Builder, natives: Mapping[str, Native]) -> None:
        self._b, self._natives = b, natives
        self._known = _GIVEN_ACTIVE if b.lines and b.lines[0] == _ACTIVE else _GIVEN
        self.same: dict[str, str] = {}
        self.parts = self._parts()

    def _parts(self) -> list[_Part] | None:
        lines, known, same = self._b.lines, self._known, self.same
        cuts = [int("%v1" in known), *self._b.cuts, len(lines)]
        parts: list[_Part] = []
        for start, stop in pairwise(cuts):
            if start == stop:
                continue
            if stop == start + 1 and (found := _SAME.fullmatch(lines[start])) and found[2] not in known:
                same[found[1]] = same.get(found[2], found[2])
                continue
            loaded = stop == start + 2 and _LOADED.fullmatch(f"{lines[start]}\n{lines[start + 1]}")
            part = _load(loaded) if loaded else _part("\n".join(lines[start:stop]), self._b.rooms, known)
            if part is None:
                return None
            parts.append(part)
        return parts

    def joined(self) -> list[tuple[_Part, Stencil]]:
        """The parts with their stencils, without those whose values nothing reads."""
        needed: set[str] = set()
        kept: list[tuple[_Part, Stencil]] = []
        for part in reversed(self.parts or []):
            part.results = [name for name in part.defined if name in needed]
            if not (part.results or part.acts):
                continue
            stencil = self._stencil(part)
            pieces = chosen(stencil, partial(self._pieces, part, needed))
            if pieces is None:
                self._settle(part, needed)
                kept.append((part, stencil))
            else:
                needed = pieces.needed
                kept += pieces.parts
        return kept[::-1]

    def _settle(self, part: _Part, needed: set[str]) -> None:
        """Change `needed` from what the parts behind this one read to what it and they read."""
        same, rooms = self.same, self._b.rooms
        read = {same.get(name, name) for name in part.given if isinstance(name, str)}
        part.ended = [name for name in read if name not in needed and name not in rooms]
        needed.difference_update(part.results)
        needed |= read

    def _pieces(self, part: _Part, needed: set[str]) -> _Pieces:
        """The pieces of a part. needed: what the parts behind it read."""
        found = PieceLines(part.lines.split("\n"), self._b, self._known.keys() - {"%w"})
        self.same |= {other: self.same.get(name, name) for other, name in found.others.items()}
        pieces = _Pieces({*needed})
        for text in reversed(found.texts):
            piece = must_be(_part(text, self._b.rooms, self._known), _Part)
            piece.results = [name for name in piece.defined if name in pieces.needed]
            if piece.results or piece.acts:
                self._settle(piece, pieces.needed)
                pieces.parts.append((piece, self._stencil(piece)))
        return pieces

    def _stencil(self, part: _Part) -> Stencil:
        key = part.text, *[part.defined[name] for name in part.results]
        found = _stencils.get(key)
        if found is None:
            found = _stencils[key] = _stencil(part, key, self._b, self._natives)
        return found


def common_pieces(natives: Collection[Native] = ()) -> list[Stencil]:
    """Stencils of pieces that any kernel may need: calls of these native functions; without them, operations."""
    b = calls(natives) if natives else common()
    pieces = [must_be(_part(line, {}, _GIVEN_ACTIVE), _Part) for line in b.lines[1:]]
    named = {native.name: native for native in natives}
    return [_stencil(part, (part.text, *part.defined.values()), b, named) for part in pieces]


def _load(found: re.Match[str]) -> _Part:
    """The part that reads a register."""
    place, at, value, ty, align = found.groups()
    names = {place: "%d0", value: "%d1"}
    text = f"  %d0 = getelementptr i8, ptr %regs, i64 %c64.0\n  %d1 = load {ty}, ptr %d0, align {align}"
    return _Part(found[0], text, [int(at)], names, names, False)


class _Places:
    """Places of values in a block's room. same: as `_parts` has it. end_: bytes of the room."""

    def __init__(self, b: Builder, same: Mapping[str, str]) -> None:
        self._b, self._same, self.end_ = b, same, 0
        self._at: dict[str, int] = {}
        self._free: dict[int, list[int]] = {}  # by their size
        self._ends: dict[str, list[int]] = {}  # where the place of a value goes that has ended

    def of(self, name: str) -> int:
        name = self._same.get(name, name)
        at = self._at.get(name)
        return self._new(name) if at is None else at

    def _new(self, name: str) -> int:
        size = self._b.rooms.get(name) or self._b.types[name].size
        size = -(-size // _UNIT) * _UNIT
        free = self._ends[name] = self._free.setdefault(size, [])
        if free:
            at = free.pop()
        else:
            at = self.end_
            self.end_ += size
        self._at[name] = at
        return at

    def end(self, names: list[str]) -> None:
        for name in names:
            self._ends[name].append(self._at[name])


def _stencil(part: _Part, key: tuple[str, ...], b: Builder, natives: Mapping[str, Native]) -> Stencil:
    types = {short: b.types[name].llvm for name, short in part.local.items() if name in b.types}
    symbols = sorted({*_SYMBOL.findall(part.text)}) if "@" in part.text else []
    declared = {s: b.declared[s] for s in symbols if s in b.declared}
    return Stencil(part.text, types, key[1:], declared, [natives[s] for s in symbols if s in natives])
