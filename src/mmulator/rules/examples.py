"""An example of each rule, right and wrong: kernels of the sanitizer's tests and the lines that break them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("examples.json")  # made by tools/pages/rules.py


@dataclass(frozen=True)
class Example:
    """Lines of PTX, as they are right, and as they break the rule; `...` stands for lines left out."""

    right: tuple[str, ...]
    wrong: tuple[str, ...]


def example(rule: str) -> Example | None:
    """Of a rule; None if there is none yet."""
    found = json.loads(_FILE.read_text()).get(rule)
    return Example(tuple(found["right"]), tuple(found["wrong"])) if found else None
