"""The table of findings: an entry for each rule, instruction and conflict, with a count."""

from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, null
from mmulator.codegen.types import ptr_to, u8, u32, u64
from mmulator.native.memory.windows import OFFSET_MASK, SHARED, WITHIN, shared_of
from mmulator.native.state import Cluster, Warp
from mmulator.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.sanitizer.state import ROOM, Found, SanitizedCluster, SanitizedLaunch

_SPREAD = 0x9E3779B97F4A7C15


def of_cluster(cluster: Any) -> Any:
    """Macro: the sanitizer's state of a cluster."""
    return cast_ptr(SanitizedCluster, cluster.field("sanitizer"))


def of_launch(cluster: Any) -> Any:
    """Macro: the sanitizer's state of a launch."""
    return cast_ptr(SanitizedLaunch, cluster.field("launch").field("sanitizer"))


@native
def generic_of(cluster: ptr_to(Cluster), host: u64) -> u64:
    """The generic address of a host address in the shared memory of a CTA of the cluster; 0 if it is in none."""
    for rank in range(cluster.cta_count):
        offset = host - u64(shared_of(cluster, rank))
        if offset < u64(cluster.launch.shared_bytes):
            return u64(SHARED) | (u64(rank) << RANK_SHIFT) | (offset + SHARED_BASE)
    return 0


@native(inline=True)
def host_of(cluster: ptr_to(Cluster), at: u64) -> u64:
    """The host address of a generic address in the cluster's shared memory."""
    return u64(shared_of(cluster, u32((at & OFFSET_MASK) >> RANK_SHIFT))) + (at & WITHIN) - SHARED_BASE


@native
def find_entry(cluster: ptr_to(Cluster), rule: u32, site: u32, other_site: u32) -> ptr_to(Found):
    """The entry of a finding, known or new (count 0); null if the table is full."""
    log = cluster.log
    table = cast_ptr(Found, log.entries)
    key = (u64(rule) << 44) ^ (u64(site) << 22) ^ u64(other_site)
    at = u32((key * _SPREAD) >> 52)
    for _ in range(u32(ROOM)):
        entry = table + at
        if entry.rule == 0:
            if log.count >= ROOM * 3 // 4:
                return cast_ptr(Found, null(u8))
            log.count = log.count + 1
            entry.rule = rule
            entry.site = site
            entry.other_site = other_site
            return entry
        if entry.rule == rule and entry.site == site and entry.other_site == other_site:
            return entry
        at = (at + 1) & (ROOM - 1)
    return cast_ptr(Found, null(u8))


@native
def find_against(
    w: ptr_to(Warp), rule: u32, site: u32, lanes: u32, at: u64, bytes: u32, other_site: u32, other_cta: u32, other_warp: u32,
    other_lanes: u32,
) -> ptr_to(Found):
    """Report that lanes break a rule in conflict with another instruction. The first occurrence is kept. Returns the entry,
    whose `words` may be set while its count is 1, or null.

    w, site, lanes: the warp, instruction and lanes.
    rule: number of the rule.
    at, bytes: the place in memory.
    other_site, other_cta, other_warp, other_lanes: the conflict; other_site is its site + 1.
    """
    cluster = w.cta.cluster
    entry = find_entry(cluster, rule, site, other_site)
    if u64(entry) == 0:
        launch = of_launch(cluster)
        launch.lost = launch.lost + 1
        return entry
    entry.count = entry.count + 1
    if entry.count == 1:
        entry.cta = w.cta.linear
        entry.warp = w.index
        entry.lanes = lanes
        entry.at = at
        entry.bytes = bytes
        entry.other_cta = other_cta
        entry.other_warp = other_warp
        entry.other_lanes = other_lanes
    return entry


@native
def find(w: ptr_to(Warp), rule: u32, site: u32, lanes: u32, at: u64, bytes: u32) -> ptr_to(Found):
    """The entry of a finding about a single access."""
    return find_against(w, rule, site, lanes, at, bytes, 0, 0, 0, 0)
