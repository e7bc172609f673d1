"""The interface of lane-wise functions, and functions that keep long sequences out of line.

A lane-wise function is pure: `f(x, m, *sources) -> Value | tuple[Value, ...]`, all Values 32 lanes wide. It writes few LLVM
instructions; longer sequences go into an `Outlined` function, compiled once and called.
"""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Protocol

from mmulator.base.classes import dataclass
from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.types import CodeError, Ty, boolean, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from mmulator.base.codegen.values import Builder, Value, convert
from mmulator.isa.types import is_type

LANES = 32
BOOL = boolean.vec(LANES)
U8, U16, U32, U64 = (t.vec(LANES) for t in (u8, u16, u32, u64))
I8, I16, I32, I64 = (t.vec(LANES) for t in (i8, i16, i32, i64))
F32, F64 = f32.vec(LANES), f64.vec(LANES)
UNSIGNED = {8: U8, 16: U16, 32: U32, 64: U64}
SIGNED = {8: I8, 16: I16, 32: I32, 64: I64}

Result = Value | tuple[Value, ...]
to = convert


class FormLike(Protocol):
    """The parts of an instruction's form that are used here: its name, with fixed modifiers, and (group, modifier) in written
    order.
    """

    @property
    def name(self) -> str: ...

    @property
    def modifiers(self) -> tuple[tuple[str, str], ...]: ...


class Scope(Protocol):
    """The place where a lane-wise function writes its instructions.

    carry: CC.CF of each lane (bool x 32), to be read and set. call: calls a native function, and ensures that it exists when
        the code runs.
    """

    lanes: int

    @property
    def carry(self) -> Value: ...

    @carry.setter
    def carry(self, value: Value) -> None: ...

    def call(self, function: Native, *args: Any) -> Value: ...


@dataclass(frozen=True)
class Mods:
    """A form's modifiers by meaning. flags: all modifiers that are not types. types: in written order."""

    op: str
    flags: frozenset[str]
    types: tuple[str, ...]

    def has(self, *names: str) -> bool:
        return not self.flags.isdisjoint(names)

    def one(self, choices: tuple[str, ...] | dict[str, Any], default: str = "") -> str:
        """The modifier among `choices` that is present, or `default`."""
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
        return self.one(("rn", "rz", "rm", "rp", "rna", "rs"))

    @property
    def key(self) -> str:
        """A symbol name that identifies all modifiers."""
        return "_".join((self.op, *sorted(self.flags), *self.types)).replace("::", "_")


@cache
def _mods(name: str, modifiers: tuple[tuple[str, str], ...]) -> Mods:
    op, *fixed = name.split(".")
    words = [*fixed, *(m for _, m in modifiers)]
    return Mods(op, frozenset(w for w in words if not is_type(w)), tuple(w for w in words if is_type(w)))


def mods(form: FormLike) -> Mods:
    """A form's modifiers as semantic functions read them."""
    kept = vars(form)
    found: Mods = kept.get("mods") or kept.setdefault("mods", _mods(form.name, form.modifiers))
    return found


def kind_of(type_name: str) -> str:
    """The family of functions that computes in a type: `int`, `f32`, `f64`, `half`, `packed` (integers), `f32x2`, `pred`."""
    if type_name in ("f32", "f64", "f32x2", "pred"):
        return type_name
    if type_name in ("s16x2", "u16x2", "s8x4", "u8x4"):
        return "packed"
    if type_name[0] in "sub" and type_name[1:].isdigit():
        return "int"
    return "half"


def of_integers(m: Mods) -> bool:
    """Whether all types are integers or predicates."""
    return all(kind_of(t) in ("int", "pred") for t in m.types)


def int_type(name: str) -> Ty:
    """s32 -> i32 x 32."""
    return (SIGNED if name[0] == "s" else UNSIGNED)[int(name[1:])]


# out of line --------------------------------------------------------------------------------------------------------
class Outlined(Native):
    """A function of vectors that runs a macro on them: `out name(a0, ...)`."""

    def __init__(self, name: str, ins: tuple[Ty, ...], out: Ty, body: Callable[..., Value], attributes: str = "") -> None:
        self.name, self.attributes, self.returns = name, attributes, out
        self.function = self._body = body
        self.params = [(f"a{n}", t) for n, t in enumerate(ins)]

    def is_like(self, other: Native) -> bool:
        return isinstance(other, Outlined) and self._body.__code__ is other._body.__code__ and self.params == other.params

    def build(self) -> tuple[Builder, list[Native]]:
        builder = Builder(self.name, self.returns, self.params, attributes=self.attributes)
        with builder:
            result = self._body(*builder.params)
            if result.ty.llvm != self.returns.llvm:
                raise CodeError(f"{self.name}: {result.ty} where {self.returns} is wanted")
            builder.ret(result)
        return builder, []


LIBRARY: dict[str, Native] = {}
"""Every out-of-line function of this package by symbol; filled as semantic functions are used."""


def outline(x: Scope, name: str, out: Ty, body: Callable[..., Value], *sources: Value, attributes: str = "") -> Value:
    """`body(*sources)`, computed by a function named `name`; the name must identify everything on which `body` depends.

    x: the scope.
    name: of the function.
    out: type of the result.
    body: writes the computation.
    attributes: LLVM attributes of the function.
    """
    function = LIBRARY.get(name)
    if function is None:
        function = LIBRARY[name] = Outlined(name, tuple(s.ty for s in sources), out, body, attributes)
    return x.call(function, *sources)


def outlined(out: Callable[[Mods], Ty]) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Decorator of `f(m, *sources)`: becomes a semantic function whose work is done out of line."""

    def decorate(body: Callable[..., Value]) -> Callable[..., Value]:
        @wraps(body)
        def run(x: Scope, m: Mods, *sources: Value) -> Value:
            name = "_".join((f"ptx_{m.key}", *(s.ty.name for s in sources)))
            return outline(x, name, out(m), lambda *values: body(m, *values), *sources)

        return run

    return decorate
