"""The profiles of a program that launches through a door: added up by kernel, and told as the process ends."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmulator.base import files
from mmulator.base.errors import LaunchError
from mmulator.host.driver.inquiries import Inquiry, ProcessRecord, say

if TYPE_CHECKING:
    from mmulator.host.report import Report
    from mmulator.host.settings import Settings
    from mmulator.observation.record.counts import Counts
    from mmulator.observation.record.profile.launch import LaunchProfile

VARIABLE = "MMULATOR_PROFILES"  # the file to which processes of `mmulator exec` add lines, and who reads it tells


class Profiles(ProcessRecord):
    """A listener of launches. wanted: "1" for text on standard error, else a file."""

    def __init__(self, wanted: str) -> None:
        self.wanted, self.tells = wanted, True  # as the process ends
        super().__init__()

    def clear(self) -> None:
        self.found: dict[Any, tuple[str, str, Counts]] = {}

    def __call__(self, report: Report) -> None:
        counts = report.__dict__.get("counts")
        if counts is None:
            return
        key = id(counts.kernel), counts.shape
        with self:
            before = self.found.get(key)
            self.found[key] = report.kernel, report.device, counts if before is None else before[2] + counts

    def profiles(self) -> list[LaunchProfile]:
        """One for each kernel, in the order of first launches."""
        from mmulator.observation.record.profile.data import added_up
        from mmulator.observation.record.profile.launch import profile_of

        return added_up(profile_of(*item) for item in self.found.values())

    def finish(self) -> None:
        """Tell, or pass on to who tells."""
        if not self.tells or not self.found:
            return
        path = os.environ.get(VARIABLE)
        if path is None:
            tell(self.profiles(), self.wanted)
            return
        data = "".join(json.dumps(p.as_dict(), separators=(",", ":")) + "\n" for p in self.profiles()).encode()
        files.append(path, data, LaunchError)


def tell(profiles: list[LaunchProfile], wanted: str) -> None:
    """Print profiles on standard error, or write the file. Raises LaunchError where it cannot be written."""
    if wanted == "1":
        say("".join(f"mmulator: {profile}\n" for profile in profiles), "")
        return
    from mmulator.observation.record.profile.views import written

    files.write(wanted, written(profiles, wanted), LaunchError)


def read(path: str | Path) -> list[LaunchProfile]:
    """The profiles that processes added to a file."""
    from mmulator.observation.record.profile.data import added_up
    from mmulator.observation.record.profile.launch import LaunchProfile

    try:
        rows = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for row in rows:
        with suppress(ValueError):  # the process was killed as it wrote
            found.append(LaunchProfile.of(json.loads(row)))
    return added_up(found)


@cache
def listener(wanted: str) -> Profiles:
    """The listener of this process."""
    return Profiles(wanted)


class ProfileInquiry(Inquiry):
    """The wish for what each line did: `Settings.profile`."""

    def begin(self, settings: Settings, listeners: list[Callable[[Report], object]]) -> None:
        listeners.append(listener(settings.profile))


PROFILE = ProfileInquiry()
