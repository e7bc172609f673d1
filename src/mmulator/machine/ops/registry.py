"""How the meaning of an instruction is registered, and how long sequences are kept out of line.

A semantic function is pure: `f(x, m, *sources) -> Value | tuple[Value, ...]`, all Values 32 lanes wide. It writes few
LLVM instructions; what takes more goes into an `Outlined` function, compiled once and called through pointers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from mmulator.codegen.lang import Native
from mmulator.codegen.types import Ty, boolean, f32, f64, i8, i16, i32, i64, ptr_to, u8, u16, u32, u64, void
from mmulator.codegen.values import Builder, Value
from mmulator.isa.scalar import is_type

LANES = 32
BOOL = boolean.vec(LANES)
U8, U16, U32, U64 = (t.vec(LANES) for t in (u8, u16, u32, u64))
I8, I16, I32, I64 = (t.vec(LANES) for t in (i8, i16, i32, i64))
F32, F64 = f32.vec(LANES), f64.vec(LANES)
UNSIGNED = {8: U8, 16: U16, 32: U32, 64: U64}
SIGNED = {8: I8, 16: I16, 32: I32, 64: I64}

Result = Value | tuple[Value, ...]


class Form(Protocol):
    """What is read of an instruction's form: its name, with fixed modifiers, and (group, modifier) in written order."""

    @property
    def name(self) -> str: ...

    @property
    def modifiers(self) -> tuple[tuple[str, str], ...]: ...


class Scope(Protocol):
    """Where a semantic function writes its instructions.

    carry: CC.CF of each lane (bool x 32), to be read and set. call: calls a native function, and sees to it that the
    function is there when the code runs.
    """

    lanes: int

    @property
    def carry(self) -> Value: ...

    @carry.setter
    def carry(self, value: Value) -> None: ...

    def call(self, function: Native, *args: Any) -> Value: ...


@dataclass(frozen=True)
class Mods:
    """A form's modifiers by what they say. flags: all that are no type. types: in written order."""

    op: str
    flags: frozenset[str]
    types: tuple[str, ...]

    def has(self, *names: str) -> bool:
        return not self.flags.isdisjoint(names)

    def one(self, choices: tuple[str, ...] | dict[str, Any], default: str = "") -> str:
        """The modifier among `choices` that is there."""
        for name in choices:
            if name in self.flags:
                return name
        return default

    @property
    def type(self) -> str:
        """Type of the result, or the only type."""
        return self.types[0]

    @property
    def rounding(self) -> str:
        return self.one(("rn", "rz", "rm", "rp", "rna"))

    @property
    def key(self) -> str:
        """A symbol name that says all of it."""
        return "_".join((self.op, *sorted(self.flags), *self.types)).replace("::", "_")


@cache
def _mods(name: str, modifiers: tuple[tuple[str, str], ...]) -> Mods:
    op, *fixed = name.split(".")
    words = [*fixed, *(m for _, m in modifiers)]
    return Mods(op, frozenset(w for w in words if not is_type(w)), tuple(w for w in words if is_type(w)))


def kind_of(type_name: str) -> str:
    """Which family of functions computes in a type: `int`, `f32`, `f64`, `half`, `int16x2`, `f32x2`, `pred`."""
    if type_name in ("f32", "f64", "f32x2", "pred"):
        return type_name
    if type_name in ("s16x2", "u16x2"):
        return "int16x2"
    if type_name[0] in "sub" and type_name[1:].isdigit():
        return "int"
    return "half"


def int_type(name: str) -> Ty:
    """s32 -> i32 x 32."""
    return (SIGNED if name[0] == "s" else UNSIGNED)[int(name[1:])]


def known(value: Value) -> int | None:
    """The number that every lane of an integer Value is known to hold (as its type reads it), or None."""
    if value.text == "zeroinitializer":
        return 0
    if not value.text.startswith("splat ("):
        return None
    number = int(value.text[:-1].split()[-1])
    return number if value.ty.signed else number % (1 << value.ty.bits)


_TABLE: dict[tuple[str, str], Callable[..., Result]] = {}
SEMANTICS: dict[str, Callable[..., Result]] = {}


def semantic(*names: str, kinds: str = "") -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Register a function for these opcodes, and for these kinds of the result's type (none given: for all)."""

    def register(function: Callable[..., Result]) -> Callable[..., Result]:
        for name in names:
            for kind in kinds.split() or [""]:
                _TABLE[name, kind] = function
            SEMANTICS.setdefault(name, _dispatcher(name))
        return function

    return register


def _dispatcher(op: str) -> Callable[..., Result]:
    def dispatch(x: Scope, form: Form, *sources: Any) -> Result:
        m = _mods(form.name, form.modifiers)
        function = _TABLE.get((op, kind_of(m.types[0]) if m.types else "")) or _TABLE[op, ""]
        return function(x, m, *sources)

    dispatch.__name__ = op
    return dispatch


# out of line --------------------------------------------------------------------------------------------------------
class Outlined(Native):
    """A function `void name(ptr a0, ..., ptr d0, ...)` that loads vectors, runs a macro and stores its results."""

    def __init__(
        self, name: str, ins: tuple[Ty, ...], outs: tuple[Ty, ...], body: Callable[..., Result], attributes: str = ""
    ) -> None:
        self.name, self.attributes, self.returns = name, attributes, void
        self._ins, self._outs, self._body = ins, outs, body
        self.params = [(f"a{n}", ptr_to(t)) for n, t in enumerate(ins)]
        self.params += [(f"d{n}", ptr_to(t)) for n, t in enumerate(outs)]

    def build(self) -> tuple[Builder, list[Native]]:
        builder = Builder(self.name, void, self.params, attributes=self.attributes)
        count = len(self._ins)
        with builder:
            result = self._body(*(p[0] for p in builder.params[:count]))
            results = result if isinstance(result, tuple) else (result,)
            for place, ty, value in zip(builder.params[count:], self._outs, results, strict=True):
                if value.ty.llvm != ty.llvm:
                    raise TypeError(f"{self.name}: {value.ty} where {ty} is stored")
                builder.store(value, place)
            builder.ret()
        return builder, []


LIBRARY: dict[str, Native] = {}
"""Every out-of-line function that emitted code calls, by symbol; filled as semantic functions are used."""

_SLOT_BYTES = U64.size
_slots: WeakKeyDictionary[Builder, list[Value]] = WeakKeyDictionary()


def _slot(b: Builder, number: int, ty: Ty) -> Value:
    """Stack memory for one vector. Calls come one after the other, so all of a function share a few."""
    slots = _slots.setdefault(b, [])
    while len(slots) <= number:
        slots.append(b.alloca(U64))
    return Value(b, ptr_to(ty), slots[number].text)


def call_through_memory(
    x: Scope, function: Native, outs: tuple[Ty, ...], sources: tuple[Value, ...]
) -> tuple[Value, ...]:
    """A call of `function(pointer to each source, pointer to each result)`."""
    b = Builder.current()
    places = [_slot(b, n, s.ty) for n, s in enumerate(sources)]
    results = [_slot(b, n, ty) for n, ty in enumerate(outs, 0 if isinstance(function, Outlined) else len(sources))]
    for source, place in zip(sources, places):
        b.store(source, place)
    x.call(function, *places, *results)
    return tuple(b.load(ty, place) for ty, place in zip(outs, results))


def outline(
    x: Scope, name: str, outs: Ty | tuple[Ty, ...], body: Callable[..., Result], *sources: Value, attributes: str = ""
) -> Any:
    """`body(*sources)`, computed by a function named `name`; the name must say everything that `body` depends on."""
    outs_tuple = outs if isinstance(outs, tuple) else (outs,)
    function = LIBRARY.get(name)
    if function is None:
        function = LIBRARY[name] = Outlined(name, tuple(s.ty for s in sources), outs_tuple, body, attributes)
    values = call_through_memory(x, function, outs_tuple, sources)
    return values if isinstance(outs, tuple) else values[0]


def outlined(outs: Callable[[Mods], Ty | tuple[Ty, ...]]) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorator of `f(m, *sources)`: becomes a semantic function whose work is done out of line."""

    def decorate(body: Callable[..., Result]) -> Callable[..., Result]:
        def run(x: Scope, m: Mods, *sources: Value) -> Result:
            name = "_".join((f"ptx_{m.key}", *(s.ty.name for s in sources)))
            return outline(x, name, outs(m), lambda *values: body(m, *values), *sources)  # type: ignore[no-any-return]

        return run

    return decorate
