"""Questions of scripts to nvidia-smi, and its answers under `mmulator exec`."""

import subprocess
import sys

import pytest

from mmulator.cli.smi import answer, fields
from mmulator.host.driver.chips import CHIPS

H100 = CHIPS["sm_90"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--query-gpu=compute_cap --format=csv,noheader", 0, "9.0\n"),
        ("--query-gpu=index,memory.total,memory.used --format=csv", 0,
         "index, memory.total [MiB], memory.used [MiB]\n0, 81079 MiB, 0 MiB\n"),
        ("-i 0 --query-gpu=count,memory.free,power.draw --format=csv,noheader,nounits", 0, "1, 81079, [N/A]\n"),
        ("--query-gpu=colour --format=csv", 2, 'Field "colour" is not a valid field to query.\n'),
    ],
)  # fmt: skip
def test_queries(words: str, code: int, said: str) -> None:
    assert answer(words.split(), H100) == (code, said)


def test_every_field_of_every_chip_is_said() -> None:
    for chip in CHIPS.values():
        code, said = answer([f"--query-gpu={','.join(fields(chip))}", "--format=csv"], chip)
        head, line = said.splitlines()
        assert not code and len(line.split(", ")) == len(head.split(", ")) == len(fields(chip))


def test_programs_find_it() -> None:
    ours = [sys.executable, "-m", "mmulator", "exec", "--device", "sm_100"]
    for words in (["nvidia-smi", "-L"], ["-c", "import subprocess; subprocess.run(['nvidia-smi', '-L'])"]):
        done = subprocess.run([*ours, *words], capture_output=True, text=True)
        assert done.stdout.startswith("GPU 0: NVIDIA B200 (UUID: GPU-") and not done.returncode, done.stderr
    done = subprocess.run([*ours, "ncu", "./x"], capture_output=True, text=True)
    assert done.returncode == 2 and "mmulator exec --profile PROGRAM" in done.stderr
