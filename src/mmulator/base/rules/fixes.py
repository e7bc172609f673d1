"""Repairs of broken rules, for programs that repair: statements of PTX, and where they go.

A row stands for what a rule's hint says first; where the hint leaves a choice, there is none.
"""

from collections.abc import Mapping
from typing import Any

BEFORE, AFTER, AFTER_OTHER, INSTEAD = "before", "after", "after the other", "instead"
_BARRIER, _CLUSTER = "bar.sync 0;", "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"
_COPIED, _MULTIPLIED = "cp.async.wait_all;", "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
_STORED = "cp.async.bulk.commit_group; cp.async.bulk.wait_group{} 0;"
# Rule, where the statements go as seen from the line of the finding and the other line, and the statements.
FIXES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("race-write-write", "race-read-write", "mbarrier-init-not-visible", "mbarrier-not-initialised",
                     "async-operand-race"), (BEFORE, _BARRIER)),
    "race-within-warp": (BEFORE, "bar.warp.sync 0xffffffff;"),
    **dict.fromkeys(("race-in-cluster", "cluster-exit-unsynchronised", "cluster-start-unsynchronised"), (BEFORE, _CLUSTER)),
    **dict.fromkeys(("async-copy-read-early", "async-copy-overwritten", "async-copy-source-written"),
                    (BEFORE, f"{_COPIED} {_BARRIER}")),
    **dict.fromkeys(("wgmma-accumulator-read-before-wait", "wgmma-accumulator-written-before-wait",
                     "wgmma-a-overwritten-before-wait", "wgmma-operand-overwritten"), (BEFORE, _MULTIPLIED)),
    "wgmma-fence-missing": (BEFORE, "wgmma.fence.sync.aligned;"),
    "proxy-fence-missing": (AFTER_OTHER, "fence.proxy.async;"),
    "bulk-source-reused": (BEFORE, f"{_STORED.format('.read')} {_BARRIER}"),
    "bulk-result-read-early": (BEFORE, _STORED.format("")),
    "bulk-never-committed": (AFTER, "cp.async.bulk.commit_group;"),
    **dict.fromkeys(("nc-load-of-written", "nc-load-overwritten"), (INSTEAD, ".nc")),
    "mbarrier-init-not-fenced": (BEFORE, "fence.mbarrier_init.release.cluster;"),
}  # fmt: skip


def fix_of(finding: Mapping[str, Any]) -> dict[str, Any] | None:
    """The repair of a finding in its PTX: `line`, counted from 1, and `insert`, statements that go before that line, or
    `replace`, its statement. None where the rule has no such repair.

    finding: as `Finding.as_dict` has it.
    """
    where, text = FIXES.get(finding["rule"], ("", ""))
    place = ((finding["conflict"] if where == AFTER_OTHER else finding) or {}).get("place")
    if not where or not place:
        return None
    if where == INSTEAD:
        return {"line": place["line"], "replace": place["text"].replace(text, "", 1)}
    return {"line": place["line"] + (where in (AFTER, AFTER_OTHER)), "insert": text}
