"""`mmulator check`: undefined behaviour that is certain without a run."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mmulator.base.findings import Finding
from mmulator.cli.app import run
from mmulator.ptx.program import static
from mmulator.ptx.program.blocks import Program
from tests.cli.test_sanitize import check_shape
from tests.support.ptx_text import kernel


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "k.ptx"
    path.write_text(kernel("  mov.u32 %r1, 1;"))
    return path


def found(severity: str) -> Callable[[Program], Iterator[Finding]]:
    def analysis(program: Program) -> Iterator[Finding]:
        (function,) = program.module.functions
        ins = [*function.instructions][1]
        place = (ins.mnemonic, f"k.ptx:{ins.span.line}", "", "", "", None, 0, 1, "do something else")
        yield Finding("wgmma-fence-missing", severity, "something is wrong here", *place, span=ins.span)

    return analysis


def test_findings_follow_and_decide_the_exit_code(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(static, "ANALYSES", (found("error"),))
    assert run(["check", "k.ptx"]) == 3
    lines = capsys.readouterr().out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("k.ptx:9: error: something is wrong here"))
    assert lines[at + 1 : at + 3] == ["  mov.u32 %r1, 1;", "  ^^^^^^^^^^^^^^^"] and lines[-1] == "1 finding (1 error), of 1 rule"
    assert not any(line.startswith("  by:") for line in lines)
    assert run(["check", "k.ptx", "--json"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert not data["ok"] and data["findings"][0]["rule"] == "wgmma-fence-missing"
    assert run(["check", "k.ptx", "--sarif", "-"]) == 3
    (result,) = check_shape(json.loads(capsys.readouterr().out))["results"]
    assert result["ruleId"] == "wgmma-fence-missing"


def test_warnings_decide_nothing(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(static, "ANALYSES", (found("warning"),))
    assert run(["check", "k.ptx"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 finding (1 warning), of 1 rule"


def test_of_a_module_that_is_wrong_nothing_else_is_said(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(kernel("  mov.u32 %r1, %rd1;"))
    assert run(["check", "k.ptx"]) == 1
    assert "finding" not in capsys.readouterr().out
    file.write_text(kernel("  mov.u32 %r1, 1;"))
    assert run(["check", "k.ptx", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []
