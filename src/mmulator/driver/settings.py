"""Settings of launches, from the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mmulator.errors import LaunchError, UnsupportedError
from mmulator.isa.chips import as_device
from mmulator.rules.choice import chosen

PREFIX = "MMULATOR_"
REPORT, STRICT, RAISE = "report", "strict", "raise"  # of `sanitize`


def _device(text: str) -> str:
    try:
        return as_device(text)
    except UnsupportedError as error:
        raise ValueError(error.hint) from None


def _natural(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise ValueError("a whole number from 1 on")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdigit():
        raise ValueError("a whole number from 0 on")
    return int(text)


def _autotune(text: str) -> str:
    if text not in ("measure", "first"):
        raise ValueError("measure, or first for the first configuration")
    return text


def _seconds(text: str) -> float | None:
    number = float(text)
    if not number >= 0:
        raise ValueError("seconds, 0 for no limit")
    return number or None


def _report(text: str) -> str:
    if text in ("0", "1") or Path(text).suffix in (".jsonl", ".json"):
        return "" if text == "0" else text
    raise ValueError("1 for lines on standard error, 0 for none, or a file that ends in .jsonl")


def _sanitize(text: str) -> str:
    if text not in _SANITIZE:
        raise ValueError("1 to say what is found, strict for notes too, raise for an error at the launch, 0 for neither")
    return _SANITIZE[text]


def _progress(text: str) -> str:
    if text not in ("auto", "always", "never"):
        raise ValueError("auto for a bar on a terminal, always, or never")
    return text


def _keep_going(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("1 to go on after an access out of bounds, 0 to end the launch there")
    return text == "1"


def _profile(text: str) -> str:
    if text in ("0", "1") or Path(text).suffix in (".json", ".html", ".info", ".txt"):
        return "" if text == "0" else text
    raise ValueError("1 for text on standard error, 0 for none, or a file that ends in .html, .json, .txt, or .info for lcov")


def _trace(text: str) -> str:
    if Path(text).suffix != ".json":
        raise ValueError("a file that ends in .json")
    return text


def _rules(text: str) -> str:
    chosen(text)
    return text


def _why_to(text: str) -> str:
    if Path(text).suffix != ".html":
        raise ValueError("a file that ends in .html")
    return text


def _why_against(text: str) -> str:
    return text if text.isdigit() or text == "reference" else as_device(text)


def _debug(text: str) -> str:
    from json import loads

    said = loads(text)
    if not isinstance(said, dict) or said.get("front") not in ("terminal", "dap"):
        raise ValueError("what `mmulator debug` sets: JSON with a front end, terminal or dap")
    return text


def _why(text: str) -> str:
    from mmulator.record.asked import AUTO, question

    for part in text.split(";"):
        if part.strip() not in ("", AUTO):
            question(part)
    return text


_SANITIZE = {"0": "", "1": REPORT, "report": REPORT, "strict": STRICT, "raise": RAISE}


@dataclass(frozen=True)
class Settings:
    """device: the chip that stands there, and whose arithmetic it has. seed: of the scheduler's choices. seeds: under how many
    each kernel is launched, from `seed` on. timeout: seconds that a launch may take. threads: of the host. report: "" for none,
    "1" for a few lines a kernel on standard error, else a file for lines of JSON (report.py). autotune: `measure` by counted
    work, or take the `first` configuration. sanitize: "" for no, "report" to say what undefined behaviour is found, "strict"
    with rules of severity note, "raise" to raise it at the launch. rules: what is looked for (rules/choice.py), "" for all.
    progress: of launches that take long is told how far they are: `auto` on a terminal, `always`, `never`.
    keep_going: an access out of bounds or misaligned is a finding, and the launch goes on; includes `sanitize`.
    trace: "" for none, else a file for what happened when.
    profile: "" for none, "1" for a table of each kernel's lines on standard error as the process ends, else a file for it.
    capture, capture_to: `KERNEL:N`, a launch that is written as files, and their folder (captured.py). record: a file for what
    launches were given and left. replay: such a file, with which launches are compared (recorded.py).
    why: elements whose values are explained (record/asked.py), apart by `;`. why_depth: how many instructions an explanation has
    behind each other. why_against: "", or a device or a seed with which they are compared. why_to: "", or a file for them.
    debug: "", or the debugger that launches come under, as JSON (debug/program.py)."""

    device: str = "sm_90"
    seed: int = 0
    seeds: int = 1
    timeout: float | None = None
    threads: int | None = None
    report: str = ""
    autotune: str = "measure"
    sanitize: str = ""
    rules: str = ""
    progress: str = "auto"
    keep_going: bool = False
    why: str = ""
    why_depth: int = 6
    why_against: str = ""
    why_to: str = ""
    profile: str = ""
    trace: str = ""
    capture: str = ""
    capture_to: str = "capture"
    record: str = ""
    replay: str = ""
    debug: str = ""

    @property
    def looks(self) -> bool:
        """Whether it is noted what launches are given, and what they leave."""
        return bool(self.capture or self.record or self.replay or self.keeps)

    @property
    def only_runs(self) -> bool:
        """Whether nothing is looked for in launches, noted or told, but what they executed."""
        asks = self.sanitize or self.profile or self.trace or self.why or self.debug or self.looks
        return not asks and self.seeds == 1

    @property
    def asked(self) -> tuple[str, int, str, str]:
        """Settings of questions why elements have their values."""
        return self.why, self.why_depth, self.why_to, self.why_against

    @property
    def keeps(self) -> bool:
        """Whether launches are kept, to explain what a comparison rejects."""
        return "auto" in self.why.split(";")

    def __post_init__(self) -> None:
        """A chip's name stands for its device. Raises UnsupportedError for one that is not known."""
        object.__setattr__(self, "device", as_device(self.device))
        if self.keep_going and not self.sanitize:
            object.__setattr__(self, "sanitize", REPORT)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """MMULATOR_DEVICE, MMULATOR_SEED and so on. Raises LaunchError for a value that is none."""
        found: dict[str, Any] = {}
        for field in fields(cls):
            text = environment.get(name := PREFIX + field.name.upper(), "")
            if not text:
                continue
            try:
                found[field.name] = _READ[field.name](text)
            except ValueError as error:
                raise LaunchError(f"{name} is {text!r}", hint=str(error)) from None
        return cls(**found)


_READ: dict[str, Callable[[str], Any]] = {
    "device": _device, "seed": _seed, "seeds": _natural, "timeout": _seconds, "threads": _natural, "report": _report,
    "autotune": _autotune, "sanitize": _sanitize, "rules": _rules, "keep_going": _keep_going,
    "progress": _progress, "profile": _profile, "trace": _trace, "why": _why, "why_depth": _natural,
    "why_against": _why_against, "why_to": _why_to,
    "capture": str, "capture_to": str, "record": str, "replay": str, "debug": _debug,
}  # fmt: skip
