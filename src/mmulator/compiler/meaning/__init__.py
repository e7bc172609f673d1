"""The meanings of instructions: one file for each chapter of the PTX ISA, with the name of the chapter's rows in isa/.

lowering/binding.py binds functions to rows; at import, this file proves that every row that runs has a function. The functions
write code with the vocabulary of lowering/ and emit/.
"""

from types import ModuleType

from mmulator.base.codegen.ops import mask_bits
from mmulator.base.codegen.types import u32, u64
from mmulator.base.errors import InternalError, MmulatorError
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering import convergence, definedness, quotient, special_registers
from mmulator.compiler.lowering.binding import bound_files, meaning_of, prove, run
from mmulator.compiler.lowering.calls import load_register_parameters
from mmulator.compiler.lowering.products import prepare
from mmulator.compiler.lowering.screened import screened, stay_inside
from mmulator.compiler.meaning import (
    atomic,
    barrier,
    bulk,
    cluster,
    compare,
    control,
    convert,
    copies,
    fence,
    float,
    grid,
    half,
    integer,
    logic,
    matrix_move,
    mbarrier,
    memory,
    misc,
    mma,
    move,
    stack,
    tcgen05,
    tensor,
    tensormap,
    video,
    warp,
    wgmma,
    wmma,
)
from mmulator.isa import table
from mmulator.isa.effects import Ends, Together
from mmulator.isa.types import type_bits
from mmulator.ptx.program.as_ptxas import quotient as quotient_rows
from mmulator.ptx.program.blocks import instructions
from mmulator.ptx.program.fragments import fragments_of, lanes_of
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Immediate, Instruction
from mmulator.runtime.native.hooks.blocks import block_begins, guarded
from mmulator.runtime.native.hooks.events import stepped
from mmulator.runtime.native.hooks.moves import LOADED, READ, WRITTEN, value_moves
from mmulator.runtime.native.hooks.operands import (
    WrongOperand,
    barrier_passed,
    fragment_operated,
    fragment_scaled,
    members_given,
    operand_refused,
)
from mmulator.runtime.native.state import FULL

U32, U64 = u32.vec(LANES), u64.vec(LANES)

CHAPTERS = (
    atomic, barrier, bulk, cluster, compare, control, convert, copies, fence, float, grid, half, integer, logic, matrix_move,
    mbarrier, memory, misc, mma, move, quotient, stack, tcgen05, tensor, tensormap, video, warp, wgmma, wmma,
)  # fmt: skip


def _prove_all() -> None:
    tables: tuple[ModuleType, ...] = (*table.CHAPTERS, quotient_rows)
    for rows in tables:
        name = rows.__name__.rpartition(".")[2]
        prove(name, rows.ROWS, rows.__name__.removeprefix("mmulator.").replace(".", "/") + ".py")
    strangers = bound_files() - {rows.__name__.rpartition(".")[2] for rows in tables}
    if strangers:
        raise InternalError(f"compiler/meaning/: {strangers} name no file of rows")
    special_registers.prove()


_prove_all()


# the code of a block ------------------------------------------------------------------------------------------------
def write(e: Emitter, ins: Instruction) -> None:
    """Write the code of an instruction, after `e.begin`. Raises UnsupportedError."""
    if e.kernel.options.keep_going:
        with screened(e, ins):
            _write(e, ins)
    else:
        _write(e, ins)


def _write(e: Emitter, ins: Instruction) -> None:
    meaning = meaning_of(ins.form)
    settle = definedness.judge(e, ins)
    follow(e, ins)
    stay_inside(e, ins)
    try:
        if e.events is not None:
            members(e, ins)
            bounded(e, ins)
            passes(e, ins)
            if e.hears(guarded) and (guard := e.guard(ins)) is not None:
                e.call(guarded, e.w, e.mask & ~mask_bits(guard), e.site)
            fragment_elements(e, ins)
        if meaning.lanewise:
            run(e, ins, meaning)
        else:
            meaning.function(e, ins)
    except MmulatorError as error:
        error.span = error.span or ins.span
        raise
    if settle is not None:
        settle()


def follow(e: Emitter, ins: Instruction) -> None:
    """For an instrument: report that an instruction reads or writes registers of a load that may stay unread
    (ptx/program/undefined.py). A block reports the first read alone.
    """
    held = e.kernel.held.get(e.function_name)
    if not held or not e.hears(value_moves):
        return
    uses, defs = uses_and_defs(ins)
    for number in sorted({n for name in uses & held.keys() for n in held[name]} - e.read_before):
        e.call(value_moves, e.w, e.mask, number, READ)
        e.read_before.add(number)
    loaded = e.kernel.unread.get(ins)
    for number in sorted({n for name in defs & held.keys() for n in held[name]}):
        e.call(value_moves, e.w, e.lanes_of(ins), number, LOADED if number == loaded else WRITTEN)
        e.read_before.discard(number)


def members(e: Emitter, ins: Instruction) -> None:
    """For an instrument: report the member mask that each lane gives. -1 names all lanes, which only a bar.warp.sync may not."""
    if ins.effects.together in (Together.MEMBERS, Together.MEETING) and e.hears(members_given):
        mask, meets = ins.operands[-1], ins.effects.together is Together.MEETING
        if ins.operands and not (isinstance(mask, Immediate) and mask.bits("b32") == FULL and not meets):
            e.call(members_given, e.w, e.lanes_of(ins), e.spill(U32(e.source(mask, "b32"))), int(meets), e.site)


def bounded(e: Emitter, ins: Instruction) -> None:
    """For an instrument: report lanes whose operand is more than its row allows."""
    for spec, operand in zip(ins.form.operands, ins.operands, strict=False):
        if spec.kind == "src" and spec.defined and e.hears(operand_refused):
            values = U32(e.source(operand, "u32"))
            with e.b.if_((beyond := e.lanes_of(ins) & mask_bits(values >= len(spec.defined))) != 0):
                e.call(operand_refused, e.w, beyond, e.spill(U64(values)), int(WrongOperand.LARGE), e.site)


def passes(e: Emitter, ins: Instruction) -> None:
    """For an instrument: report the first action of a lane in a block where it has skipped an aligned barrier."""
    barriers = e.kernel.skips.behind.get(ins, 0)
    if barriers:
        e.call(barrier_passed, e.w, e.mask, barriers, e.site)


def fragment_elements(e: Emitter, ins: Instruction) -> None:
    """For an instrument: report operations on elements of wmma fragments that may differ among lanes."""
    if not e.hears(fragment_operated) or ins not in fragments_of(e.block.function).partly:
        return
    lanes = lanes_of(e.block.function)
    if lanes.under_condition(ins, e.block):
        e.call(fragment_operated, e.w, e.lanes_of(ins), e.site)
    for o in lanes.differing(ins):
        e.call(fragment_scaled, e.w, e.lanes_of(ins), e.spill(U64(e.source(o, f"b{type_bits(o.type)}"))), e.site)


def write_block(e: Emitter) -> None:
    """Write a whole block: the results of the block before, the instructions, the ending."""
    block = e.block
    e.call(block_begins, e.w, e.mask, block.index, len(instructions(block)))
    if block is block.function.blocks[0] and not block.function.function.is_entry:
        load_register_parameters(e)
        definedness.entered(e)
    if block.after is not None:
        receive = meaning_of(block.after.form).receive
        if receive is None:
            raise InternalError(f"control comes back to {block.after}, which receives nothing")
        e.begin(block.after)
        receive(e, block.after)
        definedness.received(e, block.after)
    prepare(e)
    memory.prepare_runs(e)
    for n, ins in enumerate(block.body):
        e.begin(ins)
        if n == 0:
            convergence.arrive(e, ins)
        step(e)
        write(e, ins)
    _finish(e)


def step(e: Emitter) -> None:
    """For an instrument: report the instruction that comes next, with all registers in the register file."""
    if e.hears(stepped):
        e.flush(everything=True)
        e.call(stepped, e.w, e.mask, e.site)


def _finish(e: Emitter) -> None:
    """Write the ending: the meaning of its instruction, or a jump to the next block."""
    last = e.block.last
    if last is not None:
        e.begin(last)
        if e.block.ending is not Ends.BRANCH or last.effects.ends is Ends.BRANCH:  # else control only goes around it
            step(e)
    match e.block.ending, last:
        case Ends.BRANCH, Instruction():
            definedness.decides(e, last)
            passes(e, last)
            control.part_ways(e, last)
        case Ends.NO, _:
            control.go_on(e)
        case _, None:
            control.leave(e)
        case _, Instruction():
            write(e, last)
