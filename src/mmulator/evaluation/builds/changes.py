"""Launches of two builds side by side: what they read, the bits that they store, and what changed in their kernels.

Two records come in; a `BuildsComparison` leaves. Nothing runs but what `mm.same` and an explanation of an element run.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mmulator.base.errors import LaunchError, MmulatorError
from mmulator.evaluation.builds.suites import RecordedLaunch, SuiteOfLaunches, matched
from mmulator.host.jobs.comparison import Comparison, Tolerance, compare
from mmulator.host.jobs.job import Job, kernel_name, load_job, run_job, set_variables
from mmulator.host.module import Kernel
from mmulator.isa.effects import FUNCTIONS, Algebra
from mmulator.observation.record.cause import place_text
from mmulator.observation.record.reference import first_difference
from mmulator.observation.same.comparison import SAME, UNDECIDED, Sameness, same
from mmulator.ptx.program.calls import reached

OTHER, FOLLOWS, OPEN, EQUAL = CHANGES = "other bits", "other inputs", "not compared", "same bits"
THREADS = 1 << 12  # of a launch whose kernels are graded: a larger one takes minutes
_ADDRESSES = 1 << 40  # numbers from here on are places, which each process has elsewhere
_NO_CODE = re.compile(r"//[^\n]*|\.(?:loc|file|version)\b[^\n]*|\.section\s+\"?\.debug_\w+\"?\s*\{[^}]*\}")
_ROUNDS = {
    Algebra.FUSED, Algebra.PRODUCT, Algebra.SUM, Algebra.DIFFERENCE, Algebra.QUOTIENT, Algebra.RECIPROCAL, Algebra.EXPONENTIAL,
    Algebra.TANGENT, Algebra.CONVERSION, *FUNCTIONS,
}  # fmt: skip
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class PairOfLaunches:
    """A launch of the one build and that of the other.

    inputs: the arrays and numbers that the two did not find alike; None if it is not known.
    outputs: whether they stored the same bits; None if it is not known.
    arrays: what they stored, where bits differ: `want` is of the first build, `got` of the second.
    note: why they were not compared, or what one of them alone did.
    """

    first: RecordedLaunch
    second: RecordedLaunch
    inputs: tuple[str, ...] | None = None
    outputs: bool | None = None
    arrays: tuple[Comparison, ...] = ()
    note: str = ""

    @property
    def folders(self) -> tuple[Path, Path] | None:
        """The files of both; None where one has none."""
        return (self.first.folder, self.second.folder) if self.first.folder and self.second.folder else None

    @property
    def differs(self) -> bool:
        """Whether bits differ that do so by the build: of equal inputs, as far as these are known."""
        return self.outputs is False and not self.inputs

    @property
    def threads(self) -> int:
        """Threads of the larger grid."""
        return max(math.prod(x.grid) * math.prod(x.block) for x in (self.first, self.second))


@dataclass(frozen=True)
class KernelOfBuilds:
    """A kernel with its code in each build.

    change: "other bits"; "other inputs": bits differ where inputs do; "not compared"; "same bits".
    same: the grade of the two codes at the size of one launch; its lines: where values part in each build.
    instructions: how many instructions of a name the PTX of each build has, where the numbers differ; first those that round.
    fusion: whether one build rounds products and sums that the other fuses.
    """

    kernel: str
    pairs: tuple[PairOfLaunches, ...]
    change: str
    same: Sameness
    instructions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    fusion: str = ""


@dataclass(frozen=True)
class BuildsComparison:
    """Two records of a suite. alone: launches of each that have no partner in the other."""

    builds: tuple[SuiteOfLaunches, SuiteOfLaunches]
    kernels: tuple[KernelOfBuilds, ...]
    alone: tuple[Sequence[RecordedLaunch], Sequence[RecordedLaunch]]

    @property
    def exit_code(self) -> int:
        """3 if bits differ; else 4 if something was not compared, had other inputs, or a program failed; else 0."""
        pairs = [p for k in self.kernels for p in k.pairs]
        failed = any(b.exit_code for b in self.builds) or any(self.alone) or not pairs
        return 3 if any(p.differs for p in pairs) else 4 if failed or any(not p.outputs for p in pairs) else 0


def compare_builds(a: SuiteOfLaunches, b: SuiteOfLaunches, progress: Progress | None = None) -> BuildsComparison:
    """Compare two records launch by launch, and their kernels. progress(what, done, total)."""
    progress = progress or (lambda *_: None)
    pairs, left, right = matched(a, b)
    if not pairs:
        which = next((build.name for build in (a, b) if not build.launches), "")
        said = f"{which} has no launches" if which else f"{a.name} and {b.name} have no kernel in common"
        raise LaunchError(said, hint="two records of one program are compared: `mmulator exec --record DIR PROGRAM`")
    groups: dict[tuple[str, str, str], list[PairOfLaunches]] = {}
    held = cache(_compared)
    for n, (x, y) in enumerate(pairs):
        progress("launches", n, len(pairs))
        groups.setdefault((x.kernel, x.code, y.code), []).append(_pair(x, y, held))
    kernels = []
    for n, ((name, *_), group) in enumerate(groups.items()):
        progress("kernels", n, len(groups))
        kernels.append(_kernel(name, group))
    return BuildsComparison((a, b), tuple(sorted(kernels, key=lambda k: CHANGES.index(k.change))), (left, right))


# launches -----------------------------------------------------------------------------------------------------------
Found = tuple[tuple[str, ...], bool, tuple[Comparison, ...], str]  # other inputs, equal outputs, arrays, note


def _pair(x: RecordedLaunch, y: RecordedLaunch, held: Callable[[Path, Path], Found]) -> PairOfLaunches:
    pair = PairOfLaunches(x, y)
    if x.ended or y.ended:
        same_error = x.ended.partition(":")[0] == y.ended.partition(":")[0]
        both = f"the first ended with {x.ended or 'no error'}, the second with {y.ended or 'no error'}"
        said = f"both ended with {x.ended}" if same_error else both
        return replace(pair, outputs=None if x.ended and y.ended else False, note=said)
    if pair.folders is None:
        return replace(pair, note=f"its files were not kept: {x.missing or y.missing or 'the record does not say why'}")
    try:
        return PairOfLaunches(x, y, *held(*pair.folders))
    except MmulatorError as error:
        return replace(pair, note=error.message)


def _arrays(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a launch by name, as it found and as it left them; of variables only those that it changed. And its numbers.
    """
    job = load_job(folder / "launch.toml")
    found = job.arrays()
    expected = job.expect.arrays if job.expect is not None else {}
    left = found | {n: want.view(found[n].dtype) if n in found else want for n, want in expected.items()}
    numbers = {a.name: a.value for a in job.arguments if isinstance(a.value, int | float) and abs(a.value) < _ADDRESSES}
    return found, left, numbers


def _compared(first: Path, second: Path) -> Found:
    """The differences between what two launches read and stored. Raises LaunchError for files that are damaged."""
    (found_a, left_a, numbers_a), (found_b, left_b, numbers_b) = _arrays(first), _arrays(second)
    same_names = [n for n in left_a if n in left_b]
    rest = [[n for n in left if n not in same_names] for left in (left_a, left_b)]  # memory that each build calls otherwise
    names = [(n, n) for n in same_names] + [(n, m) for n, m in zip(*rest) if left_a[n].nbytes == left_b[m].nbytes]
    inputs = [n for n in numbers_a if n in numbers_b and numbers_a[n] != numbers_b[n]]
    notes, differ = list[str](), list[Comparison]()
    for n, m in names:
        x, y = left_a[n], left_b[m].copy()
        if x.dtype != y.dtype or x.shape != y.shape:
            x, y = _raw(x), _raw(y)
        if x.shape != y.shape:
            notes.append(f"{n} has {x.size:,} bytes in the first build, {y.size:,} in the second")
        elif n in found_a and m in found_b:
            before = _raw(found_a[n]), _raw(found_b[m])
            inputs += [n] * (not np.array_equal(*before))
            stored = (_raw(x) != before[0]) | (_raw(y) != before[1])
            stored = stored.reshape(-1, x.itemsize).any(1).repeat(x.itemsize)
            _raw(y)[~stored] = _raw(x)[~stored]  # inputs are no results
        if x.shape == y.shape and (found := compare(n, y, x, Tolerance())).wrong:
            differ.append(found)
    for which, before_it, left in ("first", found_a, left_a), ("second", found_b, left_b):
        lonely = {*left}.difference(*names)
        notes += [
            f"only the {which} build stores to {n}" for n in left
            if n in lonely and not (n in before_it and np.array_equal(_raw(before_it[n]), _raw(left[n])))
        ]  # fmt: skip
    return tuple(inputs), not differ and not notes, tuple(differ), "; ".join(notes)


def _raw(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, in place."""
    return array.reshape(-1).view(np.uint8)


# kernels ------------------------------------------------------------------------------------------------------------
def _kernel(name: str, pairs: list[PairOfLaunches]) -> KernelOfBuilds:
    """A kernel of which these launches are. It is graded by one of them: the smallest that differs, of equal inputs if there is
    one."""
    asked = min(pairs, key=lambda p: (p.folders is None, p.threads > THREADS, not p.differs, p.outputs is not False, p.threads))
    grade = Sameness(UNDECIDED, reason="no files of its launches were kept")
    instructions, fusion = dict[str, tuple[int, int]](), ""
    if asked.folders is not None:
        try:
            grade, instructions, fusion = _graded(asked, asked.folders)
        except MmulatorError as error:
            grade = Sameness(UNDECIDED, reason=error.message)
        if not all(grade.lines) and asked.arrays and asked.inputs == ():
            grade = replace(grade, lines=_parted(asked.arrays[0], asked.folders) or ("", ""))
        here, there = (line.replace(f"{folder}/", "") for line, folder in zip(grade.lines, asked.folders))
        grade = replace(grade, lines=(here, there))
    change = OTHER if any(p.differs for p in pairs) else FOLLOWS if any(p.outputs is False for p in pairs) else EQUAL
    change = OPEN if change == EQUAL and any(p.outputs is None for p in pairs) else change
    return KernelOfBuilds(name, tuple(pairs), change, grade, instructions, fusion)


def _job(folder: Path) -> Job:
    return load_job(folder / "launch.toml", expecting=False)


def _graded(pair: PairOfLaunches, folders: tuple[Path, Path]) -> tuple[Sameness, dict[str, tuple[int, int]], str]:
    """The grade of two kernels, their instructions, and which build fuses. Raises MmulatorError."""
    jobs = [_job(folder) for folder in folders]
    texts = [_NO_CODE.sub("", job.ptx.read_text(encoding="utf-8")).split() for job in jobs]
    if texts[0] == texts[1]:
        return Sameness(SAME, reason="both builds made the same instructions"), {}, ""
    kernels: list[Kernel] = []
    for job in jobs:
        module = job.load()
        kernels.append(module[kernel_name(module, job)])
        set_variables(module, job)
    more = _instructions(kernels)
    if any(job.memory for job in jobs):
        return Sameness(UNDECIDED, reason="pointers in its memory are not followed"), *more
    if pair.threads > THREADS:
        said = f"its smallest launch has {pair.threads:,} threads, and {THREADS:,} are followed at most"
        return Sameness(UNDECIDED, reason=said), *more
    first, second = (
        {"grid": j.grid, "block": j.block, "args": _arguments(j), "shared": j.shared, "cluster": j.cluster} for j in jobs
    )  # fmt: skip
    for x, y in zip(*([a for a in one["args"] if isinstance(a, np.ndarray)] for one in (first, second))):
        if x.nbytes == y.nbytes:  # both kernels get what the first build read: the inputs of the second may differ
            _raw(y)[:] = _raw(x)
    return same(kernels[0], kernels[1], **first, device=jobs[0].device, launch_b=second), *more


def _arguments(job: Job) -> list[Any]:
    """The arguments of a launch; an address of the array of another argument is that array."""
    at = {a.address: a.value for a in job.arguments if a.address is not None}
    return [at.get(a.value, a.value) if isinstance(a.value, int) else a.value for a in job.arguments]


def _instructions(kernels: Sequence[Kernel]) -> tuple[dict[str, tuple[int, int]], str]:
    """Numbers of instructions that differ, and which build fuses products and sums."""
    does: dict[str, Algebra] = {}
    counts = []
    for kernel in kernels:
        every = [i for f in reached(kernel.module.tree, kernel.function).functions.values() for i in f.instructions]
        does |= {i.mnemonic: i.effects.algebra for i in every}
        counts.append(Counter(i.mnemonic for i in every))
    both = {n: (counts[0][n], counts[1][n]) for n in sorted(does, key=lambda n: (does[n] not in _ROUNDS, n))}
    both = {n: (a, b) for n, (a, b) in both.items() if a != b}
    fused, products, sums = (
        sum(b - a for n, (a, b) in both.items() if does[n] in kinds)
        for kinds in ([Algebra.FUSED], [Algebra.PRODUCT], [Algebra.SUM, Algebra.DIFFERENCE])
    )  # fmt: skip
    if fused * products >= 0 or fused * sums >= 0:
        return both, ""
    return both, f"FP fusion: the {'second' if fused > 0 else 'first'} build fuses products and sums that the other rounds apart"


def _parted(array: Comparison, folders: tuple[Path, Path]) -> tuple[str, str] | None:
    """Where the first element that differs parts, as explanations of it in each build say; None where they do not."""
    element = f"{array.name}[{','.join(map(str, array.first or ()))}]"
    try:
        here, there = (run_job(_job(folder), why=[element]).report.why[0].cause for folder in folders)
    except MmulatorError:  # of an array that the other build has no name for, of a store that is not told
        return None
    found = first_difference(here, there) if here and there else None
    return (place_text(found[0].at), place_text(found[1].at)) if found and found[0].at and found[1].at else None


def sentences(k: KernelOfBuilds) -> Iterator[str]:
    """A kernel in words, a line each."""
    differ = [p for p in k.pairs if p.differs]
    code = f"its code, for all values: {k.same.grade}" + f" ({k.same.reason})" * bool(k.same.reason)
    of = f"{len(k.pairs):,} launch{'es' * (len(k.pairs) != 1)}"
    if others := [p for p in k.pairs if p.inputs]:
        names = ", ".join(dict.fromkeys(name for p in others for name in p.inputs or ()))
        yield f"inputs differ in {len(others):,} of {of}, so that outputs say nothing of the builds: {names}"
    yield f"bits differ in {len(differ):,} of {of}; {code}" if differ else f"{k.change} in {of}; {code}"
    worst = max((c for p in differ for c in p.arrays), key=lambda c: (c.most, c.wrong), default=None)
    if worst is not None and worst.first is not None:
        apart = f"up to {worst.most:,} unit{'s' * (worst.most != 1)} in the last place"
        apart += f", {worst.specials:,} NaN or infinite in one only" * bool(worst.specials)
        first = f"{worst.name}[{','.join(map(str, worst.first))}]: {worst.want} and {worst.got}"
        yield f"{worst.wrong:,} of {worst.size:,} elements of {worst.name} differ, {apart}; first {first}"
    if all(k.same.lines) and k.same.grade != SAME:
        yield f"values part at {k.same.lines[0]}, and at {k.same.lines[1]}"
    if k.instructions:
        yield counted(k.instructions) + (f"; {k.fusion}" if k.fusion and k.same.grade != SAME else "")
    yield from dict.fromkeys(f"note: {p.note}" for p in k.pairs if p.note)
    yield from (f"holds for these inputs: {one}" for one in k.same.rests_on)


def counted(instructions: Mapping[str, tuple[int, int]], most: int = 6) -> str:
    """`fma.rn.f32 12 -> 0, mul.rn.f32 0 -> 12, and 3 others`."""
    shown = ", ".join(f"{name} {a} -> {b}" for name, (a, b) in [*instructions.items()][:most])
    return shown + (f", and {len(instructions) - most} others" if len(instructions) > most else "")
