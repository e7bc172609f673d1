"""Operands of wgmma: matrices from shared memory, A from registers, accumulators from registers to tiles and back.

matrix/layouts/ alone defines the places of elements; the code is generated from there (matrix/twin/shared.py,
matrix/twin/moves.py).
"""

from typing import Any

from mmulator.base.codegen.lang import native, unrolled
from mmulator.base.codegen.ops import load, null, store
from mmulator.base.codegen.types import i64, ptr, ptr_to, u8, u32, u64
from mmulator.matrix.layouts.operands import accumulator, operand_a
from mmulator.matrix.twin.doors import Door
from mmulator.matrix.twin.moves import WarpTile
from mmulator.matrix.twin.shared import UNIT, operand_function
from mmulator.runtime.native.asynchrony.pending import entry
from mmulator.runtime.native.hooks.events import operand_read
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.memory.windows import descriptor_span, of_descriptor
from mmulator.runtime.native.state import WGMMA, FaultKind, Warp, WgmmaTable

WARPS = 4  # of a warpgroup


@native(inline=True)
def operand_seen(w: ptr_to(Warp), at: u64, site: u32) -> None:
    """Tell an instrument about an access to UNIT bytes of a matrix."""
    operand_read(w, of_descriptor(w, at), site)


@native(inline=True)
def operand(w: ptr_to(Warp), at: u64, site: u32) -> ptr:
    """Pointer to UNIT bytes of a matrix in shared memory, at an address of the shared window; null, with a fault, if they do
    not exist.
    """
    host = descriptor_span(w, at, at + (UNIT - 1))
    if u64(host) == 0:
        fault(w, FaultKind.WGMMA_ADDRESS, site, 0, at, UNIT)
        return null(u8)
    operand_seen(w, at, site)
    return host + at


operand_bytes = operand_function(Door("wgmma", Warp, operand, span=descriptor_span, seen=operand_seen))


def operation(w: Any, number: Any) -> Any:
    """Macro: the record of operation `number` of a warp."""
    return entry(w, WGMMA, number)


# registers ----------------------------------------------------------------------------------------------------------
# One warp's part. Registers of smaller n are the first of these.
ACCUMULATORS = {bits: WarpTile(accumulator(64, 256, bits)) for bits in (32, 16)}
A_TILE = WarpTile(operand_a(64, 16, 16))


def _registers(site: Any, regs: Any, tile: WarpTile, block: Any) -> list[Any]:
    """Macro: places of the registers of a block."""
    return [regs + i64(site.field("d_slots")[tile.registers * block + r]) for r in range(tile.registers)]


@native
def accumulator_in(site: ptr_to(WgmmaTable), regs: ptr, matrix: ptr) -> None:
    """Copy the D registers of one warp to 16 rows of the tile (row-major, n columns of 32 or 16 bits)."""
    for bits, tile in ACCUMULATORS.items():
        if site.d_bits == bits:
            line = i64(site.n) * (bits // 8)
            for j in range(i64(site.d_words) // tile.registers):
                tile.to_matrix(_registers(site, regs, tile, j), matrix + tile.offset(j, line), line)


@native
def accumulator_out(site: ptr_to(WgmmaTable), regs: ptr, matrix: ptr) -> None:
    """Copy 16 rows of the tile to the D registers of one warp."""
    for bits, tile in ACCUMULATORS.items():
        if site.d_bits == bits:
            line = i64(site.n) * (bits // 8)
            for j in range(i64(site.d_words) // tile.registers):
                tile.to_registers(matrix + tile.offset(j, line), line, _registers(site, regs, tile, j))


@native
def a_registers(site: ptr_to(WgmmaTable), regs: ptr, out: ptr_to(u32)) -> None:
    """Copy the A registers of one warp to contiguous memory."""
    for r in unrolled(A_TILE.fragment.registers):
        store(load(u32.vec(32), regs + site.a_slots[r]), out + 32 * r)


@native
def a_fragment(registers: ptr_to(u32), row_bytes: i64, out: ptr) -> None:
    """Convert the A registers of one warp to 16 rows of `row_bytes` bytes."""
    for r in unrolled(A_TILE.fragment.registers // A_TILE.registers):
        A_TILE.to_matrix([registers + 32 * r], out + A_TILE.offset(r, row_bytes), row_bytes)
