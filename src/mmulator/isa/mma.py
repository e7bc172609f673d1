"""`mma`: warp-level matrix multiply-accumulate on register fragments.

Multiply-and-Accumulate Instruction: mma, and mma.sp / mma.sp::ordered_metadata (PTX ISA 9.1). The rows follow the
Syntax blocks of these sections; where document and ptxas differ, they follow ptxas.
"""

from collections.abc import Iterator

from mmulator.base.errors import InternalError
from mmulator.isa.effects import ACTS, Flow, Together
from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec, Requirement, Row, Section, Signature
from mmulator.isa.shapes import (
    REGISTERS_ANY32,
    REGISTERS_ANY64,
    REGISTERS_B32,
    REGISTERS_F16,
    REGISTERS_F32,
    REGISTERS_F64,
    REGISTERS_INTEGER,
    REGISTERS_OFFSET,
    REGISTERS_S32,
    Access,
    Choice,
    matrix_row,
    operand,
    optional,
    slots,
    stored_bits,
)
from mmulator.isa.targets import Target
from mmulator.isa.types import ElementType

DENSE = Section("Multiply-and-Accumulate Instruction: mma")
SPARSE = Section("Multiply-and-Accumulate Instruction: mma.sp / mma.sp::ordered_metadata")

FP8 = ("e4m3", "e5m2")
FP864 = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
_REGISTERS = {
    "f16": REGISTERS_F16,
    "bf16": REGISTERS_B32,
    "tf32": REGISTERS_B32,
    "f32": REGISTERS_F32,
    "f64": REGISTERS_ANY64,
    "s32": REGISTERS_S32,
}


def _wide_float(form: Form) -> bool:
    """Whether elements have 16 or 32 bits, with .f32 accumulators."""
    return form.atype.is_float and form.atype.bits >= 16 and form.dtype.name == "f32"


def fragment(form: Form, name: str, element: ElementType, elements: int, access: Access = "r") -> OperandSpec:
    """The operand that is a vector of registers holding `elements` elements of the warp.

    form, name: the form and the operand's name.
    element: type of the elements.
    elements: number of elements.
    access: "r", "w" or "rw".
    """
    types = _REGISTERS.get(element.name, REGISTERS_ANY32)
    if name in "ab" and form.block_scale:
        types = REGISTERS_B32
    elif element.name == "f16":
        types = REGISTERS_F16
    elif form.family == "mma" and form.sparse and _wide_float(form):
        types = REGISTERS_ANY32
    elif form.shape == "m8n8k16" and name == "a":
        types = REGISTERS_INTEGER
    width = 64 if element.name == "f64" else 32
    count = max(1, elements * stored_bits(form, element) // (32 * width))
    return operand(name, "registers", types, count, access)


def matrix_operands(form: Form) -> tuple[OperandSpec, OperandSpec, OperandSpec, OperandSpec]:
    """The operands d, a, b, c."""
    m, n, k = form.m, form.n, form.k
    return (
        fragment(form, "d", form.dtype, form.products * m * n, "w"),
        fragment(form, "a", form.atype, form.products * m * k // (2 if form.sparse else 1)),
        fragment(form, "b", form.btype, form.products * k * n),
        fragment(form, "c", form.ctype, form.products * m * n),
    )


def _metadata_operands(form: Form) -> Signature:
    """The operands e and f; the selector f selects the lanes of each group of four that hold the metadata. Sparse matrix
    storage (PTX ISA 9.1).
    """
    chunks = form.k // (2 if form.atype.name == "tf32" else 4 if stored_bits(form, form.atype) > 4 else 8)
    defined = range({4: 4, 8: 2, 16: 1}[chunks])
    lenient = (form.k, form.atype.name, form.dtype.name) == (32, "f16", "f32")
    return (
        operand("e", "register", REGISTERS_ANY32),
        operand("f", "immediate", values=range(4) if lenient else defined, defined=defined),
    )


_BYTE_ID = ("u16", "b16", "s16")
_THREAD_ID = (*_BYTE_ID, *(t for t in REGISTERS_OFFSET if t not in _BYTE_ID))


def _scale_operands(form: Form) -> Iterator[OperandSpec]:
    """The operands scale-a-data, {byte-id-a, thread-id-a}, and the corresponding ones of b. Block Scaling for mma.sync (PTX ISA
    9.1).
    """
    allowed = {1: range(4), 2: range(0, 3, 2), 4: range(1)}[form.scale_vec]
    for side, threads in (("a", range(2)), ("b", range(4))):
        yield operand(f"scale-{side}-data", "register", REGISTERS_ANY32)
        byte_id = operand(f"byte-id-{side}", "integer", _BYTE_ID, values=allowed)
        thread_id = operand(f"thread-id-{side}", "integer", _THREAD_ID, values=threads)
        yield operand(f"selector-{side}", "group", parts=(byte_id, thread_id))


def _signatures(form: Form) -> tuple[Signature, ...]:
    operands: Signature = matrix_operands(form)
    if form.sparse:
        operands += _metadata_operands(form)
    if form.block_scale:
        operands += tuple(_scale_operands(form))
    return (operands,)


# Where a target has no such instruction ptxas puts others in its place, and looks at their operands again.
def lowered_fp8(form: Form, target: Target) -> bool:
    """Whether ptxas multiplies FP8 as .f16 on this target."""
    fp8 = {form.atype.name, form.btype.name} <= {*FP8}
    return form.family == "mma" and fp8 and not form.block_scale and 90 <= target.number < 120


def lowered_integer(form: Form, target: Target) -> bool:
    """Whether ptxas converts 4-bit integers to wider ones, or splits them into single bits, on this target."""
    narrow = bool(form.atype) and not form.atype.is_float and form.atype.bits < 8
    return narrow and target.number >= (100 if form.bit_op == "and" else 90)


def lowered_sparse(form: Form, target: Target) -> bool:
    """Whether ptxas orders the metadata itself."""
    types = ("f16", "s8", "u8")
    unordered = form.sparse and not form.ordered_metadata and form.atype.name in types
    return form.family == "mma" and unordered and target.number >= 100


def element_by_element(form: Form, name: str, target: Target) -> bool:
    """Whether ptxas moves or adds the elements of `c` or `d` one by one, so that each must have the operand's type."""
    if lowered_fp8(form, target):
        return name in "cd"
    f64 = form.atype.name == "f64"
    return form.family == "mma" and f64 and form.m == 16 and name == "d" and target.number >= 100


def register_types(form: Form, spec: OperandSpec, target: Target) -> tuple[str, ...]:
    """Register types that ptxas accepts for an operand on this target: `spec.types`, or fewer."""
    if form.family != "mma":
        return spec.types
    if spec.name == "e" and lowered_fp8(form, target):
        return tuple(t for t in spec.types if t != "f32")
    if form.shape == "m8n8k16" and spec.name == "b" and target.number < 100:
        return REGISTERS_INTEGER
    if spec.name == "d" and "f64" in spec.types and element_by_element(form, "d", target):
        return REGISTERS_F64
    return spec.types


_ORDER = (
    "sparse", "sync", "aligned", "shape", "alayout", "blayout", "satfinite", "kind", "block_scale", "scale_vec",
    "rounding", "dtype", "atype", "btype", "ctype", "stype", "bit_op", "popc",
)  # fmt: skip
_ALWAYS: dict[str, Choice] = {"sync": "sync", "aligned": "aligned", "alayout": "row", "blayout": "col"}


MULTIPLIES = ACTS.but(together=Together.WARP, multiplies=True, counted_as="mma", flow=Flow.PRODUCT)


def _row(requires: Requirement, **choices: Choice) -> Row:
    given = {**_ALWAYS, **choices}
    ordered = {name: given.pop(name) for name in _ORDER if name in given}
    if given:
        raise InternalError(f"unknown slots {given}")
    section = SPARSE if "sparse" in choices else DENSE
    return matrix_row("mma", slots(**ordered), requires, section, _signatures, MULTIPLIES)


def _float(requires: Requirement, acc: tuple[str, ...], a: Choice, b: Choice, **more: Choice) -> tuple[Row, ...]:
    """Rows for each accumulator type, where .dtype and .ctype are equal."""
    return tuple(_row(requires, dtype=t, atype=a, btype=b, ctype=t, **more) for t in acc)


def _integer(requires: Requirement, types: tuple[str, ...], shape: Choice, **more: Choice) -> Row:
    sat = optional("satfinite")
    return _row(requires, shape=shape, satfinite=sat, dtype="s32", atype=types, btype=types, ctype="s32", **more)


def _b1(requires: Requirement, shape: Choice, op: str) -> Row:
    return _row(requires, shape=shape, dtype="s32", atype="b1", btype="b1", ctype="s32", bit_op=op, popc="popc")


def _since(major: int, minor: int, minimum: int, suffixes: str = "", *families: int) -> Requirement:
    return Requirement((major, minor), minimum, suffixes, families)


def _narrow(acc: tuple[str, ...], kind: str, requires: Requirement, shape: str, **more: Choice) -> Iterator[Row]:
    """Rows for all pairs of 8-, 6- and 4-bit types of A and B, at least one of them narrower than 8 bits."""
    for a, b in ((FP8, FP864[2:]), (FP864[2:], FP864)):
        yield from _float(requires, acc, a, b, shape=shape, kind=f"kind::{kind}", **more)


_ROUNDING = optional("rn", "rz", "rm", "rp")
_ROWCOL = ("row", "col")
_F16F32 = ("f16", "f32")
_S8 = ("s8", "u8")
_S4 = ("s4", "u4")
_F8F6F4: dict[str, Choice] = {"kind": "kind::f8f6f4"}

_DENSE: tuple[Row, ...] = (
    # .f16
    *(
        _row(_since(6, 4, 70), shape="m8n8k4", alayout=_ROWCOL, blayout=_ROWCOL,
             dtype=d, atype="f16", btype="f16", ctype=c)
        for d, c in (("f16", "f16"), ("f32", "f16"), ("f32", "f32"))
    ),
    *_float(_since(6, 5, 75), _F16F32, "f16", "f16", shape="m16n8k8"),
    *_float(_since(7, 0, 80), _F16F32, "f16", "f16", shape="m16n8k16"),
    # .bf16, .tf32
    *_float(_since(7, 0, 80), ("f32",), "bf16", "bf16", shape=("m16n8k8", "m16n8k16")),
    *_float(_since(7, 0, 80), ("f32",), "tf32", "tf32", shape=("m16n8k4", "m16n8k8")),
    # .f64
    *_float(_since(7, 0, 80), ("f64",), "f64", "f64", shape="m8n8k4", rounding=_ROUNDING),
    *_float(_since(7, 8, 90), ("f64",), "f64", "f64", shape=("m16n8k4", "m16n8k8", "m16n8k16"), rounding=_ROUNDING),
    # FP8
    *_float(_since(8, 4, 89), ("f32",), FP8, FP8, shape="m16n8k32"),
    *_float(_since(8, 7, 89), ("f16",), FP8, FP8, shape="m16n8k32"),
    *_float(_since(8, 7, 89), _F16F32, FP8, FP8, shape="m16n8k16"),
    # .kind::f8f6f4. ptxas takes FP8 alone on every `a` and `f` target from sm_100a on
    *_float(_since(8, 6, 100, "af"), ("f32",), FP8, FP8, shape="m16n8k32", **_F8F6F4),
    *_float(_since(8, 7, 100, "af"), ("f16",), FP8, FP8, shape="m16n8k32", **_F8F6F4),
    *_float(_since(8, 7, 100, "af"), _F16F32, FP8, FP8, shape="m16n8k16", **_F8F6F4),
    *_narrow(_F16F32, "f8f6f4", _since(8, 7, 120, "af", 120), "m16n8k32"),
    # integers
    _integer(_since(6, 5, 75), _S8, "m8n8k16"),
    _integer(_since(7, 0, 80), _S8, ("m16n8k16", "m16n8k32")),
    _integer(_since(6, 5, 75), _S4, "m8n8k32"),
    _integer(_since(7, 0, 80), _S4, ("m16n8k32", "m16n8k64")),
    # .b1
    _b1(_since(7, 0, 75), "m8n8k128", "xor"),
    _b1(_since(7, 0, 80), ("m16n8k128", "m16n8k256"), "xor"),
    _b1(_since(7, 1, 80), ("m8n8k128", "m16n8k128", "m16n8k256"), "and"),
)  # fmt: skip


def _sparse() -> Iterator[Row]:
    for sp, ptx in (("sp", (7, 1)), ("sp::ordered_metadata", (8, 5))):
        since = Requirement(ptx, 80)
        yield from _float(since, _F16F32, "f16", "f16", shape=("m16n8k16", "m16n8k32"), sparse=sp)
        yield from _float(since, ("f32",), "bf16", "bf16", shape=("m16n8k16", "m16n8k32"), sparse=sp)
        yield from _float(since, ("f32",), "tf32", "tf32", shape=("m16n8k8", "m16n8k16"), sparse=sp)
        yield _integer(since, _S8, ("m16n8k32", "m16n8k64"), sparse=sp)
        yield _integer(since, _S4, ("m16n8k64", "m16n8k128"), sparse=sp)
        fp8 = Requirement(max(ptx, (8, 4)), 89)
        yield from _float(fp8, ("f32",), FP8, FP8, shape="m16n8k64", sparse=sp)
    sp, shape = "sp::ordered_metadata", "m16n8k64"
    sm_120 = _since(8, 7, 120, "af", 120)
    yield from _float(sm_120, ("f16",), FP8, FP8, shape=shape, sparse=sp)
    yield from _float(sm_120, ("f16",), FP8, FP8, shape=shape, sparse=sp, **_F8F6F4)
    yield from _float(_since(8, 6, 100, "af"), ("f32",), FP8, FP8, shape=shape, sparse=sp, **_F8F6F4)
    yield from _narrow(_F16F32, "f8f6f4", sm_120, shape, sparse=sp)


def _scaled(
    requires: Requirement, kind: str, shape: str, types: Choice, scale_vec: str, stype: str, default: bool, sparse: str
) -> Row:
    vec = f"scale_vec::{scale_vec}"
    more: dict[str, Choice] = {"sparse": sparse} if sparse else {}
    return _row(
        requires, shape=shape, kind=f"kind::{kind}", block_scale="block_scale",
        scale_vec=optional(vec) if default else vec, dtype="f32", atype=types, btype=types, ctype="f32", stype=stype,
        **more,
    )  # fmt: skip


def _block_scaled() -> Iterator[Row]:
    sm_120 = _since(8, 7, 120, "af", 120)
    for sparse, shape8, shape4, suffixes in (
        ("", "m16n8k32", "m16n8k64", "af"),
        ("sp::ordered_metadata", "m16n8k64", "m16n8k128", "a"),
    ):
        four = _since(8, 7, 120, suffixes, 120)
        late = _since(9, 1, 120, suffixes, 120)
        yield _scaled(sm_120, "mxf8f6f4", shape8, FP864, "1X", "ue8m0", True, sparse)
        yield _scaled(four, "mxf4", shape4, "e2m1", "2X", "ue8m0", True, sparse)
        yield _scaled(four, "mxf4nvf4", shape4, "e2m1", "2X", "ue8m0", False, sparse)
        yield _scaled(four, "mxf4nvf4", shape4, "e2m1", "4X", "ue4m3", False, sparse)
        yield _scaled(late, "mxf4nvf4", shape4, "e2m1", "4X", "ue8m0", False, sparse)


ROWS: tuple[Row, ...] = (*_DENSE, *_sparse(), *_block_scaled())
