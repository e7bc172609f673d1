"""Examples of the rules, right and wrong: lines from kernels of the sanitizer's tests, and the edits that break them."""

import json
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("examples.json")  # made by tools/pages/rules.py


@dataclass(frozen=True)
class Example:
    """Lines of PTX that obey a rule and lines that break it; `...` stands for omitted lines."""

    right: tuple[str, ...]
    wrong: tuple[str, ...]


def example(rule: str) -> Example | None:
    """The example of a rule, by the rule's name; None if there is no example yet."""
    found = json.loads(_FILE.read_text()).get(rule)
    return Example(tuple(found["right"]), tuple(found["wrong"])) if found else None
