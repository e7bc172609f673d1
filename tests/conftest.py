"""What holds for all tests: lines are as long as they come, and the garbage collector leaves the tests themselves alone."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

EVERYWHERE = ("laws", "isa")  # folders whose tests may notice any change of a chapter


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chapter", metavar="NAME", help="tests that may notice a change of a chapter (isa/NAME.py)")


def pytest_configure() -> None:
    """Ctrl-C reaches what tests start, also where a shell started pytest in its background: there it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --chapter NAME: tests of files that have the chapter's name, those whose own names have it, and laws."""
    chapter = config.getoption("--chapter")
    if not chapter:
        return
    chapters = {p.stem.removeprefix("test_") for p in (Path(__file__).parent / "chapters").glob("test_*.py")}
    if chapter not in chapters:
        raise pytest.UsageError(f"no chapter {chapter!r}; chapters: {', '.join(sorted(chapters))}")
    chosen = [i for i in items if i.path.parent.name in EVERYWHERE or chapter in i.path.stem or chapter in i.name]
    config.hook.pytest_deselected(items=[i for i in items if i not in set(chosen)])
    items[:] = chosen


@pytest.fixture(autouse=True)
def _no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
