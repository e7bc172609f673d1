"""Kernels of the corpus that are right: the sanitizer says nothing of them. A sample of them."""

import pytest

from tests.support import corpus

# What is found in them is true: a kernel of Triton's whose atomic_cas knows no mask, so that block (1, 0, 0) reaches beyond its
# row into the next one, which block (0, 0, 0) stores to.
# The tutorial's backward pass of a layer norm branches in all warps by a count that its first thread changes by atom.exch.
# And a search that reads with plain loads whether a node was reached, while other threads reach it by compare-and-swap.
KNOWN = {
    "atomics": {"race-plain-sync"}, "breadth_first": {"race-read-write", "race-within-warp"},
    "layernorm_backward": {"race-read-write"},
}  # fmt: skip
ALWAYS = ("layernorm_backward", "spin_flag", "breadth_first", "atomics", "sgemm_tiled", "gemm_split_k_f16_sm80")
EVERY = 8
NAMES = sorted(corpus.manifest())
SAMPLE = sorted({*NAMES[::EVERY], *(name for name in ALWAYS if name in NAMES)})


@pytest.mark.parametrize("name", SAMPLE)
def test_what_is_right_has_no_findings(name: str) -> None:
    report = corpus.launch(name, sanitize=True).report
    assert {f.rule for f in report.findings} == KNOWN.get(name, set()), "\n".join(map(str, report.findings))
