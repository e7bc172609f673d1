"""`pytest --mmulator`: tests of GPU programs on this machine. Options, a marker and a fixture; all else is in pytest_tests.py.

pytest loads this wherever mmulator is installed, so it imports only what pytest imports itself.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mmulator.doors.pytest_tests import ThisTest

PLUGIN = "mmulator-tests"
_OPTIONS = ("seed", "seeds", "timeout", "sanitize", "rules", "keep_going", "sarif", "baseline", "report", "profile", "profile_to",
            "trace", "why", "why_to", "against")  # fmt: skip
_MARKER = (
    "mmulator(device=None, seed=None, seeds=None, timeout=None, sanitize=None, rules=None, keep_going=None, why=None): with "
    "pytest --mmulator, the chip that this test finds, the seed of its launches, under how many seeds each is run, seconds that "
    "they may take together, if undefined behaviour is looked for (True, False, 'strict', 'raise'), and which, if launches go on "
    "behind an access out of bounds, and elements of which a failing test says why they have their values"
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    # pytest would rewrite the asserts of every module of a distribution with a plug-in, which takes seconds.
    marked: set[str] = getattr(pluginmanager.rewrite_hook, "_must_rewrite", set())
    marked -= {name for name in marked if name.partition(".")[0] == "mmulator"}
    group = parser.getgroup("mmulator", "GPU programs without a GPU (mmulator)")
    doors = "" if os.environ.get("MMULATOR_EXEC") == sys.prefix else None  # `mmulator exec -m pytest`: the doors are open already
    group.addoption("--mmulator", nargs="?", const="", default=doors, metavar="DEVICE",
                    help="Run GPU kernels here, as this chip does (H100). Default: $MMULATOR_DEVICE or sm_90.")  # fmt: skip
    group.addoption("--mmulator-seed", type=_seed, metavar="N|random",
                    help="Seed of the launches: each test has its own, made of N and its name.")  # fmt: skip
    group.addoption("--mmulator-seeds", type=_natural, metavar="N",
                    help="Run each launch under N seeds, and fail where they leave other bits.")  # fmt: skip
    group.addoption("--mmulator-timeout", type=_seconds, metavar="S", help="Seconds that the launches of a test may take.")
    group.addoption(*_short(parser), "--mmulator-sanitize", dest="mmulator_sanitize", action="store_true",
                    help="Look for undefined behaviour in every launch; tests whose launches have some fail.")  # fmt: skip
    group.addoption("--mmulator-rules", type=_rules, metavar="RULES", help="What is looked for: races,wgmma-* or -races.")
    group.addoption("--mmulator-keep-going", action="store_true",
                    help="Go on behind an access out of bounds, which is a finding; includes --sanitize.")  # fmt: skip
    group.addoption("--mmulator-sarif", metavar="FILE", help="Write what is found as SARIF 2.1.0; includes --sanitize.")
    group.addoption("--mmulator-baseline", metavar="FILE",
                    help="An earlier SARIF file: only what is new fails a test and is told; includes --sanitize.")  # fmt: skip
    group.addoption("--why", "--mmulator-why", dest="mmulator_why", action="append", nargs="?", const="auto",
                    type=_why, metavar="NAME[INDEX]",
                    help="A test that fails says why an element has its value: z[999], add:z[999]; auto, or behind all other "
                         "words alone: the first one that an assert rejects.")  # fmt: skip
    group.addoption("--mmulator-why-to", metavar="FILE.html", help="Write that as a page.")
    group.addoption("--mmulator-against", type=_against, metavar="DEVICE|SEED|reference",
                    help="Say where it parts from that device, seed or reference.")  # fmt: skip
    group.addoption("--mmulator-profile", action="store_true",
                    help="At the end, lines and branches of kernels that no launch reached.")  # fmt: skip
    group.addoption("--mmulator-profile-to", metavar="FILE",
                    help="Write what each line of each kernel did: .html, .json, .txt, .info (lcov).")  # fmt: skip
    group.addoption("--mmulator-trace", metavar="FILE.json", help="Write what happened when in launches, for Perfetto.")
    group.addoption("--mmulator-report", action="store_true", help="At the end, a table of the kernels: launches and times.")


def _short(parser: pytest.Parser) -> list[str]:
    """The option `--sanitize`, unless another plug-in has one of that name."""
    groups: list[Any] = [getattr(parser, "_anonymous", None), *getattr(parser, "_groups", ())]
    known = {name for group in groups if group is not None for option in group.options for name in option.names()}
    return [] if "--sanitize" in known else ["--sanitize"]


def _seed(text: str) -> int | str:
    if text == "random" or text.isdigit():
        return text if text == "random" else int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number from 0 on nor `random`")


def _natural(text: str) -> int:
    if text.isdigit() and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")


def _rules(text: str) -> str:
    from mmulator.rules.choice import chosen

    try:
        chosen(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _why(text: str) -> str:
    from mmulator.errors import LaunchError
    from mmulator.record.asked import AUTO, question

    try:
        if text != AUTO:
            question(text)
    except LaunchError as error:
        if Path(text.partition("::")[0]).exists():
            raise argparse.ArgumentTypeError(f"{text} is a file: write --why auto, or --why behind it") from None
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from None
    return text


def _against(text: str) -> str:
    from mmulator.errors import UnsupportedError
    from mmulator.isa.chips import as_device

    try:
        return text if text.isdigit() or text == "reference" else as_device(text)
    except UnsupportedError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from None


def _seconds(text: str) -> float:
    number = float(text)
    if number > 0:
        return number
    raise argparse.ArgumentTypeError(f"{text!r} is no time")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Open the doors, before the first line of the tests' code."""
    known = early_config.known_args_namespace
    if known.mmulator is None:
        said = [name for name in _OPTIONS if getattr(known, f"mmulator_{name}")]
        if said:
            raise pytest.UsageError(f"--mmulator-{said[0].replace('_', '-')} goes with --mmulator")
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

        config.pluginmanager.register(pytest_tests.Tests(config), PLUGIN)


@pytest.fixture(name="mmulator")
def _mmulator(request: pytest.FixtureRequest) -> ThisTest:
    """The fixture: `driver`, `seed`, `launches` (their reports), `device("sm_80")` for a `with`."""
    tests: Any = request.config.pluginmanager.get_plugin(PLUGIN)
    if tests is None:
        pytest.skip("needs pytest --mmulator")
    return tests.this
