"""The memory that matrix instructions access beside what the hooks tell: operands by descriptors, and wmma as ptxas loads it."""

from __future__ import annotations

from dataclasses import replace

from mmulator.isa.effects import Together
from mmulator.layouts.operands import fragment
from mmulator.ptx.tree import Instruction, VectorOperand
from mmulator.record.profile_data import Traffic

_LANES = 32


def descriptor_bytes(ins: Instruction) -> int:
    """Bytes of A and B that a wgmma of four warps reads from shared memory."""
    if not ins.effects.multiplies or ins.effects.together is not Together.WARPGROUP:
        return 0
    form = ins.form
    row = form.k * form.atype.bits // 8
    a = 0 if isinstance(ins.operands[1], VectorOperand) else form.m * row // (2 if form.sparse else 1)
    return a + form.n * row


def as_loaded(ins: Instruction, traffic: Traffic) -> Traffic:
    """The accesses that ptxas makes of those of a wmma, of which `traffic` has one for each register.

    It loads once what a fragment holds several times, has one access for two registers that lie side by side in a row, and one
    for each byte where bytes of a register are in different rows.
    """
    kind, form = ins.mnemonic[:10], ins.form
    if kind not in ("wmma.load.", "wmma.store"):
        return traffic
    f, matrix = fragment(form, "r"), ins.modifiers[1] if kind == "wmma.load." else "d"
    less = f.registers * _LANES * f.register_bits // (f.bits * f.rows * f.columns) if matrix in "ab" else 1
    along = "row" if form.m >= form.n else "col"  # m8n32k16 is computed as its transpose
    if matrix in "cd" and along in ins.modifiers and f.bits == f.register_bits:
        less *= 2
    across = "col" if matrix == "a" else "row"
    more = 4 if matrix in "ab" and f.bits == 8 and across in ins.modifiers else 1
    return replace(
        traffic, requests=traffic.requests * more // less, bytes=traffic.bytes // less, units=traffic.units // less,
        lanes=traffic.lanes * more // less, ideal=traffic.ideal // less,
    )  # fmt: skip
