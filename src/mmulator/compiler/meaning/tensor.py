"""Copies of tensors (PTX ISA 9.1, Data Movement and Conversion Instructions: Tensor copy)."""

from mmulator.base.codegen.types import u32
from mmulator.base.codegen.values import Value, constant
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.operands import elements
from mmulator.ptx.tree import Address, Instruction, Operand
from mmulator.runtime.native.asynchrony import tensor as rt
from mmulator.runtime.native.asynchrony.maps import MODES, RANKS, Mode
from mmulator.runtime.native.state import TransferKind

U32 = u32.vec(LANES)
ANY_TYPE = (1 << 32) - 1


def _vectors(e: Emitter, given: tuple[Operand, ...], count: int, type: str) -> Value:
    """Vectors of coordinates or offsets in consecutive memory; absent ones are 0."""
    none = constant(e.b, U32, 0)
    return e.spill(*(U32(e.source(given[n], type)) if n < len(given) else none for n in range(count)))


def _map(e: Emitter, operand: Operand) -> tuple[Value, Value]:
    """(addresses of the lanes' maps, their coordinates)."""
    given = must_be(operand, Address)
    return e.spill(e.address(given)), _vectors(e, given.coordinates, RANKS, "s32")


def _how(ins: Instruction) -> tuple[int, Mode]:
    """Rank and mode."""
    return int(ins.form["dim"][0]), MODES[ins.form["mode"]]


@means("cp.async.bulk.tensor")
def copy(e: Emitter, ins: Instruction) -> None:
    if ins.form["dst"] == "global":
        e.transfers(TransferKind.TENSOR_STORE, rt.store_function(""))
        _store(e, ins, TransferKind.TENSOR_STORE, ANY_TYPE)
        return
    rank, mode = _how(ins)
    to, tensor, barrier, *rest = ins.operands
    e.transfers(TransferKind.TENSOR_LOAD, rt.move_tensor_load)
    more: tuple[Operand, ...] = ()
    if mode >= Mode.IM2COL:
        more = elements(rest.pop(0))
    way = rt.OWN * (ins.form["dst"] == "shared::cta") | rt.PAIR * (ins.form["cta_group"] == "cta_group::2")
    masks = constant(e.b, U32, 0)
    if ins.form["multicast"]:
        way |= rt.MULTICAST
        masks = U32(e.source(rest[0], "u16"))
    at, coordinates = _map(e, tensor)
    e.call(
        rt.tensor_load, e.w, e.lanes_of(ins), e.spill(e.address(must_be(to, Address))), at, coordinates,
        _vectors(e, more, 3, "u16"), e.spill(e.address(must_be(barrier, Address))), e.spill(masks), rank, int(mode), way, e.site,
    )  # fmt: skip


@means("cp.reduce.async.bulk.tensor")
def reduce(e: Emitter, ins: Instruction) -> None:
    op = ins.form["op"]
    _store(e, ins, e.mover(rt.store_function(op)), rt.codes(op))


def _store(e: Emitter, ins: Instruction, kind: int, types: int) -> None:
    rank, mode = _how(ins)
    at, coordinates = _map(e, ins.operands[0])
    source = e.spill(e.address(must_be(ins.operands[1], Address)))
    e.call(rt.tensor_store, e.w, e.lanes_of(ins), at, coordinates, source, rank, int(mode), int(kind), types, e.site)


@means("cp.async.bulk.prefetch.tensor")
def prefetch(e: Emitter, ins: Instruction) -> None:
    """Write nothing: a prefetch into a cache has no visible effect."""
