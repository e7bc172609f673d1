"""A cluster as people have it: `dask scheduler` and `dask worker`, processes that know nothing of this one."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

from mmulator.errors import LaunchError
from tests.spread.kernels import SQUARE, kernel
from tests.support import corpus


@dataclass
class Started:
    address: str
    folder: Path
    processes: list[subprocess.Popen[bytes]]

    def dask(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{len(self.processes)}.log").open("wb")
        made = subprocess.Popen([sys.executable, "-m", "dask", *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.processes.append(made)
        return made

    def worker(self) -> subprocess.Popen[bytes]:
        return self.dask(
            "worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(self.folder)
        )


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """A scheduler and two workers."""
    folder = tmp_path_factory.mktemp("dask")
    made, told = Started("", folder, []), folder / "scheduler.json"
    try:
        made.dask("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(told))
        end = time.monotonic() + 60
        while not told.exists() or not told.read_text().endswith("}"):
            assert time.monotonic() < end and made.processes[0].poll() is None, (folder / "0.log").read_text()
            time.sleep(0.05)
        made.address = json.loads(told.read_text())["address"]
        made.worker(), made.worker()
        yield made
    finally:
        for process in reversed(made.processes):
            process.kill()
            process.wait(10)


@pytest.fixture
def client(started: Started) -> Iterator[Client]:
    with Client(started.address, set_as_default=False) as made:
        made.wait_for_workers(2, timeout=600)
        yield made


def test_run(started: Started, client: Client, tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(kernel(SQUARE).module.tree.source.text)
    np.save(tmp_path / "x.npy", np.arange(256, dtype=np.uint32))
    command = ["run", str(tmp_path / "k.ptx"), "--grid", "8", "--block", "32", "--arg", f"x={tmp_path}/x.npy",
               "--arg", "y=out:u32:256", "--save", str(tmp_path / "y.npz"), "--dask", started.address]  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "mmulator", *command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (np.load(tmp_path / "y.npz")["y"] == np.arange(256, dtype=np.uint32) ** 2).all()


def test_a_kernel_whose_blocks_wait_for_each_other_is_refused(client: Client) -> None:
    """Of the corpus: a block spins until another has set a flag."""
    with pytest.raises(LaunchError, match=r"^the blocks of spin_flag cannot be shared out .* of argument 3 .*, address 0x"):
        corpus.launch("spin_flag", workers=client, timeout=600)
