"""The action and the workflows: inputs that exist, commands with options that exist, and the action's step as GitHub runs it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmulator.host.settings import taken
from mmulator.isa.targets import DEVICES
from tests.support.places import PACKAGE, ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = ACTION["runs"]["steps"]
SNIPPETS = dict(re.findall(r"<!-- workflow: (\w+) -->\n```yaml\n(.*?)```", (ROOT / "docs/how-to/ci.md").read_text(), re.DOTALL))
WORKFLOWS = [yaml.safe_load(p.read_text()) for p in sorted((ROOT / ".github/workflows").glob("*.yml"))]
OFFICIAL = re.compile(r"(actions/[\w-]+|github/codeql-action/[\w-]+)@v\d+|\./(mmulator)?")
RACE = """import ctypes
from mmulator.host.driver import Region, current
PTX = '''.version 8.0
.target sm_80
.address_size 64
.visible .entry turn(.param .u64 out)
{
  .shared .align 4 .b8 tile[256];
  .reg .b32 t, a, v;
  mov.u32 t, %tid.x;
  mov.u32 a, tile;
  mad.lo.u32 v, t, 4, a;
  st.shared.b32 [v], t;
  xor.b32 v, t, 32;
  mad.lo.u32 v, v, 4, a;
  ld.shared.b32 v, [v];
  ret;
}
'''
def test_turn():
    turn = current().load(PTX, "turn.ptx").function("turn")
    current().launch(turn, 1, 64, bytes(8), [])
if __name__ == "__main__":
    test_turn()
"""


def uses(steps: list[dict[str, Any]]) -> list[str]:
    return [step["uses"] for step in steps if "uses" in step]


def test_every_input_is_used_and_every_use_is_an_input() -> None:
    text = (ROOT / "action.yml").read_text()
    assert {*re.findall(r"inputs\.([\w-]+)", text)} == ACTION["inputs"].keys()
    page = (ROOT / "docs/how-to/ci.md").read_text()
    rows = re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == ACTION["inputs"].keys()


def test_jobs_take_official_actions_and_inputs_that_exist() -> None:
    jobs = [job for workflow in (*WORKFLOWS, yaml.safe_load(SNIPPETS["github"])) for job in workflow["jobs"].values()]
    assert len(jobs) > 8 and all(job["timeout-minutes"] <= 90 for job in jobs)
    own = [step for job in jobs for step in job["steps"] if step.get("uses", "").startswith("./")]
    assert len(own) == 2 and all(step["with"].keys() <= ACTION["inputs"].keys() for step in own)
    for name in [*uses(STEPS), *(name for job in jobs for name in uses(job["steps"]))]:
        assert OFFICIAL.fullmatch(name), name
    assert {*yaml.safe_load(SNIPPETS["github"])["jobs"]["test"]["strategy"]["matrix"]["device"]} <= {*DEVICES}


def test_options_exist() -> None:
    known = {name for row in taken("pytest") for name in row.names}
    (job,) = yaml.safe_load(SNIPPETS["gitlab"]).values()
    (line,) = (line for line in job["script"] if line.startswith("pytest "))
    told = {word.partition("=")[0] for text in (line, SNIPPETS["github"]) for word in re.findall(r"--mm\S*", text)}
    assert told and told <= known
    step = next(step["run"] for step in STEPS if step.get("id") == "run")
    for option in re.findall(r"\$\{own\}([\w-]+)", step):  # of pytest and of exec
        assert f"--mmulator-{option}" in known and f"--{option}" in {name for row in taken("exec") for name in row.names}


@pytest.mark.parametrize(("given", "code"), [
    ({"TESTS": "-q -p no:cacheprovider\ntest_fine.py\n  test_turn.py\n"}, 1), ({"PROGRAM": "test_turn.py\n"}, 3),
    ({"PROGRAM": "test_turn.py", "SANITIZE": "false"}, 0), ({}, 2),
])  # fmt: skip
def test_the_step_of_the_action(tmp_path: Path, given: dict[str, str], code: int) -> None:
    (tmp_path / "test_turn.py").write_text(RACE)
    (tmp_path / "test_fine.py").write_text("def test(): pass")
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(PACKAGE), "GITHUB_OUTPUT": "output",
        "TESTS": "", "PROGRAM": "", "SANITIZE": "true", "SARIF": "mmulator.sarif", "DEVICE": "sm_80", "BASELINE": "",
        "TRITON_CACHE_DIR": str(tmp_path / "t"), "MMULATOR_CACHE": os.environ.get("MMULATOR_CACHE", str(tmp_path / "m")),
    } | given  # fmt: skip
    for name, words in {"python": "", "mmulator": "-m mmulator"}.items():
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (tmp_path / name).chmod(0o755)
    (step,) = (step for step in STEPS if step.get("id") == "run")
    assert environment.keys() >= step["env"].keys()
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]  # as GitHub's runner does
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    if code not in (1, 3):
        assert not (tmp_path / "mmulator.sarif").exists()
        return
    assert (tmp_path / "output").read_text() == "sarif=mmulator.sarif\n"
    results = json.loads((tmp_path / "mmulator.sarif").read_text())["runs"][0]["results"]
    assert {r["ruleId"] for r in results} == {"race-read-write"}
    if code == 3:  # with its findings as the baseline nothing is new
        environment |= {"BASELINE": "old.sarif"}
        (tmp_path / "mmulator.sarif").rename(tmp_path / "old.sarif")
        assert subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True).returncode == 0
