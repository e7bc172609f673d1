"""Files for profiles and traces of launches, as `run` and `exec` are given them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mmulator.base.files import write
from mmulator.cli.output import WrongUsage, check_writable

if TYPE_CHECKING:
    from mmulator.observation.record.profile.launch import LaunchProfile


def check_recording(file: str | None, trace: str | None) -> None:
    """Check, before the run, that a file for a profile and one for a trace can be written. Raises WrongUsage."""
    if trace is not None:
        if Path(trace).suffix != ".json":
            raise WrongUsage(f"--trace {trace}", hint="the name ends in .json")
        check_writable(trace)
    if file is None:
        return
    from mmulator.observation.record.profile.views import FORMATS

    if Path(file).suffix not in FORMATS:
        raise WrongUsage(f"--profile-to {file}", hint=f"the name ends in one of {', '.join(FORMATS)}; .info is lcov's")
    check_writable(file)


def check_why(why: Sequence[str] | None, to: str | Path | None, against: str | None, asserts: bool = False) -> None:
    """Check options that go with --why. asserts: whether a reference is what an assert expects. Raises WrongUsage, and
    UnsupportedError for an unknown device."""
    if (to is not None or against is not None) and not why:
        raise WrongUsage("--why-to and --against go with --why", hint="--why C[3,5]")
    if to is not None and Path(to).suffix != ".html":
        raise WrongUsage(f"--why-to {to}", hint="the name ends in .html")
    if to is not None:
        check_writable(str(to))
    if asserts and against == "reference" and "auto" not in (why or ()):
        from mmulator.observation.record.launches.answers import NO_REFERENCE, REFERENCES

        raise WrongUsage(NO_REFERENCE, hint=REFERENCES)
    if against is not None and not against.isdigit() and against != "reference":
        from mmulator.isa.chips import as_device

        as_device(against)


def check_record(file: str) -> None:
    """Check, before the run, that a record can be written: a file for digests, or a folder. Raises WrongUsage."""
    place = Path(file)
    if place.suffix == ".json":
        check_writable(file)
    elif place.is_dir():
        if any(place.iterdir()):
            raise WrongUsage(f"--record {file}: the folder is not empty", hint="a record has a folder of its own")
    elif place.suffix or place.exists():
        raise WrongUsage(f"--record {file}", hint="the name ends in .json, or is a folder's")
    elif not place.parent.is_dir():
        raise WrongUsage(f"--record {file}: there is no folder {place.parent}")


def replayed(file: str, device: str | None, seed: int | None) -> tuple[str, int]:
    """Device and seed of a record. device, seed: what the command line says. Raises WrongUsage where they are others, and
    LaunchError for a file that is no record."""
    from mmulator.isa.chips import as_device
    from mmulator.observation.record.launches.replay import read

    data = read(file)
    for name, given, recorded in (("device", device and as_device(device), data["device"]), ("seed", seed, data["seed"])):
        if given is not None and given != recorded:
            raise WrongUsage(f"--{name} {given}: the record {file} was made with {recorded}")
    return data["device"], data["seed"]


def write_profile(file: str, profiles: Sequence[LaunchProfile]) -> None:
    """Write profiles in the format that the file's ending names."""
    from mmulator.observation.record.profile.views import written

    write(file, written(profiles, file))
