"""Answers of children, read as data that anybody may have written: of limited size, checked field by field.

And the files that a launch file names, which are kept from a source.

The file is open in the judge before the child starts, and no name leads to it: no link, pipe or device can take its place.
"""

import json
import math
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mmulator.base.location import printable

MOST_COMPILED = 256 << 20  # bytes: PTX
_MOST_ANSWERED = 256 << 20  # bytes: a report
_MOST_SCRATCH = 1 << 30

Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)


def _whole(low: int, high: int) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _many(check: Check, *counts: int) -> Check:
    return lambda value: isinstance(value, list) and (not counts or len(value) in counts) and all(map(check, value))


def _tolerance(value: Any) -> bool:
    return value is None or (isinstance(value, float) and 0 <= value < math.inf)


_MESSAGE: dict[str, Check] = {"message": _text}
_CUDA: dict[str, Check] = {"ptx": _text}
_TRITON: dict[str, Check] = {
    "ptx": _text, "entry": _text, "threads": _whole(1, 1024), "shared": _whole(0, 1 << 20), "params": _many(_text),
    "scratch": _many(_whole(0, _MOST_SCRATCH), 0, 1, 2), "cluster": _many(_whole(1, 16), 3),
    "cooperative": lambda value: isinstance(value, bool),
}  # fmt: skip
_FINDING: dict[str, Check] = dict.fromkeys(("rule", "severity", "message", "location"), _text)
_CERTIFICATE: dict[str, Check] = {"verdict": _text, "reasons": _many(lambda r: _fits(r, {"why": _text}))}
_CERTIFICATES: dict[str, Check] = {"verdict": _text, "open": _many(lambda c: _fits(c, _CERTIFICATE))}
_REFUSED: dict[str, Check] = {"why": _text, "handled": lambda value: isinstance(value, bool)}


_BOUND: dict[str, Check] = {"rtol": _tolerance, "atol": _tolerance, "unbounded": _whole(0, 1 << 62), "reason": _text}


def _fits(value: Any, fields: Mapping[str, Check]) -> bool:
    return isinstance(value, dict) and all(name in value and check(value[name]) for name, check in fields.items())


def _parsed(text: bytes) -> Any:
    """JSON as data; None for what is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _bytes(file: BinaryIO, start: int, size: int) -> bytes:
    return os.pread(file.fileno(), size, start)


def compiled(file: BinaryIO, triton: bool, names: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer of a compiler: `message`, or a kernel. None if it is neither.

    file: that it wrote.
    triton: whether the source is Triton's.
    names: the arguments by name, of which parameters have theirs.
    """
    if os.fstat(file.fileno()).st_size > MOST_COMPILED:
        return None
    made = _parsed(_bytes(file, 0, MOST_COMPILED))
    if _fits(made, _MESSAGE):
        return {"message": "\n".join(map(printable, made["message"][:4000].split("\n")))}
    fields = _TRITON if triton else _CUDA
    if not _fits(made, fields):
        return None
    if triton and (len(set(made["params"])) < len(made["params"]) or not set(made["params"]) <= set(names)):
        return None
    return {name: made[name] for name in fields}


def program(file: BinaryIO) -> dict[str, Any]:
    """The report of a program, which the program itself may have written; empty if it is none."""
    said = _parsed(_bytes(file, 0, _MOST_ANSWERED))
    fields = {"exit_code": _whole(-(1 << 31), 1 << 31), "findings": _many(lambda f: _fits(f, _FINDING)),
              "kernels": _many(lambda k: isinstance(k, dict))}  # fmt: skip
    if not _fits(said, fields) or not _many(lambda r: _fits(r, _REFUSED))(said.get("refused", [])):
        return {}
    if "certificates" in said and not _fits(said["certificates"], _CERTIFICATES):
        return {}
    return dict(said)


def answered(
    file: BinaryIO, arrays: Mapping[str, np.ndarray], names: list[str], runs: int
) -> tuple[dict[str, Any], list[dict[str, np.ndarray]]] | None:
    """The answer of the process that ran a kernel, and the outputs of each run; None if it ended before it said all.

    file: that it wrote.
    arrays: the arguments, of which outputs have types and shapes.
    names: the outputs, in order.
    runs: how many there should be.
    """
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(_bytes(file, size - 8, 8), "little") if size >= 8 else 0
    if not 0 < length <= min(size - 8, _MOST_ANSWERED):
        return None
    said = _parsed(_bytes(file, size - 8 - length, length))
    if not isinstance(said, dict):
        return None
    found: list[dict[str, np.ndarray]] = []
    file.seek(0)
    for _ in range(0 if "error" in said else runs):
        found.append({})
        for name in names:
            like = arrays[name]
            raw = file.read(like.nbytes)
            if len(raw) != like.nbytes:
                return None
            found[-1][name] = np.frombuffer(raw, like.dtype).reshape(like.shape)
    return said, found


def bounds(found: Any, names: list[str]) -> dict[str, dict[str, Any]]:
    """The tolerances that a child found for outputs; of what is none, that nothing is known."""
    rows = found if isinstance(found, dict) else {}
    empty = {"rtol": None, "atol": None, "unbounded": 0, "reason": "nothing was handed over"}
    return {n: {k: rows[n].get(k) for k in empty} if _fits(rows[n], _BOUND) else empty for n in names if n in rows}


def files_named(path: Path) -> list[Path]:
    """The files that a launch file names, of arrays and kernels. path: of one that load_job has read."""
    found, waiting = [], [tomllib.loads(path.read_text())]
    while waiting:
        value: Any = waiting.pop()
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if isinstance(value, str):
            name, key, _ = value.partition(".npz:")
            found += [place for place in [path.parent / (name + (".npz" if key else ""))] if place.is_file()]
    return found
