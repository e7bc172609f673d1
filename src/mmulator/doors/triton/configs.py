"""Configurations of an autotuner that have one result: its trials, each compared with those before it."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mmulator.base.errors import MmulatorError
from mmulator.base.refusals import number
from mmulator.base.schemas import document
from mmulator.host.driver import Region, current
from mmulator.host.driver.inquiries import say
from mmulator.isa.types import TYPES
from mmulator.observation.record.names import DeviceArray
from mmulator.ptx.symbols import Parameter
from mmulator.runtime.launch.arena import bytes_at

_WORD = 8  # bytes, of the largest elements
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # of a configuration, besides constants


@dataclass
class Trial:
    """One launch of a Launcher.

    before, after: the bytes of its arguments, by their labels.
    values, params: its arguments as Triton passes them, and as bytes. arrays: those among them.
    """

    launcher: Any
    grid: tuple[int, int, int]
    before: dict[str, np.ndarray]
    after: dict[str, np.ndarray]
    threads: int
    regions: Sequence[Region] = ()
    values: Sequence[Any] = ()
    params: bytes = b""
    arrays: Sequence[DeviceArray] = ()

    def changed(self, label: str) -> np.ndarray:
        """Bytes of an argument that the trial changed, with those beside them: of a new value some bytes may be as before."""
        found = self.before[label] != self.after[label]
        words = np.pad(found, (0, -len(found) % _WORD)).reshape(-1, _WORD).any(axis=1)
        return np.repeat(words, _WORD)[: len(found)]


@dataclass(frozen=True)
class ConfigResult:
    """A configuration among those of one call.

    config: its constants and options.
    result: number of its result, from 1; configurations with the same bits have one number.
    grade: what it has in common with result 1, as `mm.same` says it.
    said: why, and where they part; "" of the same bits.
    """

    config: Mapping[str, Any]
    result: int
    grade: str
    said: str = ""

    def __str__(self) -> str:
        config = ", ".join(f"{name}={value}" for name, value in self.config.items())
        return f"result {self.result}: {config}: {self.grade}" + (f" ({self.said})" if self.said else "")


def same_configs(trials: Sequence[Trial]) -> list[ConfigResult]:
    """The results of trials of one kernel, one for each configuration. Memory is afterwards as it was."""
    from mmulator.observation.same.comparison import SAME, UNDECIDED, same

    first: list[tuple[Trial, int]] = []  # of each result
    found: list[ConfigResult] = []
    kept: dict[int, Trial] = {}
    for trial in trials:
        kept.setdefault(id(trial.launcher), trial)
    for trial in kept.values():
        given, grade, said = _given(trial), SAME, ""
        for other, result in first:
            theirs = _given(other)
            kernels = other.launcher.function.kernel, trial.launcher.function.kernel
            try:
                answer = same(*kernels, **theirs, device=_driver(other).device.name, launch_b=given)
                now = answer.grade, answer.reason or " and ".join(filter(None, answer.lines))
            except MmulatorError as error:
                now = UNDECIDED, error.message
            if result == 1 or now[0] == SAME:
                grade, said = (found[result - 1].grade, found[result - 1].said) if result > 1 else now
            if now[0] == SAME:
                break
        else:
            first.append((trial, result := len(first) + 1))
        found.append(ConfigResult(_config(trial), result, grade, said))
    return _apart(found)


def tell(trials: Sequence[Trial], wanted: str) -> None:
    """Compare trials and say what they have in common. wanted: `-` for text on standard error, or a file for a line of JSON."""
    kept = [(r, live, live.copy(), t) for t in trials for r in t.regions for live in [bytes_at(r.host, r.size)]]
    try:
        for region, live, _, trial in kept:
            if region.label in trial.before and trial is trials[0]:
                live[:] = trial.before[region.label]
        results = same_configs(trials)
    finally:
        for _, live, now, _ in kept:
            live[:] = now
    name, count = trials[0].launcher.function.name, max(r.result for r in results)
    if wanted in ("-", "1"):
        say(f"mmulator: {name} has {number(count, 'result')} of {number(len(results), 'configuration')}")
        for each in results:
            say(f"  {each}")
        return
    rows = [{"config": dict(r.config), "result": r.result, "grade": r.grade, "said": r.said} for r in results]
    with Path(wanted).open("a", encoding="utf-8") as file:
        data = document("same-configs", {"kernel": name, "results": count, "configs": rows})
        file.write(json.dumps(data, default=str) + "\n")


def _driver(trial: Trial) -> Any:
    return trial.launcher.driver or current()


def _given(trial: Trial) -> dict[str, Any]:
    """The launch of a trial as `mm.same` takes it: numbers for arguments, and memory where it is."""
    function = trial.launcher.function
    args = [_value(p, trial.params[at : at + p.size]) for p, at in zip(function.params, function.offsets)]
    known = {a.start: a for a in trial.arrays}
    memory = []
    for r in trial.regions:
        data, array = bytes_at(r.host, r.size), known.get(r.start)
        dtype = array.dtype if array is not None else None
        owner = data.view(dtype) if dtype is not None and not r.size % dtype.itemsize else data
        memory.append(replace(r, label=array.name if array is not None else r.label, owner=owner))
    of = trial.launcher
    return {"grid": trial.grid, "block": of.block, "shared": of.shared, "cluster": of.cluster, "args": args, "memory": memory}


def _value(p: Parameter, data: bytes) -> Any:
    if p.shape:
        return np.frombuffer(data, np.uint8)
    if p.type in TYPES and TYPES[p.type].kind == "float":
        return np.frombuffer(data, f"<f{len(data)}")[0]
    return struct.unpack(f"<{'BHIQ'[len(data).bit_length() - 1]}", data)[0]


def _config(trial: Trial) -> dict[str, Any]:
    """Constants and options of a trial."""
    types, values = trial.launcher.types, trial.values
    constants = {name: value for (name, kind), value in zip(types.items(), values) if kind == "constexpr"}
    options = {name: getattr(trial.launcher.metadata, name, None) for name in OPTIONS}
    return constants | {name: value for name, value in options.items() if value is not None}


def _apart(results: list[ConfigResult]) -> list[ConfigResult]:
    """The results with what tells their configurations apart."""
    every = {name: {str(r.config.get(name)) for r in results} for r in results for name in r.config}
    names = [name for name, values in every.items() if len(values) > 1]
    return [replace(r, config={n: r.config[n] for n in names if n in r.config} or r.config) for r in results]
