"""The structs of a sanitized launch: the table of findings, and the state of each topic for a resident cluster."""

from __future__ import annotations

from mmulator.codegen.types import Struct, ptr, u32, u64

WORDS = 4

# A breach of a rule at an instruction, against another. An entry of the worker's log (Cluster.log), which is a table of ROOM
# by rule, site and other_site. site, other_site: + 1 for the other; 0: there is none. lanes: as bits. cta: linear number in the
# grid. at, bytes: generic address of what it is about, of the first lane; words: what else its sentence needs.
Found = Struct("Found", [
    ("rule", u32), ("site", u32), ("other_site", u32), ("bytes", u32),
    ("count", u64), ("at", u64),
    ("cta", u32), ("warp", u32), ("lanes", u32),
    ("other_cta", u32), ("other_warp", u32), ("other_lanes", u32),
    ("words", u64, WORDS),
])  # fmt: skip
ROOM = 4096  # findings of a worker; those beyond are counted, and not told

# Of the whole launch, in Launch.sanitizer; a pointer for each topic that needs one.
SanitizedLaunch = Struct("SanitizedLaunch", [
    ("lost", u64),  # findings that no table had room for
    ("forgotten", u64),  # times that there was no room to remember who knows of what: it counts as known
    ("orders", ptr), ("races", ptr), ("proxies", ptr), ("values", ptr),
])  # fmt: skip

# Of a resident cluster, in Cluster.sanitizer; a pointer for each topic that needs one, to memory of its own.
SanitizedCluster = Struct("SanitizedCluster", [
    ("orders", ptr), ("races", ptr), ("accumulators", ptr), ("proxies", ptr), ("mbarriers", ptr), ("operands", ptr),
    ("execution", ptr), ("skips", ptr), ("values", ptr), ("clusters", ptr), ("waits", ptr),
])  # fmt: skip
