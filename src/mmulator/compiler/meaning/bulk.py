"""Bulk copies (PTX ISA 9.1, Data Movement and Conversion Instructions: cp.async.bulk, cp.reduce.async.bulk, st.bulk)."""

from mmulator.base.codegen.types import u32, u64
from mmulator.base.codegen.values import Value, constant
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.operands import elements
from mmulator.isa.types import type_bits
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand
from mmulator.runtime.native.asynchrony import bulk as rt
from mmulator.runtime.native.asynchrony import store_async as later
from mmulator.runtime.native.asynchrony import transfers
from mmulator.runtime.native.hooks.events import BOTH, WRITE
from mmulator.runtime.native.state import TransferKind

U32, U64 = u32.vec(LANES), u64.vec(LANES)


class Operands:
    """The operands of an instruction by their names in its row, in memory for native code."""

    def __init__(self, e: Emitter, ins: Instruction) -> None:
        self.e = e
        self.operands: dict[str, Operand] = {o.name: given for o, given in zip(ins.form.operands, ins.operands)}

    def place(self, name: str) -> Value:
        return self.e.spill(self.e.address(must_be(self.operands[name], Address)))

    def number(self, name: str, type_name: str = "u32", otherwise: int = 0) -> Value:
        """The operand in 32 bits (64 for `u64`); `otherwise` if the form has no such operand."""
        ty = U64 if type_name == "u64" else U32
        if name not in self.operands:
            return self.e.spill(constant(self.e.b, ty, otherwise))
        return self.e.spill(ty(self.e.source(self.operands[name], type_name)))


@means("cp.async.bulk")
def copy(e: Emitter, ins: Instruction) -> None:
    form, o = ins.form, Operands(e, ins)
    places = o.place("dstMem"), o.place("srcMem"), o.number("size")
    if form["dst"] == "global":
        e.transfers(TransferKind.BULK_STORE, rt.bytes_out)
        kept = o.number("byteMask", "u16", otherwise=rt.ALL)
        e.call(rt.store_to_global, e.w, e.lanes_of(ins), *places, kept, int(TransferKind.BULK_STORE), e.site)
        return
    e.mbarriers()
    if form["ignore_oob"]:
        ends = o.number("ignoreBytesLeft"), o.number("ignoreBytesRight")
        kind = e.mover(rt.bytes_in_between)
        e.call(rt.load_between, e.w, e.lanes_of(ins), *places, o.place("mbar"), *ends, kind, e.site)
        return
    e.transfers(TransferKind.BULK_LOAD, rt.bytes_in)
    load = rt.load_function(form["dst"], form["src"], bool(form["multicast"]))
    e.call(load, e.w, e.lanes_of(ins), *places, o.place("mbar"), o.number("ctaMask", "u16"), e.site)


@means("cp.reduce.async.bulk")
def reduce(e: Emitter, ins: Instruction) -> None:
    form, o = ins.form, Operands(e, ins)
    places = o.place("dstMem"), o.place("srcMem"), o.number("size")
    shared = form["dst"] != "global"
    kind = e.mover(rt.move_reduction(form["op"], form["type"], shared))
    if shared:
        e.mbarriers()
        e.call(rt.reduce_to_shared, e.w, e.lanes_of(ins), *places, o.place("mbar"), kind, e.site)
    else:
        kept = constant(e.b, U32, rt.ALL)
        e.call(rt.store_to_global, e.w, e.lanes_of(ins), *places, e.spill(kept), kind, e.site)


@means("cp.async.bulk.prefetch")
def prefetch(e: Emitter, ins: Instruction) -> None:
    o = Operands(e, ins)
    e.call(rt.prefetch, e.w, e.lanes_of(ins), o.place("srcMem"), o.number("size"), e.site)


@means("cp.async.bulk.commit_group")
def commit(e: Emitter, ins: Instruction) -> None:
    e.call(transfers.commit_bulk, e.w, e.lanes_of(ins))


@means("cp.async.bulk.wait_group")
def wait(e: Emitter, ins: Instruction) -> None:
    pending = must_be(ins.operands[0], Immediate).value
    e.call(transfers.wait_bulk, e.w, e.lanes_of(ins), pending, int(bool(ins.form["read"])), e.site)


@means("st.bulk")
def clear(e: Emitter, ins: Instruction) -> None:
    o = Operands(e, ins)
    function = rt.clear if ins.form["space"] else rt.from_generic
    where = e.spill(e.address(must_be(ins.operands[0], Address)))
    e.call(function, e.w, e.lanes_of(ins), where, o.number("size", "u64"), e.site)


# a few words ----------------------------------------------------------------------------------------------------------
@means("st.async")
def store_async(e: Emitter, ins: Instruction) -> None:
    e.transfers(TransferKind.STORE_ASYNC, later.move_words)
    _later(e, ins, int(TransferKind.STORE_ASYNC), WRITE)


@means("red.async")
def reduce_async(e: Emitter, ins: Instruction) -> None:
    shared = bool(ins.form["completion"])
    _later(e, ins, e.mover(later.move_into(ins.form["op"], ins.form["type"], shared)), BOTH)


def _later(e: Emitter, ins: Instruction, mover: int, access: int) -> None:
    form, kind = ins.form, ins.form["type"]
    address, value, *rest = ins.operands
    given = [e.source(v, f"b{type_bits(kind)}") for v in elements(value)]
    if kind == "b128":  # two of 64 bits
        kind, given = "b64", [half for v in given for half in (v, v >> 64)]
    values = e.spill(*(U64(v) for v in given))
    where = e.spill(e.address(must_be(address, Address)))
    if rest:
        barriers = e.spill(e.address(must_be(rest[0], Address)))
        store = later.to_shared(kind, len(given), not form["space"])
        e.call(store, e.w, e.lanes_of(ins), where, barriers, values, mover, e.site)
    else:
        e.call(later.to_global(kind, access), e.w, e.lanes_of(ins), where, values, mover, e.site)
