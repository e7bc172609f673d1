"""Tests of the plug-in need Triton and torch; without them they are left out by name."""

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("triton", reason="Triton is not installed: its plug-in is not tried")
pytest.importorskip("torch", reason="PyTorch is not installed: Triton's plug-in is not tried")

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns where nobody says so


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Triton remembers where its sources were, so it gets a cache of its own, unless somebody chose one."""
    with pytest.MonkeyPatch.context() as patch:
        if "TRITON_CACHE_DIR" not in os.environ:
            patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A driver of default settings, and the door of torch closed, whatever ran before in this process."""
    from mmulator.host import driver

    monkeypatch.setenv("TRITON_DEFAULT_BACKEND", "mmulator")
    monkeypatch.setattr("mmulator.doors.triton.arguments.torch_door", lambda: None)
    before = driver.current()
    driver.use(driver.Driver(driver.Settings(timeout=600)))
    yield
    driver.use(before)
