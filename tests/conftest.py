"""What holds for all tests: which of them are quick, what they cost, and what of the machine must not come into them."""

import gc
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import forks, quick

# the same examples each time, however long they take: a commit's tests pass or fail, on a loaded machine too
settings.register_profile("mmulator", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mmulator")

# Tests start a thousand processes: each would compile anew what it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a GPU of this machine is no part of a test, nor of the processes that it starts
EVERYWHERE = ("laws", "isa")  # folders whose tests may notice any change of a chapter
LEFT_OUT: Counter[str] = Counter()  # tests, and files that were not read
COSTS: Counter[tuple[str, bool]] = Counter()  # processor seconds of a folder's tests, quick or not; "" of collecting


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="all tests, those marked `full` too (docs/developers/testing.md)")
    parser.addoption("--release", action="store_true", help="all tests with all of their cases, as before a release")
    parser.addoption("--chapter", metavar="NAME", help="tests that may notice a change of a chapter (isa/NAME.py)")
    parser.addoption("--costs", action="store_true", help="processor seconds of each folder, as testing.md shows them")


def pytest_configure() -> None:
    """Ctrl-C reaches what tests start, also where a shell started pytest in its background: there it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# what is quick --------------------------------------------------------------------------------------------------------
def everything(config: pytest.Config) -> bool:
    """Whether no test is left out for its price: with --full, --release, and with -m, which says itself what is wanted."""
    return bool(config.option.full or config.option.release or config.option.markexpr)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without quick tests are not read; those that are named on the command line are, by pytest's own rule."""
    if everything(config) or quick.step(os.path.relpath(collection_path, config.rootpath / "tests")):
        return None
    LEFT_OUT["files"] += len(list(collection_path.rglob("test_*.py"))) or collection_path.match("test_*.py")
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests `full` and `release` as tests/support/quick.py says, and leave out those that are not asked for; a file that is
    named on the command line has all of its tests.

    With --chapter NAME there stay: of files that have the chapter's name all, those whose own names have it, and laws. The
    longest file comes first: at the end of a run with `-n` the other workers would wait for it.
    """
    items.sort(key=lambda item: item.path.name != "test_ub.py")
    cases: Counter[str] = Counter()
    for item in items:
        function = name_of(item)
        step, number = quick.step(function), cases[function]
        if not step or number % step:
            item.add_marker("full")
        if item.get_closest_marker("full") and number % quick.step(function, full=True):
            item.add_marker("release")
        cases[function] += 1
    left = "" if config.option.release or config.option.markexpr else "release" if config.option.full else "full"
    chosen = [i for i in items if session.isinitpath(i.path) or not left or not i.get_closest_marker(left)]
    LEFT_OUT["cases" if everything(config) else "tests"] += len(items) - len(chosen)
    if config.option.chapter:
        chosen = list(filter(of_chapter(config.option.chapter), chosen))
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
        items[:] = chosen


def name_of(item: pytest.Item) -> str:
    """The path of a test's file in tests/, with the test's function."""
    return item.nodeid.partition("[")[0].removeprefix("tests/")


def of_chapter(chapter: str) -> Callable[[pytest.Item], bool]:
    """Whether a test may notice a change of a chapter. Raises UsageError where there is no such chapter."""
    from mmulator.isa.table import CHAPTERS

    chapters = {module.__name__.rpartition(".")[2] for module in CHAPTERS}
    if chapter not in chapters:
        raise pytest.UsageError(f"no chapter {chapter!r}; chapters: {', '.join(sorted(chapters))}")
    return lambda item: item.path.parent.name in EVERYWHERE or chapter in item.path.stem or chapter in item.name


# the end of a run -----------------------------------------------------------------------------------------------------
def spent() -> float:
    """Processor seconds of this process, of those that it has waited for, and of forks of its server."""
    return sum(os.times()[:4]) + forks.COSTS[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = spent()
    try:
        return (yield)
    finally:
        COSTS[name_of(item).partition("/")[0], bool(item.get_closest_marker("full"))] += spent() - before


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """The last line says what was left out. A worker of `-n` tells its parent: all have left out the same."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left out"], output["costs"] = dict(LEFT_OUT), [[*of, cost] for of, cost in COSTS.items()]
        return (yield)
    outcome = yield
    terminal: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.option.costs:
        terminal.write_line(table())
    if LEFT_OUT["cases"]:
        terminal.write_line(f"left out: {LEFT_OUT['cases']:,} more cases of tests; `pytest --release` runs all")
    if LEFT_OUT["tests"] or (any(Path(word).is_dir() for word in session.config.args) and LEFT_OUT["files"]):
        terminal.write_line(
            f"left out: {LEFT_OUT['tests']:,} tests that are marked `full` and {LEFT_OUT['files']} files of such tests; "
            "`pytest --full` runs all"
        )
    return outcome


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n` a file's tests run in one process, which makes once what they share; files begin in their order."""
    if config.option.dist != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of `-n` has ended."""
    output = getattr(node, "workeroutput", {})
    LEFT_OUT.update({what: n - LEFT_OUT[what] for what, n in output.get("left out", {}).items()})
    COSTS.update({(folder, full): cost for folder, full, cost in output.get("costs", ())})


def table() -> str:
    """The table of docs/developers/testing.md with the costs of this run: of quick tests, and of all others."""
    page = (Path(__file__).parents[1] / "docs/developers/testing.md").read_text()

    def costs(name: str) -> str:
        return " | ".join(f"{COSTS[name, full]:.0f}" for full in (False, True))

    for (name, full), cost in [*COSTS.items()]:
        COSTS["all", full] += cost * (name != "all")
    COSTS["collecting", False] = COSTS["", False]
    row = re.compile(r"^(\| `?(\w+)`? \| [^|]* \|)[^|]*\|[^|]*(\|.*)$", re.MULTILINE)
    return "\n".join(f"{m[1]} {costs(m[2])} {m[3]}" for m in row.finditer(page))


# collecting -----------------------------------------------------------------------------------------------------------
@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """The garbage collector rests while tests are collected, and never looks at them afterwards.

    Fifteen thousand tests and all modules stay to the end: each look at them costs a third of a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        COSTS["", False] += spent()


@pytest.fixture(autouse=True, scope="session")
def _first_code() -> None:
    """Tests run a kernel a few times: better code, for what runs long, does not pay. tests/codegen/test_better.py is about it."""
    for name in ("mmulator.base.codegen.loading", "mmulator.runtime.code"):
        if name in sys.modules:
            vars(sys.modules[name])["LONG"] = 1e9


@pytest.fixture(autouse=True)
def _no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
