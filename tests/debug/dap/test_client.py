"""Sessions by a client of the protocol that others wrote: the one of @vscode/debugadapter-testsupport, headless, in Node."""

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.debug.dap.test_sessions import HERE, TRITON, line_of
from tests.support import places, protocol
from tests.support.nvcc import compiled

PACKAGE = "@vscode/debugadapter-testsupport"


@cache
def modules() -> str | None:
    """The folder of Node's packages that has the client; None where there is no Node, or no such package."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None:
        return None
    asked = subprocess.run([npm, "root", "-g"], capture_output=True, text=True).stdout.strip() if npm else ""
    found = (*os.environ.get("NODE_PATH", "").split(os.pathsep), asked)
    return next((folder for folder in found if folder and (Path(folder) / PACKAGE).is_dir()), None)


pytestmark = pytest.mark.skipif(
    modules() is None, reason=f"no client: install Node, and `npm install -g {PACKAGE}`, or name its node_modules in NODE_PATH"
)


def run(folder: Path, program: Path, source: Path, line: int, forward: list[str], expression: str, **launch: Any) -> list[Any]:
    """A session to a breakpoint, forwards and back over the same steps, and to the end; returns the messages."""
    start = folder / "adapter.sh"
    start.write_text(f'exec "{sys.executable}" -m mmulator debug --dap\n')
    plan = {
        "runtime": "sh", "executable": str(start), "launch": {"program": str(program), **launch},
        "breakpoint": {"path": str(source), "line": line, "verified": False}, "forward": forward, "expression": expression,
    }  # fmt: skip
    (folder / "plan.json").write_text(json.dumps(plan))
    words = ["node", str(Path(__file__).with_name("client.js")), str(folder / "plan.json")]
    environment = {**os.environ, "NODE_PATH": str(modules())}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    return [json.loads(text) for text in done.stdout.splitlines()]


def check(messages: list[Any]) -> None:
    """Each message is what the specification says, and each request has one response."""
    asked = {m["seq"]: m["command"] for m in messages if m["type"] == "request"}
    wrong = [
        (fault, m) for m in messages if m.get("command") not in protocol.OWN or m["type"] != "request"
        for fault in protocol.wrong(m, asked.get(m.get("request_seq"), ""))
    ]  # fmt: skip
    assert not wrong
    answered = [m["request_seq"] for m in messages if m["type"] == "response"]
    assert sorted(answered) == sorted(asked)
    assert [m["seq"] for m in messages if m["type"] != "request"] == list(range(1, len(messages) - len(asked) + 1))
    assert all(m["success"] for m in messages if m["type"] == "response")


def test_a_launch_file(tmp_path: Path) -> None:
    forward = ["continue", "continue", "next", "stepIn", "next"]
    check(run(tmp_path, HERE / "loop.toml", HERE / "loop.ptx", line_of("add.f32 %f2"), forward, "%f1"))


def test_a_warp_specialised_pipeline(tmp_path: Path) -> None:
    ptx = places.ROOT / "tests" / "kernels" / "ptx" / "gemm_pipelines.ptx"
    line = next(n for n, text in enumerate(ptx.read_text().split("\n"), 1) if "wgmma.mma_async" in text)
    forward = ["continue", "continue", "next", "stepIn", "next", "next"]
    check(run(tmp_path, places.ROOT / "examples" / "hopper_pipeline" / "launch.toml", ptx, line, forward, "D[3,5]"))


def test_a_triton_program(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    program = tmp_path / "add.py"
    program.write_text(TRITON)
    messages = run(tmp_path, program, program, line_of("tl.store", program), ["continue", "next", "next"], "ctaid.x")
    check(messages)
    said = [m["body"]["output"] for m in messages if m.get("event") == "output" and m["body"]["category"] == "stdout"]
    assert "".join(said).startswith("sum ")


@compiled
def test_a_program_of_cuda(tmp_path: Path) -> None:
    source = HERE / "calls.cu"
    check(run(tmp_path, source, source, line_of("r = r * 2", source), ["stepIn", "next", "stepIn"], "tid.x", seed=3))
