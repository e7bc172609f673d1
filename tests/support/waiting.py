"""Waiting for a state, not for a time: on a loaded machine seconds say nothing."""

import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 600  # seconds after which a test gives up: whatever it waits for never comes


def wait_until(holds: Callable[[], object], what: str = "what is waited for") -> None:
    """Wait until a function says so. what: words for the test's failure, if that never comes."""
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, f"{what} has not come"
        time.sleep(0.005)


def processor_seconds(process: int) -> float:
    """Seconds of a processor that a process has used."""
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def wait_for_work(process: int, seconds: float) -> None:
    """Wait until a process has used so many more seconds of a processor: then it runs what it was given."""
    begun = processor_seconds(process)
    wait_until(lambda: processor_seconds(process) >= begun + seconds, f"{seconds} s of work")
