"""`pytest --mmulator`: tests of GPU programs on this machine. Options, a marker and a fixture; all else is in pytest_tests.py.

pytest loads this wherever mmulator is installed, so it imports only what pytest imports itself.
"""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mmulator.host.settings import taken

if TYPE_CHECKING:
    from mmulator.doors.pytest_tests import ThisTest

PLUGIN = "mmulator-tests"
_MARKER = (
    f"mmulator({', '.join(f'{row.name}=None' for row in taken('marker'))}): with pytest --mmulator, the chip that this test "
    "finds, the seed of its launches, under how many seeds each is run, seconds that they may take together, if undefined "
    "behaviour is looked for (True, False, 'strict', 'raise'), and which, if launches go on after an access out of bounds, and "
    "elements of which a failing test says why they have their values"
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    # pytest would rewrite the asserts of every module of a distribution with a plug-in, which takes seconds.
    marked: set[str] = getattr(pluginmanager.rewrite_hook, "_must_rewrite", set())
    marked -= {name for name in marked if name.partition(".")[0] == "mmulator"}
    group = parser.getgroup("mmulator", "GPU programs without a GPU (mmulator)")
    doors = "" if os.environ.get("MMULATOR_EXEC") == sys.prefix else None  # `mmulator exec -m pytest`: the doors are open already
    for row in taken("pytest"):
        names = row.names[len(row.names) > 1 and _known(parser, row.names[0]) :]
        said: dict[str, Any] = {"action": "append" if row.several else "store" if row.metavar else "store_true"}
        if row.metavar:
            said |= {"type": row.argument, "metavar": row.metavar}
        if row.bare is not None:
            said |= {"nargs": "?", "const": row.bare}
        if row.name == "device":
            said["default"] = doors
        group.addoption(*names, dest=row.attribute, help=row.help, **said)


def _known(parser: pytest.Parser, name: str) -> bool:
    """Whether another plug-in has an option of that name."""
    groups: list[Any] = [getattr(parser, "_anonymous", None), *getattr(parser, "_groups", ())]
    return any(name in option.names() for group in groups if group is not None for option in group.options)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Open the doors, before the first line of the tests' code."""
    known = early_config.known_args_namespace
    if known.mmulator is None:
        for row in taken("pytest"):
            if row.name != "device" and getattr(known, row.attribute):
                raise pytest.UsageError(f"{row.names[-1]} goes with --mmulator")
        return
    if _separate(args):
        before, known = known, parser.parse_known_args(args, namespace=copy.copy(early_config.option))
        known.confcutdir = before.confcutdir
        early_config.known_args_namespace = known
    from mmulator.doors import pytest_tests

    pytest_tests.begin(known.mmulator)


def _separate(args: list[str]) -> bool:
    """Whether `--mmulator tests/` names no device: the option then gets its default as `--mmulator=`, and pytest its folder."""
    from mmulator.isa.chips import device_of

    changed = False
    for n, (word, behind) in enumerate(zip(args, [*args[1:], ""])):
        if word == "--mmulator" and not (behind.startswith("sm_") or (device_of(behind) and not Path(behind).exists())):
            args[n] = "--mmulator="
            changed = True
    return changed


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    if config.option.mmulator is not None:
        from mmulator.doors import pytest_tests

        config.pluginmanager.register(tests := pytest_tests.Tests(config), PLUGIN)
        if config.option.mmulator_mutate:
            if config.pluginmanager.has_plugin("dsession") or tests.worker is not None:
                raise pytest.UsageError("--mutate goes without pytest-xdist: -n0")
            from mmulator.doors import pytest_mutation

            config.pluginmanager.register(pytest_mutation.Mutation(config, tests))


@pytest.fixture(name="mmulator")
def _mmulator(request: pytest.FixtureRequest) -> ThisTest:
    """The fixture: `driver`, `seed`, `launches` (their reports), `device("sm_80")` for a `with`."""
    tests: Any = request.config.pluginmanager.get_plugin(PLUGIN)
    if tests is None:
        pytest.skip("needs pytest --mmulator")
    return tests.this
