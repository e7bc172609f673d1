"""The windows that may contain an address of the global space: the tables of windows.py."""

from mmulator.codegen.lang import native
from mmulator.codegen.types import ptr_to, u32, u64
from mmulator.native.state import HINTS, Cta, Window
from mmulator.program.addresses import SLOT_SHIFT


@native
def search(cta: ptr_to(Cta), at: u64, site: u32) -> ptr_to(Window):
    """The last region of the host's memory that begins at or before an address; it may end before the address."""
    regions = cta.launch.regions
    low = u64(0)
    high = cta.launch.region_count
    while high - low > 1:
        middle = (low + high) >> 1
        if regions[middle].start <= at:
            low = middle
        else:
            high = middle
    cta.cluster.hints[site & (HINTS - 1)] = u32(low)
    return regions + low


@native(inline=True)
def window_of(cta: ptr_to(Cta), at: u64, site: u32) -> ptr_to(Window):
    """The window that may contain a generic address of global memory, constants or parameters: the window of its slot, or a
    region. An instruction usually finds the region of its last access at once.
    """
    slot = at >> SLOT_SHIFT
    found = cta.launch.windows + slot
    if slot == 0 or slot >= cta.launch.slots:
        found = cta.launch.regions + cta.cluster.hints[site & (HINTS - 1)]
        if at - found.start >= found.size:
            found = search(cta, at, site)
    return found
