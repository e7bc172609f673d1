"""Stores that write the same bytes as another store: two copies of a part of a program write the same tile (Triton's warp
specialisation does so if a tile is too small to be split). Nothing orders them, and nothing depends on their order.
"""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, copy_bytes, stack
from mmulator.codegen.types import boolean, ptr_to, u8, u32, u64
from mmulator.native.asynchrony.boxes import next_row, row_inside, row_offset
from mmulator.native.asynchrony.maps import MOST_ROW, Box
from mmulator.native.asynchrony.payloads import payload_of
from mmulator.native.asynchrony.tensor import begin_of, first_byte, take_row
from mmulator.native.asynchrony.transfers import entry
from mmulator.native.hooks.events import PayloadShape
from mmulator.native.state import Cluster, Transfer, TransferKind


@native
def is_equal(a: ptr_to(u8), b: ptr_to(u8), bytes: u64) -> boolean:
    for i in range(bytes):
        if a[i] != b[i]:
            return False
    return True


@native
def is_there(t: ptr_to(Transfer)) -> boolean:
    """Whether the tensor already has the bytes that a store will write to it."""
    box = stack(Box)
    copy_bytes(box, payload_of(t, PayloadShape.BOX), Box.size)
    room = stack(u8, MOST_ROW)
    target = cast_ptr(u8, t.target)
    memory = cast_ptr(u8, begin_of(t.source, first_byte(box)))
    at = box.place
    for _ in range(box.rows):
        if row_inside(box) != 0:
            take_row(box, room, memory, at)
            tensor = target + (row_offset(box) - box.first + u64(box.low))
            if not is_equal(tensor, room + box.low, u64(box.high - box.low)):
                return False
        at = at + u64(box.pitch)
        next_row(box, 1)
    return True


@native
def is_on_its_way(cluster: ptr_to(Cluster), t: ptr_to(Transfer)) -> u32:
    """1 if another store of the same box, with the same bytes, is under way."""
    box = payload_of(t, PayloadShape.BOX)
    for place in range(cluster.under_way):
        other = entry(cluster, place)
        if other.kind == TransferKind.TENSOR_STORE:
            its = payload_of(other, PayloadShape.BOX)
            same = (u64(other.target) == u64(t.target)) & (other.units == t.units) & (other.source_bytes == t.source_bytes)
            same = same & (its.first == box.first) & (its.row == box.row) & (its.swizzle == box.swizzle)
            if same != 0:
                if is_equal(cast_ptr(u8, other.source), cast_ptr(u8, t.source), t.source_bytes):
                    return 1
    return 0


@native
def is_replica(cluster: ptr_to(Cluster), t: ptr_to(Transfer)) -> u32:
    """1 if a store of a box to a tensor, which has not begun, writes bytes that are already there or under way."""
    if is_there(t):
        return 1
    return is_on_its_way(cluster, t)
