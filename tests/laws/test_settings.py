"""One table of settings: a row is at every door that it names, and no door has an option that is in no row."""

import argparse
import inspect
import re
from dataclasses import fields
from typing import Any

import pytest
import yaml

import mmulator as mm
from mmulator.cli.commands import command_of
from mmulator.cli.completion import offered
from mmulator.cli.parser import Given, declared, parameters
from mmulator.doors import pytest_plugin
from mmulator.host import settings
from mmulator.host.settings import DOORS, PREFIX, Setting, Settings, taken
from tests.support.places import ROOT
from tools.pages import spec_map

COMMANDS = ("run", "exec", "debug", "judge", "check", "conformance")
# Keywords of Kernel.launch that say what is launched, or are for code that launches on behalf of a program.
LAUNCHED = {"self", "grid", "block", "args", "shared", "cluster", "cooperative", "names", "memory", "waits", "debug"}
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
OF_CI = {"tests", "program", "upload", "category", "python-version", "extras", "install", "cache"}  # inputs about the job


class Group:
    """A group of options as pytest gives it to a plug-in."""

    def __init__(self) -> None:
        self.parser, self._groups = argparse.ArgumentParser(), ()

    def getgroup(self, *_: str) -> Any:
        return argparse.Namespace(addoption=self.parser.add_argument)


def options_of_pytest() -> dict[str, argparse.Action]:
    group = Group()
    pytest_plugin.pytest_addoption(group, argparse.Namespace(rewrite_hook=None))  # type: ignore[arg-type]
    return {name: action for name, action in group.parser._option_string_actions.items() if name not in ("-h", "--help")}


NEW = Setting("brand_new", f"{' '.join(COMMANDS)} pytest marker variable", "says N", "Says N.", "N", settings.whole(1))


def test_a_row_that_is_added_is_at_every_door_that_it_names(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(settings, "TABLE", (*settings.TABLE, NEW))
    from mmulator.cli.app import run

    for name in COMMANDS:
        assert run([name, "--help"]) == 0 and re.search(r"--brand-new N +Says N\.", capsys.readouterr().out)
        words = ["--brand-new", "3", "x"]
        found = parameters(command_of(name), [name], words[: 2 if name == "conformance" else 3])
        assert [v.brand_new for v in found.values() if isinstance(v, Given)] == [3]
        assert run([name, "--brand-new", "0"]) == 2 and "a whole number from 1 on" in capsys.readouterr().err
        assert offered([name], "--brand") == ["--brand-new"]
    assert options_of_pytest()["--mmulator-brand-new"].help == "Says N."
    assert settings.environment_of({"brand_new": 3}) == {f"{PREFIX}BRAND_NEW": "3"}
    assert f"| `{PREFIX}BRAND_NEW` | says N |" in spec_map.PAGES["docs/reference/settings.md"]()
    assert spec_map.PAGES["docs/reference/commands.md"]().count("--brand-new") > 1  # of `run`, and in the table of settings


def test_no_door_has_an_option_that_is_in_no_row() -> None:
    rows = {name: {row.name for row in taken(name)} for name in DOORS}
    for name in COMMANDS:  # what a command declares itself is no setting of another door
        own = {a.row.name for a in declared(command_of(name)) if a.maker is not Given}
        assert not own & {row.name for row in settings.TABLE} - {"kernel", "capture", "report"}, name
    assert {*options_of_pytest()} == {name for row in taken("pytest") for name in row.names}
    assert {*inspect.signature(mm.Kernel.launch).parameters} - LAUNCHED == {row.word for row in taken("launch")}
    assert ACTION.keys() - OF_CI == {row.word for row in taken("action")}
    for row in taken("action"):
        assert (ACTION[row.word]["description"], ACTION[row.word]["default"]) == (row.help, row.default), row.name
    assert {f.name for f in fields(Settings)} <= rows["variable"]


def test_rows_are_whole() -> None:
    """A row has a name of its own, doors that there are, help where it is an option, and a text where it is a variable."""
    assert len({row.name for row in settings.TABLE}) == len(settings.TABLE) > 35
    for row in settings.TABLE:
        doors = row.doors.split()
        assert doors and {*doors} <= {*DOORS} and {*row.but} <= {*doors}, row.name
        assert bool(row.variable) == ("variable" in doors), row.name
        assert all(row.at(door).help.endswith(".") for door in doors if door in (*COMMANDS, "pytest")), row.name
        assert all(row.at(door).names for door in doors), row.name


@pytest.mark.parametrize("row", [row for row in taken("exec") if row.variable or row.into[0]], ids=lambda row: row.name)
def test_what_exec_says_the_program_reads(row: Setting) -> None:
    """A value of the command line goes into a variable, from which the driver of the program has the same value."""
    text = {"report": "a.jsonl", "why_to": "a.html", "trace": "a.json", "profile_to": "a.html", "device": "sm_80", "why": "z[1]",
            "progress": "never", "autotune": "first", "rules": "races", "nan": "inf",
            "certify": "needed", "same_configs": "a.jsonl"}.get(row.name, "3")  # fmt: skip
    value = row.read(text) if row.metavar else True
    (said,) = settings.environment_of({row.name: [value] if row.several else value}).items()
    name = said[0].removeprefix(PREFIX).lower()
    if row.name == "baseline":  # of the findings, not of the driver
        assert said[1].endswith("/3")
        return
    found = getattr(Settings.from_environment(dict([said])), name)
    assert str(found).endswith(str(value)) or (row.metavar == "" and found), (found, value)
