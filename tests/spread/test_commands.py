"""`run --dask` and `conformance --dask`."""

import json
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator.cli.app import run
from mmulator.errors import MmulatorError
from mmulator.evaluation.conformance.run import RunSettings
from mmulator.evaluation.conformance.run import run as conform
from mmulator.evaluation.spread import hosts
from tests.spread.kernels import SQUARE, kernel
from tests.support.places import ROOT


@pytest.fixture
def launch(tmp_path: Path) -> list[str]:
    (tmp_path / "k.ptx").write_text(kernel(SQUARE).module.tree.source.text)
    np.save(tmp_path / "x.npy", np.arange(256, dtype=np.uint32))
    return ["run", str(tmp_path / "k.ptx"), "--grid", "8", "--block", "32", "--arg", f"x={tmp_path}/x.npy", "--arg",
            "y=out:u32:256", "--save", str(tmp_path / "y.npz"), "--json"]  # fmt: skip


def test_run(client: Any, launch: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*launch, "--dask", client.scheduler.address]) == 0
    assert (np.load(tmp_path / "y.npz")["y"] == np.arange(256, dtype=np.uint32) ** 2).all()
    there = json.loads(capsys.readouterr().out)["report"]
    assert run(launch) == 0
    here = json.loads(capsys.readouterr().out)["report"]
    assert {**there, "seconds": 0, "threads": 0, "cached": 0} == {**here, "seconds": 0, "threads": 0, "cached": 0}


@pytest.mark.parametrize("other", [["--threads", "2"], ["--watch", "y[1]"], ["--sanitize"], ["--compare-gpu"]])
def test_run_with_what_is_about_one_machine(launch: list[str], other: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*launch, "--dask", "tcp://127.0.0.1:1", *other]) == 2
    (said,) = (error["message"] for error in json.loads(capsys.readouterr().out)["errors"])  # launch has --json
    assert said.startswith((f"not both {other[0]} and --dask", f"not both --dask and {other[0]}"))


def test_no_scheduler_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "PATIENCE", 1.0)
    for address in ("tcp://127.0.0.1:1", "nonsense"):
        with pytest.raises(MmulatorError, match=f"^there is no Dask scheduler at {address}: "):
            hosts.connect(address)


@pytest.mark.parametrize(
    ("answer", "said"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "what answers there is something else"), (b"", "what is there said nothing for 2 s")],
)
def test_no_scheduler_is_what_answers(monkeypatch: pytest.MonkeyPatch, answer: bytes, said: str) -> None:
    """The port of a dashboard, and one that accepts and is silent."""
    monkeypatch.setattr(hosts, "PATIENCE", 1.0)
    came = []

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                came.append(listening.accept()[0])
                came[-1].sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        with pytest.raises(MmulatorError, match=f"^there is no Dask scheduler at .*: {said}"):
            hosts.connect(f"tcp://127.0.0.1:{listening.getsockname()[1]}")
    assert came
    for connection in came:
        connection.close()


def test_without_dask() -> None:
    """Nothing of mmulator loads it; who asks for a cluster hears what to install."""
    code = (
        "import sys; sys.modules['distributed'] = None\n"
        "import mmulator as mm, mmulator.evaluation.spread.hosts as hosts, mmulator.cli.run\n"
        "import mmulator.matrix.instruction.matmul, mmulator.evaluation.spread.launch\n"
        "print([m for m in sys.modules if m.partition('.')[0] == 'dask'])\n"
        "try: hosts.connect('tcp://127.0.0.1:1')\n"
        "except mm.errors.MmulatorError as error: print(error.message, '|', error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == "[]" and second.startswith("Dask is not installed: ")
    assert second.endswith("pip install '.[cluster]' in a checkout of mmulator")


def test_conformance(client: Any) -> None:
    """Vectors, which are sent; and the model in the place of a GPU."""
    wanted = r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f(16|32)\.f16"
    settings = RunSettings(filter=wanted, replay=str(ROOT / "vectors/sm_90"))
    there, here = conform(settings, client=client), conform(settings)
    assert there.ok and len(there.rows) >= 2
    assert [(r.item, r.cases, r.executions, r.words) for r in there.rows] == [
        (r.item, r.cases, r.executions, r.words) for r in here.rows
    ]
    model = conform(RunSettings(count=20, filter=wanted, machine="sm_90", edges=False), client=client)
    assert model.ok and len(model.rows) == len(there.rows)


def test_conformance_as_a_command(client: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["conformance", "--filter", r"^mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16", "--json"]
    assert run([*words, "--dask", client.scheduler.address]) == 0
    assert json.loads(capsys.readouterr().out)
    assert run([*words, "--dask", "tcp://127.0.0.1:1", "--gpu"]) == 2
    assert run([*words, "--dask", "tcp://127.0.0.1:1", "--processes", "2"]) == 2
