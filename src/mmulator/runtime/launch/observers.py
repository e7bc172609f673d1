"""Observers of a launch hear what instruments see while the kernel runs. Several observers of one launch do not disturb each
other, since each has fields of its own in the structs of native code (docs/developers/native-code.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mmulator.base.codegen.locks import no_fork
from mmulator.base.errors import ExecutionFault

if TYPE_CHECKING:  # a launch of a kernel that is in the cache needs no code generator
    from mmulator.base.codegen.lang import Instrument


class Observer:
    """An observer of one launch. `grid`, `resident` and `ran` are a Grid, a Resident and a Ran, which know this file.

    calls: native functions of the instrument call Python.
    alone: the launch has one thread of the host, unless it says how many.
    ordered: it has one, whatever it says, since what is seen depends on the order of clusters.
    apart: the worker comes back to Python when a cluster ends.
    turns: it gives turns, which the kernel is compiled for (CompileOptions.turns).
    """

    calls = alone = ordered = apart = turns = False

    @property
    def instrument(self) -> Instrument:
        """Events that the kernel is compiled for (CompileOptions.events)."""
        raise NotImplementedError

    def begin(self, grid: Any) -> None:
        """Before the launch runs: give native code the memory that it needs. Another launch may have left the grid."""

    def run_by(self, workers: Any) -> None:
        """Before the launch runs: the Workers that run it."""

    def attach(self, resident: Any) -> None:
        """Before a cluster runs in it: prepare the memory of a cluster."""

    def take(self, resident: Any, worker: int) -> None:
        """A worker goes on with a cluster: give the cluster the worker's log."""

    def settle(self, cluster: int) -> None:
        """A worker leaves the cluster at this address alone, for now or for good."""

    def stalled(self, residents: Sequence[Any], over: int) -> bool:
        """Whether nothing can change in these clusters any more, which are all but the `over` that ended."""
        return False

    def stopped(self, error: ExecutionFault, residents: Sequence[Any]) -> None:
        """A fault or a deadlock ends the run, in these clusters."""

    def failed(self, fault: ExecutionFault) -> None:
        """The run has ended in a fault: add to it what was seen until then."""

    def tell(self, ran: Any, grid: Any) -> None:
        """The run is over: write what was seen into the answer."""


class CallingObserver(Observer):
    """An observer whose functions native code calls. ctypes has no way for exceptions: what one of them raises interrupts the
    launch, which raises it; after that none is called any more.
    """

    calls = True
    error: BaseException | None = None
    grid: Any

    def guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """A function for ctypes that calls another one."""

        def call(*args: Any) -> None:
            if self.error is None:
                try:
                    function(*args)
                except BaseException as error:
                    self.error = error
                    self.grid.stop[0] = 1

        return call

    def settle(self, cluster: int) -> None:
        if self.error is not None:
            raise self.error

    def failed(self, fault: ExecutionFault) -> None:
        self.settle(0)


@lru_cache(maxsize=64)
def _together(instruments: tuple[Instrument, ...]) -> Instrument:
    with no_fork:
        from mmulator.base.codegen.chains import together
    return together(instruments)


def instrument_of(observers: Sequence[Observer]) -> Instrument | None:
    """One instrument for all observers of a launch; None if nobody observes."""
    if len(observers) < 2:
        return observers[0].instrument if observers else None
    return _together(tuple(o.instrument for o in observers))
