"""`pytest --mmulator --mutate`: each test that passes is run again with changed kernels, and what it does not notice is told.

A test is run again in this process, with its fixtures of wider scope; launches in other processes are not changed.
"""

import json
import signal
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from mmulator.base.errors import MmulatorError
from mmulator.base.files import write
from mmulator.base.refusals import register
from mmulator.base.schemas import document
from mmulator.host.driver import current
from mmulator.host.instead import Instead, instead
from mmulator.observation.strictness.search import InputSearch
from mmulator.observation.strictness.trial import (
    EQUIVALENT,
    NOT_RUN,
    NOTICED,
    SURVIVED,
    UNDECIDED,
    Forged,
    Key,
    MutantOutcome,
    Mutated,
    TestedKernel,
    Watch,
    equivalent,
    forgeries,
)
from mmulator.ptx.program.mutants import KINDS

WEAK = 3  # the exit code if a test lets a mutant pass that an input tells from the original
MORE = 10.0  # seconds that a run of a test may take besides ten times what it took unchanged
TOLD = 12  # places of a test that are told of each state; JSON has all
SEARCH = 0.3  # share of the time of a test for the search for inputs


@dataclass
class _Tested:
    """A test. unchanged: seconds that it takes. kernels: those that it launches. why: why it has none, or was not run."""

    name: str
    unchanged: float = 0.0
    kernels: dict[Key, TestedKernel] = field(default_factory=dict)
    why: str = ""


class Mutation:
    """The plug-in that runs with --mutate."""

    def __init__(self, config: pytest.Config, tests: Any) -> None:
        self.tests, self.seconds = tests, float(config.option.mmulator_mutate_seconds or 60.0)
        self.file, self.found = config.option.mmulator_mutate_to, list[_Tested]()
        self.stopped = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test, then its mutants, then tear down what the next test does not need."""
        begun, watch, tested = time.monotonic(), Watch(), _Tested(item.nodeid)
        parents = item.listchain()[:-1]
        again: Any = types.SimpleNamespace(listchain=lambda: parents, nodeid="", config=item.config)  # their fixtures stay
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        try:
            with instead(watch):
                reports = runtestprotocol(item, nextitem=again)
            tested.unchanged, tested.kernels = time.monotonic() - begun, watch.kernels
            self.found.append(tested)
            if not any(r.when == "call" and r.passed for r in reports) or any(r.failed for r in reports):
                tested.why = "it does not pass unchanged"
            elif not watch.kernels:
                tested.why = "it launches no kernel in this process"
            elif not self.stopped:
                with aside(self.tests):
                    self._try(item, again, tested)
        except KeyboardInterrupt:
            self.stopped = True
            raise
        finally:
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            item.session._setupstate.teardown_exact(nextitem)
        return True

    def _try(self, item: pytest.Item, again: Any, tested: _Tested) -> None:
        until = time.monotonic() + self.seconds
        for number, (key, seen) in enumerate(tested.kernels.items()):
            mine = time.monotonic() + (until - time.monotonic()) / (len(tested.kernels) - number)
            for name in forgeries():
                if not self._run(item, again, tested, Forged(seen, key, name)):
                    seen.passes.append(name)
            if "stores random bytes" in seen.passes and seen.launches > 1:
                seen.alike = bool(self._run(item, again, tested, Forged(seen, key, "stores random bytes", first=True)))
            self._mutants(item, again, tested, key, seen, mine)

    def _mutants(
        self, item: pytest.Item, again: Any, tested: _Tested, key: Key, seen: TestedKernel, until: float
    ) -> None:
        """Run the test with each mutant of a kernel, then look for inputs that tell those apart which it did not notice.

        item, again: the test, and what stands for the one behind it.
        tested: what is known of it.
        key, seen: the kernel.
        until: the time at which no mutant is begun any more.
        """
        left: list[tuple[MutantOutcome, Mutated]] = []
        tries = until - SEARCH * (until - time.monotonic())
        for number, outcome in enumerate([*seen.outcomes]):
            _say(f"mutate: {tested.name}: {seen.kernel.name}: {number} of {len(seen.outcomes)} mutants, {len(left)} not noticed")
            if time.monotonic() > tries:
                outcome.words = f"the {self.seconds:g} s of this test were over"
                continue
            if words := equivalent(seen, outcome.mutant):
                outcome.state, outcome.words = EQUIVALENT, words
                continue
            try:
                trial = Mutated(key, outcome.mutant.source, seen.seconds)
            except MmulatorError:  # it is no kernel: nobody could have written it
                seen.outcomes.remove(outcome)
                continue
            if words := self._run(item, again, tested, trial):
                outcome.state, outcome.words = NOTICED, words
            else:
                outcome.state, outcome.words = UNDECIDED, "no input was tried: there was no time for it"
                left.append((outcome, trial))
        _say("")
        if left and (words := self._run(item, again, tested, InputSearch(key, left, until))):
            for outcome, _ in left:
                if outcome.state != SURVIVED:
                    outcome.words = f"the search for an input ended: {words}"

    def _run(self, item: pytest.Item, again: Any, tested: _Tested, kernel: Instead) -> str:
        """The first words of a test's failure with another kernel; "" if it passes."""
        limit = MORE + 10 * tested.unchanged + (self.seconds if isinstance(kernel, InputSearch) else 0)
        with instead(kernel), _within(limit), suppress(pytest.exit.Exception):
            reports = runtestprotocol(item, nextitem=again, log=False)
            failed = next((r for r in reports if r.failed), None)
            register.read()
            register.clear()
            return "" if failed is None else _reason(failed)
        return "the test ends the session"

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.file is not None:
            write(self.file, json.dumps(document("mutate", self.as_dict()), indent=1) + "\n")
        if not int(exitstatus) and self.weak:
            session.exitstatus = WEAK

    @property
    def weak(self) -> bool:
        """Whether a test lets pass what it should not."""
        return any(k.vacuous or any(o.state == SURVIVED for o in k.outcomes) for t in self.found for k in t.kernels.values())

    def as_dict(self) -> dict[str, Any]:
        return {"interrupted": self.stopped, "tests": [
            {"test": t.name, "why": t.why, "kernels": [k.as_dict() for k in t.kernels.values()]} for t in self.found
        ]}  # fmt: skip

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("mmulator mutate", sep="-")
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> Iterator[str]:
        """Lines about all tests, and a last one that sums them up."""
        for tested in self.found:
            if tested.why:
                yield f"{tested.name}: not run: {tested.why}"
            for seen in tested.kernels.values() if not tested.why else ():
                yield f"{tested.name}: {seen.kernel.name}: {_counted(seen.outcomes)}"
                if seen.vacuous:
                    yield f"  vacuous: {seen.vacuous}"
                yield from _listed(seen.outcomes)
        outcomes = [o for t in self.found if not t.why for k in t.kernels.values() for o in k.outcomes]
        rest = sum(bool(t.why) for t in self.found)
        more = f"; {rest} test{'s' * (rest != 1)} not run" if rest else ""
        yield f"mutate: {_counted(outcomes)}{more}" + ("; interrupted" if self.stopped else "")


def _listed(outcomes: list[MutantOutcome]) -> Iterator[str]:
    """Lines about mutants that were not noticed: of those of one kind at one line the first, at most TOLD of each state."""
    for state in (SURVIVED, UNDECIDED, EQUIVALENT):
        alike: dict[tuple[str, str], list[MutantOutcome]] = {}
        for o in outcomes:
            if o.state == state:
                alike.setdefault((o.mutant.kind, o.mutant.source_line), []).append(o)
        for (kind, _), (o, *more) in [*alike.items()][:TOLD]:
            alike_too = f", and {len(more)} alike" if more else ""
            yield f"  {state}: {o.mutant.place}: {KINDS[kind][0]}: {o.mutant.words}{alike_too}"
            yield f"    {o.words}"
        if len(alike) > TOLD:
            yield f"  {state}: {len(alike) - TOLD} more places; --mutate-to FILE.json has all"


def _counted(outcomes: list[MutantOutcome]) -> str:
    counts = Counter(o.state for o in outcomes)
    said = (f"{counts[state]} {state}" for state in (NOTICED, SURVIVED, EQUIVALENT, UNDECIDED, NOT_RUN) if counts[state])
    return f"{len(outcomes)} mutants: {', '.join(said) or 'none'}"


def _reason(failed: pytest.TestReport) -> str:
    crash = getattr(failed.longrepr, "reprcrash", None)
    return (str(crash.message if crash else failed.longrepr).strip().splitlines() or ["it fails"])[0][:200]


@contextmanager
def _within(seconds: float) -> Generator[None, None, None]:
    """Within, a test is ended after so long, where signals can do that."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def over(*_: object) -> None:
        pytest.fail(f"the test did not end within {seconds:.0f} s", pytrace=False)

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _say(text: str) -> None:
    """Progress, in one line of a terminal."""
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        with suppress(OSError, ValueError):
            sys.__stderr__.write(f"\r{text[:120]}\x1b[K")
            sys.__stderr__.flush()


@contextmanager
def aside(tests: Any) -> Generator[None, None, None]:
    """Within, launches are not counted as those of the test that runs, and its record is as before afterwards."""
    this, driver = tests.this, current()
    kept = {name: [*value] if isinstance(value, list) else value for name, value in vars(this).items()}
    listeners, settings = [*driver.listeners], driver.settings
    driver.listeners[:] = [this]
    driver.change(replace(settings, trace="", profile=""))
    try:
        yield
    finally:
        vars(this).update(kept)
        driver.listeners[:] = listeners
        driver.change(settings)
