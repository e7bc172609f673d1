"""Triton's test_consan.py on Hopper and on Blackwell, with mmulator's sanitizer in the place of ConSan.

    python -m evidence.judges.consan ~/triton --work /tmp/consan --jobs 2 --json consan.json

Kernels of Gluon, each with a defect and without, as the test's parameters say. The test itself judges: it asks for a failure
and for a message of ConSan's, and gets the messages that stand for the rules that were broken. It is run twice: first with an
answer that nothing is wrong, which it accepts only where nothing is planted; then with the kernel. Blackwell is
asked for the tests that Hopper skips. Tests of ConSan's own switches are left out.

As a plug-in of pytest (`-p evidence.judges.consan`) this file has the second half of that.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evidence.judges.common import Answer, Count, Judge, arguments, finish, run_suite

OUT, BEFORE = "JUDGE_OUT", "JUDGE_BEFORE"
CHIPS = {"Hopper": "sm_90", "Blackwell": "sm_100"}
TEST = "python/test/gluon/test_consan.py"
SWITCHES = ("test_cache_miss_knob", "test_cache_miss_env", "test_consan_uses_profile_scratch")
_ORDER = (
    "race-*", "tma-*", "async-*", "bulk-source-reused", "bulk-result-read-early", "wgmma-operand-overwritten", "cluster-*",
    "mbarrier-init-not-visible", "mbarrier-inval-in-use", "tensor-operand-overwritten", "tensor-read-early",
    "tensor-written-early", "tensor-race", "tensor-dealloc-early",
)  # fmt: skip
MESSAGES = {
    "Buffer being accessed has outstanding writes": _ORDER,
    "Buffer being accessed has outstanding reads": _ORDER,
    "Accessing buffer with pending access. Pending access type: async_copy_global_to_shared": ("async-copy-*", "mbarrier-*"),
    "Accessing buffer with pending access. Pending access type: async_copy_shared_to_global": (
        "bulk-source-reused", "async-write-overlap", "tma-refill-early",
    ),
    "Accessing buffer with pending access. Pending access type: warpgroup_mma operand read": (
        "wgmma-operand-overwritten", "tma-refill-early", "async-write-overlap",
    ),
    "Async shared-memory access is missing fence_async_shared": ("proxy-fence-missing",),
    "Barrier arrive underflow": ("mbarrier-arrival-overrun",),
    "Barrier re-initialized without prior invalidation": ("mbarrier-init-in-use",),
    "Barrier used before initialization or after invalidation": ("mbarrier-not-initialised", "mbarrier-use-after-inval"),
    "Deadlock detected": ("deadlock-*", "livelock", "mbarrier-arrival-overrun", "mbarrier-bytes-*"),
    "Shared memory reused before barrier invalidation": ("mbarrier-stored-to", "mbarrier-read-as-data"),
}  # fmt: skip
_MOVED = "Triton's PTX moves accumulators that wgmma.wait_group 1 leaves in flight: undefined, and ptxas waits where it sees that"
_UNWRITTEN = "the product reads shared memory and columns of tensor memory that nobody has written"
REASONS = {
    "test_aliasing_tensor_visibility_outstanding_read": "columns of tensor memory are read that nobody has written",
    "test_async_copy_mbarrier_arrive_requires_init": "128 arrivals at an mbarrier whose phase awaits one",
    "test_async_shared_store_proxy_handoff": "the specification does not say through which proxy st.async writes",
    "test_clc_double_try_cancel_result_overwrite": "both answers are written to one place, and nothing orders them",
    "test_disjoint_noncontiguous_tmem_subslices": "columns of tensor memory are read that nobody has written",
    "test_multibuffered_wgmma_loop": _MOVED,
    "test_tcgen5_mma": _UNWRITTEN,
    "test_tcgen5_mma_multibar": _UNWRITTEN,
    "test_tma_store": "both tensor stores write one tile of global memory, and nothing orders them",
    "test_warpgroup_mma2": _MOVED,
    "test_ws_join_publishes_proxy_generation": "no two accesses conflict: what was written has its fence, all else reads",
    "test_ws_wgmma_wait_visibility": _MOVED,
}
JUDGE = Judge(
    "consan", "Triton\'s test_consan.py", "github.com/triton-lang/triton", "5f153979",
    {"Hopper": Count(183, 186, 13, 155), "Blackwell": Count(55, 55, 40, 67)},
    tuple(rule for rules in MESSAGES.values() for rule in rules),
)  # fmt: skip


def messages(rules: Iterable[str]) -> list[str]:
    """ConSan's messages where these rules are broken."""
    from mmulator.base.rules.choice import meant

    return [text for text, words in MESSAGES.items() if {*rules} & {rule for word in words for rule in meant(word)}]


# in pytest ----------------------------------------------------------------------------------------------------------
class Case:
    """The test that runs. probe: its kernel is not to be run. asked: it wanted to run one apart. error: what that ended in."""

    probe, asked, error = False, False, ""
    this: Any = None

    def rules(self) -> tuple[str, ...]:
        return tuple(sorted({finding.rule for finding in [*self.this.findings, *self.this.before]}))

    def run(self, function: Callable[..., Any], given: tuple[Any, ...] = (), *_: Any) -> Any:
        """In the place of Triton's run_in_process."""
        self.asked = True
        if self.probe:
            return SimpleNamespace(exc=None, driver_stderr_output="")
        try:
            function(*given)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}".split("\n")[0]
        rules = self.rules()
        if not rules and not self.error:
            return SimpleNamespace(exc=None, driver_stderr_output="")
        return SimpleNamespace(
            exc=RuntimeError(f"device-side assert: {self.error or rules}"), driver_stderr_output="\n".join(messages(rules))
        )


CASE = Case()


def attempt(item: Any, probe: bool) -> str:
    """The test's own opinion: what it fails with, or ""."""
    CASE.probe, CASE.error = probe, ""
    try:
        item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames})
    except Exception as error:
        return f"{type(error).__name__}: {error}".split("\n")[0] or "failed"
    return ""


def pytest_configure() -> None:
    if OUT in os.environ:
        set_variable = pytest.MonkeyPatch.setenv

        def setenv(self: Any, name: str, *rest: Any, **named: Any) -> None:
            if name != "TRITON_INSTRUMENTATION_MODE":
                set_variable(self, name, *rest, **named)

        pytest.MonkeyPatch.setenv = setenv  # type: ignore[method-assign]
        from triton import _internal_testing

        _internal_testing.run_in_process = CASE.run
        _internal_testing.use_process_pool = lambda module: nullcontext()


def pytest_collection_modifyitems(items: list[Any]) -> None:
    if OUT in os.environ:
        done = {line["case"] for line in lines(Path(os.environ[OUT]))}
        if BEFORE in os.environ:
            done |= {line["case"] for line in lines(Path(os.environ[BEFORE])) if "skipped" not in line}
        items[:] = [item for item in items if item.originalname not in SWITCHES and item.name not in done]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    if OUT not in os.environ:
        return None
    CASE.this, CASE.asked = pyfuncitem.config.pluginmanager.get_plugin("mmulator-tests").this, False
    refused = attempt(pyfuncitem, probe=True)
    planted = bool(refused) and CASE.asked
    if CASE.asked:
        refused = attempt(pyfuncitem, probe=False)
    line = {"case": pyfuncitem.name, "planted": planted, "refused": refused, "rules": CASE.rules(), "error": CASE.error}
    CASE.this.take_findings()
    write(line)
    return True


def pytest_runtest_logreport(report: Any) -> None:
    if OUT in os.environ and report.skipped and "PYTEST_XDIST_WORKER" not in os.environ:
        write({"case": report.nodeid.rpartition("::")[2], "skipped": report.longrepr[2]})


def write(line: dict[str, Any]) -> None:
    with Path(os.environ[OUT]).open("a") as file:
        file.write(json.dumps(line) + "\n")


# outside ------------------------------------------------------------------------------------------------------------
def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def answers(chip: str, found: Iterable[dict[str, Any]]) -> Generator[Answer, None, None]:
    for line in sorted(found, key=lambda line: line["case"]):
        if "skipped" not in line:
            planted = line["planted"]
            agrees = not line["refused"]  # with what the test asks for
            rules = (tuple(line["rules"]) or (line["error"] or line["refused"],)) if planted == agrees else ()
            reason = "" if agrees else REASONS.get(line["case"].partition("[")[0], line["error"] or line["refused"])
            yield Answer(chip, line["case"], planted, rules, reason)


def main() -> int:
    import tempfile

    from mmulator.base.codegen.sources import fingerprint

    options = arguments(__doc__ or "").parse_args()
    given: list[Answer] = []
    skipped: dict[str, str] = {}
    before: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for chip, device in CHIPS.items():
            out = (options.work or Path(scratch)).resolve() / f"{device}-{fingerprint()[:16]}.jsonl"
            out.parent.mkdir(parents=True, exist_ok=True)
            words = [TEST, *["-n", str(options.jobs)] * (options.jobs > 1)]
            run_suite(options, "consan", device, words, **{OUT: str(out), **before})
            found, before = lines(out), {BEFORE: str(out)}
            given += answers(chip, found)
            skipped = {line["case"]: line["skipped"] for line in found if "skipped" in line}
    code = finish(JUDGE, options, given, out_of_reach=skipped)
    for name in sorted({case.partition("[")[0] for case in skipped}):
        reasons = {why.removeprefix("Skipped: ") for case, why in skipped.items() if case.partition("[")[0] == name}
        print(f"  out of reach: {name}: {'; '.join(sorted(reasons))}")
    return code


if __name__ == "__main__":
    sys.exit(main())
