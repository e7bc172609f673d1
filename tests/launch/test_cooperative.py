"""Cooperative launches: all blocks of a grid are resident, and meet."""

from pathlib import Path

import numpy as np
import pytest

from mmulator.errors import ExecutionFault, LaunchError
from mmulator.host.driver import Driver, Settings
from mmulator.host.jobs.job import load_job, run_job
from mmulator.host.module import Module
from tests.support.places import ROOT

PTX = ROOT / "tests" / "kernels" / "ptx" / "cluster.ptx"  # by nvcc, with grid.sync() of cooperative_groups


def rounds(a: np.ndarray, count: int) -> np.ndarray:
    """What grid_rounds leaves in its first argument."""
    n = len(a)
    i = np.arange(n)
    for r in range(count):
        b = a[(i * 5 + r) % n] + i
        a = b[::-1] ^ r
    return a


@pytest.mark.parametrize(("blocks", "threads"), [(1, 1), (3, 1), (264, 1), (300, 2)])
@pytest.mark.parametrize("seed", [0, 3])
def test_blocks_of_a_grid_meet(blocks: int, threads: int, seed: int) -> None:
    a = np.arange(blocks * 64, dtype=np.int32) * 7
    want, b = rounds(a, 3), np.zeros_like(a)
    Module.load(PTX)["grid_rounds"].launch(blocks, 64, [a, b, 3], cooperative=True, threads=threads, seed=seed, timeout=600)
    assert (a == want).all()


def test_a_grid_of_clusters_meets() -> None:
    given, out = np.arange(24, dtype=np.int32), np.zeros(24, np.int32)
    Module.load(PTX)["grid_of_clusters"].launch(24, 32, [given, out], cluster=4, cooperative=True, timeout=600)
    sums = given.reshape(-1, 4).sum(axis=1)
    assert (out == np.repeat(sums.sum() * 100 + sums, 4)).all()


def test_without_it_grid_sync_traps() -> None:
    """As on an H200: a launch that is not cooperative has no workspace."""
    a = np.zeros(128, np.int32)
    with pytest.raises(ExecutionFault, match="trap executed"):
        Module.load(PTX)["grid_rounds"].launch(2, 64, [a, a.copy(), 3])


def test_launch_files_and_the_driver_know_both(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(PTX.read_text())
    (tmp_path / "k.toml").write_text(
        "ptx = 'k.ptx'\nentry = 'grid_of_clusters'\ngrid = 8\nblock = 32\ncluster = [2, 1]\ncooperative = true\n"
        "[[arg]]\nname = 'a'\ntype = 'i32'\nvalues = [1, 2, 3, 4, 5, 6, 7, 8]\n"
        "[[arg]]\nname = 'o'\ntype = 'i32'\nshape = [8]\nzeros = true\n"
    )
    result = run_job(load_job(tmp_path / "k.toml"))
    assert result.written["o"].tolist() == [3603, 3603, 3607, 3607, 3611, 3611, 3615, 3615] and result.report.cluster == (2, 1, 1)
    (tmp_path / "bad.toml").write_text("ptx = 'k.ptx'\ngrid = 8\nblock = 32\ncooperative = 1\n")
    with pytest.raises(LaunchError, match="cooperative is 1, not true or false"):
        load_job(tmp_path / "bad.toml")
    driver = Driver(Settings(device="sm_90"))
    function = driver.load(PTX.read_text()).function("grid_of_clusters")
    given, out = np.arange(8, dtype=np.int32) + 1, np.zeros(8, np.int32)
    regions = []
    from mmulator.runtime.launch.regions import Region

    for array in (given, out):
        regions.append(Region(array.ctypes.data, array.nbytes, "an array"))
    params = np.array([given.ctypes.data, out.ctypes.data], np.uint64).tobytes()
    report = driver.launch(function, (8, 1, 1), (32, 1, 1), params, regions, cluster=(2, 1, 1), cooperative=True)
    assert out.tolist() == result.written["o"].tolist() and report.cluster == (2, 1, 1)
