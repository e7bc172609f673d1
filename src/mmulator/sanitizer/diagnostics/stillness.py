"""Detection of livelocks across clusters: since when nothing has changed in the clusters of a sanitized launch.

Native code (sanitizer/checks/waits.py) detects a single cluster that polls for ever. Several clusters may wait for each other:
nothing can change any more if each of them has been in one state twice since the last change in any of them.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmulator.runtime.launch.arena import bytes_at
from mmulator.runtime.launch.resident import CLUSTER, Resident
from mmulator.sanitizer.checks.waits import Look, Stillness
from mmulator.sanitizer.state import SanitizedCluster

_STATE, _HEAD, LOOK = SanitizedCluster.numpy_dtype(), Stillness.numpy_dtype(), Look.numpy_dtype()


def head_of(cluster: int) -> np.ndarray | None:
    """The record of native code about the changes in a cluster, by the address of the cluster's struct."""
    state = bytes_at(cluster, CLUSTER.itemsize).view(CLUSTER)["sanitizer"][0]
    at = int(bytes_at(int(state), _STATE.itemsize).view(_STATE)["waits"][0])
    return bytes_at(at, _HEAD.itemsize).view(_HEAD) if at else None


def looks(resident: Resident) -> np.ndarray | None:
    """For each warp of a cluster, the place that it polled last."""
    head = head_of(resident.address)
    return bytes_at(int(head["looks"][0]), len(resident.warps) * LOOK.itemsize).view(LOOK) if head is not None else None


@dataclass
class _Seen:
    """A cluster as it was last seen.

    changes: its count of changes.
    since: when this count was first seen, in seconds.
    begin: when the present interval of observation began.
    still: when the last interval began in which a state came back.
    """

    changes: int
    since: float
    begin: float
    still: float = float("-inf")


class Quiescence:
    """The observations of all clusters that workers have left, which show that nothing can change any more."""

    def __init__(self) -> None:
        self.seen: dict[int, _Seen] = {}
        # clusters that were over, and when that was first seen: they may have changed anything
        self.over, self.since = 0, float("-inf")

    def look(self, cluster: int) -> None:
        """Observe a cluster that a worker has just left."""
        head = head_of(cluster)
        if head is None:
            return
        now, changes = time.perf_counter(), int(head["changes"][0])
        known = self.seen.get(cluster)
        if known is None or known.changes != changes:
            self.seen[cluster] = _Seen(changes, now, now)
        elif head["still"][0]:
            known.still, known.begin = known.begin, now
        else:
            return
        head["still"], head["rounds"] = 0, 0

    def for_ever(self, residents: Sequence[Resident], over: int) -> bool:
        """Whether none of these clusters can change any more. residents: all clusters that have begun and not ended. over:
        number of clusters that have ended.
        """
        if over != self.over:
            self.over, self.since = over, time.perf_counter()
        seen = [self.seen.get(r.address) for r in residents]
        known = [s for s in seen if s is not None]
        heads = [head_of(r.address) for r in residents]
        if not residents or len(known) != len(residents):
            return False
        same = all(h is not None and int(h["changes"][0]) == s.changes for h, s in zip(heads, known, strict=True))
        return same and min(s.still for s in known) >= max(self.since, *(s.since for s in known))
