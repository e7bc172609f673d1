"""`@native`: a Python function read as a typed program and compiled through LLVM.

    @native
    def total(values: ptr_to(u32), n: i64) -> u32:
        acc = u32(0)
        for i in range(n):
            acc += values[i]
        return acc

What can be written: assignments (a local keeps its first type), augmented assignments, `if`/`elif`/`else`, `while`, `for i in
range(...)`, `for n in bits_of(mask)`, `break`, `continue`, `return`, calls of other native functions, of types (conversion) and
of the functions in ops.py. `p[i]` loads and stores; `s.field` of a pointer to a Struct. `and`, `or`, `not` work on booleans and
do not short-circuit. A condition, or a `for` over anything but range(Value), that Python can evaluate is evaluated at compile
time: an `if` on a Python bool keeps one arm, a `for` over a Python sequence (`unrolled(n)` is one) is unrolled. Names from the
enclosing scopes are compile-time constants; calling an ordinary Python function makes it a macro.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import textwrap
import threading
from collections import ChainMap
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any, overload

from mmulator.base.codegen.named import differs
from mmulator.base.codegen.operators import BINARY, COMPARE, UNARY
from mmulator.base.codegen.types import CodeError, Ty, boolean, i64, void
from mmulator.base.codegen.values import WIDE, Builder, Value, as_value, constant
from mmulator.base.lazy import cached_property

WRITER = threading.local()  # `here`: this thread writes texts of better code (its name would make a Thread of a foreign one)


@cache
def _tree(file: str, code: CodeType) -> ast.FunctionDef:
    """The syntax of a function; one text may make several, with other constants. file: its name, which equal code may lack."""
    if getattr(WRITER, "here", False):
        raise CodeError(f"{code.co_name} would be parsed while the program may parse, too")  # which CPython 3.11 can mix up
    last = max((end or 0 for _, end, _, _ in code.co_positions()), default=0)
    lines = linecache.getlines(file)[code.co_firstlineno - 1 : last]  # inspect would take a tenth of a program's start
    tree = ast.parse(textwrap.dedent("".join(lines) or inspect.getsource(code))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise CodeError(f"{code.co_name} is no function")
    return tree


@cache
def _read(annotation: str) -> CodeType:
    return compile(annotation, "<annotation>", "eval")


class Native:
    """A function of the language. name: its symbol, which must contain the closure constants on which its code depends.

    inline: whether it is inlined into its callers instead of being linked; only native functions can call it.
    inner: whether it is the inner loop of a product, compiled well at once; others are quick code at first (engine.py).
    quick: whether quick code is all that it ever needs.
    other: of a function with a straight path, which better code of kernels has in place of a call (loading.py), the one native
        function that it calls, for what is not common.
    """

    instrument: Instrument | None = None
    inline = inner = quick = False
    other: Native | None = None

    def __init__(
        self, function: Callable[..., Any], name: str | None = None, attributes: str = "", inline: bool = False,
        inner: bool = False,
    ) -> None:  # fmt: skip
        self.function, self.name = function, name or function.__name__
        self.attributes, self.inline, self.inner = attributes, inline, inner

    # read when it is first called for: a program compiles few of the functions that it imports

    @cached_property
    def nonlocals(self) -> dict[str, Any]:
        return {n: cell.cell_contents for n, cell in zip(self.function.__code__.co_freevars, self.function.__closure__ or ())}

    @cached_property
    def scope(self) -> ChainMap[str, Any]:
        return ChainMap(self.nonlocals, self.function.__globals__, vars(builtins))

    @cached_property
    def returns(self) -> Ty:
        return self._annotation("return", "None")

    @cached_property
    def params(self) -> list[tuple[str, Ty]]:
        code = self.function.__code__
        return [(name, self._annotation(name)) for name in code.co_varnames[: code.co_argcount]]

    def _annotation(self, name: str, missing: str | None = None) -> Ty:
        """The type of a parameter or of the result, from the function alone: its source is read only where it is compiled."""
        said = self.function.__annotations__.get(name, missing)
        if said is None and missing is None:
            raise CodeError(f"{self.name}: every parameter needs a type")
        found = eval(_read(said), self.function.__globals__, self.nonlocals) if isinstance(said, str) else said
        return void if found is None else found

    def build(self) -> tuple[Builder, list[Native]]:
        """(the LLVM function, the native functions that it calls)."""
        builder = Builder(self.name, self.returns, self.params, attributes=self.attributes)
        if self.inline:
            builder.linkage, builder.attributes = "internal", f"alwaysinline {self.attributes or WIDE}"
        with builder:
            body = _Body(self, builder)
            code = self.function.__code__
            body.run(_tree(code.co_filename, code).body)
        return builder, body.calls

    def is_like(self, other: Native) -> bool:
        """Whether two objects are the same function: the same lines with the same constants. Functions with one name
        must be.
        """
        if type(self) is not type(other):
            return False
        pairs = [(self.nonlocals.get(n), value) for n, value in other.nonlocals.items()]
        constants = all(a == b for a, b in pairs if isinstance(b, int | str))
        called = all(isinstance(a, Native) and a.name == b.name for a, b in pairs if isinstance(b, Native))
        return self.function.__code__ is other.function.__code__ and constants and called

    def under(self, instrument: Instrument | None) -> Native | None:
        """The version of the function for an instrument: itself, if the instrument uses no hook in it or in the functions that
        it calls.
        """
        if instrument is None:
            return self
        variants: dict[Instrument, Native] = vars(self).setdefault("variants", {})
        if instrument not in variants:
            made = variants[instrument] = copy(self)
            made.instrument, made.name = instrument, f"{self.name}.{instrument.name}"
            if not differs(made):
                variants[instrument] = self
        return variants[instrument]

    def __call__(self, *args: Any) -> Value:
        """Write a call, inside other code that is being built."""
        return call(Builder.current(), self, args)


@overload
def native(function: Callable[..., Any], /) -> Native: ...
@overload
def native(*, name: str | None = None, attributes: str = "", inline: bool = False) -> Callable[[Callable[..., Any]], Native]: ...
def native(
    function: Callable[..., Any] | None = None, *, name: str | None = None, attributes: str = "", inline: bool = False
) -> Native | Callable[[Callable[..., Any]], Native]:
    """The decorator of native functions: see the module's docstring."""
    if function is None:
        return lambda f: Native(f, name, attributes, inline)
    return Native(function, name, attributes, inline)


class Hook(Native):
    """A call that exists only under an instrument that uses it; otherwise its arguments are not computed either."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.name = function, function.__name__

    def under(self, instrument: Instrument | None) -> Native | None:
        """The native function that an instrument calls here, or None."""
        return instrument.hooks.get(self.name) if instrument is not None else None


def hook(function: Callable[..., Any]) -> Hook:
    """The decorator of hooks, whose functions have only parameters and a docstring."""
    return Hook(function)


@dataclass(frozen=True, eq=False)
class Instrument:
    """Native functions that are called in place of hooks, by the hooks' names. name: suffix of the symbols of their callers.
    waits: whether additions may reach memory later than the hooks are called (runtime/native/memory/sums.py)."""

    name: str
    hooks: Mapping[str, Native]
    waits: bool = False


def call(b: Builder, target: Native, args: Any) -> Value:
    if len(args) != len(target.params):
        raise CodeError(f"{target.name} takes {len(target.params)} arguments, not {len(args)}")
    values = [_pass(b, a, ty, target, n) for a, (n, ty) in zip(args, target.params)]
    return b.call(target.name, target.returns, values)


def _pass(b: Builder, value: Any, ty: Ty, target: Native, name: str) -> Value:
    if isinstance(value, Value) and value.ty != ty and not (value.ty.kind == ty.kind == "ptr"):
        raise CodeError(f"{target.name}({name}): {value.ty} where {ty} is wanted")
    return as_value(b, value, ty)


def parts(function: Native) -> tuple[list[Builder], list[Native]]:
    """(a function and all functions that are inlined in it, the functions to which these are linked)."""
    builders: dict[str, Builder] = {}
    linked: list[Native] = []
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if one.name not in builders:
            builders[one.name], calls = one.build()
            waiting += [f for f in calls if f.inline]
            linked += [f for f in calls if not f.inline]
    return list(builders.values()), linked


def unrolled(*bounds: int) -> range:
    """A range for `for i in unrolled(4)`: the body is repeated, with `i` as a Python number; `range` is a loop at run time."""
    return range(*bounds)


class _Body:
    """The compiler of one function body. Locals live in stack slots, which LLVM's SROA turns into registers."""

    def __init__(self, native: Native, b: Builder) -> None:
        self.native, self.b = native, b
        self.locals: dict[str, Any] = {}
        self.slots: dict[str, Value] = {}
        self.loops: list[tuple[str, str]] = []
        self.calls: list[Native] = []
        for (name, ty), value in zip(native.params, b.params):
            self._new_slot(name, ty)
            b.store(value, self.slots[name])

    def _new_slot(self, name: str, ty: Ty) -> None:
        self.slots[name] = self.b.alloca(ty, align=min(64, max(ty.size, 1) & -max(ty.size, 1)))

    def _located(self, statement: ast.stmt, error: Exception) -> CodeError:
        said = f"{error} in `{ast.unparse(statement).splitlines()[0]}`"
        located = CodeError(f"{self.native.name}, line {statement.lineno}: {said}")
        located.located = True
        return located

    # statements -----------------------------------------------------------------------------------------------------
    def run(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if self.b.terminated:
                return
            try:
                getattr(self, f"_do_{type(statement).__name__}")(statement)
            except (CodeError, TypeError) as error:  # a macro that is called wrongly is Python's own TypeError
                if isinstance(error, CodeError) and error.located:
                    raise
                raise self._located(statement, error) from error

    def _do_Pass(self, node: ast.Pass) -> None:
        pass

    def _do_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.eval(node.value)

    def _do_Assign(self, node: ast.Assign) -> None:
        value = self.eval(node.value)
        for target in node.targets:
            self._assign(target, value)

    def _do_AnnAssign(self, node: ast.AnnAssign) -> None:
        ty = self.eval(node.annotation)
        self._assign(node.target, ty(self.eval(node.value)))

    def _assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                if isinstance(value, Value):
                    slot = self.slots.get(name)
                    if slot is None:
                        self.locals.pop(name, None)
                        self._new_slot(name, value.ty)
                        slot = self.slots[name]
                    elif slot.ty.to != value.ty:
                        raise CodeError(f"{name} is {slot.ty.to}, not {value.ty}")
                    self.b.store(value, slot)
                elif name in self.slots:
                    self.b.store(constant(self.b, self.slots[name].ty.to, value), self.slots[name])
                else:
                    self.locals[name] = value
            case ast.Subscript(value=base, slice=index):
                holder = self.eval(base)
                holder[self.eval(index)] = value
            case ast.Attribute(value=base, attr=name):
                self.eval(base).set_field(name, value)
            case ast.Tuple(elts=targets):
                for t, v in zip(targets, value, strict=True):
                    self._assign(t, v)
            case _:
                raise CodeError(f"cannot assign to {ast.unparse(target)}")

    def _do_AugAssign(self, node: ast.AugAssign) -> None:
        self._assign(node.target, BINARY[type(node.op)](self.eval(node.target), self.eval(node.value)))

    def _do_Return(self, node: ast.Return) -> None:
        self.b.ret(self.eval(node.value) if node.value else None)

    def _do_If(self, node: ast.If) -> None:
        condition = self.eval(node.test)
        if not isinstance(condition, Value):
            self.run(node.body if condition else node.orelse)
            return
        b = self.b
        yes, no, end = b.label("then"), b.label("else"), b.label("end")
        b.branch_if(condition, yes, no if node.orelse else end)
        b.place(yes)
        self.run(node.body)
        open_end = not b.terminated
        b.branch(end)
        if node.orelse:
            b.place(no)
            self.run(node.orelse)
            open_end |= not b.terminated
            b.branch(end)
        if open_end or not node.orelse:
            b.place(end)

    def _do_While(self, node: ast.While) -> None:
        b = self.b
        test, body, end = b.label("test"), b.label("body"), b.label("end")
        b.place(test)
        condition = self.eval(node.test)
        if isinstance(condition, Value):
            b.branch_if(condition, body, end)
        else:
            b.branch(body if condition else end)
        b.place(body)
        self.loops.append((test, end))
        self.run(node.body)
        self.loops.pop()
        b.branch(test)
        b.place(end)

    def _do_For(self, node: ast.For) -> None:
        if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) and node.iter.func.id in ("range", "bits_of"):
            args = [self.eval(a) for a in node.iter.args]
            self._count(node, args) if node.iter.func.id == "range" else self._take_out(node, *args)
            return
        for item in self.eval(node.iter):
            self._assign_static(node.target, item)
            self.run(node.body)

    def _assign_static(self, target: ast.expr, item: Any) -> None:
        if isinstance(target, ast.Name) and not isinstance(item, Value):
            self.locals[target.id] = item
        else:
            self._assign(target, item)

    def _count(self, node: ast.For, args: list[Any]) -> None:
        b = self.b
        start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1) if len(args) == 2 else args
        typed = next((a.ty for a in args if isinstance(a, Value)), i64)
        if not isinstance(node.target, ast.Name):
            raise CodeError("a range is counted by one name")
        name = node.target.id
        self._assign(node.target, typed(as_value(b, start, typed)))
        limit = as_value(b, stop, typed)
        test, body, advance, end = (b.label(h) for h in ("test", "body", "next", "end"))
        b.place(test)
        b.branch_if(b.load(typed, self.slots[name]) < limit, body, end)
        b.place(body)
        self.loops.append((advance, end))
        self.run(node.body)
        self.loops.pop()
        b.place(advance)
        b.store(b.load(typed, self.slots[name]) + step, self.slots[name])
        b.branch(test)
        b.place(end)

    def _take_out(self, node: ast.For, mask: Value) -> None:
        b = self.b
        left = f"left of {node.target.id if isinstance(node.target, ast.Name) else node.lineno}, {mask.ty}"
        self._assign(ast.Name(left), mask)
        slot = self.slots[left]
        test, body, end = b.label("test"), b.label("body"), b.label("end")
        b.place(test)
        b.branch_if(b.load(mask.ty, slot) != 0, body, end)
        b.place(body)
        self._assign(node.target, b.intrinsic("cttz", mask.ty, [b.load(mask.ty, slot), constant(b, boolean, 0)]))
        b.store(b.load(mask.ty, slot) & (b.load(mask.ty, slot) - 1), slot)
        self.loops.append((test, end))
        self.run(node.body)
        self.loops.pop()
        b.branch(test)
        b.place(end)

    def _do_Break(self, node: ast.Break) -> None:
        self.b.branch(self.loops[-1][1])

    def _do_Continue(self, node: ast.Continue) -> None:
        self.b.branch(self.loops[-1][0])

    # expressions ----------------------------------------------------------------------------------------------------
    def eval(self, node: ast.expr | None) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                if name in self.locals:
                    return self.locals[name]
                if name in self.slots:
                    return self.b.load(self.slots[name].ty.to, self.slots[name])
                if name in self.native.scope:
                    return self.native.scope[name]
                raise CodeError(f"unknown name {name}")
            case ast.BinOp(left=left, op=op, right=right):
                return BINARY[type(op)](self.eval(left), self.eval(right))
            case ast.UnaryOp(op=op, operand=operand):
                value = self.eval(operand)
                if isinstance(op, ast.Not):
                    return ~value if isinstance(value, Value) else not value
                return UNARY[type(op)](value)
            case ast.BoolOp(op=op, values=values):
                return self._bool(isinstance(op, ast.And), values)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compare(op, self.eval(left), self.eval(right))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choose(self.eval(test), body, orelse)
            case ast.Subscript(value=base, slice=index):
                return self.eval(base)[self._index(index)]
            case ast.Attribute(value=base, attr=attr):
                holder = self.eval(base)
                return holder.field(attr) if isinstance(holder, Value) else getattr(holder, attr)
            case ast.Tuple(elts=items):
                return tuple(self.eval(i) for i in items)
            case ast.List(elts=items):
                return [self.eval(i) for i in items]
            case ast.ListComp():
                return self._comprehension(node)
            case ast.JoinedStr():
                return eval(compile(ast.Expression(node), "f", "eval"), {**dict(self.native.scope), **self.locals})
            case ast.Call():
                return self._call(node)
            case _:
                raise CodeError(f"{type(node).__name__} is not part of the language")

    def _index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Slice):
            parts = (self.eval(n) if n else None for n in (node.lower, node.upper, node.step))
            return slice(*parts)
        return self.eval(node)

    def _compare(self, op: ast.cmpop, left: Any, right: Any) -> Any:
        if isinstance(right, Value) and not isinstance(left, Value):
            left = as_value(self.b, left, right.ty)
        return COMPARE[type(op)](left, right)

    def _bool(self, every: bool, nodes: list[ast.expr]) -> Any:
        result: Any = None
        for node in nodes:
            value = self.eval(node)
            if not isinstance(value, Value):
                if bool(value) != every:
                    return value
                continue
            result = value if result is None else (result & value if every else result | value)
        return every if result is None else result

    def _choose(self, test: Any, body: ast.expr, orelse: ast.expr) -> Any:
        if not isinstance(test, Value):
            return self.eval(body if test else orelse)
        from mmulator.base.codegen.ops import select

        return select(test, self.eval(body), self.eval(orelse))

    def _comprehension(self, node: ast.ListComp) -> list[Any]:
        generator, result = node.generators[0], []
        for item in self.eval(generator.iter):
            self._assign_static(generator.target, item)
            if all(self.eval(c) for c in generator.ifs):
                result.append(self.eval(node.elt))
        return result

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "address":
            target = node.args[0]
            if isinstance(target, ast.Attribute):
                return self.eval(target.value).field_address(target.attr)
            if isinstance(target, ast.Subscript):
                return self.eval(target.value) + self.eval(target.slice)
            raise CodeError("address() takes s.field or p[i]")
        function = self.eval(node.func)
        if isinstance(function, Native):
            function = function.under(self.native.instrument)
            if function is None:
                return None
        args = [x for a in node.args for x in (self.eval(a.value) if isinstance(a, ast.Starred) else [self.eval(a)])]
        keywords = {k.arg: self.eval(k.value) for k in node.keywords if k.arg}
        if isinstance(function, Native):
            self.calls.append(function)
            return call(self.b, function, args)
        return function(*args, **keywords)
