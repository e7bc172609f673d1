"""Expressions over the lanes of a warp: `tid.x == 3 && %r5 > 7`, `%r5.f32 * 2`, `C[3,5]`.

C's operators on the values of all 32 lanes. A register has the value of its PTX type; a type behind it (`%r5.s32`) is another
look at its bits. Integers have no limit of size.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.base.errors import shown
from mmulator.isa.types import TYPES, type_bits
from mmulator.observation.debug.stops import DebugError
from mmulator.observation.record.values import dtype_of
from mmulator.runtime.native.state import LANES

if TYPE_CHECKING:
    from mmulator.observation.debug.machine import Machine, WarpState

NAMES = "tid.x ctaid.x ntid.x nctaid.x (also .y, .z), lane, warp, thread, block, %r5, %r5.f32, C[3,5]"
_TOKEN = re.compile(
    r"\s*(?:(?P<element>[A-Za-z_]\w*\[[^\]]*\])|(?P<register>[%$][A-Za-z_$][\w$]*(?:\.(?!x\b|y\b|z\b)\w+)?)"
    r"|(?P<special>%?(?:tid|ctaid|ntid|nctaid|threadIdx|blockIdx|blockDim|gridDim)\.[xyz]|\$?(?:lane|warp|thread|block|laneid|warpid)\b)"
    r"|(?P<bare>[A-Za-z_]\w*)"  # a register without a mark, as a person names it
    r"|(?P<number>0[xX][0-9a-fA-F]+|\d+\.\d*(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]?\d+)?)"
    r"|(?P<operator>&&|\|\||<<|>>|[<>=!]=|[-+*/%&|^~!<>()]))"
)
_OF_CUDA = {"threadIdx": "tid", "blockIdx": "ctaid", "blockDim": "ntid", "gridDim": "nctaid"}
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def _quotient(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        return a / b if b else float("nan")
    return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)  # as C: toward zero


def _rest(a: Any, b: Any) -> Any:
    return a - b * _quotient(a, b)


@dataclass(frozen=True)
class Expression:
    """An expression that was read.

    text: as typed.
    tree: as Python's grammar has it.
    names: what `v0`, `v1`... in it stand for, as (kind, text).
    """

    text: str
    tree: ast.expr
    names: tuple[tuple[str, str], ...]

    @property
    def registers(self) -> list[str]:
        """Names of the registers in it, without types."""
        return [_register(text)[0] for kind, text in self.names if kind == "register"] + [t for k, t in self.names if k == "bare"]

    def lanes(self, machine: Machine, warp: WarpState, element: Callable[[str], Any]) -> list[Any]:
        """The value in each of the 32 lanes: an int, float or bool. element: gives the value of `C[3,5]`.

        Raises DebugError.
        """
        values = [_values(kind, text, machine, warp, element) for kind, text in self.names]
        try:
            return [_evaluate(self.tree, [v[lane] for v in values]) for lane in range(LANES)]
        except ZeroDivisionError:
            raise DebugError(f"{self.text}: a division by zero") from None
        except TypeError:
            raise DebugError(f"{self.text}: an operator for integers is used on another number") from None

    def mask(self, machine: Machine, warp: WarpState, element: Callable[[str], Any]) -> int:
        """Mask of the lanes for which it is true, or not 0."""
        return sum(1 << n for n, value in enumerate(self.lanes(machine, warp, element)) if value)


def expression(text: str) -> Expression:
    """An expression as typed. Raises DebugError."""
    names: list[tuple[str, str]] = []
    words, at = [], 0
    end = len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise DebugError(f"{shown(text)} is no expression, from {shown(text[at:].strip())} on", hint=f"names: {NAMES}")
        at, kind, word = found.end(), str(found.lastgroup), found[0].strip()
        if kind == "operator":
            words.append({"&&": " and ", "||": " or ", "!": " not ", "/": "//"}.get(word, word))
        elif kind == "number":
            words.append(f" {word} ")
        else:
            if (kind, word) not in names:
                names.append((kind, word))
            words.append(f" v{names.index((kind, word))} ")
    try:
        tree = ast.parse("".join(words).strip(), mode="eval").body
        _check(tree)
    except (SyntaxError, ValueError, RecursionError):
        raise DebugError(f"{shown(text)} is no expression", hint=f"C's operators between {NAMES}") from None
    return Expression(text, tree, tuple(names))


def _check(tree: ast.expr) -> None:
    allowed = (
        ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Constant, ast.Name, ast.operator, ast.unaryop, ast.boolop,
        ast.cmpop, ast.expr_context,
    )  # fmt: skip
    if not all(isinstance(node, allowed) for node in ast.walk(tree)):
        raise ValueError


def _evaluate(node: ast.expr, values: list[Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return values[int(node.id[1:])]
        case ast.BoolOp(op=ast.And()):
            return all(_evaluate(v, values) for v in node.values)
        case ast.BoolOp():
            return any(_evaluate(v, values) for v in node.values)
        case ast.UnaryOp(op=ast.Not()):
            return not _evaluate(node.operand, values)
        case ast.UnaryOp(op=ast.USub()):
            return -_evaluate(node.operand, values)
        case ast.UnaryOp(op=ast.Invert()):
            return ~_evaluate(node.operand, values)
        case ast.UnaryOp():
            return _evaluate(node.operand, values)
        case ast.BinOp(op=ast.FloorDiv()):
            return _quotient(_evaluate(node.left, values), _evaluate(node.right, values))
        case ast.BinOp(op=ast.Mod()):
            return _rest(_evaluate(node.left, values), _evaluate(node.right, values))
        case ast.BinOp():
            return _OPERATORS[type(node.op)](_evaluate(node.left, values), _evaluate(node.right, values))
        case ast.Compare():
            left = _evaluate(node.left, values)
            for op, right in zip(node.ops, (_evaluate(c, values) for c in node.comparators)):
                if not _OPERATORS[type(op)](left, right):
                    return False
                left = right
            return True
    raise ValueError


def _register(text: str) -> tuple[str, str]:
    """(name, type or "") of `%r5` or `%r5.f32`; cuda-gdb's `$r5` is `%r5`."""
    name, _, kind = text.partition(".")
    return "%" + name[1:], kind


def _values(kind: str, text: str, machine: Machine, warp: WarpState, element: Callable[[str], Any]) -> list[Any]:
    if kind == "element":
        return [element(text)] * LANES
    if kind == "special":
        return _special(text.lstrip("%$"), machine, warp)
    name, wanted = (text, "") if kind == "bare" else _register(text)
    types = machine.types(warp)
    if name not in types and text in types:
        name = text
    if kind == "bare" and name not in types:
        bits, used = machine.variable(warp, name)
        return [number_of(int(b), used) for b in bits]
    bits = machine.register(warp, name)
    if wanted and wanted not in TYPES:
        raise DebugError(f"{text}: {wanted} is no type", hint="such as %r5.f32, %r5.s32, %r5.f16x2")
    used = wanted or types.get(name, "b32")
    return [number_of(int(b), used) for b in (bits if bits.ndim == 1 else bits[:, 0])]


def _special(text: str, machine: Machine, warp: WarpState) -> list[Any]:
    shape, state = machine.grid.shape, warp.cta.warps[warp.warp]
    name, _, axis = text.partition(".")
    name = _OF_CUDA.get(name, name)
    n = "xyz".find(axis) if axis else 0
    match name:
        case "tid":
            return [int(v) for v in state[f"tid_{axis}"]]
        case "ctaid":
            return [int(warp.cta.state["ctaid"][n])] * LANES
        case "ntid":
            return [shape.block[n]] * LANES
        case "nctaid":
            return [shape.grid[n]] * LANES
        case "lane" | "laneid":
            return [*range(LANES)]
        case "warp" | "warpid":
            return [warp.warp] * LANES
        case "block":
            return [warp.block] * LANES
    return [LANES * warp.warp + lane for lane in range(LANES)]


def number_of(bits: int, type_name: str) -> Any:
    """Bits of a PTX type as an int, float or bool; packed types and bits without a sign are unsigned integers."""
    t = TYPES.get(type_name)
    if t is None:
        return bits
    bits &= (1 << type_bits(type_name)) - 1
    if t.kind == "pred":
        return bool(bits & 1)
    if t.kind == "signed":
        return bits - (bits >> t.bits - 1 << t.bits)
    if t.kind == "float":
        dtype = dtype_of(t.name)
        return float(np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype)[0])
    return bits
