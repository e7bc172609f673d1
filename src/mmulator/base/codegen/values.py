"""Values whose operators write LLVM instructions, and the builder of one function."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import local
from typing import Any

from mmulator.base.codegen.types import CodeError, Struct, Ty, boolean, converter, i64, ptr_to, u64, void

# Faster by a number that LLVM knows, which a stencil of its own has: by any number, and by a power of two.
_LITERAL = ("sdiv", "udiv", "srem", "urem")
_POWERS = frozenset(str(1 << n) for n in range(64))


class Value:
    """An SSA value of a type, in the function that is being built."""

    __slots__ = ("b", "text", "ty")

    def __init__(self, b: Builder, ty: Ty, text: str) -> None:
        self.b, self.ty, self.text = b, ty, text

    def __repr__(self) -> str:
        return f"{self.ty} {self.text}"

    @property
    def typed(self) -> str:
        return f"{self.ty.llvm} {self.text}"

    # arithmetic -----------------------------------------------------------------------------------------------------
    def _binary(self, other: Any, int_op: str, float_op: str | None = None, swap: bool = False) -> Value:
        a, c = unify(self, other)
        if swap:
            a, c = c, a
        op = int_op if a.ty.kind == "int" else float_op
        if op is None or a.ty.kind not in ("int", "float"):
            raise CodeError(f"{int_op} is not defined on {a.ty}")
        second = c.text
        if second[:7] == "splat (" and (op in _LITERAL or (op == "mul" and second[7:-1].rpartition(" ")[2] in _POWERS)):
            second = second.replace("splat (", "splat(")
        return self.b.emit(a.ty, f"{op} {a.ty.llvm} {a.text}, {second}")

    def __add__(self, other: Any) -> Value:
        if self.ty.kind == "ptr":
            return self.b.offset(self, other)
        return self._binary(other, "add", "fadd")

    def __radd__(self, other: Any) -> Value:
        return self.__add__(other)

    def __sub__(self, other: Any) -> Value:
        return self._binary(other, "sub", "fsub")

    def __rsub__(self, other: Any) -> Value:
        return self._binary(other, "sub", "fsub", swap=True)

    def __mul__(self, other: Any) -> Value:
        return self._binary(other, "mul", "fmul")

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Value:
        return self._binary(other, "fdiv" if self.ty.kind == "float" else "", "fdiv")

    def __floordiv__(self, other: Any) -> Value:
        """Integer division as C does it: toward zero. Undefined for 0 and for MIN / -1."""
        return self._binary(other, "sdiv" if self.ty.signed else "udiv")

    def __mod__(self, other: Any) -> Value:
        return self._binary(other, "srem" if self.ty.signed else "urem")

    def __and__(self, other: Any) -> Value:
        return self._binary(other, "and")

    __rand__ = __and__

    def __or__(self, other: Any) -> Value:
        return self._binary(other, "or")

    __ror__ = __or__

    def __xor__(self, other: Any) -> Value:
        return self._binary(other, "xor")

    __rxor__ = __xor__

    def __lshift__(self, other: Any) -> Value:
        """Shift left. Undefined (poison) for a shift of the width or more."""
        return self._binary(other, "shl")

    def __rlshift__(self, other: Any) -> Value:
        return self._binary(other, "shl", swap=True)

    def __rshift__(self, other: Any) -> Value:
        """Shift right, arithmetic for signed types. Undefined (poison) for a shift of the width or more."""
        return self._binary(other, "ashr" if self.ty.signed else "lshr")

    def __invert__(self) -> Value:
        return self ^ (1 if self.ty.bits == 1 else -1)

    def __neg__(self) -> Value:
        if self.ty.kind == "float":
            return self.b.emit(self.ty, f"fneg {self.typed}")
        return constant(self.b, self.ty, 0) - self

    # comparison -----------------------------------------------------------------------------------------------------
    def _compare(self, other: Any, name: str) -> Value:
        """A comparison, ordered for floats, but != is unordered, as in C."""
        a, c = unify(self, other)
        ty = boolean.vec(a.ty.lanes) if a.ty.lanes else boolean
        if a.ty.kind == "float":
            predicate = "une" if name == "ne" else "o" + name
            return self.b.emit(ty, f"fcmp {predicate} {a.ty.llvm} {a.text}, {c.text}")
        sign = "" if name in ("eq", "ne") else "s" if a.ty.signed else "u"
        return self.b.emit(ty, f"icmp {sign}{name} {a.ty.llvm} {a.text}, {c.text}")

    def __eq__(self, other: Any) -> Value:  # type: ignore[override]
        return self._compare(other, "eq")

    def __ne__(self, other: Any) -> Value:  # type: ignore[override]
        return self._compare(other, "ne")

    def __lt__(self, other: Any) -> Value:
        return self._compare(other, "lt")

    def __le__(self, other: Any) -> Value:
        return self._compare(other, "le")

    def __gt__(self, other: Any) -> Value:
        return self._compare(other, "gt")

    def __ge__(self, other: Any) -> Value:
        return self._compare(other, "ge")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise CodeError("a run-time Value has no truth at compile time; use if_, select or @native's if")

    # access ---------------------------------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> Any:
        """p[i]: load (or the address, when p points to structs); v[i]: one lane."""
        if self.ty.kind == "ptr" and not self.ty.lanes:
            place = self.b.offset(self, index)
            return place if isinstance(self.ty.to, Struct) else self.b.load(self.ty.to, place)
        return extract(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.b.store(self.ty.to(as_value(self.b, value, self.ty.to)), self.b.offset(self, index))

    def field(self, name: str) -> Any:
        """The field of the struct to which the pointer points: its value, or its address if it is an array or a struct."""
        ty, count = self.ty.to.fields[name]
        place = self.field_address(name)
        if count or isinstance(ty, Struct):
            return place
        return self.b.load(ty, place)

    def field_address(self, name: str) -> Value:
        ty, _ = self.ty.to.fields[name]
        at = self.ty.to.offset[name]
        return self.b.emit(ptr_to(ty), f"getelementptr i8, ptr {self.text}, i64 {at}")

    def set_field(self, name: str, value: Any) -> None:
        ty, _ = self.ty.to.fields[name]
        self.b.store(ty(as_value(self.b, value, ty)), self.field_address(name))


def float_text(ty: Ty, value: float) -> str:
    """An LLVM constant with exactly the bits of `value` (which must be representable in the type)."""
    if ty.bits == 16:
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def constant(b: Builder, ty: Ty, value: int | float | bool) -> Value:
    """A constant of a type, in each lane of a vector; integers wrap to the type's bits."""
    if ty.kind == "ptr":
        if value != 0:
            raise CodeError("only null is a constant pointer")
        return Value(b, ty, "null")
    if ty.kind == "float":
        text = float_text(ty, float(value))
    else:
        mask = (1 << ty.bits) - 1
        number = int(value) & mask
        text = str(number - (1 << ty.bits) if number >> (ty.bits - 1) and ty.bits > 1 else number)
    if ty.lanes:
        text = "zeroinitializer" if not value and ty.kind == "int" else f"splat ({ty.element.llvm} {text})"
    return Value(b, ty, text)


def lanes_constant(b: Builder, ty: Ty, values: Sequence[int]) -> Value:
    """A vector constant, one number a lane."""
    parts = ", ".join(f"{ty.element.llvm} {constant(b, ty.element, v).text}" for v in values)
    return Value(b, ty, f"<{parts}>")


def as_value(b: Builder, value: Any, ty: Ty) -> Value:
    """A Value as it is, or a Python number as a constant of the type."""
    return value if isinstance(value, Value) else constant(b, ty, value)


def unify(a: Value, other: Any) -> tuple[Value, Value]:
    """Bring two operands to one type: a Python number takes the other's type, a scalar is splat over a vector."""
    if not isinstance(other, Value):
        return a, constant(a.b, a.ty, other)
    if a.ty.lanes and not other.ty.lanes:
        other = splat(other, a.ty.lanes)
    elif other.ty.lanes and not a.ty.lanes:
        a = splat(a, other.ty.lanes)
    if a.ty != other.ty and not (a.ty.kind == other.ty.kind == "ptr"):
        raise CodeError(f"operands of {a.ty} and {other.ty}: convert one of them")
    return a, other


def splat(value: Value, lanes: int) -> Value:
    """A vector with a scalar in each lane."""
    b, ty = value.b, value.ty.vec(lanes)
    if value.text[0] not in "%@":
        return Value(b, ty, f"splat ({value.typed})")
    one = b.emit(ty, f"insertelement {ty.llvm} poison, {value.typed}, i32 0")
    return b.emit(ty, f"shufflevector {one.typed}, {ty.llvm} poison, <{lanes} x i32> zeroinitializer")


@converter
def convert(ty: Ty, value: Any) -> Value:
    """`ty(value)`: sign or zero extension by the source's sign, truncation, float conversions, splat."""
    if not isinstance(value, Value):
        return constant(Builder.current(), ty, value)
    b, source = value.b, value.ty
    if ty == source:
        return value
    if ty.lanes and not source.lanes:
        element = ty.element if ty.kind != "ptr" else ty
        return splat(convert(element, value), ty.lanes)
    if ty.lanes != source.lanes:
        raise CodeError(f"{source} does not convert to {ty}")
    if ty.kind == "ptr" and source.kind == "ptr":
        return Value(b, ty, value.text)
    if value.text[0] not in "%@<sz" and ty.kind == source.kind == "int":
        return constant(b, ty, int(value.text) if source.signed else int(value.text) % (1 << source.bits))
    match source.kind, ty.kind:
        case "int", "int":
            if ty.bits == source.bits:
                return Value(b, ty, value.text)
            op = "trunc" if ty.bits < source.bits else "sext" if source.signed else "zext"
        case "int", "float":
            op = "sitofp" if source.signed else "uitofp"
        case "float", "int":
            op = "fptosi" if ty.signed else "fptoui"
        case "float", "float":
            op = "fptrunc" if ty.bits < source.bits else "fpext"
        case "ptr", "int":
            op = "ptrtoint"
        case "int", "ptr":
            op = "inttoptr"
        case _:
            raise CodeError(f"{source} does not convert to {ty}")
    return b.emit(ty, f"{op} {value.typed} to {ty.llvm}")


def extract(value: Value, index: Any) -> Value:
    """One lane of a vector. index: a Value, or a Python number."""
    at = index.typed if isinstance(index, Value) else f"i32 {index}"
    return value.b.emit(value.ty.element, f"extractelement {value.typed}, {at}")


class _Thread(local):
    """The function that a thread is building."""

    def __init__(self) -> None:
        self.open: list[Builder] = []


_thread = _Thread()


class Builder:
    """One function under construction. The innermost open builder of this thread is `Builder.current()`."""

    def __init__(
        self, name: str, returns: Ty, params: Sequence[tuple[str, Ty]], *, attributes: str = "", linkage: str = ""
    ) -> None:
        self.name, self.returns, self.attributes, self.linkage = name, returns, attributes, linkage
        self.declared: dict[str, str] = {}
        self._allocas: list[str] = []
        self.lines: list[str] = []
        self.cuts: list[int] = []  # numbers of lines with which an instruction begins
        self.straight = True  # whether no line since the last cut branches, or is branched to
        self.types: dict[str, Ty] = {}  # of values
        self.rooms: dict[str, int] = {}  # bytes of stack memory
        self._count = 0
        self.terminated = False
        self._params = list(params)
        self.params = [Value(self, ty, f"%{n}") for n, ty in params]

    @classmethod
    def current(cls) -> Builder:
        if not _thread.open:
            raise CodeError("no function is being built")
        return _thread.open[-1]

    def __enter__(self) -> Builder:
        _thread.open.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _thread.open.pop()

    # writing --------------------------------------------------------------------------------------------------------
    def emit(self, ty: Ty, text: str) -> Value:
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        self.types[name] = ty
        return Value(self, ty, name)

    def cut(self) -> None:
        """Say that the next line is the first of an instruction (base/codegen/stencils.py)."""
        self.cuts.append(len(self.lines))
        self.straight = True

    def apart(self) -> Apart:
        """A context whose lines may be taken apart from those before and behind, unless the instruction has branched."""
        return Apart(self)

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, hint: str = "b") -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def place(self, label: str) -> None:
        """Start the block `label`; an open block falls through to it."""
        if not self.terminated:
            self.lines.append(f"  br label %{label}")
        self.lines.append(f"{label}:")
        self.terminated = self.straight = False

    def branch(self, label: str) -> None:
        if not self.terminated:
            self.lines.append(f"  br label %{label}")
            self.terminated, self.straight = True, False

    def branch_if(self, condition: Value, yes: str, no: str) -> None:
        if condition.ty != boolean:
            raise CodeError(f"a condition is bool, not {condition.ty}")
        self.lines.append(f"  br i1 {condition.text}, label %{yes}, label %{no}")
        self.terminated, self.straight = True, False

    def ret(self, value: Any = None) -> None:
        if self.returns.kind == "void":
            self.lines.append("  ret void")
        else:
            self.lines.append(f"  ret {self.returns.llvm} {as_value(self, value, self.returns).text}")
        self.terminated = True

    # memory ---------------------------------------------------------------------------------------------------------
    def alloca(self, ty: Ty | Struct, count: int = 1, align: int = 64) -> Value:
        """Stack space, taken once at entry."""
        self._count += 1
        name = f"%s{self._count}"
        self.rooms[name] = ty.size * count
        self._allocas.append(f"  {name} = alloca [{ty.size * count} x i8], align {align}")
        return Value(self, ptr_to(ty), name)

    def offset(self, pointer: Value, index: Any) -> Value:
        """The pointer plus `index` elements of its target type."""
        size = pointer.ty.to.size
        if not isinstance(index, Value):
            if index == 0:
                return pointer
            return self.emit(pointer.ty, f"getelementptr i8, ptr {pointer.text}, i64 {int(index) * size}")
        at = i64(index) if index.ty.signed else u64(index)
        return self.emit(pointer.ty, f"getelementptr [{size} x i8], ptr {pointer.text}, i64 {at.text}")

    def load(self, ty: Ty, pointer: Value, align: int | None = None) -> Value:
        return self.emit(ty, f"load {ty.llvm}, ptr {pointer.text}, align {align or ty.align}")

    def store(self, value: Value, pointer: Value, align: int | None = None) -> None:
        self.line(f"store {value.typed}, ptr {pointer.text}, align {align or value.ty.align}")

    # calls ----------------------------------------------------------------------------------------------------------
    def declare(self, name: str, returns: Ty, types: Sequence[Ty], attributes: str = "") -> None:
        self.declared[name] = f"declare {returns.llvm} @{name}({', '.join(t.llvm for t in types)}){attributes}"

    def call(self, name: str, returns: Ty, args: Sequence[Value], *, declare: bool = True, attributes: str = "") -> Value:
        """Call a function by symbol.

        name: the symbol.
        returns: type of the result.
        args: arguments.
        declare: False if it is defined in the same text; otherwise it is declared as external.
        attributes: LLVM attributes of the declaration.
        """
        if declare:
            self.declare(name, returns, [a.ty for a in args], attributes)
        text = f"call {returns.llvm} @{name}({', '.join(a.typed for a in args)})"
        if returns.kind == "void":
            self.line(text)
            return Value(self, void, "")
        return self.emit(returns, text)

    def call_pointer(self, pointer: Value, returns: Ty, args: Sequence[Value]) -> Value:
        text = f"call {returns.llvm} {pointer.text}({', '.join(a.typed for a in args)})"
        if returns.kind == "void":
            self.line(text)
            return Value(self, void, "")
        return self.emit(returns, text)

    def intrinsic(self, name: str, returns: Ty, args: Sequence[Value], suffix: str = "") -> Value:
        """llvm.NAME, with the type suffix that LLVM mangles in (default: that of the first argument)."""
        return self.call(f"llvm.{name}.{suffix or mangle(args[0].ty)}", returns, args)

    # control flow ---------------------------------------------------------------------------------------------------
    @contextmanager
    def if_(self, condition: Value) -> Iterator[None]:
        yes, end = self.label("then"), self.label("end")
        self.branch_if(condition, yes, end)
        self.place(yes)
        yield
        self.branch(end)
        self.place(end)

    # result ---------------------------------------------------------------------------------------------------------
    def text(self) -> str:
        """The function's definition, without the declarations it needs (`declared`)."""
        params = ", ".join(f"{ty.llvm} %{n}" for n, ty in self._params)
        tail = [] if self.terminated else ["  ret void" if self.returns.kind == "void" else "  unreachable"]
        head = f"define {self.linkage} {self.returns.llvm} @{self.name}({params}) {self.attributes or WIDE} {{"
        return "\n".join([head, "entry:", *self._allocas, "  br label %start", "start:", *self.lines, *tail, "}", ""])


class Apart:
    """The context of `Builder.apart`. A class, which is entered in a quarter of the time of a generator."""

    __slots__ = ("b", "free")

    def __init__(self, b: Builder) -> None:
        self.b, self.free = b, b.straight

    def __enter__(self) -> None:
        if self.free:
            self.b.cut()

    def __exit__(self, *exc: object) -> None:
        if self.free:
            self.b.cut()


# Without these LLVM splits 512-bit vectors on the CPUs whose tuning prefers 256.
WIDE = 'nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512"'


def mangle(ty: Ty) -> str:
    """A type as LLVM writes it into an intrinsic's name."""
    scalar = "p0" if ty.kind == "ptr" else f"i{ty.bits}" if ty.kind == "int" else f"f{ty.bits}"
    return f"v{ty.lanes}{scalar}" if ty.lanes else scalar


def module_text(builders: Sequence[Builder]) -> str:
    """Definitions and the declarations they need, as one module."""
    defined = {b.name for b in builders}
    declared: dict[str, str] = {}
    for b in builders:
        declared.update({n: d for n, d in b.declared.items() if n not in defined})
    return "\n".join([*(declared[n] for n in sorted(declared)), "", *(b.text() for b in builders)])
