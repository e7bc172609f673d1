"""mov, prmt, and conversions of addresses (PTX ISA 9.1, Data Movement and Conversion Instructions)."""

from mmulator.base.codegen.ops import bitcast, cast_ptr, select, shuffle
from mmulator.base.codegen.types import u8, u32, u64
from mmulator.base.codegen.values import Value, constant
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES, known, storage_type
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import lanewise, means
from mmulator.compiler.lowering.operands import elements, space_of, write_result
from mmulator.compiler.lowering.scope import Mods, Result, Scope, outline
from mmulator.isa.types import type_bits
from mmulator.ptx.program.addresses import RANK_SHIFT, SLOT_CONST, SLOT_LOCAL, SLOT_PARAM, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.tree import Instruction, Operand, SpecialRegister, VectorOperand
from mmulator.runtime.native.state import Cta

U32, U64 = u32.vec(LANES), u64.vec(LANES)


@means("mov")
def mov(e: Emitter, ins: Instruction) -> None:
    target, source = ins.operands
    type_name = ins.form["type"]
    if ins.form["vec"] and isinstance(target, VectorOperand):
        for each, part in zip(target.elements, _elements(source)):
            write_result(e, each, e.source(part, type_name), ins)
    elif isinstance(source, VectorOperand):
        write_result(e, target, _pack(e, source, type_name), ins)
    elif isinstance(target, VectorOperand):
        _unpack(e, target, source, type_name, ins)
    else:
        value = e.one(source, type_name)
        write_result(e, target, e.source(source, type_name) if value is None else value, ins)


def _elements(source: Operand) -> tuple[Operand, ...]:
    """Elements of a vector, or the components of a special register."""
    if isinstance(source, SpecialRegister):
        return tuple(SpecialRegister(f"{source.name}.{axis}", source.span) for axis in "xyzw")
    return elements(source)


def _pack(e: Emitter, source: VectorOperand, type_name: str) -> Value:
    """Elements side by side, the first in the low bits."""
    bits = type_bits(type_name)
    each = bits // len(source.elements)
    wide = storage_type(f"b{bits}")
    result: Value | None = None
    for n, element in enumerate(source.elements):
        part = wide(e.source(element, f"b{each}"))
        part = part << (n * each) if n else part
        result = part if result is None else result | part
    return must_be(result, Value)


def _unpack(e: Emitter, target: VectorOperand, source: Operand, type_name: str, ins: Instruction) -> None:
    bits = type_bits(type_name)
    each = bits // len(target.elements)
    value = storage_type(f"b{bits}")(e.source(source, f"b{bits}"))
    narrow = storage_type(f"b{each}")
    parts = [narrow(value >> (n * each) if n else value) for n in range(len(target.elements))]
    for element, part in zip(target.elements, parts):
        write_result(e, element, part, ins)


_SLOTS = {"shared": SLOT_SHARED, "shared::cluster": SLOT_SHARED, "local": SLOT_LOCAL, "const": SLOT_CONST, "param": SLOT_PARAM}


@means("cvta", "cvta.to")
def cvta(e: Emitter, ins: Instruction) -> None:
    """Convert between an address of a state space and a generic address, which has the slot's number in its upper bits."""
    target, source = ins.operands
    value = e.one(source, ins.form["type"])
    value = U64(e.source(source, ins.form["type"])) if value is None else u64(value)
    slot = _SLOTS.get(space_of(ins))
    if slot is not None:
        if form_is_to(ins):
            value = value & ((1 << SLOT_SHIFT) - 1)
        else:
            value = value & ((1 << SLOT_SHIFT) - 1) | (slot << SLOT_SHIFT)
    write_result(e, target, value, ins)


def form_is_to(ins: Instruction) -> bool:
    return "to" in ins.modifiers


@means("isspacep")
def isspacep(e: Emitter, ins: Instruction) -> None:
    target, source = ins.operands
    where = U64(e.source(source, "u64"))
    slot, space = where >> SLOT_SHIFT, space_of(ins)
    if space in _SLOTS:
        answer = slot == _SLOTS[space]
    else:  # spaces without a window; parameters are in global memory on an H200
        answer = (slot != SLOT_SHARED) & (slot != SLOT_LOCAL) & (slot != SLOT_CONST)
    if space == "shared":  # that of another block of the cluster is .shared::cluster alone
        own = cast_ptr(Cta, e.warp("cta")).field("rank")
        answer = answer & (((where >> RANK_SHIFT) & 0xFF) == u64(own))
    write_result(e, target, answer, ins)




_MODES: dict[str, tuple[tuple[int, int, int, int], ...]] = {  # bytes of the result, low first, by the low bits of c
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}


def selector_of(picks: tuple[int, int, int, int]) -> int:
    return sum(pick << 4 * n for n, pick in enumerate(picks))


def _permute_known(a: Value, b: Value, selector: int) -> Value:
    """A permutation of bytes by constant numbers: a shuffle, then the bytes that repeat a sign."""
    bytes_ = u8.vec(4 * LANES)
    picks = [selector >> 4 * n & 15 for n in range(4)]
    index = [4 * lane + (pick & 3) + (4 * LANES if pick & 4 else 0) for lane in range(LANES) for pick in picks]
    moved = bitcast(U32, shuffle(bitcast(bytes_, a), bitcast(bytes_, b), index))
    signs = sum(0xFF << 8 * n for n, pick in enumerate(picks) if pick & 8)
    if signs:
        top = (moved >> 7) & 0x01010101
        moved = (moved & (0xFFFFFFFF ^ signs)) | ((top * 0xFF) & signs)
    return moved


def _permute(a: Value, b: Value, selector: Value) -> Value:
    result = constant(a.b, U32, 0)
    for n in range(4):
        nibble = (selector >> 4 * n) & 15
        byte = (select((nibble & 4) != 0, b, a) >> ((nibble & 3) << 3)) & 0xFF
        repeated = ((byte >> 7) & 1) * 0xFF
        result = result | (select((nibble & 8) != 0, repeated, byte) << 8 * n)
    return result


@lanewise("prmt")
def prmt(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    mode = m.one(tuple(_MODES))
    number = known(c)
    if number is not None:
        return _permute_known(a, b, selector_of(_MODES[mode][number & 3]) if mode else number & 0xFFFF)

    def body(a: Value, b: Value, c: Value) -> Value:
        if not mode:
            return _permute(a, b, c)
        selector = constant(a.b, U32, 0)
        for n, picks in enumerate(_MODES[mode]):
            selector = select((c & 3) == n, selector_of(picks), selector)
        return _permute(a, b, selector)

    return outline(x, f"ptx_prmt_{mode}", U32, body, a, b, c)
