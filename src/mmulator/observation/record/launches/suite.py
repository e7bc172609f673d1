"""The record of a suite: every launch of a program as a line of a file, and as files that `mmulator run` takes.

Another build of the program (another Triton, another nvcc, another flag) makes a second record; evaluation/builds compares the
two. Launches that were given the same have their files once. `launches.jsonl` has a line for each process, with the versions of
its libraries, and one for each launch.
"""

import json
import os
import platform
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from mmulator import __version__
from mmulator.base import files
from mmulator.base.demangle import demangle
from mmulator.base.errors import LaunchError, MmulatorError
from mmulator.base.versions import TABLE
from mmulator.host import entries
from mmulator.host.driver.inquiries import ProcessRecord, ProgramLaunch, say
from mmulator.observation.record.launches.capture import write
from mmulator.observation.record.launches.replay import digests
from mmulator.observation.record.launches.snapshot import LaunchSnapshot, SnapshotInquiry, Take

LINES = "launches.jsonl"
ROOM = 1 << 30  # bytes of files that one process may write; later launches have their digests alone


class SuiteRecording(ProcessRecord):
    """The launches of this process. folder: of the record."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        super().__init__()

    def clear(self) -> None:
        self.kept: dict[str, str] = {}
        self.bytes, self.began = 0, False

    def take(self, seen: LaunchSnapshot, error: BaseException | None) -> None:
        """Write a launch that is over, or say why it cannot be written."""
        shape = seen.launch.shape
        row: dict[str, Any] = {
            "kernel": demangle(seen.kernel.name), "test": os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0],
            "grid": [*shape.grid], "block": [*shape.block], "arrays": [*_arrays(seen)], "device": seen.launch.device,
            "digests": digests(seen, error is not None),
            "ended": "" if error is None else f"{type(error).__name__}: {error}".partition("\n")[0],
        }  # fmt: skip
        with self:
            try:
                self._add(row, seen)
            except (OSError, MmulatorError) as wrong:
                say(f"mmulator: a launch of {row['kernel']} is not recorded: {getattr(wrong, 'message', wrong)}")

    def _add(self, row: dict[str, Any], seen: LaunchSnapshot) -> None:
        """Add a launch to the record."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.began:
            self._line({"versions": versions()})
            self.began = True
        key = " ".join([row["kernel"], *row["digests"]])
        missing = "" if key in self.kept or row["ended"] else self._files(seen, key)
        self._line({**row, "files": self.kept.get(key, ""), "missing": missing})

    def _files(self, seen: LaunchSnapshot, key: str) -> str:
        """Write the files of a launch; why there are none, or ""."""
        if self.bytes > ROOM:
            return f"the record has {ROOM:,} bytes of files already"
        name = f"{os.getpid()}-{len(self.kept) + 1}"
        try:
            self.bytes += write(seen, self.folder / name, len(self.kept) + 1)
        except (OSError, MmulatorError) as wrong:
            return str(getattr(wrong, "message", wrong))
        self.kept[key] = name
        return ""

    def _line(self, data: dict[str, Any]) -> None:
        files.append(self.folder / LINES, (json.dumps(data) + "\n").encode(), LaunchError)


def _arrays(seen: LaunchSnapshot) -> Iterator[str]:
    """Types and shapes of the arrays that parameters lead to, in order."""
    for word in seen.pointers:
        known = next((a for a in seen.arrays if a.start == word and a.dtype is not None), None)
        yield f"{known.dtype}{[*known.shape]}" if known is not None else "memory"


def versions() -> dict[str, str]:
    """The versions of what makes kernels in this process, and of what runs them."""
    found = {"mmulator": __version__, "Python": platform.python_version()}
    for row in TABLE.values():
        if row.module and (version := getattr(sys.modules.get(row.module), "__version__", None)) is not None:
            found[row.name] = str(version)
    return found | entries.assembler()


@cache
def recording(folder: str) -> SuiteRecording:
    """The record of this process."""
    return SuiteRecording(folder)


class SuiteInquiry(SnapshotInquiry):
    """The wish for a record of a suite: `Settings.record`, where it names a folder."""

    def sink(self, one: ProgramLaunch) -> Take:
        return recording(one.settings.record).take


SUITE = SuiteInquiry()
