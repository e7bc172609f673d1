"""Profiles of the tests' kernels, line by line, put together at the end of pytest's run."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mmulator.driver.profiled import Profiles
from mmulator.files import write
from mmulator.record.profile.data import added_up, unreached
from mmulator.record.profile.launch import LaunchProfile
from mmulator.record.profile.views import FORMATS, never, written


class Coverage:
    """Profiles of all launches. file: where they are written, or None."""

    def __init__(self, file: str | None) -> None:
        if file is not None and Path(file).suffix not in FORMATS:
            raise pytest.UsageError(f"--mmulator-profile-to {file}: the name ends in one of {', '.join(FORMATS)}")
        self.file = file
        self.profiles, self.others = Profiles("1"), list[LaunchProfile]()
        self.profiles.tells = False

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add what `as_list` of another process gave."""
        self.others += map(LaunchProfile.of, rows)

    def as_list(self) -> list[dict[str, Any]]:
        return [p.as_dict() for p in self.profiles.profiles()]

    def lines(self) -> Iterator[str]:
        """Lines for the end of the run. Writes the file, too."""
        found = added_up([*self.profiles.profiles(), *self.others])
        if self.file is not None:
            write(self.file, written(found, self.file))
        missed = unreached(found)
        lines, ways = missed.known - len(missed.lines), missed.ways - len(missed.branches)
        yield (
            f"profile: {len(found)} kernel{'s' * (len(found) != 1)}: {lines:,} of {missed.known:,} lines reached, "
            f"{ways:,} of {missed.ways:,} ways of branches"
        )
        yield from never(missed)
