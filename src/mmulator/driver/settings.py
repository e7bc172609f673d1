"""What the environment says of launches that no line of the program speaks of."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mmulator.errors import LaunchError
from mmulator.isa.targets import DEVICES
from mmulator.rules.choice import chosen

PREFIX = "MMULATOR_"
REPORT, STRICT, RAISE = "report", "strict", "raise"  # of `sanitize`


def _device(text: str) -> str:
    if text not in DEVICES:
        raise ValueError(f"the devices are {', '.join(DEVICES)}")
    return text


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


def _rules(text: str) -> str:
    chosen(text)
    return text


_SANITIZE = {"0": "", "1": REPORT, "report": REPORT, "strict": STRICT, "raise": RAISE}


@dataclass(frozen=True)
class Settings:
    """device: the chip that stands there, and whose arithmetic it has. seed: of the scheduler's choices. seeds: under how many
    each kernel is launched, from `seed` on. timeout: seconds that a launch may take. threads: of the host. report: "" for none,
    "1" for a few lines a kernel on standard error, else a file for lines of JSON (report.py). autotune: `measure` by counted
    work, or take the `first` configuration. sanitize: "" for no, "report" to say what undefined behaviour is found, "strict"
    with rules of severity note, "raise" to raise it at the launch. rules: what is looked for (rules/choice.py), "" for all."""

    device: str = "sm_90"
    seed: int = 0
    seeds: int = 1
    timeout: float | None = None
    threads: int | None = None
    report: str = ""
    autotune: str = "measure"
    sanitize: str = ""
    rules: str = ""

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
    "autotune": _autotune, "sanitize": _sanitize, "rules": _rules,
}  # fmt: skip
