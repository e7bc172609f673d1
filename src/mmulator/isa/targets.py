"""Targets (.target sm_XY, with `a` and `f` variants), PTX versions, and the devices whose arithmetic we model."""

from __future__ import annotations

import re
from functools import cache, total_ordering

from mmulator.base.classes import dataclass
from mmulator.base.errors import OperandError, shown

PTX_VERSIONS: tuple[tuple[int, int], ...] = (
    *((6, m) for m in range(6)),
    *((7, m) for m in range(9)),
    *((8, m) for m in range(9)),
    *((9, m) for m in range(6)),
)


def parse_ptx_version(text: str) -> tuple[int, int]:
    """`"8.7"` -> (8, 7). Raises ValueError for anything that is not two numbers."""
    match = re.fullmatch(r"(\d+)\.(\d+)", text)
    if not match:
        raise ValueError(f"{text!r} is not a PTX version such as 8.7")
    return int(match[1]), int(match[2])


@total_ordering
@dataclass(frozen=True)
class Target:
    """A .target. number: 90 for sm_90. suffix: "" (portable), "a" (this chip only), "f" (this family)."""

    number: int
    suffix: str = ""

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"

    def __lt__(self, other: Target) -> bool:
        return (self.number, self.suffix) < (other.number, other.suffix)

    @classmethod
    def parse(cls, text: str) -> Target:
        """`"sm_90a"` -> Target(90, "a"). Raises ValueError for an unknown target."""
        match = re.fullmatch(r"sm_(\d+)([af]?)", text)
        target = cls(int(match[1]), match[2]) if match else None
        if target is None or target not in TARGETS:
            known = ", ".join(map(str, sorted(TARGETS)))
            raise ValueError(f"{text!r} is not a known target; known: {known}")
        return target

    def runs_on(self, device: str) -> bool:
        """Whether code for this target runs on a device (`sm_90`): on later devices too without a suffix, only on this one for
        `a`, within its family for `f`.
        """
        number = int(device[3:])
        own = RENAMED.get(self.number, self.number)
        if self.suffix == "a":
            return number == own
        return number >= self.number and (not self.suffix or Target(number).family() == Target(own).family())

    def family(self) -> int:
        """Family of a target (Target Architecture Families): 100 for sm_100f, sm_103f and sm_107f, and so on."""
        return {103: 100, 107: 100, 121: 120}.get(self.number, self.number)


RENAMED = {101: 110}  # since PTX ISA 9.0
# First PTX version that accepts each target (Release Notes, PTX ISA 9.1; checked against ptxas 13.5, which takes 9.5).
TARGETS: dict[Target, tuple[int, int]] = {
    Target(n, s): v
    for n, s, v in [
        (50, "", (4, 0)), (52, "", (4, 1)), (53, "", (4, 2)),
        (60, "", (5, 0)), (61, "", (5, 0)), (62, "", (5, 0)),
        (70, "", (6, 0)), (72, "", (6, 1)), (75, "", (6, 3)),
        (80, "", (7, 0)), (86, "", (7, 1)), (87, "", (7, 4)), (88, "", (9, 0)), (89, "", (7, 8)),
        (90, "", (7, 8)), (90, "a", (8, 0)),
        (100, "", (8, 6)), (100, "a", (8, 6)), (100, "f", (8, 8)),
        (101, "", (8, 6)), (101, "a", (8, 6)), (101, "f", (8, 8)),
        (103, "", (8, 8)), (103, "a", (8, 8)), (103, "f", (8, 8)),
        (107, "", (9, 4)), (107, "a", (9, 4)), (107, "f", (9, 4)),
        (110, "", (9, 0)), (110, "a", (9, 0)), (110, "f", (9, 0)),
        (120, "", (8, 7)), (120, "a", (8, 7)), (120, "f", (8, 8)),
        (121, "", (8, 8)), (121, "a", (8, 8)), (121, "f", (8, 8)),
    ]
}  # fmt: skip

# Chips whose arithmetic the numerics profiles describe; `device=` takes these names, and those of chips.py.
DEVICES: tuple[str, ...] = (
    "sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_107", "sm_110", "sm_120",
    "sm_121",
)  # fmt: skip


def as_target(target: str | Target | None) -> Target | None:
    """The Target that a user names. Raises OperandError for an unknown target."""
    if not isinstance(target, str):
        return target
    try:
        return Target.parse(target)
    except ValueError as error:
        raise OperandError(str(error)) from None


def as_ptx(ptx: str | tuple[int, int] | None) -> tuple[int, int] | None:
    """The PTX version that a user names, as (major, minor). Raises OperandError for a value that is not a version, or is
    unknown.
    """
    if ptx is None:
        return None
    try:
        version = parse_ptx_version(ptx) if isinstance(ptx, str) else (int(ptx[0]), int(ptx[1]))
    except (ValueError, TypeError, LookupError, OverflowError):
        raise OperandError(f"{shown(ptx)} is not a PTX version such as '8.7'") from None
    if version not in PTX_VERSIONS:
        known = "known are {}.{} to {}.{}".format(*PTX_VERSIONS[0], *PTX_VERSIONS[-1])
        raise OperandError(f"PTX ISA {shown(version[0])}.{shown(version[1])} is not known", hint=known)
    return version


def as_pair(target: str | Target | None, ptx: str | tuple[int, int] | None) -> tuple[Target | None, tuple[int, int] | None]:
    """The target and PTX version that a user names. Raises OperandError for an unknown one, or a version that lacks
    the target.
    """
    wanted, version = as_target(target), as_ptx(ptx)
    if wanted is not None and version is not None and version < TARGETS[wanted]:
        needed = "{}.{}".format(*TARGETS[wanted])
        raise OperandError(
            f"PTX ISA {version[0]}.{version[1]} has no .target {wanted}",
            rule="Release Notes (PTX ISA 9.1)",
            hint=f"it came with PTX ISA {needed}",
        )
    return wanted, version


@cache
def default_device(target: Target) -> str:
    """The device of a .target's own chip; if it is not modelled, the next device that runs its code, or otherwise the nearest
    older one.
    """
    runs = [d for d in DEVICES if target.runs_on(d)]
    own = f"sm_{RENAMED.get(target.number, target.number)}"
    if runs:
        return own if own in runs else runs[0]
    return [d for d in DEVICES if int(d[3:]) <= target.number][-1]
