"""The structs of a sanitized launch: the table of findings, and the state of each topic for a resident cluster."""

from mmulator.codegen.types import Struct, ptr, u32, u64

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
])  # fmt: skip

# The state of a resident cluster, in Cluster.sanitizer: a pointer for each topic that needs memory.
SanitizedCluster = Struct("SanitizedCluster", [
    ("orders", ptr), ("races", ptr), ("accumulators", ptr), ("proxies", ptr), ("mbarriers", ptr), ("operands", ptr),
    ("execution", ptr), ("skips", ptr), ("values", ptr), ("clusters", ptr), ("waits", ptr), ("tensor", ptr),
])  # fmt: skip
