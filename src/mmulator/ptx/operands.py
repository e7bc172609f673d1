"""Checks of one operand against the operand that a form requires at its place. Instruction Operands (PTX ISA 9.1)."""

from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from typing import NamedTuple

from mmulator.base.errors import similar
from mmulator.base.source import Span
from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec
from mmulator.isa.special_registers import SPECIAL_REGISTERS
from mmulator.isa.types import type_bits
from mmulator.ptx.fits import BITS_ONLY, fits, joined, suggestion, type_class, vector_fits
from mmulator.ptx.resources import parameter_bytes
from mmulator.ptx.tree import (
    Address,
    ArgumentList,
    Function,
    Immediate,
    Instruction,
    LabelRef,
    NegatedPredicate,
    Operand,
    ParsedModule,
    PredicatePair,
    Reg,
    Sink,
    SpecialRegister,
    Symbol,
    VectorOperand,
)


class OperandProblem(NamedTuple):
    """An error in an operand: a message, a place, and a hint."""

    message: str
    span: Span
    hint: str | None = None


class OperandContext(NamedTuple):
    """The instruction, function and module in which an operand is checked."""

    module: ParsedModule
    function: Function
    instruction: Instruction
    form: Form


Problems = Iterator[OperandProblem]

_WORDS: dict[type, str] = {
    Reg: "a register", Immediate: "a constant", Symbol: "a name", LabelRef: "a label", Sink: "_",
    SpecialRegister: "a special register", NegatedPredicate: "a negated predicate", PredicatePair: "a pair p|q",
    VectorOperand: "a vector", Address: "an address", ArgumentList: "a list in parentheses",
}  # fmt: skip
_BRACES = ("ld", "ld.proxy::readonly", "st", "ldu", "mov")
_READ_BY = ("mov", "cvt")  # instructions that may read a special register
NO_CONSTANT = BITS_ONLY - {"tf32", "e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4", "e2m1x4"} | {"f16", "f16x2", "bf16"}
_VARIABLES = frozenset(("global", "const", "shared", "local", "param"))
_GENERIC = frozenset(("global", "shared", "local"))  # what a generic address may name
_NARROW_ADDRESS = frozenset(("shared", "local", "const", "param"))


def describe(operand: Operand) -> str:
    return _WORDS[type(operand)]


def _undeclared(symbol: Symbol, context: OperandContext) -> OperandProblem:
    params = (p.name for p in context.function.params)
    variables = (v.name for v in chain(context.function.variables, context.module.variables))
    close = similar(symbol.name, chain(params, variables, context.function.registers))
    hint = f"did you mean {' or '.join(close)}?" if close else None
    return OperandProblem(f"{symbol.name} is not declared", symbol.span, hint)


def wrong_kind(operand: Operand, wanted: str, spec: OperandSpec, context: OperandContext) -> OperandProblem:
    if isinstance(operand, Symbol) and not operand.space:
        return _undeclared(operand, context)
    if isinstance(operand, SpecialRegister) and operand.name not in SPECIAL_REGISTERS:
        return _unknown_special(operand, context)
    hint = None
    if isinstance(operand, SpecialRegister):
        hint = "move it into a register first, with mov"
    if isinstance(operand, Sink):
        return OperandProblem(f"{context.form.name} cannot discard its result {spec.name}", operand.span)
    return OperandProblem(f"operand {spec.name} must be {wanted}, not {describe(operand)}", operand.span, hint)


def _unknown_special(operand: SpecialRegister, context: OperandContext) -> OperandProblem:
    close = similar("%" + operand.name, chain(("%" + s for s in SPECIAL_REGISTERS), context.function.registers))
    hint = f"did you mean {' or '.join(close)}?" if close else "declare it with .reg"
    return OperandProblem(f"%{operand.name} is not declared, and no special register has that name", operand.span, hint)


def _register(operand: Reg, type: str, wider: bool, name: str) -> Problems:
    if not fits(operand.type, type, wider):
        yield OperandProblem(
            f"operand {name} takes .{type}; {operand.name.partition('@')[0]} is a .{operand.type} register",
            operand.span,
            suggestion(type, wider),
        )


def _constant(operand: Immediate, type: str, spec: OperandSpec, context: OperandContext) -> Problems:
    kind = type_class(type)
    if type in NO_CONSTANT:
        yield OperandProblem(f"operand {spec.name} of type .{type} cannot be a constant", operand.span, "move it into a register")
    elif kind in ("f32", "f64"):
        if operand.literal == "int":
            yield OperandProblem(
                f"operand {spec.name} takes .{type}; {operand.span.text} is an integer", operand.span,
                "write 1.0, or the bits as 0f3F800000 or 0d3FF0000000000000",
            )  # fmt: skip
    elif operand.literal != "int" and (kind != "bits" or {"f32": "b32", "f64": "b64"}[operand.literal] != type):
        yield OperandProblem(f"operand {spec.name} takes .{type}; {operand.span.text} is a floating-point constant", operand.span)
    elif operand.literal == "int":
        yield from _range(operand, spec, context)


def _range(operand: Immediate, spec: OperandSpec, context: OperandContext) -> Problems:
    value, module = operand.value, context.module
    needed = dict(spec.later).get(value)
    if needed is not None:
        if not needed.admits(module.target) or module.version < needed.ptx:
            yield OperandProblem(
                f"operand {spec.name} is {value}, which needs PTX {needed.ptx[0]}.{needed.ptx[1]} and .target "
                f"{needed.describe_targets()}", operand.span,
            )  # fmt: skip
    elif spec.values and value not in spec.values:
        allowed = ", ".join(map(str, spec.values[:8])) + (", ..." if len(spec.values) > 8 else "")
        yield OperandProblem(f"operand {spec.name} is {value}; allowed: {allowed}", operand.span)
    elif (spec.lo is not None and value < spec.lo) or (spec.hi is not None and value > spec.hi):
        bounds = f"from {spec.lo} to {spec.hi}" if spec.hi is not None else f"{spec.lo} or more"
        yield OperandProblem(f"operand {spec.name} is {value}; it must be {bounds}", operand.span)


def _dst(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    if spec.count > 1:
        yield from _vector(operand, spec, context)
        return
    operand = _unwrapped(operand, context)
    if isinstance(operand, Reg):
        yield from _register(operand, spec.type, spec.wider, spec.name)
    elif isinstance(operand, VectorOperand) and context.form.name == "mov":
        yield from _packed(operand, spec, context)
    elif not (isinstance(operand, Sink) and spec.sink):
        yield wrong_kind(operand, "a register", spec, context)


def _unwrapped(operand: Operand, context: OperandContext) -> Operand:
    """The register r of the operand `{r}`, for instructions that take vectors; any other operand unchanged."""
    form = context.form
    braces = form.name in _BRACES and (form.name != "mov" or type_class(form["type"]) == "bits")
    if braces and isinstance(operand, VectorOperand) and len(operand.elements) == 1:
        return operand.elements[0]
    return operand


def _vector(operand: Operand, spec: OperandSpec, context: OperandContext, element_name: str = "element") -> Problems:
    """Problems of a vector `{a, b}`: it must have spec.count elements, all of one size."""
    if not isinstance(operand, VectorOperand):
        yield wrong_kind(operand, f"a vector of {spec.count} {element_name}{'s' * (spec.count != 1)}", spec, context)
        return
    given = len(operand.elements)
    if given != spec.count:
        many = f"{given} {element_name}{'s' * (given != 1)}"
        yield OperandProblem(f"operand {spec.name} has {many}; it must have {spec.count}", operand.span)
        return
    registers = [element for element in operand.elements if isinstance(element, Reg)]
    constants = any(isinstance(element, Immediate) for element in operand.elements)
    if spec.access == "w" and not registers:
        yield _unkept(operand, spec)
    both = joined([register.type for register in registers]) if registers and not constants else ""
    if not (both and vector_fits(both, spec.type, spec.wider)):
        for register in registers:
            yield from _register(register, spec.type, spec.wider, spec.name)
        if registers and not constants and not both:
            yield from _mixed(registers, spec)
    for element in operand.elements:
        if isinstance(element, Immediate) and spec.access == "r":
            yield from _constant(element, spec.type, spec, context)
        elif not isinstance(element, Reg) and not (isinstance(element, Sink) and spec.access == "w"):
            yield wrong_kind(element, "a vector of registers", spec, context)
    if constants and len({type_bits(register.type) for register in registers}) > 1:
        yield OperandProblem(f"the elements of {spec.name} have different sizes", operand.span)


def _unkept(operand: VectorOperand, spec: OperandSpec) -> OperandProblem:
    return OperandProblem(f"operand {spec.name} has no register", operand.span, "at least one result must be kept")


def _mixed(registers: list[Reg], spec: OperandSpec) -> Problems:
    """The problem of registers that form no vector together."""
    if len({type_bits(register.type) for register in registers}) > 1:
        yield OperandProblem(f"the elements of {spec.name} have different sizes", registers[0].span)
        return
    before, after = next(pair for pair in pairwise(registers) if not joined([register.type for register in pair]))
    yield OperandProblem(f"operand {spec.name} mixes .{before.type} and .{after.type} elements", after.span)


def _src(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    if spec.count > 1:
        yield from _vector(operand, spec, context)
        return
    operand = _unwrapped(operand, context)
    if isinstance(operand, Reg):
        yield from _register(operand, spec.type, spec.wider, spec.name)
    elif isinstance(operand, Immediate):
        yield from _constant(operand, spec.type, spec, context)
    elif isinstance(operand, NegatedPredicate) and spec.type == "pred":
        yield from _register(operand.register, "pred", False, spec.name)
    elif isinstance(operand, SpecialRegister) and context.form.name in _READ_BY:
        yield from _special(operand, spec, context)
    else:
        yield wrong_kind(operand, "a register or a constant", spec, context)


def _special(operand: SpecialRegister, spec: OperandSpec, context: OperandContext) -> Problems:
    info = SPECIAL_REGISTERS.get(operand.name)
    if info is None:
        yield _unknown_special(operand, context)
        return
    module = context.module
    if info.vector:
        yield OperandProblem(f"%{operand.name} is a vector", operand.span, f"write %{operand.name}.x")
    elif module.version < info.ptx:
        yield OperandProblem(f"%{operand.name} needs PTX {info.ptx[0]}.{info.ptx[1]}", operand.span, "raise .version")
    elif module.target.number < info.sm:
        yield OperandProblem(f"%{operand.name} needs .target sm_{info.sm} or higher", operand.span)
    elif not any(fits(t, spec.type, False) for t in info.types):
        yield OperandProblem(f"%{operand.name} is .{info.types[0]}; operand {spec.name} takes .{spec.type}", operand.span)


def _reg(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    if isinstance(operand, Reg) and spec.types:
        yield from _exact(operand, spec)
    elif isinstance(operand, Reg):
        yield from _register(operand, spec.type, spec.wider, spec.name)
    else:
        yield wrong_kind(operand, "a register", spec, context)


def _exact(register: Reg, spec: OperandSpec) -> Problems:
    """The problem of a register whose type is none of an operand's own."""
    if register.type not in spec.types:
        said = f"operand {spec.name} takes a .{spec.type} register; {register.name} is .{register.type}"
        yield OperandProblem(said, register.span, "allowed: " + ", ".join(f".{type}" for type in spec.types))


def _imm(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    if isinstance(operand, Immediate):
        yield from _constant(operand, spec.type, spec, context)
    else:
        yield wrong_kind(operand, "a constant", spec, context)


def _pred(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    register = operand.register if isinstance(operand, NegatedPredicate) else operand
    if isinstance(register, Reg):
        yield from _register(register, "pred", False, spec.name)
    elif not (isinstance(register, Immediate) and register.literal == "int"):
        yield wrong_kind(register, "a predicate", spec, context)


def _dstpair(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    """Problems of a destination `d` or `d|p`."""
    if isinstance(operand, PredicatePair):
        if isinstance(operand.p, Reg):
            yield from _register(operand.p, spec.type, spec.wider, spec.name)
        elif not spec.sink:
            yield wrong_kind(operand.p, "a register", spec, context)
        if isinstance(operand.q, Reg):
            yield from _register(operand.q, "pred", False, "p")
        elif spec.kind == "pair":
            yield OperandProblem(f"{context.form.name} cannot discard its predicate", operand.q.span)
        return
    if spec.kind == "pair":
        yield OperandProblem(f"operand {spec.name} must be a pair {spec.name}|p", operand.span)
        return
    yield from _dst(operand, spec, context)


def _dstpred(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    """Problems of a destination `p` or `p|q`."""
    if isinstance(operand, Sink) and not spec.sink:
        yield OperandProblem(f"{context.form.name} cannot discard operand {spec.name}", operand.span)
    for part in (operand.p, operand.q) if isinstance(operand, PredicatePair) else (operand,):
        if isinstance(part, Reg):
            yield from _register(part, "pred", False, spec.name)
        elif not isinstance(part, Sink):
            yield wrong_kind(part, "a predicate register", spec, context)


def _move(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    """Problems of the source of a mov."""
    if isinstance(operand, Symbol) and operand.space in (*_VARIABLES, "func"):
        if type_class(spec.type) not in ("bits", "int") or spec.type[1:] not in ("32", "64"):
            yield OperandProblem(f"the address of {operand.name} does not fit .{spec.type}", operand.span, "use mov.b64")
        elif spec.type[1:] == "32" and operand.space in ("global", "func") and context.module.address_size == 64:
            yield OperandProblem(f"the address of {operand.name} has 64 bits", operand.span, "use mov.b64")
    elif isinstance(operand, VectorOperand) and spec.count == 1 and len(operand.elements) > 1:
        yield from _packed(operand, spec, context)
    elif isinstance(operand, SpecialRegister) and spec.count > 1:
        info = SPECIAL_REGISTERS.get(operand.name)
        if info is None:
            yield _unknown_special(operand, context)
        elif not info.vector:
            yield OperandProblem(f"%{operand.name} is not a vector", operand.span)
    else:
        yield from _src(operand, spec, context)


def _packed(operand: VectorOperand, spec: OperandSpec, context: OperandContext) -> Problems:
    """Problems of a vector `{a, b}` of mov; its elements together have the size of the other operand."""
    total = type_bits(spec.type)
    if type_class(spec.type) != "bits":
        yield OperandProblem(f"a vector needs a .b type, not .{spec.type}", operand.span, f"use mov.b{total}")
        return
    count = len(operand.elements)
    element = total // count
    if count not in (2, 4, 8) or total % count or element < 8:
        yield OperandProblem(f".{spec.type} cannot be {count} elements", operand.span)
        return
    for part in operand.elements:
        if isinstance(part, Reg):
            yield from _register(part, f"b{element}", False, spec.name)
        elif isinstance(part, Sink):
            if spec.access == "r":
                yield wrong_kind(part, "a register", spec, context)
        elif not isinstance(part, Immediate) or spec.access == "w":
            yield wrong_kind(part, "a vector of registers", spec, context)
    registers = [part for part in operand.elements if isinstance(part, Reg)]
    if spec.access == "w" and not registers:
        yield _unkept(operand, spec)
    if len(registers) == count and not joined([register.type for register in registers]):
        yield from _mixed(registers, spec)


def _symbol(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    """Problems of an operand that is a register with an address, or a variable of the instruction's state space."""
    if isinstance(operand, Symbol) and operand.space in _VARIABLES:
        space = context.form["space"].partition("::")[0]
        if space and space != operand.space:
            yield OperandProblem(f"{operand.name} is in .{operand.space}, not in .{space}", operand.span)
        elif not space:
            yield from _at_home(operand, spec)
    else:
        yield from _src(operand, spec, context)


def _addr(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    if not isinstance(operand, Address):
        problem = wrong_kind(operand, "an address", spec, context)
        hint = f"write [{operand.span.text}]" if isinstance(operand, Reg | Symbol) else None
        yield OperandProblem(problem.message, problem.span, problem.hint or hint)
        return
    if operand.extra:
        yield OperandProblem(f"operand {spec.name} is one address, without a list", operand.span)
    if spec.space == "tensor":  # lane and column
        yield from _reg(operand.base, spec, context)
        return
    space = spec.space.partition("::")[0]
    narrow = isinstance(operand.base, Reg) and "b32" in spec.types
    yield from address(operand, spec.home if narrow else space, context)
    if not space:
        yield from _at_home(operand.base, spec)
    if space == "param" and isinstance(operand.base, Symbol):
        yield from _within_parameters(operand, operand.base, context)


def _tensor(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    """Problems of `[map, {c0, c1, ...}]`. A tensor map in a register may lie anywhere; a named one must be in .global. Tensor
    Coordinates (PTX ISA 9.1).
    """
    if not isinstance(operand, Address):
        yield wrong_kind(operand, "an address with coordinates", spec, context)
        return
    (coordinates,) = operand.extra if len(operand.extra) == 1 else (None,)
    if not isinstance(coordinates, VectorOperand):
        yield OperandProblem(
            f"operand {spec.name} needs coordinates in braces", operand.span, "write [map, {c0, c1}], a coordinate per dimension"
        )
        return
    if operand.offset:
        yield OperandProblem(f"operand {spec.name} takes no offset", operand.span, "add it to the address first")
    yield from address(operand, "", context)
    yield from _at_home(operand.base, spec)
    yield from _vector(coordinates, spec, context, "coordinate")


def _at_home(base: Operand, spec: OperandSpec) -> Problems:
    """Problems of a variable that is named as a generic address."""
    if spec.home and isinstance(base, Symbol) and base.space in _GENERIC - {spec.home}:
        yield OperandProblem(f"operand {spec.name} must be in .{spec.home}; {base.name} is in .{base.space}", base.span)


def _sink(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    """Problems of an operand that must be `_`."""
    if not isinstance(operand, Sink):
        yield OperandProblem(
            f"{context.form.name} of another block's memory has no result", operand.span, "write _ as the first operand"
        )


def _within_parameters(operand: Address, base: Symbol, context: OperandContext) -> Problems:
    """Problems of an access by a parameter's name and a constant offset. In a kernel it must stay within all parameters, which
    are contiguous; elsewhere within the named parameter.
    """
    function, form = context.function, context.form
    start, size, what = 0, 0, base.name
    local = [v for v in function.variables if v.space == "param" and v.name == base.name]
    if function.is_entry and not local:
        start, size = function.places.get(base.name, 0), parameter_bytes(function.params)
        what = f"the parameters of {function.name}"
    else:
        size = next((x.size for group in (local, function.params, function.returns) for x in group if x.name == base.name), 0)
    first = start + base.offset + operand.offset
    size_of = type_bits(form["type"]) // 8 * int((form["vec"] or "v1")[1:]) if form["type"] else 1  # prefetch
    last = first + size_of - 1
    if size and not 0 <= first <= last < size:
        verb = "reads" if form.opcode == "ld" else "writes"
        yield OperandProblem(
            f"{form.opcode}.param {verb} bytes {first} to {last}, but {what} ({size} bytes) end at {size - 1}", operand.span,
            "offset and type must stay inside",
        )  # fmt: skip


def address(operand: Address, space: str, context: OperandContext) -> Problems:
    """Problems of the base register or variable of an address in a state space ("" for generic)."""
    base = operand.base
    if isinstance(base, Reg):
        if type_class(base.type) not in ("int", "bits"):
            yield OperandProblem(f"an address cannot be in a .{base.type} register", base.span, "use a .b64 register")
        elif type_bits(base.type) < context.module.address_size and space not in _NARROW_ADDRESS:
            where, size = f".{space}" if space else "a generic address", context.module.address_size
            yield OperandProblem(f"{where} takes a {size}-bit register; {base.name} has {type_bits(base.type)} bits", base.span)
    elif isinstance(base, Symbol):
        if not base.space:
            yield _undeclared(base, context)
        elif base.space not in _VARIABLES:
            yield OperandProblem(f"{base.name} is not a variable", base.span)
        elif space and base.space != space:
            yield OperandProblem(
                f"{base.name} is in .{base.space}, not in .{space}",
                base.span,
                f"write .{base.space} instead of .{space}",
            )
        elif not space and base.space in ("param", "const"):
            yield OperandProblem(f"{base.name} is in .{base.space}: a generic access cannot name it", base.span)
    elif space != "local":
        yield OperandProblem("a constant address needs .local", base.span)


def _size(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    """Problems of src-size or ignore-src of cp.async."""
    if isinstance(operand, NegatedPredicate) or (isinstance(operand, Reg) and operand.type == "pred"):
        yield from _pred(operand, spec, context)
        if context.module.version < (7, 5):
            yield OperandProblem("ignore-src, a predicate, needs PTX 7.5", operand.span)
        return
    yield from _src(operand, spec, context)
    size = context.instruction.operands[2]
    if isinstance(operand, Immediate) and isinstance(size, Immediate) and not 0 <= operand.value <= size.value:
        yield OperandProblem(f"src-size is {operand.value}; it must be from 0 to cp-size, {size.value}", operand.span)


def _label(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    if isinstance(operand, LabelRef):
        return
    if isinstance(operand, Symbol) and not operand.space:
        close = similar(operand.name, context.function.labels)
        hint = f"did you mean {' or '.join(close)}?" if close else None
        yield OperandProblem(f"there is no label {operand.name} in {context.function.name}", operand.span, hint)
    else:
        yield wrong_kind(operand, "a label", spec, context)


def _targets(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    if not (isinstance(operand, Symbol) and operand.name in context.function.targets):
        yield wrong_kind(operand, "the name of a .branchtargets list", spec, context)
        return
    for target in context.function.targets[operand.name].targets:
        if not isinstance(target, LabelRef):
            yield OperandProblem(f"{target.name} is not a label of {context.function.name}", target.span)


CHECKS: dict[str, Callable[[Operand, OperandSpec, OperandContext], Problems]] = {
    "dst": _dst, "src": _src, "reg": _reg, "imm": _imm, "pred": _pred, "size": _size, "addr": _addr,
    "dstpair": _dstpair, "pair": _dstpair, "dstpred": _dstpred, "move": _move, "symbol": _symbol,
    "label": _label, "targets": _targets, "tensor": _tensor, "vector": _vector, "sink": _sink,
}  # fmt: skip
