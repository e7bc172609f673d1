"""mbarrier objects (PTX ISA 9.1, Parallel Synchronization and Communication Instructions: mbarrier)."""

from mmulator.base.codegen.ops import bits_mask, mask_bits
from mmulator.base.codegen.types import ptr, u32, u64
from mmulator.base.codegen.values import Value, constant
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES, vector_type
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import lanewise, means
from mmulator.compiler.lowering.operands import pair, space_of, write_result
from mmulator.compiler.lowering.scope import Mods, Result, Scope
from mmulator.matrix.numerics.mbarrier import COUNT, PENDING
from mmulator.ptx.tree import Address, Instruction, Operand, Reg
from mmulator.runtime.native.asynchrony import copies
from mmulator.runtime.native.asynchrony import mbarrier as rt
from mmulator.runtime.native.asynchrony.mbarrier import Does
from mmulator.runtime.native.hooks.events import BOTH, READ, SAID, WRITE, Order, Proxy, by, mbarrier_order, order_of
from mmulator.runtime.native.memory.windows import SPACES, translate_to_shared
from mmulator.runtime.native.state import COPIES

U32, U64, POINTERS = u32.vec(LANES), u64.vec(LANES), ptr.vec(LANES)
# Since this chip the lanes of one instruction arrive at an mbarrier as one number, which must not exceed what is pending: an H200
# ends such a launch with CUDA_ERROR_LAUNCH_FAILED. ptxas 13.5 makes one SYNCS.ARRIVE of it for sm_90 and for sm_100.
TOGETHER_SINCE = 90


def barriers(e: Emitter, ins: Instruction, operand: Operand, lanes: Value, access: int) -> tuple[Value, Value]:
    """(lanes that continue, host addresses of their mbarriers). A generic address must be in the own block.

    e, ins: the emitter and the instruction.
    operand: its address.
    lanes: the lanes that execute it.
    access: read, write or both.
    """
    space = space_of(ins)
    translate = translate_to_shared if space == "generic" else SPACES[space]
    room = e.room(POINTERS)
    where = e.spill(e.address(must_be(operand, Address)))
    return e.call(translate, e.w, lanes, where, rt.ALIGNMENT, by(access, Proxy.MBARRIER), e.site, room), room


def _order(ins: Instruction, default: str) -> int:
    """Semantics and scope of an operation on an mbarrier (PTX ISA 9.1, mbarrier.arrive, mbarrier.try_wait), as a number.
    Without a scope the specification means .cta, but programs also omit it for other CTAs' mbarriers, and chips order these
    too; so there is a code for "no scope".
    """
    form = ins.form
    return order_of(form["sem"] or default, form["scope"]) | (SAID if form["scope"] else 0)


@means("mbarrier.init")
def init(e: Emitter, ins: Instruction) -> None:
    e.mbarriers()
    where, count = ins.operands
    counts = e.spill(U32(e.source(count, "u32")))
    lanes, host = barriers(e, ins, where, e.lanes_of(ins), WRITE)
    e.call(rt.init, e.w, lanes, host, counts, int(ins.form["layout"] == "layout::v1"), e.site)


@means("mbarrier.check_layout")
def check_layout(e: Emitter, ins: Instruction) -> None:
    d, where = ins.operands
    lanes, host = barriers(e, ins, where, e.lanes_of(ins), READ)
    found = e.call(rt.layouts, e.w, lanes, host, int(ins.form["layout"] == "layout::v1"), e.site)
    write_result(e, d, bits_mask(found), ins)


@means("mbarrier.inval")
def inval(e: Emitter, ins: Instruction) -> None:
    lanes, host = barriers(e, ins, ins.operands[0], e.lanes_of(ins), WRITE)
    e.call(rt.inval, e.w, lanes, host, e.site)


def _act(e: Emitter, ins: Instruction, does: Does, where: Operand, count: Operand | None, size: Operand | None) -> Value:
    """An operation of each lane on its mbarrier; returns the states."""
    counts = U32(e.source(count, "u32")) if count is not None else constant(e.b, U32, 1)
    sizes = U32(e.source(size, "u32")) if size is not None else constant(e.b, U32, 0)
    given = e.spill(counts), e.spill(sizes)
    lanes, host = barriers(e, ins, where, e.lanes_of(ins), BOTH)
    states = e.room(U64)
    default = "release" if does & Does.ARRIVES else "relaxed"
    e.call(mbarrier_order, e.w, _order(ins, default), e.site)
    e.call(rt.act, e.w, lanes, host, *given, int(does), states, e.site)
    return e.fetch(states, U64)


@means("mbarrier.arrive", "mbarrier.arrive_drop")
def arrive(e: Emitter, ins: Instruction) -> None:
    d, where, *rest = ins.operands
    does = Does.ARRIVES
    if int(e.device.removeprefix("sm_")) >= TOGETHER_SINCE:
        does |= Does.TOGETHER
    if ins.form.name.startswith("mbarrier.arrive_drop"):
        does |= Does.DROPS
    if "noComplete" in ins.modifiers:
        does |= Does.STAYS
    if "expect_tx" in ins.modifiers:
        states = _act(e, ins, does | Does.EXPECTS, where, None, rest[0])
    else:
        states = _act(e, ins, does, where, rest[0] if rest else None, None)
    write_result(e, d, states, ins)


@means("mbarrier.expect_tx")
def expect_tx(e: Emitter, ins: Instruction) -> None:
    where, size = ins.operands
    _act(e, ins, Does.EXPECTS, where, None, size)


@means("mbarrier.complete_tx")
def complete_tx(e: Emitter, ins: Instruction) -> None:
    where, size = ins.operands
    _act(e, ins, Does.COMPLETES, where, None, size)


@means("mbarrier.test_wait", "mbarrier.try_wait")
def wait(e: Emitter, ins: Instruction) -> None:
    """End a block that runs again when its lanes are woken; the guard of a later instruction may be its result.

    A state gives the phase by the same bit as the mbarrier's word. No chip before sm_107 reports anything: the conditional
    phase is the primary one, and reported values are 0.
    """
    at = next(n for n, operand in enumerate(ins.operands) if isinstance(operand, Address))
    heard, (where, phase) = ins.operands[:at], ins.operands[at : at + 2]
    d, *reported = (o for operand in heard for o in pair(operand))
    if "parity" in ins.modifiers:
        parities = mask_bits((U32(e.source(phase, "u32")) & 1) != 0)
    else:
        parities = mask_bits((U64(e.source(phase, "b64")) >> 63) != 0)
    lanes, host = barriers(e, ins, where, e.mask, READ)
    done = e.room(u32)
    order = _order(ins, "acquire")
    if not isinstance(d, Reg) or d.name not in e.frame.live_out[e.block.index]:  # whoever does not look has not waited
        order &= ~int(Order.ACQUIRE)
    e.call(mbarrier_order, e.w, order, e.site)
    suspends = "try_wait" in ins.modifiers
    to = e.call(rt.wait_at, e.w, lanes, host, parities, suspends, e.block.index, e.block.targets[0], done, e.site)
    if isinstance(d, Reg):
        lanes = e.fetch(done, u32)
        e.write(d.name, lanes != 0 if d.name in e.frame.uniform else bits_mask(lanes))
    for operand in reported:
        if isinstance(operand, Reg):
            ty = vector_type(operand.type)
            e.write(operand.name, constant(e.b, ty.element if operand.name in e.frame.uniform else ty, 0))
    e.flush()
    e.b.ret(to)


@lanewise("mbarrier.pending_count")
def pending_count(x: Scope, m: Mods, state: Value) -> Result:
    """The number of pending arrivals in a state; 2^20 if none was pending."""
    return constant(state.b, U32, 1 << COUNT) - U32((state >> PENDING) & ((1 << COUNT) - 1))


@means("cp.async.mbarrier.arrive")
def arrive_on_copies(e: Emitter, ins: Instruction) -> None:
    """Issue an arrival behind the copies of the warp. Without .noinc the phase also awaits this arrival; a chip (sm_90) counts
    it as a byte.
    """
    e.mbarriers()
    e.uses(COPIES, copies.carry_out_copy)
    lanes, host = barriers(e, ins, ins.operands[0], e.lanes_of(ins), BOTH)
    e.call(copies.arrive_behind, e.w, lanes, host, int("noinc" not in ins.modifiers), e.site)
