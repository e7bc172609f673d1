"""Readers of settings: each makes a value of a text, or raises ValueError, which says what the text should be."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def whole(least: int | None = None, most: int | None = None) -> Callable[[str], int]:
    """A reader of whole numbers."""
    said = "a whole number" + ("" if least is None else f" from {least} on" if most is None else f" from {least} to {most}")

    def read(text: str) -> int:
        digits = text.removeprefix("-") if least is None else text
        if digits.isascii() and digits.isdigit() and len(digits) < 20:
            value = int(text)
            if (least is None or least <= value) and (most is None or value <= most):
                return value
        raise ValueError(said)

    return read


def order(text: str) -> int | tuple[int, ...]:
    """A seed, or with a comma threads in the order of their turns."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1 and parts[-1] == "":
        parts.pop()
    if not all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts):
        raise ValueError("a whole number from 0 on, or several with commas between them")
    return tuple(map(int, parts)) if "," in text else int(parts[0])


def decimal(least: float | None = None, said: str = "a number") -> Callable[[str], float]:
    """A reader of numbers. said: what they are."""

    def read(text: str) -> float:
        with suppress(ValueError):
            if least is None or float(text) >= least:
                return float(text)
        raise ValueError(said)

    return read


def one_of(said: str, values: Mapping[str, Any]) -> Callable[[str], Any]:
    """A reader of a few words. said: what they mean. values: theirs, by word."""

    def read(text: str) -> Any:
        if text not in values:
            raise ValueError(said)
        return values[text]

    return read


def ending(said: str, *suffixes: str, also: str = "") -> Callable[[str], str]:
    """A reader of names of files. said: what they are. suffixes: theirs. also: other texts, apart by blanks; 0 is no file."""

    def read(text: str) -> str:
        if text not in also.split() and Path(text).suffix not in suffixes:
            raise ValueError(said)
        return "" if text == "0" else text

    return read


def device(text: str) -> str:
    """The device of this name, or of a chip with this name. Raises UnsupportedError."""
    from mmulator.isa.chips import as_device

    return as_device(text)


def rules(text: str) -> str:
    """A choice of rules, as `races,wgmma-*`."""
    from mmulator.base.rules.choice import chosen

    try:
        chosen(text)
    except ValueError as error:
        raise ValueError(f"a choice of rules: {error}") from None
    return text


def why(text: str) -> str:
    """Elements whose values are explained, apart by `;`. Raises LaunchError for what is no element."""
    from mmulator.host import entries

    for part in text.split(";"):
        if part.strip() not in ("", entries.AUTO):
            entries.question(part)
    return text


def why_of_a_test(text: str) -> str:
    """Elements as pytest has them, where a word may be a file of tests. Raises LaunchError."""
    from mmulator.base.errors import LaunchError

    try:
        return why(text)
    except LaunchError:
        if Path(text.partition("::")[0]).exists():
            raise ValueError("an element, but a file: write --why auto, or --why as the last word") from None
        raise


def against(text: str) -> str:
    """A device, a seed or `reference`. Raises UnsupportedError for an unknown device."""
    return text if text.isdigit() or text == "reference" else device(text)


def seed_of_tests(text: str) -> int | str:
    """A seed, or `random`."""
    if text != "random" and not text.isdigit():
        raise ValueError("a whole number from 0 on, or `random`")
    return text if text == "random" else int(text)


def debug(text: str) -> str:
    """The debugger as `mmulator debug` describes it, in JSON."""
    from json import loads

    said = loads(text)
    if not isinstance(said, dict) or said.get("front") not in ("terminal", "dap"):
        raise ValueError("what `mmulator debug` sets: JSON with a front end, terminal or dap")
    return text
