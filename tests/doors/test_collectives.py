"""torch.distributed over Gloo with tensors of cuda: two processes train one model, and none crashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.places import PACKAGE, ROOT

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
PROGRAM = Path(__file__).parent / "programs" / "collectives.py"


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mmulator", "exec", str(PROGRAM), *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(PACKAGE), str(ROOT)))}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.full
def test_processes_exchange_tensors_of_cuda(tmp_path: Path) -> None:
    both = [start(str(rank), str(tmp_path / "meeting")) for rank in range(2)]
    for process in both:
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err[-3000:]
        assert json.loads(out) == [[3.0] * 3, [1.0, 2.0], [3.0] * 3, [3.0, 6.0], [[1.5] * 3], "cuda:0", [3.0] * 3]


def test_a_tensor_sent_to_another_process_is_refused_by_name() -> None:
    process = start()
    _, err = process.communicate(timeout=600)
    assert process.returncode == 1 and "UnsupportedError: a tensor of cuda cannot be sent to another process" in err
