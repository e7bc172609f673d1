"""Instructions by which a kernel makes or changes tensor maps: tensormap.replace, tensormap.cp_fenceproxy (PTX ISA 9.1).

Fields are those of layouts/tensormap/fields.py. As on an H200, bits of a value beyond its field are lost; a map is checked by
the copy that uses it.
"""

from functools import cache

from mmulator.codegen.lang import Native, native
from mmulator.codegen.ops import bits_of, cast_ptr, copy_bytes, load, stack, store, trailing_zeros
from mmulator.codegen.types import ptr, ptr_to, u32, u64
from mmulator.layouts.tensormap import fields
from mmulator.layouts.tensormap.types import BY_NUMBER
from mmulator.native.hooks.events import READ, WRITE, map_published
from mmulator.native.hooks.faults import fault
from mmulator.native.memory.locate import locate_global, locate_shared_cta
from mmulator.native.memory.windows import SPACES
from mmulator.native.state import FaultKind, Warp

U64 = u64.vec(32)
BYTES, ALIGNMENT = fields.BYTES, fields.ALIGNMENT
LINE = 128  # what cp_fenceproxy wants


@cache
def replace_function(space: str, field: str, ordinal: int) -> Native:
    """A function for tensormap.replace of a field, for each lane in its own map: values[lane] is the operand `new_val`.

    space: one of SPACES. The bit for rounding to tf32 is set, and never cleared.
    """
    translate = SPACES[space]
    f = fields.REPLACE[field][ordinal]
    # of each part, and the bits that are cleared before its own are set
    parts = [(p, 0 if field == "elemtype" and p is not f.parts[0] else p.mask << p.shift) for p in f.parts]

    def replace(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), values: ptr_to(u64), site: u32) -> None:
        host, rest = stack(ptr, 32), stack(ptr, 32)
        second = stack(u64, 32)
        store(load(U64, at) + ALIGNMENT, second)
        left = translate(w, mask, at, ALIGNMENT, READ | WRITE, site, host)
        left = translate(w, left, second, ALIGNMENT, READ | WRITE, site, rest)
        for lane in bits_of(left):
            words = cast_ptr(u32, host[lane])  # the halves of a map lie together
            stored = values[lane] // f.unit - f.less
            for part, cleared in parts:
                bits = (u32(stored >> part.low) & part.mask) << part.shift
                words[part.word] = (words[part.word] & ~u32(cleared)) | bits

    return Native(replace, f"replace_{space}_{field}_{ordinal}")


def element_code(number: int) -> int:
    """The code in a map for an element type's number in tensormap.replace."""
    return BY_NUMBER[number].code


@native
def copy_map(w: ptr_to(Warp), mask: u32, to: ptr_to(u64), at: ptr_to(u64), site: u32) -> None:
    """Execute tensormap.cp_fenceproxy: a warp copies a map from shared to global memory."""
    lane = trailing_zeros(mask)
    if ((to[lane] | at[lane]) & (LINE - 1)) != 0:
        wrong = to[lane]
        if (at[lane] & (LINE - 1)) != 0:
            wrong = at[lane]
        fault(w, FaultKind.MISALIGNED, site, lane, wrong, LINE)
    source = locate_shared_cta(w, lane, at[lane], BYTES, READ, site)
    target = locate_global(w, lane, to[lane], BYTES, WRITE, site)
    if w.cta.fault == 0:
        copy_bytes(target, source, BYTES)
        map_published(w, lane, to[lane], site)
