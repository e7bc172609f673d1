"""CompileOptions: what they change, and that step changes no result."""

from dataclasses import replace

import numpy as np
import pytest

from mmulator.host.cpu import Cpu
from mmulator.host.module import Module
from mmulator.runtime.launch.launch import How, compile_options
from mmulator.runtime.options import DEFAULT, CompileOptions
from tests.support import corpus

FUSED = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {
.reg .b64 %p; .reg .f32 %x, %y;
ld.param.u64 %p, [out];
ld.global.f32 %x, [%p];
mul.f32 %y, %x, %x;
sub.f32 %y, %y, 0f3F800000;
st.global.f32 [%p], %y;
ret; }
"""


def test_contract_fuses() -> None:
    x = np.float32(1 + 2**-12)
    kernel, backend = Module.load(FUSED)["k"], Cpu()
    found = {}
    for contract in (True, False):
        out = np.array([x])
        compiled = backend.compile(kernel.module.loaded, "k", "sm_90", CompileOptions(contract=contract))
        backend.launch(replace(kernel.prepared(1, 1, [out], 0, "sm_90"), kernel=compiled))
        found[contract] = float(out[0])
    assert found == {True: float(x) ** 2 - 1, False: float(x * x) - 1} and found[True] != found[False]


@pytest.mark.parametrize(
    "name", ["wgmma_f16", "virtual_calls", "block_scan", "shared_mix_debug", "spin_flag", "wmma_tf32_cr", "gemm_s8_sm80"]
)
def test_step_by_step_the_bits_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = CompileOptions(step=True)
    stepped_options = lambda shape, *_: replace(compile_options(shape, How()), step=True)  # noqa: E731
    monkeypatch.setattr("mmulator.host.module.compile_options", stepped_options)
    assert not corpus.launch(name).differences
    entry = corpus.manifest()[name]
    stepped = corpus.module(entry["ptx"])[entry["entry"]].compile("sm_90", options=step)
    whole = corpus.module(entry["ptx"])[entry["entry"]].compile("sm_90", options=DEFAULT)
    assert max(len(b.body) for b in stepped.program.blocks) == 1
    assert len(whole.program.blocks) < len(stepped.program.blocks) and whole.instructions == stepped.instructions
