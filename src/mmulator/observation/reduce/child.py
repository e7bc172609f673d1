"""The search in a process of its own: a launch that ends its process ends no search, and Ctrl-C keeps what was found."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from mmulator.base.errors import MmulatorError
from mmulator.observation.reduce.launches import ReducedLaunch, ReductionRequest, reduced, sizes

MOST = 16  # processes that launches may end
Told = Callable[[dict[str, int | str], int], None]


def _work(pipe: Connection, wanted: ReductionRequest, avoided: frozenset[int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which tells both processes

    def begins(mark: int) -> bool:
        pipe.send(("begins", mark))
        return mark not in avoided

    try:
        pipe.send(("done", reduced(wanted, lambda r: pipe.send(("smaller", sizes(r.job, r.lines), r.trial.tries)), begins)))
    except MmulatorError as error:
        place = f"{error.span}: " if error.span else ""
        pipe.send(("error", error.kind, place + error.message, error.hint, error.rule, error.code))


def reduced_apart(wanted: ReductionRequest, told: Told = lambda *_: None) -> ReducedLaunch:
    """`reduced` in a child. told: is called with the sizes of each smaller launch, and how many were tried.

    Raises what `reduced` does, MmulatorError where launches end the child again and again, and KeyboardInterrupt.
    """
    avoided: set[int] = set()
    while True:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(target=_work, args=(theirs, wanted, frozenset(avoided)), daemon=True)
        child.start()
        theirs.close()
        last: Any = None
        try:
            while True:
                kind, *rest = ours.recv()
                if kind == "begins":
                    last = rest[0]
                elif kind == "smaller":
                    told(*rest)
                elif kind == "done":
                    return rest[0]
                else:
                    error = MmulatorError(rest[1], hint=rest[2], rule=rest[3])
                    error.kind, error.code = rest[0], rest[4]
                    raise error
        except EOFError:
            child.join()
        finally:
            child.terminate()
        if last is None or last in avoided or len(avoided) >= MOST:
            raise MmulatorError(f"the launch ends its process (exit code {child.exitcode}): it cannot be made small") from None
        avoided.add(last)
