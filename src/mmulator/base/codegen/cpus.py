"""The CPU for which code is compiled: the machine's own, or a level that MMULATOR_CPU names."""

import platform
from collections.abc import Mapping
from pathlib import Path

from mmulator.base.errors import UnsupportedError

_V3 = ["avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2", "ssse3", "xsave"]
X86, ARM = "x86_64", "aarch64"
LEVELS_OF: Mapping[str, Mapping[str, list[str]]] = {
    X86: {"x86-64-v4": [*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"], "x86-64-v3": _V3},
    # fullfp16 and dotprod make the code 0.03 % shorter, SVE2 0.8 %: no level of their own
    ARM: {"armv8.1-a": ["fp-armv8", "lse", "neon"]},
}
"""Features of a CPU of a level, by LLVM's names, for each architecture; the best level first."""
LEVELS: Mapping[str, list[str]] = {level: needs for levels in LEVELS_OF.values() for level, needs in levels.items()}
_UNSET = "code is made for this machine's own CPU where it is not set"

_IDENTITY = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags",
             "Features", "CPU implementer", "CPU variant", "CPU part", "CPU revision")  # fmt: skip
_NAMES = {"amd64": X86, "x64": X86, "arm64": ARM}


def own_architecture() -> str:
    """The architecture of this machine: X86, ARM, or another's name."""
    name = platform.machine().lower()
    return _NAMES.get(name, name)


def machine() -> str:
    """A text that determines name and features of this machine's own CPU for LLVM; "" where the system does not say."""
    try:
        with Path("/proc/cpuinfo").open("rb", buffering=0) as file:  # a part: the system asks every core for its clock
            read = file.read(1 << 13).decode()
    except (OSError, ValueError):
        return ""
    if own_architecture() == X86:
        read = read.partition("\n\n")[0]
    said = {line: None for line in read.splitlines()[:-1] if line.partition("\t")[0].strip() in _IDENTITY}  # one core as another
    whole = any(line.startswith(("flags", "Features")) for line in said)
    return "\n".join([platform.release(), *said]) if whole else ""


def architecture_of(cpu: str) -> str:
    """The architecture of a level; this machine's for any other CPU."""
    return next((name for name, levels in LEVELS_OF.items() if cpu in levels), own_architecture())


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
