"""A pytest plug-in (`-p evidence.suites.outcomes`) for suites that others wrote: chooses cases, writes what became of each.

What it reads is in the environment, so that it reaches processes that pytest starts:
SUITE_OUT: a file, to which one JSON line a case is added: id, outcome, seconds, message, error.
SUITE_SAMPLE: as many cases of each test function, chosen by a hash of their names, or with SUITE_SMALL=1 those whose names
have the smallest numbers. SUITE_SHARD: `i/n`, one part of n.
SUITE_TIMEOUT: seconds of a case.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

LONGEST = 1500  # characters of a message that are kept


class TimeIsUp(BaseException):
    """A case took longer than SUITE_TIMEOUT. No suite catches it."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    limit = int(os.environ.get("SUITE_TIMEOUT") or 0)

    def stop(number: int, frame: Any) -> None:
        raise TimeIsUp(f"the case took longer than {limit} seconds")

    before = signal.signal(signal.SIGALRM, stop) if limit else None
    signal.alarm(limit)
    try:
        yield
    finally:
        signal.alarm(0)
        if limit:
            signal.signal(signal.SIGALRM, before)


def number(name: str) -> int:
    """The same for a name on every machine, and as good as random."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def size(name: str) -> tuple[int, int]:
    """Of a case whose parameters are sizes: the product of the whole numbers among them, then `number`."""
    parameters = re.sub(r"\d+(\.\d+)?e-?\d+|b?float\d+|dtype\d+", "", name.partition("[")[2])
    whole = re.findall(r"(?<![\w.])[A-Za-z_]*(\d+)(?![\w.])", parameters)
    return math.prod(max(1, int(n)) for n in whole), number(name)


def chosen(names: list[str], sample: int | None = None, shard: tuple[int, int] = (0, 1), small: bool = False) -> list[bool]:
    """Which of these cases are run. sample: of each function, by a hash, or the small ones. shard: (i, n), i from 0 on."""
    functions: dict[str, list[str]] = defaultdict(list)
    for name in names:
        functions[name.partition("[")[0]].append(name)
    order: Callable[[str], Any] = size if small else number
    taken = {name for cases in functions.values() for name in sorted(cases, key=order)[:sample]}
    part, parts = shard
    return [name in taken and number(name) % parts == part for name in names]


def _shard(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    return int(part), int(parts)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    sample = os.environ.get("SUITE_SAMPLE")
    shard = _shard(os.environ.get("SUITE_SHARD") or "0/1")
    small = bool(os.environ.get("SUITE_SMALL"))
    keep = chosen([item.nodeid for item in items], int(sample) if sample else None, shard, small)
    dropped = [item for item, kept in zip(items, keep) if not kept]
    items[:] = [item for item, kept in zip(items, keep) if kept]
    if dropped:
        config.hook.pytest_deselected(items=dropped)


def text_of(longrepr: Any) -> tuple[str, str]:
    """(message, where) of a report's long representation."""
    if isinstance(longrepr, tuple):
        return str(longrepr[2]), f"{longrepr[0]}:{longrepr[1]}"
    crash = getattr(longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message), f"{crash.path}:{crash.lineno}"
    return str(longrepr or "")[-LONGEST:], ""


def line(report: Any) -> dict[str, Any] | None:
    """What is written of a phase of a case, if anything is."""
    expected = hasattr(report, "wasxfail")
    if report.when != "call" and report.outcome == "passed":
        return None
    outcome = {"passed": "passed", "skipped": "skipped", "failed": "failed"}[report.outcome]
    if expected:
        outcome = "xfailed" if report.outcome == "skipped" else "xpassed"
    message, where = text_of(report.longrepr) if report.outcome != "passed" or expected else ("", "")
    if expected:
        message = f"{report.wasxfail} | {message}"
    return {
        "id": report.nodeid, "outcome": outcome, "when": report.when, "seconds": round(report.duration, 3),
        "message": message[:LONGEST], "where": where,
    }  # fmt: skip


class Recorder:
    """Only where the reports come together: not in pytest-xdist's workers."""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._write(line(report))

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome == "failed":
            message, where = text_of(report.longrepr)
            self._write({
                "id": report.nodeid, "outcome": "failed", "when": "collect", "seconds": 0.0,
                "message": message[-LONGEST:], "where": where,
            })  # fmt: skip

    def _write(self, found: dict[str, Any] | None) -> None:
        if found is not None:
            with Path(os.environ["SUITE_OUT"]).open("a") as out:
                out.write(json.dumps(found) + "\n")


def pytest_configure(config: Any) -> None:
    if os.environ.get("SUITE_OUT") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())
