"""Real kernels (Triton, nvcc and others) against what an NVIDIA H200 computed: every output, bit for bit."""

import pytest

from mmulator.base.codegen import stencils
from mmulator.base.codegen.stencils import Records
from mmulator.compiler import warm
from tests.support import corpus


@pytest.mark.parametrize("name", list(corpus.manifest()))
def test_kernel_has_the_bits_of_an_h200(name: str) -> None:
    if name in corpus.EXCEPT:
        pytest.skip(corpus.EXCEPT[name])
    outcome = corpus.launch(name)
    assert not outcome.differences, "; ".join(map(str, outcome.differences))


@pytest.mark.parametrize("way", ["compiled", "pieces"])
@pytest.mark.parametrize("name", [
    "gemm_f16_odd_sm90", "gemm_f16_odd_sm80", "attention_causal_sm90", "block_scan", "warp_lock", "barrier_bulk",
    "pipeline_roles", "boxes_nan", "made_here", "cluster_sums",
])  # fmt: skip
def test_blocks_that_are_compiled_or_joined_from_pieces_have_the_same_bits(
    name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tests run blocks that are joined from the stencils of whole instructions."""
    if way == "compiled":
        monkeypatch.setattr(Records, "take", lambda *_: False)
    else:
        monkeypatch.setattr(stencils, "chosen", lambda _, split: split())
    monkeypatch.setattr(warm, "key", lambda *_: None)
    corpus.module.cache_clear()
    try:
        assert not corpus.launch(name).differences
    finally:
        corpus.module.cache_clear()


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", [
    "gemm_f16_odd_sm90", "gemm_f16_odd_sm80", "attention_causal_sm90", "block_scan", "warp_lock", "barrier_bulk",
    "pipeline_roles", "boxes_nan", "made_here", "cluster_sums", "gemm_tma_300x264x200",
])  # fmt: skip
def test_the_schedule_does_not_change_a_correct_kernel(name: str, seed: int) -> None:
    outcome = corpus.launch(name, seed=seed)
    assert not outcome.differences, "; ".join(map(str, outcome.differences))
