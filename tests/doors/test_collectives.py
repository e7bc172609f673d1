"""torch.distributed over Gloo and NCCL with tensors of cuda: two processes train one model, and none crashes."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import forks
from tests.support.places import ROOT

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
COMMAND = ["-m", "mmulator", "exec", str(Path(__file__).parent / "programs" / "collectives.py")]


@pytest.mark.full
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_processes_exchange_tensors_of_cuda(tmp_path: Path, backend: str) -> None:
    done = forks.run([*COMMAND, str(tmp_path / "meeting"), backend], ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    facts = [[3.0] * 3, [1.0, 2.0], [3.0] * 3, [3.0, 6.0], [[1.5] * 3], "cuda:0", [3.0] * 3]
    assert [json.loads(line) for line in done.stdout.splitlines()] == [facts, facts]


def test_a_tensor_sent_to_another_process_is_refused_by_name() -> None:
    done = forks.run(COMMAND, ROOT)
    assert done.returncode == 1 and "UnsupportedError: a tensor of cuda cannot be sent to another process" in done.stderr
