"""Types of the code generator. Integer types have a sign, which decides the meaning of `>>`, `<`, `//` and conversions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Literal, TypeVar

from mmulator.base.classes import dataclass
from mmulator.base.errors import InternalError
from mmulator.base.lazy import cached_property

T = TypeVar("T")
Kind = Literal["int", "float", "ptr", "void"]


class CodeError(InternalError):
    """An error in code that is being generated. located: whether the message names the line of a @native function."""

    located = False


_converters: list[Callable[[Any, Any], Any]] = []  # `convert` of values.py, which knows this file and not the other way round


def converter(function: Callable[[Any, Any], T]) -> Callable[[Any, Any], T]:
    """Decorator of the function (type, value) that carries out `ty(value)`."""
    _converters.append(function)
    return function


@dataclass(frozen=True)
class Ty:
    """A scalar (`lanes` == 0) or a vector of `lanes` scalars. Calling it converts a Value: `i32(x)`, `f32x16(x)`.

    to: for a pointer, the type to which it points, so that `p[i]` loads and `p[i] = v` stores.
    """

    name: str
    kind: Kind
    bits: int
    signed: bool = False
    lanes: int = 0
    to: Any = None  # Ty or Struct, for a pointer

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Ty) and self.name == other.name and self.to == other.to

    @cached_property
    def llvm(self) -> str:
        scalar = "ptr" if self.kind == "ptr" else "void" if self.kind == "void" else self._scalar()
        return f"<{self.lanes} x {scalar}>" if self.lanes else scalar

    def _scalar(self) -> str:
        if self.kind == "int":
            return f"i{self.bits}"
        return {16: "half", 32: "float", 64: "double"}[self.bits]

    @cached_property
    def size(self) -> int:
        """Bytes in memory."""
        return max(self.lanes, 1) * self.bits // 8 if self.bits >= 8 else max(self.lanes, 8) // 8

    @property
    def align(self) -> int:
        """Alignment that every load and store assumes: that of the scalar type."""
        return max(1, self.bits // 8) if self.bits >= 8 else 1

    @cached_property
    def element(self) -> Ty:
        return scalar(self.name.split("x")[0]) if self.lanes and self.kind != "ptr" else self

    def vec(self, lanes: int) -> Ty:
        """The vector type with `lanes` of this scalar."""
        return self._vectors.get(lanes) or self._vectors.setdefault(lanes, _vector(self, lanes))

    @cached_property
    def _vectors(self) -> dict[int, Ty]:
        return {}

    def __call__(self, value: Any) -> Any:
        return _converters[0](self, value)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


@cache
def _vector(ty: Ty, lanes: int) -> Ty:
    if ty.lanes:
        raise CodeError(f"{ty} is a vector already")
    return Ty(f"{ty.name}x{lanes}", ty.kind, ty.bits, ty.signed, lanes)


@cache
def scalar(name: str) -> Ty:
    return _SCALARS[name]


def _int(bits: int, signed: bool) -> Ty:
    return Ty(f"{'i' if signed else 'u'}{bits}", "int", bits, signed)


i8, i16, i32, i64, i128 = (_int(b, True) for b in (8, 16, 32, 64, 128))
u8, u16, u32, u64, u128 = (_int(b, False) for b in (8, 16, 32, 64, 128))
boolean = Ty("bool", "int", 1)
f16, f32, f64 = (Ty(f"f{b}", "float", b) for b in (16, 32, 64))
void = Ty("void", "void", 0)
_SCALARS = {t.name: t for t in (i8, i16, i32, i64, i128, u8, u16, u32, u64, u128, boolean, f16, f32, f64)}


@cache
def ptr_to(to: Any) -> Ty:
    """Pointer to a type or to a struct."""
    return Ty(f"ptr({getattr(to, 'name', to)})", "ptr", 64, to=to)


ptr = ptr_to(u8)


class Struct:
    """A C struct that Python and native code share; `numpy_dtype()` is its type in Python.

    fields: (name, type) or (name, type, count).
    offset: name -> offset in bytes.
    size: bytes.
    addresses: fields that hold addresses: pointers, and `functions`, integers that are addresses of code (references.py).
    align: least alignment of the whole.
    """

    def __init__(
        self, name: str, fields: Iterable[tuple[str, Any] | tuple[str, Any, int]], functions: Iterable[str] = (), align: int = 1
    ) -> None:
        self.name = name
        self.addresses = {*functions}
        self.fields: dict[str, tuple[Any, int]] = {}
        self.offset: dict[str, int] = {}
        at = 0
        for entry in fields:
            field_name, ty, count = entry if len(entry) == 3 else (*entry, 0)
            field_align = getattr(ty, "align", 8)
            at = -(-at // field_align) * field_align
            align = max(align, field_align)
            self.fields[field_name] = (ty, count)
            if isinstance(ty, Ty) and ty.kind == "ptr":
                self.addresses.add(field_name)
            self.offset[field_name] = at
            at += ty.size * max(count, 1)
        self.align = align
        self.size = -(-at // self.align) * self.align

    @cache  # noqa: B019  (structs live as long as the program)
    def numpy_dtype(self) -> Any:
        import numpy as np

        names, formats, offsets = [], [], []
        for name, (ty, count) in self.fields.items():
            if isinstance(ty, Struct):
                base: Any = ty.numpy_dtype()
            elif ty.kind == "ptr":
                base = np.dtype(np.uint64)
            else:
                letter = "f" if ty.kind == "float" else "i" if ty.signed else "u"
                base = np.dtype(f"{letter}{max(ty.bits, 8) // 8}")
            if isinstance(ty, Ty) and ty.lanes:
                base = np.dtype((base, (ty.lanes,)))
            names.append(name)
            formats.append(np.dtype((base, (count,))) if count else base)
            offsets.append(self.offset[name])
        made = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": self.size})
        _of_dtype[made] = self
        return made

    def __repr__(self) -> str:
        return f"Struct({self.name}, {self.size} bytes)"


_of_dtype: dict[Any, Struct] = {}


def struct_of(dtype: Any) -> Struct | None:
    """The struct with this NumPy type."""
    return _of_dtype.get(dtype)
