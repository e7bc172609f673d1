"""All views at the steps of real kernels: none raises, texts are at most 80 columns wide, data is JSON."""

import json
from collections import Counter
from typing import Any

import pytest

from mmulator.observation.debug import views
from mmulator.observation.debug.views import Scene
from tests.support import corpus
from tests.support.scenes import of_example, texts_fit, watched

EVERY = 997  # of how many further steps one is looked at


def look_at_all(scene: Scene) -> None:
    found: list[Any] = [
        views.warps(scene, cluster=True), views.barriers(scene), views.flights(scene), views.waits(scene), views.registers(scene),
        *views.matrices(scene),
    ]  # fmt: skip
    if scene.kernel.matrix.tensor:
        found.append(views.tensor_memory(scene, range(0, 128, 37)))
    for view in found:
        text = view.text()
        assert text and texts_fit(text), text
        json.dumps(view.as_dict())
    assert not views.waits(scene).stuck


class Sample:
    """Looks at the first two steps of each instruction's name, and at a part of all others."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.looks = 0

    def __call__(self, scene: Scene) -> None:
        assert scene.instruction is not None
        name = scene.instruction.mnemonic
        self.seen[name] += 1
        if self.seen[name] <= 2 or scene.step % EVERY == 0:
            look_at_all(scene)
            self.looks += 1


@pytest.mark.parametrize("name", ["handwritten", "hopper_pipeline", "blackwell_gemm"])
def test_examples(name: str) -> None:
    sample = Sample()
    of_example(name, sample)
    assert sample.looks > 30


GEMMS = [n for n in corpus.manifest() if n.startswith(("gemm", "attention"))]
NAMES = [*GEMMS[::18], "numba_histogram", "block_reductions_debug"]  # long names, calls


@pytest.mark.parametrize("name", NAMES)
def test_kernels_of_the_corpus(name: str) -> None:
    entry = corpus.manifest()[name]
    kernel = corpus.module(entry["ptx"])[entry["entry"]]
    args, _ = corpus.arguments(entry)
    args += [0] * (len(kernel.function.params) - len(args))
    sample = Sample()
    watched(kernel, entry["grid"], entry["block"], args, sample, shared=entry["shared"])
    assert sample.looks > 30
