"""Groups of mma (ptx/program/products.py): operands are collected at each instruction's place, and all products are computed at
the place of the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mmulator.base.codegen.ops import cast_ptr
from mmulator.base.codegen.types import ptr_to, u8
from mmulator.base.codegen.values import Value
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES, storage_type
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.operands import elements, selector_of, table_pointer
from mmulator.isa.form import Form
from mmulator.matrix.layouts.operands import fragment
from mmulator.matrix.layouts.sparse.metadata import selectors
from mmulator.matrix.twin.lines import OWN
from mmulator.matrix.twin.places import scale_step
from mmulator.matrix.twin.wide import WideTable, wide, wide_product, widens
from mmulator.ptx.program.products import ProductGroup, ProductTile, groups
from mmulator.ptx.tree import Immediate, Instruction, Operand, Reg
from mmulator.runtime.compiled import MatrixTables
from mmulator.runtime.native.hooks.events import stepped
from mmulator.runtime.native.state import Cta

Places = NDArray[np.int64]


@dataclass
class Share:
    """An instruction's part of its group: tile, row, column and step."""

    pending: PendingGroup
    tile: int
    row: int
    column: int
    step: int


@dataclass
class PendingGroup:
    """A group while its block is written. at: places of the registers of a, b, c, d for each tile. used: bytes of the block's
    own memory that it uses.
    """

    group: ProductGroup
    last: Instruction
    at: list[dict[str, Places]] = field(default_factory=list)
    used: int = 0


def _count(form: Form, name: str) -> tuple[int, int]:
    """(registers of an operand, bits of a register)."""
    if name not in "abcd":  # metadata, scale factors
        return 1, 32
    f = fragment(form, name)
    return f.registers, f.register_bits


def _empty(form: Form, tile: ProductTile) -> dict[str, Places]:
    grid = {"a": (tile.steps, tile.rows), "b": (tile.steps, tile.columns)}
    out = {x: np.zeros((*grid.get(x, (tile.rows, tile.columns)), _count(form, x)[0]), np.int64) for x in "abcd"}
    lines = {"e": tile.rows} if form.sparse else {}
    if form.block_scale:
        lines |= {"scale_a": tile.rows, "scale_b": tile.columns, "select_a": tile.rows, "select_b": tile.columns}
    return out | {x: np.zeros((count, 1), np.int64) for x, count in lines.items()}


def _bytes(pending: PendingGroup) -> int:
    form = pending.group.form
    return sum(places.size * _count(form, x)[1] * LANES // 8 for at in pending.at for x, places in at.items())


def joins(ins: Instruction) -> bool:
    """Whether an instruction may be computed with others. Selectors of scale factors must be constants, since registers are
    read at the instruction's place.
    """
    form = ins.form
    if not (ins.effects.multiplies and widens(form)):
        return False
    if form.sparse and selector_of(ins.operands[5]) not in selectors(form):
        return False
    pairs = (pair for _, pair in _scales(ins).values())
    return all(isinstance(o, Immediate) for pair in pairs for o in elements(pair))


def _scales(ins: Instruction) -> dict[str, tuple[Operand, Operand]]:
    """Scale factors and selectors of a and of b."""
    if not ins.form.block_scale:
        return {}
    a, pair_a, b, pair_b = ins.operands[-4:]
    return {"a": (a, pair_a), "b": (b, pair_b)}


def _scale(e: Emitter, pending: PendingGroup, ins: Instruction, at: dict[str, Places], side: str, line: int) -> None:
    if side in (scales := _scales(ins)):
        factors, pair = scales[side]
        byte, thread = (must_be(o, Immediate).value for o in elements(pair))
        at[f"scale_{side}"][line] = _taken(e, pending, ins.form, f"scale_{side}", factors)
        at[f"select_{side}"][line] = byte + thread * scale_step(ins.form, side)


def prepare(e: Emitter) -> None:
    """Find the groups of a block that is about to be written."""
    body = e.block.body
    if e.seen or e.hears(stepped) or not any(map(joins, body)):
        return
    most = 0
    for group in groups(e.block, e.frame.live_out[e.block.index], joins):
        pending = PendingGroup(group, body[group.last], [_empty(group.form, tile) for tile in group.tiles])
        most = max(most, _bytes(pending))
        for number, tile in enumerate(group.tiles):
            for row, columns in enumerate(tile.products):
                for column, steps in enumerate(columns):
                    for step, n in enumerate(steps):
                        e.shares[body[n]] = Share(pending, number, row, column, step)
    e.own = cast_ptr(u8, e.b.alloca(u8, most))


def join(e: Emitter, ins: Instruction) -> bool:
    """Collect the operands of an instruction that belongs to a group; False for other instructions."""
    share = e.shares.get(ins)
    if share is None:
        return False
    pending, form = share.pending, ins.form
    at, tile = pending.at[share.tile], pending.group.tiles[share.tile]
    d, a, b, c = ins.operands[:4]
    if share.column == 0:
        at["a"][share.step, share.row] = _taken(e, pending, form, "a", a)
        if form.sparse:
            at["e"][share.row] = _taken(e, pending, form, "e", ins.operands[4])
        _scale(e, pending, ins, at, "a", share.row)
    if share.row == 0:
        at["b"][share.step, share.column] = _taken(e, pending, form, "b", b)
        _scale(e, pending, ins, at, "b", share.column)
    if share.step == 0:
        at["c"][share.row, share.column] = _taken(e, pending, form, "c", c)
    if share.step == tile.steps - 1:
        at["d"][share.row, share.column] = _given(e, pending, form, d)
    if ins is pending.last:
        _finish(e, pending)
    return True


def _room(pending: PendingGroup, bits: int) -> int:
    pending.used += bits * LANES // 8
    return pending.used - bits * LANES // 8


def _at(e: Emitter, offset: int, bits: int) -> Value:
    ty = storage_type(f"b{bits}")
    return e.b.emit(ptr_to(ty), f"getelementptr i8, ptr {e.own.text}, i64 {offset}")


def _taken(e: Emitter, pending: PendingGroup, form: Form, name: str, operand: Operand) -> list[int]:
    """Places of an operand's registers: in the register file, or copied to the block's own memory."""
    bits = _count(form, name)[1]
    ty = storage_type(f"b{bits}")
    out = []
    for o in elements(operand):
        place = e.place_now(o.name, bits) if isinstance(o, Reg) else None
        if place is None:
            offset = _room(pending, bits)
            e.b.store(ty(e.source(o, f"b{bits}")), _at(e, offset, bits))
            place = OWN | offset
        out.append(place)
    return out


def _given(e: Emitter, pending: PendingGroup, form: Form, operand: Operand) -> list[int]:
    """Places to which the registers of D are written."""
    bits = _count(form, "d")[1]
    places = [e.place_then(o.name, bits) if isinstance(o, Reg) else None for o in elements(operand)]
    return [OWN | _room(pending, bits) if place is None else place for place in places]


def _finish(e: Emitter, pending: PendingGroup) -> None:
    """Write the call that computes the products, and read D of each chain's last product."""
    group, body = pending.group, e.block.body
    bits = _count(group.form, "d")[1]
    scratch = cast_ptr(Cta, e.warp("cta")).field("scratch")
    selector = selector_of(pending.last.operands[5]) if group.form.sparse else 0
    for tile, at in zip(group.tiles, pending.at):
        product = wide_product(group.form, e.device, tile.rows, tile.columns, tile.steps, at, selector)
        table = table_pointer(e, WideTable, ("wide", e.block.index, tile.products), partial(MatrixTables.kept, product=product))
        e.call(wide, table, scratch, e.regs, e.own)
    for tile, at in zip(group.tiles, pending.at):
        for row, columns in enumerate(tile.products):
            for column, steps in enumerate(columns):
                d = elements(body[steps[-1]].operands[0])
                for o, place in zip(d, at["d"][row, column].tolist()):
                    if isinstance(o, Reg) and place & OWN:
                        value = _at(e, place & (OWN - 1), bits)
                        e.write(o.name, e.b.load(value.ty.to, value, align=4))
                    elif isinstance(o, Reg):
                        e.written(o.name)
