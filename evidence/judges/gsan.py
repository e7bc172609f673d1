"""Triton's tests of GSan (python/test/gsan) on Hopper and on Blackwell, with mmulator's sanitizer in the place of GSan.

    python -m evidence.judges.gsan ~/triton --work /tmp/gsan --json gsan.json

Kernels of Triton and Gluon that pass data between blocks through atomic operations. Those of test_gsan_failures.py have a race;
those of test_gsan.py have none. What the tests assert of GSan's own shadow memory cannot hold here, and is left out: a case is
its launches. What needs Blackwell, pytest skips on Hopper.

As a plug-in of pytest (`-p evidence.judges.gsan`) this file has the part that runs there.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from evidence.judges.common import Answer, Count, Judge, arguments, done, finish, keep, run_suite

OUT = "JUDGE_GSAN_OUT"
RACY, CLEAN = "test_gsan_failures.py", "test_gsan.py"
CHIPS = {"Hopper": "sm_90", "Blackwell": "sm_100"}
JUDGE = Judge(
    "gsan", "Triton's tests of GSan", "github.com/triton-lang/triton", "9d9a2d7a",
    {"Hopper": Count(22, 22, 0, 58), "Blackwell": Count(24, 24, 0, 60)}, ("race-*", "tma-*", "bulk-*"),
)  # fmt: skip


# in pytest ----------------------------------------------------------------------------------------------------------
def pytest_configure() -> None:
    if OUT not in os.environ:
        return
    import torch
    import triton
    from triton import _internal_testing
    from triton._C.libtriton import gsan_testing

    inside: Any = ModuleType("gsan_testing")
    inside.__getattr__ = lambda name: getattr(gsan_testing, name, None) or MagicMock(name=name)  # of other versions of Triton
    sys.modules["triton._C.libtriton.gsan_testing"] = inside
    for name in ("triton.experimental.gsan._allocator", "triton.experimental.gsan._stream_sync"):
        sys.modules[name] = MagicMock(name=name)
    from triton.experimental import gsan

    type(triton.knobs.compilation).instrumentation_mode = property(lambda _: "", lambda *_: None)
    gsan.create_mem_pool = lambda: None
    torch.cuda.use_mem_pool = lambda *_: nullcontext()
    _internal_testing.run_in_process = here


def pytest_collection_modifyitems(items: list[Any]) -> None:
    if OUT in os.environ:
        for module in {item.module for item in items}:
            for name in ("shadow_cell_from_address", "thread_state_from_smid"):
                if hasattr(module, name):
                    setattr(module, name, MagicMock(name=name))


def here(function: Any, given: tuple[Any, ...] = (), *_: Any, **__: Any) -> Any:
    """In the place of Triton's run_in_process."""
    function(*given)
    return SimpleNamespace(exc=None, driver_stderr_output="")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    if OUT not in os.environ:
        return None
    this = pyfuncitem.config.pluginmanager.get_plugin("mmulator-tests").this
    error = ""
    try:
        pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames})
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}".split("\n")[0]
    rules = sorted({finding.rule for finding in [*this.findings, *this.before]})
    found = {"planted": pyfuncitem.path.name == RACY, "rules": rules, "error": error}
    keep(Path(os.environ[OUT]), {"case": pyfuncitem.name, "found": found})
    this.take_findings()
    return True


def pytest_runtest_logreport(report: Any) -> None:
    if OUT in os.environ and report.skipped:
        keep(Path(os.environ[OUT]), {"case": report.nodeid.rpartition("::")[2], "found": {"skipped": report.longrepr[2]}})


# outside ------------------------------------------------------------------------------------------------------------
def main() -> int:
    import tempfile

    options = arguments(__doc__ or "").parse_args()
    given: list[Answer] = []
    skipped: dict[str, str] = {}
    for chip, device in CHIPS.items():
        with tempfile.TemporaryDirectory() as scratch:
            out = (options.work or Path(scratch)).resolve() / f"gsan-{device}.jsonl"
            out.parent.mkdir(parents=True, exist_ok=True)
            out.unlink(missing_ok=True)
            run_suite(options, "gsan", device, [f"python/test/gsan/{file}" for file in (RACY, CLEAN)], **{OUT: str(out)})
            found = done(out)
        for case, line in sorted(found.items()):
            if "skipped" in line:
                skipped[f"{case} on {chip}"] = line["skipped"].removeprefix("Skipped: ")
            else:
                wrong = line["planted"] != bool(line["rules"])
                given.append(Answer(chip, case, line["planted"], tuple(line["rules"]), line["error"] if wrong else ""))
    return finish(JUDGE, options, given, skipped)


if __name__ == "__main__":
    sys.exit(main())
