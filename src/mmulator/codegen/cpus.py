"""The CPU for which code is compiled: the machine's own, or a level that MMULATOR_CPU names."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.errors import UnsupportedError

_V3 = ["avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2", "ssse3", "xsave"]
LEVELS: Mapping[str, list[str]] = {
    "x86-64-v4": [*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"],
    "x86-64-v3": _V3,
}
"""What a CPU of a level has, by LLVM's names; the best first."""
_UNSET = "code is made for this machine's own CPU where it is not set"


def features(level: str) -> str:
    return ",".join(f"+{name}" for name in LEVELS[level])


def level_of(cpu: str, features: str) -> str | None:
    """The best level that a CPU supports; the level of its name, if the CPU has one; None if it supports none."""
    if cpu in LEVELS:
        return cpu
    return next((level for level in LEVELS if not _lacks(level, features)), None)


def _lacks(level: str, features: str) -> list[str]:
    """Features of a level that are missing from `features`."""
    has = {name[1:] for name in features.split(",") if name[:1] == "+"}
    return [name for name in LEVELS[level] if name not in has]


def chosen(wanted: str, cpu: str, own: str) -> tuple[str, str]:
    """(name, features) of the CPU for which code is compiled.

    wanted: a level, or "" for the machine's own CPU.
    cpu, own: name and features of the machine's own CPU.
    """
    if not wanted:
        return cpu, own
    if wanted not in LEVELS:
        raise UnsupportedError(f"MMULATOR_CPU is {wanted!r}, no level of CPUs", hint=f"{' or '.join(LEVELS)}; {_UNSET}")
    lacks = _lacks(wanted, own)
    if lacks:
        raise UnsupportedError(f"MMULATOR_CPU is {wanted}, and this machine ({cpu}) has no {', '.join(lacks)}", hint=_UNSET)
    return wanted, features(wanted)
