"""Tensor memory and the products in it (PTX ISA 9.1, TensorCore 5th Generation Family Instructions)."""

import numpy as np

from mmulator.base.codegen.ops import cast_ptr, mask_bits, maximum, minimum, trailing_zeros
from mmulator.base.codegen.types import ptr, u32, u64
from mmulator.base.codegen.values import Value, constant
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES, vector_type
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import Lanes, means
from mmulator.compiler.lowering.convergence import converge
from mmulator.compiler.lowering.operands import address_of, elements, given, registers, results, table_pointer, write_result
from mmulator.compiler.lowering.scope import Mods
from mmulator.compiler.meaning.float import extremum32
from mmulator.isa.types import type_bits
from mmulator.matrix.layouts.instruction_descriptor import Variant
from mmulator.matrix.layouts.tensor_memory import MOVES, columns_of
from mmulator.ptx.program.addresses import SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, Reg, VectorOperand
from mmulator.runtime.native.hooks.operands import UniformOperand, matrix_described
from mmulator.runtime.native.hooks.tensor import TensorStep, tensor_ordered
from mmulator.runtime.native.matrix import tensor_core as core
from mmulator.runtime.native.matrix import tensor_memory as rt
from mmulator.runtime.native.matrix.tensor_state import PADDING, TENSOR_SCRATCH

U32, U64 = u32.vec(LANES), u64.vec(LANES)
_SHARED = SLOT_SHARED << SLOT_SHIFT


def _uses(e: Emitter) -> None:
    """Note that the kernel uses tensor memory."""
    e.kernel.matrix.tensor = e.device
    e.kernel.matrix.scratch_bytes = max(e.kernel.matrix.scratch_bytes, TENSOR_SCRATCH)


def _pair(ins: Instruction) -> int:
    return int(ins.form["cta_group"] == "cta_group::2")


def _first(e: Emitter, values: Value, operand: UniformOperand) -> Value:
    """A word of the first active lane, of an operand that all lanes must give alike."""
    given(e, operand, U32(values))
    place = e.spill(U32(values))
    return cast_ptr(u32, place)[trailing_zeros(e.mask)]


def _place(e: Emitter, operand: Operand) -> Value:
    """Addresses in tensor memory, in 32 bits."""
    return U32(e.address(must_be(operand, Address)))


# allocation -----------------------------------------------------------------------------------------------------------
@means("tcgen05.alloc")
def alloc(e: Emitter, ins: Instruction) -> None:
    """End a block that runs again while too few columns are free. Of an address with a state space, or in a register of 32
    bits, chips take the lower 32 bits: those of a generic address are the same place.
    """
    _uses(e)
    converge(e, ins)
    at, columns = ins.operands
    address, base = U64(address_of(e, at)), must_be(at, Address).base
    shared = ins.form["space"] or (isinstance(base, Reg) and type_bits(base.type) == 32)
    where = e.spill(U64(U32(address)) if shared else address)
    given(e, UniformOperand.DESTINATION, U32(address))
    count = _first(e, e.source(columns, "u32"), UniformOperand.COLUMNS)
    function = rt.alloc_function("shared" if shared else "generic")
    e.flush()
    e.b.ret(e.call(function, e.w, e.mask, where, count, _pair(ins), e.block.index, e.block.targets[0], e.site))


@means("tcgen05.dealloc")
def dealloc(e: Emitter, ins: Instruction) -> None:
    _uses(e)
    kinds = UniformOperand.TADDR, UniformOperand.COLUMNS
    at, columns = (_first(e, e.source(o, "u32"), kind) for o, kind in zip(ins.operands, kinds))
    e.call(rt.dealloc, e.w, at, columns, _pair(ins), e.site)


@means("tcgen05.relinquish_alloc_permit")
def relinquish(e: Emitter, ins: Instruction) -> None:
    _uses(e)
    e.call(rt.relinquish, e.w, e.site)


# registers ------------------------------------------------------------------------------------------------------------
def _move(e: Emitter, ins: Instruction, taddr: Operand, split: list[Operand], count: int, values: Value, store: bool) -> None:
    form = ins.form
    shape, half = form["shape"], bool(form["pack"] or form["unpack"])
    apart = must_be(split[0], Immediate).bits("b32") if split else 0
    columns = columns_of(shape, count // MOVES[shape][0])
    function = rt.move_function(shape, store, half)
    e.call(function, e.w, _first(e, _place(e, taddr), UniformOperand.TADDR), count, columns, apart, values, e.site)


@means("tcgen05.ld")
def load(e: Emitter, ins: Instruction) -> None:
    _uses(e)
    r, taddr, *split = ins.operands
    count = len(elements(r))
    out = e.room(U32, count)
    _move(e, ins, taddr, split, count, out, store=False)
    results(e, r, out, ins)


@means("tcgen05.ld.red")
def load_reduced(e: Emitter, ins: Instruction) -> None:
    """Load, and give each thread the least or greatest of its values."""
    _uses(e)
    r, reduced, taddr, *split = ins.operands
    count = len(elements(r))
    out = e.room(U32, count)
    _move(e, ins, taddr, split, count, out, store=False)
    results(e, r, out, ins)
    form = ins.form
    kind = form["type"]
    values = [e.fetch(out, U32, n) for n in range(count)]
    best, *others = (e.typed(v, vector_type(kind), kind) for v in values)
    if kind == "f32":
        how, lanes = Mods(form["op"], frozenset(filter(None, (form["abs"], form["nan"]))), (kind,)), Lanes(e, ins)
        for value in (best, *others):
            best = must_be(extremum32(lanes, how, best, value), Value)
    else:
        for value in others:
            best = (minimum if form["op"] == "min" else maximum)(best, value)
    write_result(e, reduced, best, ins)


@means("tcgen05.st")
def store(e: Emitter, ins: Instruction) -> None:
    _uses(e)
    taddr, *split, r = ins.operands
    _move(e, ins, taddr, split, len(elements(r)), registers(e, r), store=True)


_STEPS = {
    "tcgen05.wait::ld": TensorStep.WAIT_LOADS, "tcgen05.wait::st": TensorStep.WAIT_STORES,
    "tcgen05.fence::before_thread_sync": TensorStep.BEFORE, "tcgen05.fence::after_thread_sync": TensorStep.AFTER,
}  # fmt: skip


@means(*_STEPS)
def order(e: Emitter, ins: Instruction) -> None:
    """Tell instruments alone: loads and stores are carried out at once, and operations of a pipe in order."""
    e.call(tensor_ordered, e.w, e.lanes_of(ins), int(_STEPS[ins.form.row.name]), e.site)


# operations of a pipe -------------------------------------------------------------------------------------------------
@means("tcgen05.mma", "tcgen05.mma.ws")
def mma(e: Emitter, ins: Instruction) -> None:
    _uses(e)
    form = ins.form
    variant = Variant.of_form(form)
    d, a, b, *rest = ins.operands
    zero = e.spill(constant(e.b, U32, 0))
    metadata = e.spill(_place(e, rest.pop(0))) if variant.sparse else zero
    words = e.spill(U32(e.source(rest.pop(0), "u32")))
    scales = [e.spill(_place(e, rest.pop(0))) for _ in range(2)] if variant.scale_vec else [zero, zero]
    off = rest.pop(0) if isinstance(rest[0], VectorOperand) else None
    adds = mask_bits(e.source(rest.pop(0), "pred"))
    divides = 0
    if rest and not variant.ws:
        divides = must_be(rest[0], Immediate).bits("b32")
    zeros = e.spill(U64(e.source(rest[0], "b64")) if rest and variant.ws else constant(e.b, U64, 0))
    in_cells = isinstance(a, Address) + bool(form["ashift"])
    a_word = e.spill(U64(e.address(a)) if isinstance(a, Address) else U64(e.source(a, "b64")))
    b_word = e.spill(U64(e.source(b, "b64")))
    known = table_pointer(e, ptr, ("tcgen05", e.site), lambda tables: np.zeros(1, np.uint64))
    e.call(
        core.issue_mma, e.w, e.lanes_of(ins), known, variant.number, e.spill(_place(e, d)), a_word, b_word,
        words, adds, divides, metadata, *scales, registers(e, off) if off else zero, len(elements(off)) if off else 0,
        zeros, int(variant.pair), int(in_cells), e.mover(core.move_mma), e.site,
    )  # fmt: skip
    if not isinstance(a, Address):
        e.call(matrix_described, e.w, e.lanes_of(ins), a_word, words, int(UniformOperand.A_DESC), e.site)
    e.call(matrix_described, e.w, e.lanes_of(ins), b_word, words, int(UniformOperand.B_DESC), e.site)


@means("tcgen05.cp")
def copy(e: Emitter, ins: Instruction) -> None:
    _uses(e)
    form = ins.form
    taddr, desc = ins.operands
    shape = ".".join(filter(None, (form["shape"], form["multicast"])))
    unpack, (rows, bytes, _) = core.UNPACKED[form["src_fmt"]], core.COPIES[shape]
    mover, padding = e.mover(core.copy_function(shape, unpack)), PADDING.get(unpack, 0)
    where, descs = e.spill(_place(e, taddr)), e.spill(U64(e.source(desc, "b64")))
    e.call(core.issue_copy, e.w, e.lanes_of(ins), where, descs, bytes // 4, rows, padding, _pair(ins), mover, e.site)


@means("tcgen05.shift")
def shift(e: Emitter, ins: Instruction) -> None:
    _uses(e)
    where, none = e.spill(_place(e, ins.operands[0])), e.spill(constant(e.b, U64, 0))
    mover = e.mover(core.move_shift)
    e.call(core.issue_copy, e.w, e.lanes_of(ins), where, none, core.SHIFTED, 0, 0, _pair(ins), mover, e.site)


@means("tcgen05.commit")
def commit(e: Emitter, ins: Instruction) -> None:
    _uses(e)
    e.mbarriers()
    form = ins.form
    at = U64(address_of(e, ins.operands[0]))
    barriers = e.spill(at if form["space"] else at & ~_SHARED)
    multicast = bool(form["multicast"])
    ranks = e.spill(U32(e.source(ins.operands[1], "u16")) if multicast else constant(e.b, U32, 0))
    e.call(core.issue_commit, e.w, e.lanes_of(ins), barriers, ranks, int(multicast), e.mover(core.move_commit), e.site)
