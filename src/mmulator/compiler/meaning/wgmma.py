"""Asynchronous warpgroup-level matrix instructions (PTX ISA 9.1, Asynchronous Warpgroup Level Matrix Multiply-Accumulate
Instructions)."""

from itertools import accumulate

import numpy as np

from mmulator.base.codegen.ops import mask_bits, null, trailing_zeros
from mmulator.base.codegen.types import u32, u64
from mmulator.base.codegen.values import Value, constant, extract
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering import definedness
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.convergence import converge
from mmulator.compiler.lowering.operands import elements, given, keep, registers, selector_of, table_pointer
from mmulator.compiler.lowering.operands import metadata as metadata_of
from mmulator.isa.effects import Queue, Step
from mmulator.isa.form import Form
from mmulator.matrix.twin.places import index_table
from mmulator.matrix.twin.twin import twin_of
from mmulator.ptx.program.blocks import is_wgmma_issue
from mmulator.ptx.program.frames import pinned_registers
from mmulator.ptx.program.inline_assembly import computes
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Immediate, Instruction, Operand, Reg, VectorOperand
from mmulator.runtime.compiled import MatrixTables
from mmulator.runtime.native.asynchrony import pending
from mmulator.runtime.native.hooks.events import wgmma_committed, wgmma_fenced
from mmulator.runtime.native.hooks.operands import UniformOperand as Shared
from mmulator.runtime.native.hooks.operands import matrix_described
from mmulator.runtime.native.matrix import wgmma as wg
from mmulator.runtime.native.matrix.wgmma_operands import WARPS
from mmulator.runtime.native.state import WGMMA, WgmmaTable

U64 = u64.vec(LANES)


@means("wgmma.fence")
def fence(e: Emitter, ins: Instruction) -> None:
    """Order registers and shared memory. The machine needs no code for it, because operands are never read early."""
    e.call(wgmma_fenced, e.w, e.mask, e.site)


@means("wgmma.commit_group")
def commit_group(e: Emitter, ins: Instruction) -> None:
    e.call(wgmma_committed, e.w, e.site)
    e.call(pending.commit_group, e.w, WGMMA.queue)


def _names(operand: Operand) -> list[str]:
    return [must_be(o, Reg).name for o in elements(operand)]


def _immediates(operands: list[Operand]) -> list[int]:
    values = [must_be(o, Immediate).bits("b32") for o in operands]
    return [bits - (1 << 32) if bits >> 31 else bits for bits in values]


@means("wgmma.mma_async")
def mma_async(e: Emitter, ins: Instruction) -> None:
    form = ins.form
    d, a, b_desc, *rest = ins.operands
    metadata = null(u32)
    selector = 0
    if form.sparse:
        metadata = registers(e, rest[0])
        selector = selector_of(rest[1])
        metadata_of(e, form, metadata, selector)
        rest = rest[2:]
    scale_d, *rest = rest
    in_registers = isinstance(a, VectorOperand)
    d_names = _names(d)
    a_names = _names(a) if in_registers else []
    immediates = _immediates(rest)
    scale = immediates[:2] if form.atype.is_float else [1, 1]
    trans = immediates[2:]
    trans_a, trans_b = [0] * (2 - len(trans)) + trans  # of A in registers there is none
    unfenced = ins in e.kernel.unfenced
    key = ("wgmma", form, tuple(d_names), tuple(a_names), tuple(immediates), selector, e.function_name, unfenced)

    def make(tables: MatrixTables) -> np.ndarray:
        table = _wgmma_table(e, form, d_names, a_names, scale, trans_a, trans_b, tables)
        table["unfenced"] = unfenced
        if form.sparse:
            table["sparse"], table["places"] = 1, index_table(tables.keep, form, selector)
        return table

    table = table_pointer(e, WgmmaTable, key, make)
    e.store_registers([*d_names, *a_names])
    lane = trailing_zeros(e.mask)
    zero = constant(e.b, u64, 0)
    a_word = zero if in_registers else _descriptor(e, a, lane, Shared.A_DESC, trans_a)
    b_word = _descriptor(e, b_desc, lane, Shared.B_DESC, trans_b)
    keep = mask_bits(e.source(scale_d, "pred"))
    e.uses(WGMMA, wg.carry_out_wgmma)
    e.call(wg.wgmma_issue, e.w, table, a_word, b_word, keep, metadata, _goes_on(e, ins), e.site)
    definedness.wgmma(e, ins, table, a_word, b_word, keep)


def _goes_on(e: Emitter, ins: Instruction) -> bool:
    """Whether another wgmma follows, and nothing in between shows whether this one was carried out: no instruction writes
    memory or accesses an accumulator or A. Then the operations that the seed completes now are carried out with the last of
    them.
    """
    if e.events is not None:
        return False
    pinned = pinned_registers(e.block.function)
    body = e.block.body
    at = next(n for n, other in enumerate(body) if other is ins)
    for other in body[at + 1 :]:
        if is_wgmma_issue(other):
            return True
        uses, defs = uses_and_defs(other)
        of_queue = other.effects.queue is Queue.WGMMA and other.effects.step in (Step.FENCE, Step.COMMIT)
        if not (of_queue or computes(other)) or (uses | defs) & pinned:
            return False
    return False


def _descriptor(e: Emitter, operand: Operand, lane: Value, name: Shared, trans: int) -> Value:
    values = U64(e.source(operand, "b64"))
    given(e, name, values)
    if e.hears(matrix_described):
        e.call(matrix_described, e.w, e.mask, e.spill(values), e.spill(constant(e.b, u32.vec(LANES), trans)), int(name), e.site)
    return constant(e.b, u64, operand.bits("b64")) if isinstance(operand, Immediate) else extract(values, lane)


def _wgmma_table(
    e: Emitter, form: Form, d: list[str], a: list[str], scale: list[int], trans_a: int, trans_b: int, tables: MatrixTables
) -> np.ndarray:
    twin = twin_of(form, e.device)
    table = np.zeros(1, WgmmaTable.numpy_dtype())
    table["pack_a"], table["pack_b"], table["pack_b_rows"], table["dot"] = twin.pack_a, twin.pack_b, twin.pack_b_rows, twin.dot
    table["dot_steps"] = twin.dot_steps
    table["n"], table["k"] = form.n, form.k
    table["element_bits"] = form.atype.bits
    table["a_in_registers"] = bool(a)
    table["d_words"], table["d_bits"] = len(d), form.dtype.bits
    table["mn_major_a"], table["mn_major_b"] = trans_a, trans_b
    table["flags"] = twin.flags(negate_a=scale[0] == -1, negate_b=scale[1] == -1)
    slots = tuple(e.frame.slots[n] for n in d)
    table["tile"] = tables.tiles.setdefault((e.function_name, form.n, form.dtype.bits, slots), len(tables.tiles))
    tables.tile_bytes = max(tables.tile_bytes, -(-64 * form.n * form.dtype.bits // 8 // 64) * 64)
    tables.wgmma.append(table)
    table["a_row"] = twin.a_bytes(1, form.k)
    for part, place in scratch_parts(form, twin.b_bytes(form.n, form.k)).items():
        table["scratch"][part] = place.start
        tables.scratch_bytes = max(tables.scratch_bytes, place.stop + 64)  # vectors may read a line beyond
    table["watched"] = e.events is not None
    line = form.k * form.atype.bits // 8
    tables.a_pack = _larger(tables.a_pack, (64 * line, twin.a_bytes(64, form.k)))
    tables.b_pack = _larger(tables.b_pack, (form.n * line, twin.b_bytes(form.n, form.k)))
    table["d_slots"][0, : len(d)] = slots
    table["a_slots"][0, : len(a)] = [e.frame.slots[n] for n in a]
    tables.keep.append(twin)
    return table


def scratch_parts(form: Form, packed_b: int) -> dict[str, range]:
    """Which bytes of the scratch memory each part is that a wgmma uses (WgmmaScratch). packed_b: bytes of a packed B."""
    rows, bits = max(64, form.n), form.atype.bits
    sizes = {
        "plain": rows * form.k * bits // 8,
        "unpacked": {1: rows * form.k, 16: 64 * form.k * 2}.get(bits, 0),
        "metadata": form.sparse * WARPS * 32 * 4,
        "own": form.sparse * form.n * form.k * 4,
        "packed": form.sparse * packed_b,
    }
    starts = accumulate((-(-size // 64) * 64 for size in sizes.values()), initial=0)
    return {name: range(at, at + size) for (name, size), at in zip(sizes.items(), starts)}


def _larger(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return max(a[0], b[0]), max(a[1], b[1])


def find_rivals(tables: MatrixTables) -> None:
    """Find, when all wgmma are known, the other tiles that share registers with each accumulator, and those that share some of
    its A.
    """
    tiles = [(name, frozenset(slots)) for name, _, _, slots in tables.tiles]
    for table in tables.wgmma:
        own = int(table["tile"][0])
        function, slots = tiles[own]
        a_slots = {int(slot) for slot in table["a_slots"][0]} if table["a_in_registers"][0] else set()
        for name, wanted, without in (("rival", slots, own), ("a_rival", a_slots, -1)):
            found = [n for n, (other, held) in enumerate(tiles) if n != without and other == function and held & wanted]
            table[f"{name}s"], table[f"{name}_count"] = keep(tables, np.array(found, np.int32)), len(found)


@means("wgmma.wait_group")
def wait_group(e: Emitter, ins: Instruction) -> None:
    """End a block: native code writes the registers of completed operations."""
    groups = must_be(ins.operands[0], Immediate)
    converge(e, ins)
    for delayed in e.kernel.moved.behind.get(ins, ()):
        e.note_early(delayed)
    e.flush(everything=True)
    e.b.ret(e.call(wg.wgmma_wait, e.w, e.mask, groups.value, e.block.index, e.block.targets[0], e.site))
