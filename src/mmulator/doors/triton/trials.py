"""The trials of an autotuner: a warning where the kernel reads what its own trials wrote; under the sanitizer a finding.

The configuration that is chosen has run twice: as a trial, and as the launch that counts. If what the trial wrote has other
values after the launch, then the launch began with other memory, which the trials left there.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmulator.base.errors import UnsupportedError
from mmulator.base.findings import Finding
from mmulator.base.refusals import number
from mmulator.base.rules.text import AUTOTUNE_IN_PLACE
from mmulator.doors.triton.configs import Trial, tell
from mmulator.host.driver import Region, current
from mmulator.host.driver.streams import LAUNCH, measuring
from mmulator.host.report import Report
from mmulator.ptx.program.static import found as finding
from mmulator.ptx.tree import Instruction
from mmulator.runtime.launch.arena import bytes_at

_MOST = 1 << 28  # bytes that are kept of all trials together; the oldest go first
_NAME = re.compile(r"argument (\d+) \((\w+)\)")


@dataclass
class Trials:
    """The launches of one call of an autotuner. begun: whether it measures, and does not know the best configuration yet."""

    begun: bool = False
    kept: list[Trial] = field(default_factory=list)

    def run(
        self, launcher: Any, grid: tuple[int, int, int], args: Sequence[Any], params: bytes, regions: Sequence[Region],
        run: Callable[[], Report],
    ) -> Report:  # fmt: skip
        """Run a launch and keep what it changed. args, params: its arguments as Triton passes them, and as bytes."""
        mine = [r for r in regions if 0 < r.size <= _MOST // 8]
        before = {r.label: bytes_at(r.host, r.size).copy() for r in mine}
        report = run()
        after = {r.label: bytes_at(r.host, r.size).copy() for r in mine}
        arrays = launcher.packer.arrays(args) if current().settings.same_configs else ()
        self.kept.append(Trial(launcher, grid, before, after, report.threads, regions, args, bytes(params), arrays))
        while 2 * sum(a.nbytes for t in self.kept for a in t.after.values()) > _MOST:
            self.kept.pop(0)
        return report

    def warn(self) -> None:
        """Warn, or tell a finding, if the last launch, which counts, read what the others had written."""
        if not self.kept:
            return
        if wanted := current().settings.same_configs:
            tell(self.kept, wanted)
        *tried, last = self.kept
        same = next((t for t in tried if (t.launcher, t.grid) == (last.launcher, last.grid)), None)
        if same is None or not any(_other(same, last, label) for label in same.after):
            return
        loads, adds, stores = _accessed(last)
        findings: list[Finding] = []
        for label, before in same.before.items():
            found, only_adds = _NAME.search(label), label in adds.keys() - loads.keys() - stores.keys()
            if found is None or label not in loads | adds or np.array_equal(before, last.before[label]):
                continue
            if adds and last.threads > 1 and not (only_adds and _other(same, last, label)):
                continue  # in which order several threads add, luck decides
            count, mend = sum(bool(t.changed(label).any()) for t in tried), "reset_to_zero" if only_adds else "restore_value"
            said = f"{last.launcher.function.name} reads what its own trials wrote (argument {found[1]}, {found[2]}): "
            said += f"{number(count, 'trial')} changed it; give {mend}=['{found[2]}']"
            findings.append(finding(AUTOTUNE_IN_PLACE, (adds | loads)[label], said, label))
        driver = last.launcher.driver or current()
        if findings and driver.settings.sanitize:
            driver.tell(last.launcher.function, tuple(findings), launches=0)
        for each in findings if not driver.settings.sanitize else ():
            warnings.warn(f"{each.rule}: {each.message}", RuntimeWarning, stacklevel=4)


def _other(same: Trial, last: Trial, label: str) -> bool:
    """Whether bytes that a trial changed have other values after the launch of the same configuration."""
    changed = same.changed(label)
    return bool((last.after[label][changed] != same.after[label][changed]).any())


def _accessed(trial: Trial) -> tuple[dict[str, Instruction], ...]:
    """Labels of the parameters that a kernel loads or copies from, changes by atomic operations, and stores to, each with the
    first such instruction. An access of an unknown parameter is one of all.
    """
    from mmulator.isa.effects import MemoryEffect
    from mmulator.ptx.program.calls import reached
    from mmulator.ptx.program.provenance import pointers
    from mmulator.ptx.tree import Address, Reg

    launcher, kernel = trial.launcher, trial.launcher.function.kernel
    labels = {p.name: slot.label for p, slot in zip(launcher.function.params, launcher.packer.wanted)}
    known = pointers(kernel.function, {(name, 0): None for name in labels})
    found = {does: dict[str, Instruction]() for does in MemoryEffect}
    for ins in (i for f in reached(kernel.module.tree, kernel.function).functions.values() for i in f.instructions):
        places = [o.base for o in ins.operands if isinstance(o, Address)]  # the last is the source of a copy
        if places and ins.form["space"] in ("", "global"):
            of = known.get(places[-1].name) if isinstance(places[-1], Reg) else None
            for label in (label for name, label in labels.items() if of is None or of[0] == name):
                found[ins.effects.memory].setdefault(label, ins)
    loads = found[MemoryEffect.REDUCE] | found[MemoryEffect.COPY] | found[MemoryEffect.READ]
    return loads, found[MemoryEffect.ATOMIC], found[MemoryEffect.WRITE]


trials: ContextVar[Trials | None] = ContextVar("trials", default=None)  # of the call of an autotuner that is running


Times = float | list[float]


def counted() -> float:
    """Seconds of counted work so far, of all streams."""
    return sum(stream.seconds for stream in current().streams.values())


def measure(
    fn: Callable[[], Any], grad_to_none: Sequence[Any] | None = None, quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Times:  # fmt: skip
    """Milliseconds of one run of a function, in the form in which triton.testing.do_bench returns them. A function that launches
    nothing takes as long as an empty launch. Raises ValueError for a wrong quantile.
    """
    if return_mode not in ("min", "max", "mean", "median", "all"):
        raise ValueError(f"return_mode is {return_mode!r}, not min, max, mean, median or all")
    for x in grad_to_none or ():
        x.grad = None
    before = counted()
    fn()
    milliseconds = round(1e3 * max(counted() - before, LAUNCH), 9)  # sums of floats differ in the last digits
    if quantiles is not None:
        if not all(0 <= q <= 1 for q in quantiles):
            raise ValueError("Quantiles must be in the range [0, 1]")
        return milliseconds if len(quantiles) == 1 else [milliseconds] * len(quantiles)
    return [milliseconds] if return_mode == "all" else milliseconds


def warn_left_out(error: UnsupportedError) -> None:
    """Warn that a configuration which needs something unsupported is not chosen."""
    warnings.warn(f"a configuration is left out: {error.message}", RuntimeWarning, stacklevel=3)


def benchmark(fn: Callable[[], Any], *, quantiles: Sequence[float] | None = None, **_: Any) -> Times:
    """Time by which autotuners judge a configuration. One that needs something unsupported is slower than all others, with a
    warning.
    """
    token = measuring.set(_is_autotuners(fn))
    try:
        return measure(fn, quantiles=quantiles)
    except UnsupportedError as error:
        warn_left_out(error)
        return [float("inf")] * len(quantiles) if quantiles is not None and len(quantiles) > 1 else float("inf")
    finally:
        measuring.reset(token)


def _is_autotuners(fn: Callable[[], Any]) -> bool:
    """Whether a function is Triton's own, which launches one configuration; the one that is chosen runs once more."""
    return getattr(fn, "__qualname__", "") == "Autotuner._bench.<locals>.kernel_call"
