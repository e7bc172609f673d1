"""Registers of wgmma in flight: what waits that ptxas would put there hide, what compilers may do."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mmulator.runtime.launch.launch import compile_options
from tests.support import breaches, corpus

FILES = breaches.files("accumulators")
CHANGES = [change for file in FILES for change in breaches.changes(file)]


def file_of(name: str) -> Path:
    return next(file for file in FILES if file.stem == name)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_waits_that_ptxas_puts_there_hide_nothing(change: breaches.Change, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every launch through a driver's door is compiled."""
    with monkeypatch.context() as patched:
        patched.setattr("mmulator.host.module.compile_options", lambda *launch: replace(compile_options(*launch), waits=True))
        result = breaches.launch(change.file, change.name)
    assert breaches.rules_found(result) == change.rules, "\n".join(map(str, result.findings))


def _around(text: str) -> str:
    """A module as LLVM would write it: the instructions of wgmma as inline assembly."""
    marked = (f"// begin inline asm\n{x}\n// end inline asm" if "wgmma." in x else x for x in text.split("\n"))
    return "\n".join(marked)


def _stripped(text: str) -> str:
    """A module as NVVM would write it, out of a fat binary: without comments."""
    (kernel,) = re.findall(r"\.entry (\w+)\(", text)
    names = re.findall(r"\.param \.\w+ (\w+)", text)
    for number, name in enumerate(names):
        text = re.sub(rf"(\.param \.\w+ |\[){name}\b", rf"\1{kernel}_param_{number}", text)
    return re.sub(r"\s*//.*", "", text)


MOVED = [
    ("k_loop", "spilled", True),
    ("k_loop", "weak", True),
    ("k_loop", "no_fence", True),
    ("attention", "scaled_unfenced", True),
    ("attention", "scores_early", True),
    ("sparse_tiles", "no_fence_again", True),
    ("attention", "peek", False),
    ("chained", "written_behind", False),
    ("chained", "a_early", False),
]


@pytest.mark.parametrize("write", [_around, _stripped])
@pytest.mark.parametrize(("name", "change", "found"), MOVED)
def test_what_a_compiler_moves_is_no_finding(
    name: str, change: str, found: bool, write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between pieces of inline assembly it computes where it likes, and ptxas takes that as it was meant."""
    text = breaches.text(file_of(name), change).replace("; wgmma.", ";\nwgmma.").replace("; mov.", ";\nmov.")
    monkeypatch.setattr(breaches, "text", lambda file, change=None: write(text))
    rules = {rule for rule in breaches.rules_found(breaches.launch(file_of(name))) if rule.startswith("wgmma")}
    assert bool(rules) == found, rules


MENDED = {"wgmma-accumulator-read-before-wait", "wgmma-accumulator-written-before-wait", "wgmma-a-overwritten-before-wait",
          "wgmma-fence-missing"}  # fmt: skip


@pytest.mark.parametrize(("name", "change"), [(name, change) for name, change, found in MOVED if found])
def test_what_ptxas_mends_in_code_for_debuggers_is_a_note(name: str, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = breaches.text(file_of(name), change).replace(".target sm_90a", ".target sm_90a, debug")
    monkeypatch.setattr(breaches, "text", lambda file, change=None: text)
    found = {f.rule: f.severity for f in breaches.launch(file_of(name)).findings}
    assert found.get("wgmma-serialized") == "note" and not MENDED & found.keys()


@pytest.mark.parametrize("name", [
    "attention_causal_sm90", "attention_warpgroups_sm90", "gemm_f16_f16acc_sm90", "gemm_e5m2_bits_sm90", "gemm_tf32_sm90",
    "gemm_grouped_sm90", "wgmma_f16", "gemm_w8_sm90",
])  # fmt: skip
def test_what_compilers_make_has_no_findings(name: str) -> None:
    outcome = corpus.launch(name, sanitize=True)
    assert not outcome.differences
    assert not [f for f in outcome.report.findings if f.rule.startswith("wgmma-")]
