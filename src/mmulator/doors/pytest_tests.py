"""Tests under `pytest --mmulator`: the doors are open, each test has its settings, and its launches are reported."""

import json
import os
import random
import shlex
import sys
import time
import types
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from mmulator.base.errors import LimitReached, MmulatorError
from mmulator.base.files import write
from mmulator.base.findings import WIDTH, Finding, union
from mmulator.base.refusals import register
from mmulator.base.tables import element
from mmulator.doors import asserts
from mmulator.doors.imports import environment, open_doors
from mmulator.doors.pytest_reports import Coverage, Findings, paragraphs
from mmulator.host.certificate import COUNTEREXAMPLE, Certificate
from mmulator.host.driver import Driver, Settings, certificates, current, progress, use
from mmulator.host.driver import findings as told
from mmulator.host.driver.report import Totals
from mmulator.host.report import Report
from mmulator.host.settings import REPORT, taken
from mmulator.isa.chips import as_device
from mmulator.sanitizer.sarif import Baseline, log

# Modules whose frames are left out of tracebacks behind the line that launches.
_LIBRARIES = ("mmulator", "triton", "torch", "numba", "cupy", "cuda")
_SHOWN = ("auto", "long", "short", "native")  # styles of a traceback that show the error in full
_UNREAD = "a test that expects this asks for the error: cudaGetLastError(), or cuGetErrorString of the code"
LONG, MUCH = 20.0, 0.3  # seconds of a session of which it is told where they went; share of compilers that a cache is worth
_began = 0.0


def begin(device: str) -> None:
    """Open the doors of this process, for a device, or "" for what the environment says. Raises UsageError."""
    global _began
    _began = time.perf_counter()
    try:
        if device:
            os.environ["MMULATOR_DEVICE"] = as_device(device)
        Settings.from_environment()
        os.environ |= environment()
        open_doors()
    except MmulatorError as error:
        raise pytest.UsageError(f"--mmulator: {error}") from None


def where(spent: float, triton: float, compiling: float, running: float) -> str:
    """Where the seconds of a session went, and what saves them; "" for a short one.

    spent: seconds of all its processes.
    triton, compiling, running: of them seconds of Triton's compiler, of compiling here, of launches.
    """
    if spent < LONG:
        return ""
    parts = [f"Triton's compiler {triton:.1f} s"] * (triton > 0)
    parts += [f"compiling here {compiling:.1f}", f"launches {running:.1f}"]
    rest = f"imports and tests {max(spent - triton - compiling - running, 0):.1f}"
    kept = "MMULATOR_CACHE and TRITON_CACHE_DIR" if triton else "MMULATOR_CACHE"
    hint = f"; keep {kept} for the next run" if triton + compiling > MUCH * spent else ""
    return f"{spent:.1f} s: {', '.join(parts)}, {rest}{hint}"


def of_markers(item: pytest.Item) -> dict[str, Any]:
    """Settings of a test's markers, by name; of each the closest marker counts. Raises UsageError."""
    known = {row.name: row for row in taken("marker")}
    said: dict[str, Any] = {}
    for marker in item.iter_markers("mmulator"):
        strange = [*map(repr, marker.args), *(name for name in marker.kwargs if name not in known)]
        if strange:
            raise pytest.UsageError(f"@pytest.mark.mmulator takes {', '.join(known)} by name, not {strange[0]}")
        said = {**marker.kwargs, **said}
    found = {}
    for name, value in said.items():
        try:
            if value is not None:
                found[name] = known[name].read(str(int(value) if isinstance(value, bool) else value))
        except ValueError as error:
            raise pytest.UsageError(f"@pytest.mark.mmulator: {name} is {value!r}, not {error}") from None
    return found


def seed_of(base: int, test: str) -> int:
    """The seed of a test, from a number and the test's id without folders, which depend on where pytest begins."""
    path, colons, rest = test.partition("::")
    name = f"{base}:{path.rpartition('/')[2]}{colons}{rest}"
    return zlib.crc32(name.encode()) % 0x7FFFFFFF + 1


@dataclass(eq=False)
class ThisTest:
    """The fixture of one test.

    seed: of the test's launches.
    launches: their reports, so far.
    limit: seconds that they may take.
    used: seconds that they have taken.
    findings: of the sanitizer, so far; a finding that is removed does not fail the test.
    """

    seed: int = 0
    launches: list[Report] = field(default_factory=list)
    limit: float | None = None
    used: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    before: list[Finding] = field(default_factory=list)  # findings of launches that ended in an error
    told: int = 0  # number of findings told in an earlier phase of the test
    looked: int = 0  # launches that were sanitized
    certificates: list[tuple[str, Certificate]] = field(default_factory=list)  # of launches, by kernel

    @property
    def driver(self) -> Driver:
        return current()

    @contextmanager
    def device(self, name: str) -> Iterator[Driver]:
        """Context with another chip. Raises UnsupportedError for an unknown one."""
        driver = current()
        before = driver.settings.device
        driver.change(replace(driver.settings, device=name))
        try:
            yield driver
        finally:
            driver.change(replace(driver.settings, device=before))

    def read(self, kernel: str, findings: tuple[Finding, ...], error: MmulatorError | None = None, launches: int = 1) -> None:
        """Add the findings of a sanitized launch; several that break one rule at one place are one. If the launch ended in an
        error, the test fails for that, or expects it.
        """
        self.looked += launches
        if (certificate := told.ended(error)) is not None:
            self.certificates.append((kernel, certificate))
        kept = self.findings if error is None else self.before
        kept[:] = union([kept, findings])

    def take_findings(self) -> list[Finding]:
        """Findings so far, removed from the list because the test expects them: they do not fail it."""
        taken, self.findings[:] = [*self.findings], []
        return taken

    def __call__(self, report: Report) -> None:
        """Add the report of a launch."""
        if report.certificate is not None:
            self.certificates.append((report.kernel, report.certificate))
        self.launches.append(report)
        if self.limit is None:
            return
        self.used += report.seconds["run"]
        if self.used > self.limit:
            raise LimitReached(f"the launches of this test took {self.used:.1f} s; together they may take {self.limit:g} s")
        current().change(replace(current().settings, timeout=self.limit - self.used))


class ProgressLine:
    """Progress of a launch, behind what pytest has written in its line; only on a terminal."""

    def __init__(self, reporter: Any) -> None:
        self.reporter, self.writer = reporter, reporter._tw

    def room(self) -> int:
        left = int(self.writer.fullwidth) - int(self.writer.width_of_current_line) - 2
        return left if self.reporter.isatty and left >= 30 else 0

    def draw(self, text: str) -> None:
        self._write(f"\x1b7 {text}\x1b[K\x1b8")  # the cursor goes back to where pytest writes on

    def clear(self) -> None:
        self._write("\x1b[K")

    def _write(self, text: str) -> None:
        self.writer._file.write(text)
        self.writer._file.flush()


class Tests:
    """The plug-in that runs with --mmulator. totals: of the launches of all tests, other processes' too."""

    def __init__(self, config: pytest.Config) -> None:
        self.option, self.root, self.cwd = config.option, config.rootpath, config.invocation_params.dir
        if self.option.mmulator_seed == "random":  # the workers of pytest-xdist get the number
            self.option.mmulator_seed = random.SystemRandom().randrange(1 << 31)
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.output: dict[str, Any] | None = getattr(config, "workeroutput", None)
        self.totals, self.this, self.problem = Totals(), ThisTest(), ""
        self.spent, self.triton, self.listens = 0.0, 0.0, False  # seconds of the session, and of Triton's compiler
        self.findings, self.pages = Findings(), list[str]()  # HTML of why elements of failing tests have their values
        option = self.option
        self.coverage = Coverage(option.mmulator_profile_to) if option.mmulator_profile or option.mmulator_profile_to else None
        files = option.mmulator_sarif, option.mmulator_baseline
        option.mmulator_sanitize |= option.mmulator_keep_going or option.mmulator_certify
        option.mmulator_sanitize |= any(file is not None for file in files)
        try:
            self.known = None if option.mmulator_baseline is None else Baseline.read(option.mmulator_baseline)
            if option.mmulator_sarif is not None and self.worker is None:
                Path(option.mmulator_sarif).open("a", encoding="utf-8").close()
        except MmulatorError as error:
            raise pytest.UsageError(f"--mmulator-baseline: {error}") from None
        except OSError as error:
            raise pytest.UsageError(f"--mmulator-sarif: cannot write {option.mmulator_sarif}: {error.strerror}") from None

    def new(self, findings: Sequence[Finding]) -> list[Finding]:
        """Findings that no baseline has."""
        return [*findings] if self.known is None else self.known.new(findings)

    # the session --------------------------------------------------------------------------------------------------------
    def pytest_report_header(self) -> str:
        seed = self.option.mmulator_seed
        return f"mmulator: {Settings.from_environment().device}" + ("" if seed is None else f", seeds of --mmulator-seed {seed}")

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if self.worker is None and session.config.pluginmanager.has_plugin("dsession"):
            return  # pytest-xdist: the tests run elsewhere
        driver = current()
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if self.worker is None and reporter is not None:
            progress.sink.append(ProgressLine(reporter))
        driver.readers.clear()  # each test reads its own
        driver.listeners.append(self.totals.count)
        if self.option.mmulator_trace is not None:
            driver.change(replace(driver.settings, trace=str(Path(self.option.mmulator_trace).absolute())))
        if self.coverage is not None:
            driver.listeners.append(self.coverage.profiles)
            driver.change(replace(driver.settings, profile="1"))
        if self.worker is not None and driver.settings.threads is None:
            driver.change(replace(driver.settings, threads=max(1, (os.cpu_count() or 1) // int(self.worker["workercount"]))))

    def _listen(self) -> None:
        """Let Triton say how long it compiles, once it is there."""
        knobs: Any = getattr(sys.modules.get("triton.knobs"), "compilation", None)
        if self.listens or knobs is None:
            return
        self.listens, before = True, knobs.listener

        def listener(*, times: Any, **rest: Any) -> None:
            self.triton += times.total / 1e6
            if before is not None:
                before(times=times, **rest)

        knobs.listener = listener

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.worker is not None or not session.config.pluginmanager.has_plugin("dsession"):
            self.spent += time.perf_counter() - _began
        if self.output is not None:
            self.output["mmulator_seconds"] = self.spent, self.triton
            self.output["mmulator"] = self.totals.as_list()
            self.output["mmulator_findings"] = self.findings.as_list()
            self.output["mmulator_pages"] = self.pages
            self.output["mmulator_profiles"] = [] if self.coverage is None else self.coverage.as_list()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the findings of a worker of pytest-xdist that is done."""
        output = getattr(node, "workeroutput", {})
        self.totals.add(output.get("mmulator", ()))
        spent, triton = output.get("mmulator_seconds", (0, 0))
        self.spent, self.triton = self.spent + spent, self.triton + triton
        self.findings.add(output.get("mmulator_findings", ()))
        self.pages += output.get("mmulator_pages", ())
        if self.coverage is not None:
            self.coverage.add(output.get("mmulator_profiles", ()))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.write_line(f"mmulator: {self.totals.head()}")
        for line in self.totals.table() if self.option.mmulator_report else ():
            terminalreporter.write_line(f"  {line}")
        whole = self.totals.whole()
        if said := where(self.spent, self.triton, whole.compile, whole.run):
            terminalreporter.write_line(f"mmulator: {said}")
        for line in (*self.findings.lines(), *(self.coverage.lines() if self.coverage is not None else ())):
            terminalreporter.write_line(line)
        if (gathering := told.gathering()) is not None:  # exec --sanitize -m pytest: findings that tests expect do not count
            gathering.add(({**row, "kernel": row["tests"][0]} for row in self.findings.rows.values()), self.findings.launches)
        if self.option.mmulator_why_to is not None:
            from mmulator.observation.record.tree import write_page

            write_page(Path(self.option.mmulator_why_to), self.pages, "failing tests")
        if self.option.mmulator_sarif is not None:
            data = log((row["result"] for row in self.findings.rows.values()), self.known, self.findings.refused)
            write(self.option.mmulator_sarif, json.dumps(data, indent=1) + "\n")
        if self.option.mmulator_sanitize and not self.findings.launches:
            terminalreporter.write_line("sanitizer: no launches; those of mmulator.Module take sanitize=True themselves")

    # a test -------------------------------------------------------------------------------------------------------------
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._listen()
        driver = current()
        before = driver.settings
        self.this, self.problem = ThisTest(), ""
        try:
            settings = self._settings(item, before)
            self.this = ThisTest(settings.seed, limit=settings.timeout)
            driver.change(settings)
            if settings.keeps:
                asserts.install()
                asserts.asked().begin()
        except (pytest.UsageError, MmulatorError) as error:
            self.problem = str(error)
        driver.listeners.append(self.this)
        driver.readers.append(self.this.read)
        try:
            return (yield)
        finally:
            driver.listeners.remove(self.this)
            driver.readers.remove(self.this.read)
            self.findings.count(item.nodeid, self.this.looked, self.this.findings, self.known)
            self.findings.verdicts += [certificate.verdict for _, certificate in self.this.certificates]
            driver.change(before)
            use(driver)  # if the test made one of its own
            register.read()
            told.pass_on()
            register.clear()

    def _settings(self, item: pytest.Item, before: Settings) -> Settings:
        option = self.option
        given = {row.name: getattr(option, row.attribute) for row in taken("pytest") if "marker" in row.doors.split()}
        given |= {
            "device": None, "seed": None if option.mmulator_seed is None else seed_of(option.mmulator_seed, item.nodeid),
            "sanitize": REPORT if option.mmulator_sanitize else None, "keep_going": option.mmulator_keep_going or None,
            "certify": option.mmulator_certify or None,
            "why": ";".join(option.mmulator_why or ()) or None, "why_against": option.mmulator_against,
            "why_depth": option.mmulator_why_depth, "nan": option.mmulator_nan,
        }  # fmt: skip
        return replace(before, **({n: v for n, v in given.items() if v is not None} | of_markers(item)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if self.problem:
            pytest.fail(self.problem, pytrace=False)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        return self._judged((yield))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        return self._judged((yield))

    def _judged(self, result: object) -> object:
        """The result of a test's phase. Raises an error if its launches have findings of severity error, or if work was refused
        and the test does not know.
        """
        if line := register.line():
            self.findings.refused += [work.as_dict() for work in register.refused.values() if work.open]
            told.pass_on(*register.read())
            pytest.fail(f"{line}\n\n{_UNREAD}", pytrace=False)
        new = self.new(self.this.findings)
        wrong = [f for f in new if f.is_error]
        if len(wrong) <= self.this.told:
            broken = next(((k, c) for k, c in self.this.certificates if c.verdict == COUNTEREXAMPLE), None)
            if broken is not None and not wrong:
                self.this.certificates.remove(broken)
                self.findings.verdicts.append(COUNTEREXAMPLE)
                pytest.fail(certificates.told(*broken), pytrace=False)
            return result
        self.this.told = len(wrong)
        pytest.fail("\n".join(paragraphs(new)), pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        fault = _fault(call.excinfo.value) if call.excinfo is not None else None
        whole = self.option.fulltrace or os.environ.get("MMULATOR_TRACEBACK")
        if call.excinfo is not None and fault is call.excinfo.value and not whole:
            call.excinfo = pytest.ExceptionInfo.from_exception(fault.with_traceback(_shortened(fault.__traceback__)))
        if call.excinfo is not None and call.excinfo.errisinstance(AssertionError) and current().settings.keeps:
            asserts.look_at_refused()
        report = yield
        if report.failed and call.excinfo is not None and (fault is not None or self.this.launches):
            shown = fault is call.excinfo.value and self.option.tbstyle in _SHOWN
            report.sections.append(("mmulator", "\n".join(self._section(item, None if shown else fault))))
            self.this.told = sum(f.is_error for f in self.new(self.this.findings))
        return report

    def _section(self, item: pytest.Item, fault: MmulatorError | None) -> Iterator[str]:
        """Lines of a failing test's report besides the error: its launches, their seed, and how to run it again."""
        this, settings = self.this, current().settings
        if fault is not None:
            yield f"{type(fault).__name__}: {fault}"
        if not this.told and (found := self.new([*this.findings, *this.before])):  # the test failed before they could fail it
            yield from paragraphs(found)
        if this.launches:
            yield f"launches that ended well: {len(this.launches)}, the last: {this.launches[-1].head}"
        answers = {a.name: a for launch in this.launches for a in launch.why if a.cause is not None}
        for answer in answers.values():
            yield f"why {answer.wrapped(WIDTH)}"
        rejected = asserts.asked().rejected if settings.keeps else []
        yield from map(str, rejected)
        told = [*answers.values(), *(r.answer for r in rejected if r.answer is not None)]
        self.pages += [element("h2", item.nodeid) + answer._repr_html_() for answer in told]
        if this.limit is not None:
            yield f"launches of this test may take {this.limit:g} s together; those before took {this.used:.2g} s"
        more = f" and {settings.seeds - 1} more" if settings.seeds > 1 else ""
        yield f"device {settings.device}, seed {this.seed}{more}; to run it again:"
        yield f"  {self._again(item)}"

    def _again(self, item: pytest.Item) -> str:
        option = self.option
        path, colons, rest = item.nodeid.partition("::")
        names = "seed", "seeds", "timeout", "rules", "nan", "baseline"
        values = [(name, getattr(option, f"mmulator_{name}")) for name in names]
        words = ["pytest", f"--mmulator={Settings.from_environment().device}", *["--sanitize"] * option.mmulator_sanitize]
        words += ["--mmulator-keep-going"] * option.mmulator_keep_going + ["--certify"] * option.mmulator_certify
        words += [f"--why={element}" for element in option.mmulator_why or ()]
        words += [f"--mmulator-{name}={value}" for name, value in values if value is not None]
        return shlex.join([*words, os.path.relpath(self.root / path, self.cwd) + colons + rest])


# errors -------------------------------------------------------------------------------------------------------------
def _fault(error: BaseException | None) -> MmulatorError | None:
    """The MmulatorError that an error comes from, or None."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, MmulatorError):
            return error
        seen.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def _shortened(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The frames up to the program's line that launches, without mmulator's."""
    folders = [
        str(Path(file).parent) + os.sep for name in _LIBRARIES if (file := getattr(sys.modules.get(name), "__file__", None))
    ]
    frames: list[types.TracebackType] = []
    at = traceback
    while at is not None:
        frames.append(at)
        at = at.tb_next
    inside = [frame.tb_frame.f_code.co_filename.startswith(tuple(folders)) for frame in frames]
    last = max((n for n, library in enumerate(inside) if not library), default=len(frames) - 1)
    short: types.TracebackType | None = None
    for frame, library in reversed(list(zip(frames, inside))[: last + 1]):
        if not (library and frame.tb_frame.f_code.co_filename.startswith(folders[0])):
            short = types.TracebackType(short, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return short
