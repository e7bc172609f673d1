"""Declarations of variables, parameters and registers. State Spaces, Types, and Variables (PTX ISA 9.1)."""

import sys
from array import array
from math import prod
from typing import NamedTuple, cast

from mmulator.base.codegen.locks import remaining
from mmulator.base.location import Mark
from mmulator.isa.types import is_type, type_bits
from mmulator.ptx.cursor import Constant, Cursor
from mmulator.ptx.tree import Linkage, Parameter, Space, SymbolReference, Variable, f64_to_f32_bits

VARIABLE_SPACES = frozenset((".global", ".const", ".shared", ".local", ".param", ".tex"))
_OPAQUE = frozenset((".texref", ".samplerref", ".surfref"))
_VECTORS = {".v2": 2, ".v4": 4, ".v8": 8}
_MASKS = frozenset(0xFF << 8 * n for n in range(8))
MAX_BYTES = 1 << 40  # of a variable; what a launch can hold is less (runtime/launch/limits.py)
_PIECE = 1 << 18  # characters of a list of numbers at a time
MAX_INITIAL = 1 << 28  # bytes of a variable up to the end of its initialiser
_POINTER_SPACES = frozenset((".const", ".global", ".local", ".shared"))


class DeclarationHead(NamedTuple):
    """The part of a declaration before the name: `.align 8 .v2 .b32`. bits: size of one element."""

    type: str
    bits: int
    vector: int
    align: int
    attributes: tuple[str, ...]


def bytes_of(type: str) -> int:
    """Size of one element in memory, in bytes."""
    return 8 if "." + type in _OPAQUE else max(1, type_bits(type) // 8)


def _head(c: Cursor) -> DeclarationHead:
    """The part of a declaration before the name: `.align 8 .v2 .b32`, `.attribute(.managed)`, in any order."""
    type, vector, align = "", 1, 0
    attributes: list[str] = []
    while c.kinds[c.at] == "dot":
        text = c.texts[c.at]
        c.at += 1
        if text == ".align":
            align = c.size(".align", 1 << 16)
            if align & (align - 1) or not align:
                c.fail(f".align {align} is not a power of two", at=c.at - 1)
        elif text in _VECTORS:
            vector = _VECTORS[text]
        elif text == ".attribute":
            attributes.extend(_attributes(c))
        elif (is_type(text[1:]) or text in _OPAQUE) and not type:
            type = text[1:]
        else:
            c.fail(f"{text!r} cannot stand in a declaration", at=c.at - 1)
    if not type:
        c.fail(f"expected a type such as .b32, found {c.found()}")
    bits = 64 if "." + type in _OPAQUE else type_bits(type)
    return DeclarationHead(type, bits, vector, align, tuple(attributes))


def _attributes(c: Cursor) -> list[str]:
    found: list[str] = []
    c.expect("(")
    while not c.accept(")"):
        found.append(c.expect("dot", "an attribute")[1:])
        if c.accept("("):
            while not c.accept(")"):
                c.integer()
                c.accept(",")
        c.accept(",")
    return found


def _shape(c: Cursor) -> tuple[int, ...]:
    """Dimensions after a name: `[4][8]` gives (4, 8); an empty first dimension is 0."""
    shape: list[int] = []
    while c.accept("["):
        if c.kinds[c.at] == "]" and not shape:
            shape.append(0)
        else:
            shape.append(c.size("an array dimension"))
        c.expect("]")
        if len(shape) > 32:
            c.fail("too many array dimensions")
    return tuple(shape)


def variables(c: Cursor, linkage: Linkage, first: int) -> list[Variable]:
    """Variables of one declaration, `.shared .align 16 .b8 name[64], other = 5;`. The cursor is at the state space; the
    semicolon is read.

    c: the cursor. linkage: of the declaration. first: index of the token where the declaration starts.
    """
    space = cast(Space, c.texts[c.at][1:])
    c.at += 1
    head = _head(c)
    found: list[Variable] = []
    while True:
        name = c.name("a name")
        shape = _shape(c)
        numbered = c.kinds[c.at] == "<"
        count = c.names(c.count("the number of names", 1 << 16), each=16)
        initial: bytes | None = None
        symbols: tuple[SymbolReference, ...] = ()
        if c.accept("="):
            initial, symbols, elements = _Initialiser(c, head, shape).read()
            if shape and shape[0] == 0:
                inner = prod(shape[1:]) * head.vector
                shape = (-(-elements // inner) if inner else 0, *shape[1:])
        size = bytes_of(head.type) * head.vector * prod(shape)
        _check_size(c, name, size, first)
        align = head.align or bytes_of(head.type) * head.vector
        names = [f"{name}{i}" for i in range(count)] if numbered else [name]
        found.extend(
            Variable(
                space, align, head.type, n, shape, head.vector, size, initial, symbols, linkage, head.attributes,
                c.span_from(first),
            )
            for n in names
        )  # fmt: skip
        if not c.accept(","):
            break
    c.expect(";")
    return found


def _check_size(c: Cursor, name: str, size: int, at: int) -> None:
    if size >= MAX_BYTES:
        c.fail(f"{name} takes {size} bytes; a variable has less than {MAX_BYTES}", at=at)


class _Initialiser:
    """Reader of an initialiser: `= 5`, `= {1, 2, {3}}`, `= symbol+4`, `= generic(symbol)`, `= 0xFF00(symbol)`.

    Initializers (PTX ISA 9.1).
    """

    def __init__(self, c: Cursor, head: DeclarationHead, shape: tuple[int, ...]) -> None:
        self.c = c
        self.head = head
        self.dims = (*shape, head.vector) if head.vector > 1 else shape
        self.size = bytes_of(head.type)
        self.values: dict[int, int] = {}
        self.lists: list[tuple[int, bytes]] = []  # elements that were read together, from a position on
        self.symbols: list[SymbolReference] = []
        self.end = 0

    def read(self) -> tuple[bytes, tuple[SymbolReference, ...], int]:
        """(bytes, symbol references, number of initialised elements)."""
        if self.c.kinds[self.c.at] == "{":
            self._list(self.dims or (1,), 0)
        else:
            self._element(0)
        if self.end * self.size > MAX_INITIAL:
            self.c.fail(f"the initialiser reaches byte {self.end * self.size}; at most {MAX_INITIAL} can be initialised")
        data = bytearray(self.end * self.size)
        for position, value in self.values.items():
            data[position * self.size : (position + 1) * self.size] = value.to_bytes(self.size, "little")
        for position, elements in self.lists:
            data[position * self.size : position * self.size + len(elements)] = elements
        return bytes(data), tuple(self.symbols), self.end

    def _list(self, dims: tuple[int, ...], base: int) -> None:
        c = self.c
        c.expect("{")
        inner = prod(dims[1:])
        room = dims[0] * inner if dims[0] else None
        position = 0
        while c.kinds[c.at] != "}":
            if not position & 1023:
                remaining()
            if c.kinds[c.at] == "{":
                if len(dims) == 1:
                    c.fail("the initialiser has more braces than the variable has dimensions")
                position = -(-position // inner) * inner if inner else 0
            if room is not None and position >= room:
                c.fail(f"too many initialisers: there is room for {room}")
            if c.kinds[c.at] == "{":
                self._list(dims[1:], base + position)
                position += inner
            elif c.kinds[c.at] == "numbers":
                position += self._numbers(base + position, None if room is None else room - position)
            else:
                self._element(base + position)
                position += 1
            if not c.accept(","):
                break
        c.expect("}", "',' or '}'")

    def _numbers(self, position: int, room: int | None) -> int:
        """Read plain integers in a row, and return how many there were. room: number of elements that are left. Fails at the
        first integer beyond the room.
        """
        c, size = self.c, self.size
        text, start = c.texts[c.at], c.tokens.starts[c.at]
        count = text.count(",") + 1
        wrong = 0 if self.head.type in ("f32", "f64") else room if room is not None and count > room else None
        if wrong is not None:
            at = 0
            for _ in range(wrong):
                at = text.index(",", at) + 1
            at += len(text[at:]) - len(text[at:].lstrip())
            element = text[at:].partition(",")[0].rstrip()
            c.texts[c.at], c.tokens.starts[c.at] = "-" if element[0] == "-" else element, start + at
            if not wrong:
                self._bits(Constant(0), c.at)
            c.fail(f"too many initialisers: there is room for {room}")
        mask, code, at, done = (1 << 8 * size) - 1, "BHIQ"[size.bit_length() - 1], 0, 0
        while at < len(text):
            remaining()
            end = text.find(",", at + _PIECE)
            end = len(text) if end < 0 else end
            elements = array(code, [int(n, 0) & mask for n in text[at:end].split(",")])
            if sys.byteorder == "big":
                elements.byteswap()
            self.lists.append((position + done, elements.tobytes()))
            at, done = end + 1, done + len(elements)
        self.end = max(self.end, position + count)
        c.at += 1
        return count

    def _element(self, position: int) -> None:
        c = self.c
        first = c.at
        self.end = max(self.end, position + 1)
        if c.kinds[c.at] == "word" and c.texts[c.at] not in ("WARP_SZ",):
            self._symbol(position, first, None)
            return
        constant = c.constant()
        if constant.literal == "int" and c.accept("("):
            if constant.value not in _MASKS:
                c.fail(f"{constant.value:#x} selects no byte of an address", "a mask is 0xFF, 0xFF00, 0xFF0000 and so on", first)
            self._symbol(position, first, constant.value)
            c.expect(")")
            return
        self.values[position] = self._bits(constant, first)

    def _symbol(self, position: int, first: int, mask: int | None) -> None:
        c = self.c
        generic = c.texts[c.at] == "generic" and c.kinds[c.at + 1] == "("
        if generic:
            c.at += 2
        name = c.name("the name of a variable")
        addend = 0
        if c.kinds[c.at] in ("+", "-"):
            addend = c.integer()
        if generic:
            c.expect(")")
            if c.kinds[c.at] in ("+", "-"):
                addend += c.integer()
        offset = position * self.size
        self.symbols.append(SymbolReference(offset, self.size, name, addend, generic, mask, c.span_from(first)))

    def _bits(self, constant: Constant, at: int) -> int:
        type = self.head.type
        if type in ("f32", "f64"):
            if constant.literal == "int":
                self.c.fail(f"an integer cannot initialise .{type}", "write 1.0, or the bits as 0f3F800000", at)
            if type == "f32":
                return constant.value if constant.literal == "f32" else f64_to_f32_bits(constant.value)
            if constant.literal == "f32":
                self.c.fail("a single-precision constant cannot initialise .f64", at=at)
            return constant.value
        if constant.literal != "int":
            self.c.fail(f"a floating-point constant cannot initialise .{type}", at=at)
        return constant.value & ((1 << 8 * self.size) - 1)


def parameter(c: Cursor) -> Parameter:
    """A parameter: `.param .u64 .ptr .global .align 8 name`, `.param .align 8 .b8 name[32]` or `.reg .b32 name`."""
    first = c.at
    text = c.texts[c.at]
    if text not in (".param", ".reg"):
        c.fail(f"expected .param, found {c.found()}")
    c.at += 1
    type, align, vector, pointer_align, pointer_space, is_pointer = "", 0, 1, 0, "", False
    while c.kinds[c.at] == "dot":
        word = c.texts[c.at]
        c.at += 1
        if word == ".align":
            value = c.size(".align", 1 << 16)
            if value & (value - 1) or not value:
                c.fail(f".align {value} is not a power of two", at=c.at - 1)
            if is_pointer:
                pointer_align = value
            else:
                align = value
        elif word == ".ptr":
            is_pointer = True
        elif word in _POINTER_SPACES and is_pointer:
            pointer_space = word[1:]
        elif word in _VECTORS:
            vector = _VECTORS[word]
        elif (is_type(word[1:]) or word in _OPAQUE) and not type:
            type = word[1:]
        else:
            c.fail(f"{word!r} cannot stand in a parameter", at=c.at - 1)
    if not type:
        c.fail(f"expected a type such as .u64, found {c.found()}")
    name = c.name("the parameter's name")
    shape = _shape(c)
    element = bytes_of(type)
    size = element * vector * prod(shape)
    _check_size(c, name, size, first)
    return Parameter(
        name, type, element * 8 if type != "pred" else 1, shape, size, align or element * vector,
        "reg" if text == ".reg" else "param", is_pointer, pointer_space, pointer_align, c.span_from(first),
    )  # fmt: skip


def parameters(c: Cursor) -> tuple[Parameter, ...]:
    """Parameters in parentheses, `(.param ..., .param ...)`; an empty tuple if there are no parentheses."""
    if not c.accept("("):
        return ()
    found: list[Parameter] = []
    if c.accept(")"):
        return ()
    while True:
        found.append(parameter(c))
        if not c.accept(","):
            break
    c.expect(")", "',' or ')'")
    return tuple(found)


def registers(c: Cursor, limit: int) -> tuple[DeclarationHead, list[tuple[list[str], int]]]:
    """Registers of one declaration, `.reg .b32 %r<5>, a;`: the head, and (names, token index) for each item. The cursor is
    behind `.reg`; the semicolon is read.
    """
    head = _head(c)
    found: list[tuple[list[str], int]] = []
    while True:
        at = c.at
        name = c.name("a register's name")
        if c.kinds[c.at] == "<":
            count = c.names(c.count("the number of registers", limit))
            found.append(([f"{name}{i}" for i in range(count)], at))
        else:
            found.append(([name], at))
        if not c.accept(","):
            break
    c.expect(";")
    return head, found


_NESTING = frozenset((":", "{", "}"))


def labels(c: Cursor) -> dict[int, dict[str, int]]:
    """Labels of each `{ }` of the function body at the cursor, by the index of its `{`, each with its own index. They are
    collected first, because a branch may precede its label.
    """
    kinds, texts = c.kinds, c.texts
    found: dict[int, dict[str, int]] = {}
    open_blocks: list[int] = []
    for at in range(c.at, len(kinds)):
        kind = kinds[at]
        if kind not in _NESTING:
            continue
        if kind == ":":
            if open_blocks and kinds[at - 1] == "word":
                those, name = found[open_blocks[-1]], texts[at - 1]
                if name in those and kinds[at - 2] != "?":
                    c.fail(f"the label {name} is there twice", at=at - 1)
                those[name] = at - 1
        elif kind == "{":
            open_blocks.append(at)
            found[at] = {}
        elif kind == "}":
            open_blocks.pop()
            if not open_blocks:
                return found
    raise c.error("the function's body is not closed", "a '}' is missing")


# debugging directives ------------------------------------------------------------------------------------------------
DIRECTIVES = frozenset((".loc", ".file", ".section"))


def skip_debug(c: Cursor) -> None:
    """Skip .file and .section, and record .loc in the source. The cursor is at one of DIRECTIVES."""
    directive, known = c.texts[c.at], c.tokens.marks.get(c.at)
    c.at += 1
    if known is not None:
        c.tokens.source.lines.marks.append(known)
        return
    if directive == ".section":
        if not (c.accept("dot") or c.accept("word")):
            c.expect("string", "the section's name")
        c.expect("{")
        depth = 1
        while depth:
            kind = c.kinds[c.at]
            if kind == "end":
                c.fail("the section is not closed", "a '}' is missing")
            depth += (kind == "{") - (kind == "}")
            c.at += 1
        return
    if directive == ".file":
        c.expect("int", "a number")
        c.expect("string", "a file name")
        while c.accept(","):
            c.integer()
        return
    _mark(c)


def _mark(c: Cursor) -> None:
    """Read the rest of a .loc and record it in the source."""
    start = c.tokens.starts[c.at - 1]
    file = c.number("a file number")
    line = c.number("a line number")
    column = c.number("a column") if c.kinds[c.at] == "int" else 0
    if not c.accept(","):
        c.tokens.source.lines.marks.append(Mark(start, file, line, column))
        return
    if not c.accept_text("function_name"):
        c.fail(f"expected function_name, found {c.found()}")
    label = c.texts[c.at]
    if not c.accept("dot"):
        c.expect("word", "a label")
    skip = c.integer() if c.accept("+") else 0
    c.expect(",")
    if not c.accept_text("inlined_at"):
        c.fail(f"expected inlined_at, found {c.found()}")
    call = c.number("a file number"), c.number("a line number"), c.number("a column")
    c.tokens.source.lines.marks.append(Mark(start, file, line, column, label, max(skip, 0), call))
