"""What is wrong where an access through one proxy meets one through the other (rules/proxies.py)."""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.types import ptr_to, u32, u64
from mmulator.machine.sanitizer.records import Record
from mmulator.machine.state import Warp


@native
def async_conflict(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, write: u32, site: u32, record: ptr_to(Record)) -> None:
    """A generic access meets an asynchronous one of which its lane does not know that it is over."""
    return


@native
def async_found(
    w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, flags: u32, site: u32, record: ptr_to(Record), record_lane: u32, level: u32
) -> None:
    """An asynchronous access meets one that its issue does not know of (level 0), or a generic write that it knows of without a
    proxy fence between (level 1). flags: of its record."""
    return
