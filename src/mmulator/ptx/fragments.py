"""Checks of the operands of matrix instructions: number of registers, and the register types that ptxas accepts on the target.

Matrix Fragments, Vectors (PTX ISA 9.1).
"""

from collections.abc import Iterator

from mmulator.isa.mma import element_by_element, lowered_fp8, lowered_integer, lowered_sparse, register_types
from mmulator.isa.row import OperandSpec, Signature
from mmulator.isa.types import type_bits
from mmulator.ptx.operands import OperandContext, OperandProblem, address, wrong_kind
from mmulator.ptx.tree import Address, Immediate, NegatedPredicate, Operand, Reg, Sink, VectorOperand

_WANTED = {
    "registers": "a vector of registers", "register": "a register", "address": "an address",
    "descriptor": "a 64-bit register with a matrix descriptor", "predicate": "a predicate", "immediate": "a constant",
    "integer": "a register or a constant", "group": "a list in braces",
}  # fmt: skip


def _is_kind(operand: Operand, spec: OperandSpec) -> bool:
    kind = spec.kind
    if kind in ("registers", "group"):
        return isinstance(operand, VectorOperand)
    if kind == "register":
        return isinstance(operand, Reg | Immediate) or _single(operand) is not operand
    if kind in ("address", "addr"):
        return isinstance(operand, Address)
    if kind == "predicate":
        return isinstance(operand, Reg | NegatedPredicate | Immediate)
    if kind == "immediate":
        return isinstance(operand, Immediate)
    return isinstance(operand, Reg | Immediate)


def _single(operand: Operand) -> Operand:
    """The register r of the operand `{r}`; any other operand unchanged."""
    if isinstance(operand, VectorOperand) and len(operand.elements) == 1:
        return operand.elements[0]
    return operand


def likeness(operands: tuple[Operand, ...], signature: Signature) -> int:
    """Number of operands that have the kind which the signature requires at their place."""
    return sum(_is_kind(o, spec) for o, spec in zip(operands, signature))


def _lowered(context: OperandContext) -> bool:
    """Whether ptxas replaces this instruction by other instructions."""
    return any(f(context.form, context.module.target) for f in (lowered_fp8, lowered_integer, lowered_sparse))


def _types(spec: OperandSpec, context: OperandContext) -> tuple[str, ...]:
    return register_types(context.form, spec, context.module.target)


def _type_problem(operand: Reg, spec: OperandSpec, types: tuple[str, ...]) -> OperandProblem:
    name = operand.name.partition("@")[0]
    allowed = ", ".join("." + t for t in types)
    return OperandProblem(
        f"operand {spec.name} takes .{spec.type} registers; {name} is .{operand.type}", operand.span, f"allowed: {allowed}"
    )


def _register(operand: Operand, spec: OperandSpec, context: OperandContext) -> Iterator[OperandProblem]:
    """Problems of one register, or of an operand that ptxas accepts in its place: a constant such as 0f3F800000, or `{r}`."""
    types = _types(spec, context)
    if spec.kind == "register" and spec.access == "r":
        if isinstance(operand, Immediate) and operand.literal == "f32" and "f32" in types:
            return
        if not _lowered(context) and context.form.row.moves is None:
            operand = _single(operand)
    if not isinstance(operand, Reg):
        yield wrong_kind(operand, _WANTED[spec.kind], spec, context)
    elif types and operand.type not in types:
        yield _type_problem(operand, spec, types)


# The type of a vector is that of its elements if they agree, and bits of that size if they can be one another's:
# (first, next) -> both, beyond equal ones and .b registers with anything of their size. `int`, `float`, `bits` are
# constants: an integer, 1.0 or 0d..., 0f...; a sink has no type.
_JOIN = {
    **{(a, b): "b32" for a in ("u32", "s32", "int") for b in ("u32", "s32", "int") if a != b},
    **{(a, b): "b64" for a in ("u64", "s64", "int") for b in ("u64", "s64", "int") if a[1:] == "64" or b[1:] == "64"},
    ("f32", "float"): "b32", ("float", "f32"): "b32", ("float", "bits"): "b32", ("f32", "bits"): "f32", ("bits", "f32"): "f32",
    **{pair: "b64" for c in ("float", "bits") for pair in (("f64", c), (c, "f64"))},
}  # fmt: skip
_CONSTANT = {"int": "int", "f64": "float", "f32": "bits"}
_BITS = {"b32": ("u32", "s32", "f32", "f16x2"), "b64": ("u64", "s64", "f64")}


def _join(a: str, b: str) -> str:
    """Type of a vector with elements of both types; "" if the types do not go together."""
    if a == b or not a:
        return b
    for bits, other in ((a, b), (b, a)):
        if bits in _BITS and (other in _BITS[bits] or other in _CONSTANT.values()):
            return bits
    return _JOIN.get((a, b), "")


def _vector(operand: VectorOperand, spec: OperandSpec, context: OperandContext) -> Iterator[OperandProblem]:
    """Problems of the elements of a vector. Vectors (PTX ISA 9.1); ptxas also accepts constants in sources, and `_` in
    results.
    """
    types = _types(spec, context)
    each = _each(spec, types, context)
    joined = ""
    for element in operand.elements:
        if isinstance(element, Reg):
            kind = element.type
            if each and kind not in types:
                yield _type_problem(element, spec, types)
                return
        elif isinstance(element, Immediate) and spec.access == "r":
            kind = _CONSTANT[element.literal]
            if kind in _refused_constants(spec, types, context):
                yield OperandProblem(f"operand {spec.name} cannot have the constant {element.span.text} here", element.span)
                return
        elif isinstance(element, Sink) and spec.access == "w" and not (each or _kept(context)):
            continue
        else:
            yield from _register(element, spec, context)
            return
        last, joined = joined, _join(joined, kind)
        if not joined:
            if isinstance(element, Reg) and element.type not in types:
                yield _type_problem(element, spec, types)
            else:
                here = element.type if isinstance(element, Reg) else f"{element.span.text}"
                yield OperandProblem(f"operand {spec.name} mixes .{last} and .{here} elements", operand.span)
            return
    if not joined:
        yield OperandProblem(f"operand {spec.name} has no register", operand.span, "at least one result must be kept")
        return
    multiplicand = context.form.family == "mma" and spec.name in "ab"
    if not (joined in types or _constants_fit(joined, types, multiplicand)):
        wrong = (e for e in operand.elements if isinstance(e, Reg) and e.type not in types)
        first = next(wrong, None)
        if first is not None:
            yield _type_problem(first, spec, types)
        else:
            yield OperandProblem(f"operand {spec.name} takes .{spec.type} registers, not constants alone", operand.span)


def _constants_fit(joined: str, types: tuple[str, ...], multiplicand: bool) -> bool:
    """Whether a vector that holds only constants fits: integers for .s32 and .f64, floating-point constants for .f32
    and .f64.
    """
    if "f64" in types:
        return joined in _CONSTANT.values()
    if joined == "int":
        return "s32" in types and "f32" not in types and not multiplicand
    return joined == "bits" and "f32" in types


def _refused_constants(spec: OperandSpec, types: tuple[str, ...], context: OperandContext) -> tuple[str, ...]:
    """Kinds of constants that a vector must not hold, because ptxas makes the element an operand of a different instruction."""
    form, number = context.form, context.module.target.number
    if form.effects.tensor:
        return ("float", "bits") if form.effects.multiplies else ("float",)
    if "f64" in types and "u64" not in types:
        return ("int",)
    if form.op == "store.d":
        return ("float",) if "b32" in types and not _volta_move(context) else ()
    if spec.name == "c" and element_by_element(form, "c", context.module.target):
        return ("int",) if "f32" in types else ("int", "float", "bits")
    if not form.effects.opaque or spec.name not in "ab" or not form.atype:
        return ()
    if form.atype.bits < 8:
        return () if lowered_integer(form, context.module.target) else ("int", "float")
    if form.atype.is_integer and number < 80:
        return ("float", "bits")
    alone = "a" if form.m == 8 else "b"
    return ("int", "float") if spec.name == alone and form.atype.name in ("s8", "u8", "tf32") else ()


def _volta_move(context: OperandContext) -> bool:
    """Whether ptxas uses special loads and stores: for floats in rows, on targets before sm_75."""
    form = context.form
    early = context.module.target.number < 75 and form.type.is_float
    return early and form.layout == "row"


def _kept(context: OperandContext) -> bool:
    """Whether no result may be a sink: those of tensor memory, and floats loaded in columns, on targets before sm_75."""
    form = context.form
    early = context.module.target.number < 75 and form.type.is_float
    return form.effects.tensor or (early and (form.op, form.layout) == ("load.c", "col"))


def _each(spec: OperandSpec, types: tuple[str, ...], context: OperandContext) -> bool:
    """Whether ptxas moves the elements one by one, or gives each to a separate instruction."""
    form, target = context.form, context.module.target
    if not form.effects.opaque:
        return element_by_element(form, spec.name, target)
    if form.op != "mma" or not form.atype:
        return False
    return (spec.name == "b" and form.atype.name == "tf32") or (
        spec.name in "ab" and form.atype.is_integer and target.number < 80
    )


def _group(operand: VectorOperand, spec: OperandSpec, context: OperandContext) -> Iterator[OperandProblem]:
    """Problems of a group {byte-id, thread-id}."""
    for element, part in zip(operand.elements, spec.parts):
        yield from _operand(element, part, context)
    pair = [e for e in operand.elements if isinstance(e, Reg)]
    if len(pair) > 1 and type_bits(pair[0].type) != type_bits(pair[1].type):
        yield OperandProblem(
            f"the elements of {spec.name} have different sizes: .{pair[0].type} and .{pair[1].type}", operand.span
        )


def _operand(operand: Operand, spec: OperandSpec, context: OperandContext) -> Iterator[OperandProblem]:
    if not _is_kind(operand, spec):
        yield wrong_kind(operand, _WANTED[spec.kind], spec, context)
        return
    if spec.kind == "register":
        yield from _register(operand, spec, context)
    elif isinstance(operand, VectorOperand):
        count, want = len(operand.elements), len(spec.parts) if spec.kind == "group" else spec.count
        if count != want:
            yield OperandProblem(f"operand {spec.name} has {count} elements; it must have {want}", operand.span)
        yield from (_group if spec.kind == "group" else _vector)(operand, spec, context)
    elif isinstance(operand, Reg):
        yield from _register(operand, spec, context)
    elif isinstance(operand, NegatedPredicate):
        yield from _register(operand.register, spec, context)
    elif isinstance(operand, Address):
        if isinstance(operand.base, Reg):
            yield from _register(operand.base, spec, context)
        else:
            yield from address(operand, context.form.space.partition("::")[0], context)
    elif isinstance(operand, Immediate):
        if operand.literal != "int":
            yield OperandProblem(f"operand {spec.name} takes an integer; {operand.span.text} is none", operand.span)
        elif spec.values and operand.value not in spec.values:
            few = spec.values[:9]
            allowed = ", ".join(map(str, few)) if len(few) <= 8 else f"from {few[0]} to {spec.values[-1]}"
            yield OperandProblem(f"operand {spec.name} is {operand.value}; allowed: {allowed}", operand.span)


CHECKS = dict.fromkeys(_WANTED, _operand)
