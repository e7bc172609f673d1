"""Records of suites as data, and the launches of two of them that belong together."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmulator.base.errors import LaunchError
from mmulator.observation.record.launches.suite import LINES


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch of a record.

    number: of the launch in its record, from 1.
    kernel, test: its name, and the test of pytest that launched it, or "".
    grid, block: blocks of the grid, threads of a block.
    arrays: types and shapes of its arrays, in order.
    code: a digest of its instructions.
    folder: of its files; None if there are none.
    missing: why there are none.
    ended: the error that ended it, or "".
    """

    number: int
    kernel: str
    test: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arrays: tuple[str, ...]
    code: str
    folder: Path | None
    missing: str
    ended: str

    @classmethod
    def of(cls, folder: Path, number: int, row: dict[str, Any]) -> RecordedLaunch:
        """The launch of a row of a record. Raises KeyError and TypeError for another row."""
        grid, block, arrays = (tuple(row[key]) for key in ("grid", "block", "arrays"))
        files = folder / row["files"] if row["files"] else None
        code = str(row["digests"][0])
        return cls(number, row["kernel"], row["test"], grid, block, arrays, code, files, row["missing"], row["ended"])

    def __str__(self) -> str:
        shape = "x".join(map(str, self.grid)) + " blocks of " + "x".join(map(str, self.block)) + " threads"
        return f"launch {self.number}, {self.kernel} ({shape})" + (f" in {self.test}" if self.test else "")


@dataclass(frozen=True)
class SuiteOfLaunches:
    """A record: its name, versions of what made its kernels, its launches; the exit code of the program, if it is known."""

    name: str
    versions: dict[str, str]
    launches: tuple[RecordedLaunch, ...]
    exit_code: int | None = None


def read(folder: Path, name: str = "", exit_code: int | None = None) -> SuiteOfLaunches:
    """The record in a folder. name: what it is called, instead of the folder's. Raises LaunchError for a folder without one."""
    hint = f"mmulator exec --record {folder} PROGRAM makes one"
    try:
        rows: list[dict[str, Any]] = [json.loads(line) for line in (folder / LINES).read_text(encoding="utf-8").splitlines()]
        launches = [RecordedLaunch.of(folder, n, row) for n, row in enumerate((r for r in rows if "kernel" in r), 1)]
        versions: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for row in rows:
            for library, version in row.get("versions", {}).items():
                versions[library][str(version)] = None
    except OSError as error:
        raise LaunchError(f"{folder} has no record of launches: {error.strerror}", hint=hint) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LaunchError(f"{folder / LINES} is damaged, or no record of launches", hint=hint) from None
    return SuiteOfLaunches(name or str(folder), {k: ", ".join(v) for k, v in versions.items()}, tuple(launches), exit_code)


Pairs = list[tuple[RecordedLaunch, RecordedLaunch]]
# What two launches have in common that belong together, the closest first; of several the n-th belongs to the n-th.
_ALIKE: tuple[Callable[[RecordedLaunch], Any], ...] = (
    lambda x: (x.kernel, x.test, x.grid, x.block, x.arrays),
    lambda x: (x.kernel, x.test, x.grid, x.arrays),
    lambda x: (x.kernel, x.test),
)


def matched(a: SuiteOfLaunches, b: SuiteOfLaunches) -> tuple[Pairs, list[RecordedLaunch], list[RecordedLaunch]]:
    """The launches that belong together, in the order of the first record; and those of each record that have no partner."""
    pairs, left, right = Pairs(), [*a.launches], [*b.launches]
    for alike in _ALIKE:
        waiting: defaultdict[Any, list[RecordedLaunch]] = defaultdict(list)
        for y in reversed(right):
            waiting[alike(y)].append(y)
        found = [(x, waiting[alike(x)].pop()) for x in left if waiting[alike(x)]]
        taken = {x.number for x, _ in found}, {y.number for _, y in found}
        left, right = ([z for z in side if z.number not in own] for side, own in zip((left, right), taken))
        pairs += found
    return sorted(pairs, key=lambda pair: pair[0].number), left, right
