"""Pieces: the LLVM lines of an instruction one by one, each in a form of which there are few.

The stencil of a whole instruction (stencils.py) may be one that no kernel had before; its lines seldom are, if every operand is a
value. So constants, the mask, and addresses of stack memory become values by lines of their own (`freeze`, which changes no
number), and a value that stands twice in a line gets a second name. Lines between which control parts stay together.
"""

import operator
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache

from mmulator.base.codegen import ops
from mmulator.base.codegen.lang import Native, call
from mmulator.base.codegen.types import Ty, boolean, f16, f32, f64, i8, i16, i32, i64, i128, ptr, scalar, u8, u16, u32, u64
from mmulator.base.codegen.values import Builder, Value, extract

_TYPE = r"(?:<\d+ x (?:i\d+|float|double|half|ptr)>|i\d+|ptr|float|double|half)"
_NUMBER = r"-?\d+|zeroinitializer|splat ?\(i\d+ -?\d+\)"
_OTHER = r"[^,()]+|splat ?\([^)]*\)"
_OF_TWO = re.compile(rf"(  %[\w.]+ = (?:icmp \w+|fcmp \w+|[a-z]+) )({_TYPE}) ({_OTHER}), ({_OTHER})")
_TYPED = re.compile(rf"<i\d+ [^>]*>|(?<=[ (])({_TYPE}) ({_NUMBER}|%[\w.]+)(?=[,) ]|$)")  # the first: different lanes, as they are
_OPERAND = re.compile(rf"{_NUMBER}|%[\w.]+")
# Lines whose constants may be values; those that are left out have numbers which LLVM needs.
_OPEN = re.compile(
    r"  (?:%[\w.]+ = )?(?:select|zext|sext|trunc|bitcast|sitofp|uitofp|store|call [^@]*@(?!llvm\.)"
    r"|call [^@]*@llvm\.(?:[su](?:min|max|add\.sat|sub\.sat)|fsh[lr]|fma|(?:max|min)imumnum|copysign)\.)"
)
_LABEL = re.compile(r"label %(\w+)")
_SCALARS = {**{t.llvm: t.name for t in (u8, u16, u32, u64, i128, f16, f32, f64)}, "i1": "bool"}


class PieceLines:
    """The pieces of some lines.

    texts: the lines of each.
    others: second name of a value -> its name.
    """

    def __init__(self, lines: Sequence[str], b: Builder, given: Container[str]) -> None:
        """b: the builder of the lines; it learns the types of new names. given: names that a line of their own makes values."""
        self.texts: list[str] = []
        self.others: dict[str, str] = {}
        self._b, self._given = b, given
        self._made: dict[tuple[str, str], str] = {}
        start = 0
        for stop in _ends(lines):
            self.texts.append(self._open(lines[start]) if stop == start + 1 else "\n".join(lines[start:stop]))
            start = stop

    def _open(self, line: str) -> str:
        seen: set[str] = set()

        def value(ty: str, operand: str) -> str:
            if operand == "%w" or not _OPERAND.fullmatch(operand):
                return operand
            if operand[0] != "%" or operand in self._given or operand in self._b.rooms:
                operand = self._frozen(ty, operand)
            if operand in seen:
                operand = self._other(operand)
            seen.add(operand)
            return operand

        two = _OF_TWO.fullmatch(line)
        if two:
            head, ty, first, second = two.groups()
            return f"{head}{ty} {value(ty, first)}, {value(ty, second)}"
        if _OPEN.match(line):
            return _TYPED.sub(lambda found: f"{found[1]} {value(found[1], found[2])}" if found[1] else found[0], line)
        return line

    def _frozen(self, ty: str, operand: str) -> str:
        """The name of an operand as a value."""
        if operand == "zeroinitializer" and "i1>" not in ty:
            operand = f"splat ({_element(ty)} 0)"
        operand = operand.replace("splat(", "splat (")
        name = self._made.get((ty, operand))
        if name is None:
            name = self._made[ty, operand] = self._new(type_of(ty))
            self.texts.append(f"  {name} = freeze {ty} {operand}")
        return name

    def _other(self, name: str) -> str:
        other = self._new(self._b.types[name])
        self.others[other] = name
        return other

    def _new(self, ty: Ty) -> str:
        name = f"%k{len(self._b.types)}"
        self._b.types[name] = ty
        return name


def _ends(lines: Sequence[str]) -> Iterator[int]:
    """Numbers of the lines behind which a piece may end: all labels that were named are there, and control passes its end."""
    named: set[str] = set()
    there: set[str] = set()
    for n, line in enumerate(lines, 1):
        if line[0] != " ":
            there.add(line[:-1])
        named.update(_LABEL.findall(line))
        if n == len(lines) or (named == there and line[:5] not in ("  br ", "  ret")):
            yield n


@cache
def type_of(text: str) -> Ty:
    """The type that LLVM writes so; integers without a sign."""
    if text == "ptr":
        return ptr
    lanes = text[1 : text.index(" ")] if text[0] == "<" else ""
    found = scalar(_SCALARS[_element(text)])
    return found.vec(int(lanes)) if lanes else found


def _element(text: str) -> str:
    return text.rpartition(" ")[2].rstrip(">")


# pieces that any kernel may need ------------------------------------------------------------------------------------
_LANES = 32
_ARITHMETIC = (
    operator.add, operator.sub, operator.mul, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
)  # fmt: skip
_COMPARE = operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge
_DIVIDE = operator.floordiv, operator.mod
_LOGIC = operator.and_, operator.or_, operator.xor, operator.eq, operator.ne
_OF_FLOATS = operator.add, operator.sub, operator.mul, operator.truediv


def _lines() -> Builder:
    """A builder of lines. The first makes lanes of the mask, as in a block."""
    b = Builder("pieces", i32, [("mask", u32)])
    ops.bits_mask(b.params[0])
    return b


def _new(b: Builder, ty: Ty) -> Value:
    name = f"%a{len(b.types)}"
    b.types[name] = ty
    return Value(b, ty, name)


def calls(natives: Iterable[Native]) -> Builder:
    """A builder whose lines call native functions. The parameter `w` is the warp of the block."""
    b = _lines()
    for native in natives:
        call(b, native, [Value(b, ty, "%w") if name == "w" else _new(b, ty) for name, ty in native.params])
    return b


def common() -> Builder:
    """A builder whose lines are operations on the types of registers: what instructions are made of, beside calls."""
    b = _lines()
    integers = [t for ty in (i8, u8, i16, u16, i32, u32, i64, u64) for t in (ty, ty.vec(_LANES))]
    integers += i16.vec(2 * _LANES), u16.vec(2 * _LANES)  # pairs
    floats = [f32.vec(_LANES), f64.vec(_LANES)]
    truths = [boolean, boolean.vec(_LANES)]

    def new(ty: Ty) -> Value:
        return _new(b, ty)

    for ty in (*integers, *floats, *truths):
        a, c = new(ty), new(ty)
        whole = ty.kind == "int" and ty.bits > 1
        for function in (*_ARITHMETIC, *_COMPARE) if whole else _LOGIC if ty.kind == "int" else (*_OF_FLOATS, *_COMPARE):
            function(a, c)
        if whole:
            ops.minimum(a, c), ops.maximum(a, c)
            for function in _DIVIDE if not ty.lanes else ():
                function(a, c)
            if not ty.lanes:
                b.emit(ty, f"freeze {ty.llvm} 7")
            else:
                b.emit(ty, f"freeze {ty.llvm} splat ({ty.element.llvm} 7)")
        for condition in truths if ty.lanes == _LANES else truths[:1]:
            ops.select(new(condition), a, c)
        if ty.lanes:
            extract(a, 0)
        for other in integers:
            if whole and ty.bits != other.bits and ty.lanes == other.lanes:
                other(a)
    for text in ("i1 0", "i1 1", "i32 %mask", "ptr %regs"):
        b.emit(type_of(text.partition(" ")[0]), f"freeze {text}")
    for text in ("zeroinitializer", "splat (i1 1)", "%v1"):
        b.emit(truths[1], f"freeze <32 x i1> {text}")
    return b
