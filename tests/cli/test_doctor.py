"""`mmulator doctor`: each part in each state, beside what the package says elsewhere."""

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from mmulator.cli import doctor
from mmulator.cli.app import run

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def parts(capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, dict[str, str]]:
    assert run(["doctor", "--json"]) == code
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] == (code == 0)
    return {part["name"]: part for part in said["parts"]}


@pytest.mark.parametrize(
    "name", ["pytest", *(pytest.param(n, marks=pytest.mark.full) for n in ("triton", "torch", "numba-cuda"))]
)
def test_what_is_here_has_its_version(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = parts(capsys)
    assert found[name]["state"] == doctor.HERE and metadata.version(name) in found[name]["said"]
    assert found["LLVM"]["state"] == found["Python"]["state"] == found["code cache"]["state"] == doctor.HERE


@pytest.mark.parametrize(("package", "_", "extra"), doctor._LIBRARIES)
def test_a_missing_library_has_the_command_of_its_extra(
    package: str, _: str, extra: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = metadata.version

    def version(name: str) -> str:
        if name == package:
            raise metadata.PackageNotFoundError(name)
        return there(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    part = parts(capsys)[package]
    assert part["state"] == doctor.MISSING
    wanted = PROJECT["optional-dependencies"][extra] if extra else [package]
    names = [re.split(r"[<>=\[]", name)[0] for name in wanted]
    assert part["todo"].startswith("pip install ") and all(name in part["todo"] for name in [package, *names])


def test_what_cannot_be_used_ends_with_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    there = metadata.version
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "3.1.0" if name == "triton" else there(name))
    assert "too old" in parts(capsys, 1)["triton"]["said"]
    monkeypatch.undo()
    monkeypatch.setenv("MMULATOR_DEVCE", "1")
    assert parts(capsys, 1)["MMULATOR_DEVCE"]["state"] == doctor.WRONG
    monkeypatch.delenv("MMULATOR_DEVCE")
    monkeypatch.setattr("mmulator.base.codegen.store.open_store", _unusable)
    assert parts(capsys, 1)["code cache"]["todo"].startswith("set MMULATOR_CACHE")


def _unusable() -> tuple[None, object]:
    from mmulator.base.codegen.store import CachePlace

    return None, CachePlace(Path("open"), "others may write to it")


def test_without_a_compiler(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmulator.ptx.toolkit.nvcc._places", list)
    monkeypatch.delenv("MMULATOR_NVCC", raising=False)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    found = parts(capsys)
    assert found["g++"]["state"] == found["nvcc"]["state"] == doctor.MISSING
    assert all(re.split(r"[<>=]", name)[0] in found["nvcc"]["todo"] for name in PROJECT["optional-dependencies"]["nvcc"])


def test_sources_without_an_installation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    for name in ("version", "requires"):
        monkeypatch.setattr(doctor.metadata, name, nothing)
    found = parts(capsys)
    assert found["triton"]["todo"] == "pip install '.[triton]' in a clone" and found["LLVM"]["state"] == doctor.MISSING


def test_text_fits_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("mmulator ") and max(map(len, lines[1:])) <= 80
