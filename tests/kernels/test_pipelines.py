"""What goes wrong in a pipeline: mistakes in gemm_pipelines.cu give other bits under some seed, or are named."""

import re

import numpy as np
import pytest

import mmulator as mm
from mmulator.cli.app import run
from tests.support.places import KERNELS, ROOT

TEXT = (KERNELS / "ptx" / "gemm_pipelines.ptx").read_text()
M, N, K = 300, 264, 200
TRY_WAIT = re.compile(r"mbarrier\.try_wait\.parity\S+\s+P_OUT, [^;]*;")


def gemm(text: str, seed: int) -> np.ndarray:
    """The result of one pair of blocks that shares all tiles."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, K)).astype(np.float16) for rows in (M, N))
    d = np.zeros((M, N), np.float16)
    maps = [mm.TensorMap.tiled(x, (rows, 64), swizzle="128B") for x, rows in ((a, 128), (b, 64), (d, 64))]
    mm.Module.load(text)["gemm_tma"].launch(2, 384, [*maps, M, N, K], 164864, seed=seed, timeout=600)
    return d.view(np.uint16)


def without_wait(number: int) -> str:
    """The kernel in which one of the two waits for mbarriers is over at once: for a stage that is full, for one that is empty."""
    found = list(TRY_WAIT.finditer(TEXT))[number]
    return TEXT[: found.start()] + "setp.eq.u32 P_OUT, 0, 0;" + TEXT[found.end() :]


def test_results_that_are_written_over_before_they_were_read() -> None:
    text = TEXT.replace("cp.async.bulk.wait_group.read 0;", "")
    assert text != TEXT
    right = gemm(TEXT, 0)
    assert any((gemm(text, seed) != right).any() for seed in range(4))


@pytest.mark.parametrize(("number", "what"), [
    (0, "of 1 arrival at memory"), (1, "mbarrier.arrive.expect_tx.*phase 0 awaits 0 arrivals"),
])  # fmt: skip
def test_a_missing_wait_for_a_stage_is_named(number: int, what: str) -> None:
    with pytest.raises(mm.errors.ExecutionFault, match=what):
        gemm(without_wait(number), 0)


def test_bytes_that_never_come_are_named() -> None:
    text = TEXT.replace(", 32768;", ", 32784;")
    assert text != TEXT
    with pytest.raises(mm.errors.ExecutionFault, match=r"deadlock.*waits for phase 0(.|\n)*16 of 32784 expected bytes"):
        gemm(text, 0)


@pytest.mark.parametrize("seed", range(3))
def test_the_example_has_the_bits_of_the_h200(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", str(ROOT / "examples" / "hopper_pipeline" / "launch.toml"), "--seed", str(seed)]) == 0
    assert "D: bit-identical to the H200 reference: yes (79200 elements)" in capsys.readouterr().out
