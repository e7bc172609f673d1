"""Files for profiles and traces of launches, as `run` and `exec` are given them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mmulator.cli.output import WrongUsage, check_writable, write_file

if TYPE_CHECKING:
    from mmulator.record.profile import LaunchProfile


def check_recording(file: str | None, trace: str | None) -> None:
    """Check, before the run, that a file for a profile and one for a trace can be written. Raises WrongUsage."""
    if trace is not None:
        if Path(trace).suffix != ".json":
            raise WrongUsage(f"--trace {trace}", hint="the name ends in .json")
        check_writable(trace)
    if file is None:
        return
    from mmulator.record.profile_file import FORMATS

    if Path(file).suffix not in FORMATS:
        raise WrongUsage(f"--profile-to {file}", hint=f"the name ends in one of {', '.join(FORMATS)}; .info is lcov's")
    check_writable(file)


def write_profile(file: str, profiles: Sequence[LaunchProfile]) -> None:
    """Write profiles in the format that the file's ending names."""
    from mmulator.record.profile_file import written

    write_file(file, written(profiles, file).encode())
