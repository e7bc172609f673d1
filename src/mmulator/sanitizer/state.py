"""The structs of a sanitized launch: the state of each topic, and the table of findings: an entry for each rule, instruction and
conflict, with a count.
"""

from enum import IntEnum
from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import cast_ptr, null
from mmulator.base.codegen.types import Struct, ptr, ptr_to, u8, u32, u64
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.runtime.native.memory.windows import OFFSET_MASK, SHARED, WITHIN, shared_of
from mmulator.runtime.native.state import Cluster, Warp

WORDS = 4

# A breach of a rule. An entry of the worker's log (Cluster.log), which is a hash table of ROOM entries by rule, site and
# other_site.
# site, other_site: the two instructions; other_site is + 1, or 0 without a conflict.
# lanes, other_lanes: masks.
# cta, other_cta: linear numbers in the grid.
# at, bytes: generic address (of the first lane), and bytes.
# words: further facts for its sentence.
Found = Struct("Found", [
    ("rule", u32), ("site", u32), ("other_site", u32), ("bytes", u32),
    ("count", u64), ("at", u64),
    ("cta", u32), ("warp", u32), ("lanes", u32),
    ("other_cta", u32), ("other_warp", u32), ("other_lanes", u32),
    ("words", u64, WORDS),
])  # fmt: skip
ROOM = 4096  # findings of a worker; further ones are only counted

# The state of a launch, in Launch.sanitizer: a pointer for each topic that needs one.
SanitizedLaunch = Struct("SanitizedLaunch", [
    ("lost", u64),  # number of findings beyond a full table
    ("forgotten", u64),  # number of times that a full pool made accesses count as ordered
    ("orders", ptr), ("races", ptr), ("proxies", ptr), ("values", ptr),
    ("certifies", u64),  # whether doubts are noted
    ("footprint", ptr),  # checks/footprint.py, for the order between launches
    ("early", ptr),  # u8 by site: the class of an early question, or that and LATE of a wait that is left out by one (phases.py)
])  # fmt: skip

# The state of a resident cluster, in Cluster.sanitizer: a pointer for each topic that needs memory.
SanitizedCluster = Struct("SanitizedCluster", [
    ("orders", ptr), ("races", ptr), ("accumulators", ptr), ("proxies", ptr), ("mbarriers", ptr), ("operands", ptr),
    ("execution", ptr), ("skips", ptr), ("values", ptr), ("clusters", ptr), ("waits", ptr), ("tensor", ptr),
])  # fmt: skip


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


# doubts ---------------------------------------------------------------------------------------------------------------
class Doubt(IntEnum):
    """Events that are no findings, and may be otherwise in another schedule: numbers above those of rules,
    in the same table. Native code notes them only where a launch is certified.
    """

    SAME_VALUE = 1 << 16  # nothing orders two writes, of one value in this run
    ONE_OF_LANES = SAME_VALUE + 1  # a read follows one of the lanes that have written one value
    MANY_READERS = SAME_VALUE + 2  # a write comes after accesses of which some were forgotten, since there were too many
    EARLY_ARRIVAL = SAME_VALUE + 3  # an arrival that may come in the phase before
    EARLY_WAIT = SAME_VALUE + 4  # a wait that the parity of an older phase may end
    LAPPED = SAME_VALUE + 5  # the next phase may be over before a thread looks
    ROUND = SAME_VALUE + 6  # an arrival at a barrier that may come in the round before
    SAME_STORE = SAME_VALUE + 7  # nothing orders two asynchronous writes, which are taken for one store
    MANY_WRITES = SAME_VALUE + 8  # there were too many writes at once to see whether they have one value
    EXITED = SAME_VALUE + 9  # a barrier counts threads that have exited
    SUM_OF_LANES = SAME_VALUE + 10  # lanes of one store write values that differ in the rounding of a sum
    UNSEEN_INIT = SAME_VALUE + 11  # a lane uses an mbarrier that another lane of its warp has made, and nothing orders the two
    EQUAL_LANES = SAME_VALUE + 13  # lanes of one store write one value to one place
    LATE_EXPECT = SAME_VALUE + 14  # a phase may end before something is expected of it
    OVERWRITTEN = SAME_VALUE + 15  # as SAME_VALUE, and one of the two has overwritten what may not come before the other
    REPLICA = SAME_VALUE + 17  # lanes of a warp (other_site: its number + 1) read what another thread writes, in replicated code
    UNSAID_WAIT = SAME_VALUE + 18  # a wait without a scope acquires what other blocks released
    OTHER_PHASE = SAME_VALUE + 19  # a wait that an early answer leaves out waits for another phase than that was about
    PLACE_READ = SAME_VALUE + 20  # an address of columns of tensor memory is read
    MET = SAME_VALUE + 16  # nothing orders two accesses, which are no race since both are strong or atomic
    EARLY_INVAL = SAME_VALUE + 12  # an mbarrier is invalidated before all lanes of a warp that has used it are known to be done


@native
def doubt(
    w: ptr_to(Warp), kind: u32, site: u32, lanes: u32, at: u64, bytes: u32, other_site: u32, other_cta: u32, other_warp: u32,
    other_lanes: u32,
) -> None:
    """Note a Doubt for the certificate; parameters as those of find_against."""
    if of_launch(w.cta.cluster).certifies != 0:
        find_against(w, kind, site, lanes, at, bytes, other_site, other_cta, other_warp, other_lanes)


@native
def say(found: ptr_to(Found), first: u64, second: u64, third: u64, fourth: u64) -> None:
    """Set the words of a finding if it is new; null stands for one without room."""
    if u64(found) != 0:
        if found.count == 1:
            found.words[0] = first
            found.words[1] = second
            found.words[2] = third
            found.words[3] = fourth
