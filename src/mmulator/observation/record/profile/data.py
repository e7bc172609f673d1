"""The data of a profile: what each instruction did, sums by line, and what no launch reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self, TypeVar

from mmulator.base.schemas import document

KINDS = ("global", "shared", "local", "bulk")  # rows of runtime/native/hooks/profile.py: Kind
SPACES = (*KINDS, "matrix")  # matrix: shared memory that wgmma reads through descriptors


@dataclass(frozen=True)
class Traffic:
    """Accesses of instructions to one kind of memory.

    requests: accesses of warps; in local memory one for each word of a lane; of bulk copies pieces; of matrices wgmma of warps.
    lanes: lanes that took part.
    bytes: bytes that lanes asked for.
    units: sectors of 32 bytes; of shared memory and matrices wavefronts.
    ideal: wavefronts that it would be without bank conflicts; of other memory 0.
    """

    requests: int = 0
    lanes: int = 0
    bytes: int = 0
    units: int = 0
    ideal: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, name) + getattr(other, name) for name in SUMS))


SUMS = tuple(f.name for f in fields(Traffic))  # also the fields of a ProfileMemory


@dataclass(frozen=True)
class Tally:
    """Sums of what instructions did.

    executions: executions by warps.
    lanes: lanes of these that were there.
    off: lanes that were there, and whose guard was false.
    macs: multiply-accumulates.
    met, polls: executions of waits for an mbarrier that found its phase complete, and those that did not.
    taken, passed, parted: executions of branches that some lanes took, that some did not take, and both.
    traffic: accesses to memory, by SPACES.
    """

    executions: int = 0
    lanes: int = 0
    off: int = 0
    macs: int = 0
    met: int = 0
    polls: int = 0
    taken: int = 0
    passed: int = 0
    parted: int = 0
    traffic: dict[str, Traffic] = field(default_factory=dict)

    def __add__(self, other: Tally) -> Tally:
        numbers = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "traffic"}
        spaces = [s for s in SPACES if s in self.traffic or s in other.traffic]
        return Tally(**numbers, traffic={s: self.in_(s) + other.in_(s) for s in spaces})

    def in_(self, space: str) -> Traffic:
        """Accesses to one kind of memory."""
        return self.traffic.get(space, Traffic())

    @property
    def active(self) -> float:
        """Mean number of lanes that acted, of 32."""
        return (self.lanes - self.off) / self.executions if self.executions else 0.0


@dataclass(frozen=True)
class Executed:
    """An instruction of the PTX text, and what it did.

    line: its line in the text.
    text: the instruction as written.
    function: kernel or function.
    file, source_line, source: the line of the program that it was compiled from, and its text; "" and 0 where they are not known.
    branch: whether it is a branch with a guard.
    """

    line: int
    text: str
    function: str
    file: str
    source_line: int
    source: str
    branch: bool
    work: Tally


@dataclass(frozen=True)
class Occupancy:
    """The number of warps of a kernel that a multiprocessor holds, as far as PTX says it.

    warps, most: warps that it holds of this launch, and at most of any.
    blocks: blocks that it holds.
    limit: what allows no more: threads, blocks, shared memory, or the grid.
    registers: registers of a thread with which it still holds as many; ptxas decides how many there are.
    """

    warps: int
    most: int
    blocks: int
    limit: str
    registers: int


@dataclass(frozen=True)
class ProfileData:
    """The profile of launches of a kernel: a LaunchProfile (profile.py) without a way to show it.

    kernel, device, grid, block, cluster, shared: the launch; shared: bytes of a block.
    launches: number of launches that are added up.
    file: name of the PTX text.
    instructions: instructions in the order of the text.
    occupancy: warps that a multiprocessor holds.
    """

    kernel: str
    device: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: int
    launches: int
    file: str
    instructions: tuple[Executed, ...]
    occupancy: Occupancy

    @property
    def total(self) -> Tally:
        """All instructions together."""
        return sum((i.work for i in self.instructions), Tally())

    def by_line(self) -> dict[tuple[str, int], list[Executed]]:
        """Instructions by (file, line) of the program, or by lines of the PTX text where it names no program."""
        named = any(i.source_line for i in self.instructions)
        return _grouped(self.instructions, lambda i: (i.file, i.source_line) if named else (self.file, i.line))

    def as_dict(self) -> dict[str, Any]:
        """The profile as JSON data."""
        return document("profile", {**asdict(self), "total": asdict(self.total)})

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        """The profile that `as_dict` gave."""
        values = {f.name: data[f.name] for f in fields(cls)}
        for name in ("grid", "block", "cluster"):
            values[name] = tuple(values[name])
        values["occupancy"] = Occupancy(**data["occupancy"])
        values["instructions"] = tuple(
            Executed(**{**i, "work": Tally(**{**w, "traffic": {s: Traffic(**t) for s, t in w["traffic"].items()}})})
            for i in data["instructions"] for w in [i["work"]]
        )  # fmt: skip
        return cls(**values)

    def __add__(self, other: ProfileData) -> Self:
        """Launches of both, of the same text; grid and block are those of the first."""
        pairs = zip(self.instructions, other.instructions, strict=True)
        both = tuple(replace(a, work=a.work + b.work) for a, b in pairs)
        return replace(self, instructions=both, launches=self.launches + other.launches)

    @property
    def key(self) -> tuple[Any, ...]:
        """The properties that are equal in profiles that can be added."""
        return self.kernel, self.device, self.file, tuple((i.line, i.text) for i in self.instructions)


Shown = TypeVar("Shown", bound=ProfileData)


def added_up(profiles: Iterable[Shown]) -> list[Shown]:
    """One profile for each kernel."""
    found: dict[tuple[Any, ...], Shown] = {}
    for profile in profiles:
        found[profile.key] = found[profile.key] + profile if profile.key in found else profile
    return [*found.values()]


def _grouped(items: Iterable[Executed], key: Callable[[Executed], tuple[str, int]]) -> dict[tuple[str, int], list[Executed]]:
    found: dict[tuple[str, int], list[Executed]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def work_of(items: Iterable[Executed]) -> Tally:
    """The work of several instructions together."""
    return sum((i.work for i in items), Tally())


def line_executions(items: Iterable[Executed]) -> int:
    """How often a line was executed: as often as the instruction of it that was executed most."""
    return max((i.work.executions for i in items), default=0)


# what no launch reached -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Unreached:
    """Lines that no launch executed, and branches that went one way only.

    lines: (file, line).
    branches: (file, line, "taken" or "not taken": the way that no warp went).
    known: number of lines; ways: number of ways of branches.
    """

    lines: tuple[tuple[str, int], ...]
    branches: tuple[tuple[str, int, str], ...]
    known: int
    ways: int


def unreached(profiles: Sequence[ProfileData]) -> Unreached:
    """The lines and branches that no launch reached: of the program where the PTX text names its lines, else of that text."""
    lines: Counter[tuple[str, int]] = Counter()
    ways: Counter[tuple[str, int, int, str]] = Counter()
    for profile in profiles:
        for at, items in profile.by_line().items():
            if at[1]:
                lines[at] += line_executions(items)
                for n, item in enumerate(i for i in items if i.branch):
                    ways[*at, n, "taken"] += item.work.taken
                    ways[*at, n, "not taken"] += item.work.passed
    never = tuple(sorted(at for at, times in lines.items() if not times))
    missed = [(file, line, way) for (file, line, n, way), times in ways.items() if not times and lines[file, line]]
    return Unreached(never, tuple(sorted(missed)), len(lines), len(ways))


def lcov(profiles: Sequence[ProfileData]) -> str:
    """Lines and branches as lcov's tracefile, which genhtml, IDEs and forges read."""
    files: dict[str, list[str]] = {}
    merged: dict[tuple[str, int], list[list[Executed]]] = {}
    for profile in profiles:
        for at, items in profile.by_line().items():
            if at[1]:
                merged.setdefault(at, []).append(items)
    for (file, line), groups in sorted(merged.items()):
        rows = files.setdefault(file, [])
        times = sum(map(line_executions, groups))
        for n, branches in enumerate(zip(*([i for i in items if i.branch] for items in groups))):
            for way, name in enumerate(("taken", "passed")):
                gone = sum(getattr(i.work, name) for i in branches)
                rows.append(f"BRDA:{line},{n},{way},{gone if times else '-'}")
        rows.append(f"DA:{line},{times}")
    out = []
    for file, rows in files.items():
        hit = sum(r.startswith("DA:") and not r.endswith(",0") for r in rows)
        out += [f"SF:{file}", *rows, f"LF:{sum(r.startswith('DA:') for r in rows)}", f"LH:{hit}", "end_of_record"]
    return "".join(f"{row}\n" for row in out)
