"""Operands of products as users know them: by tensor map, row and column, in their type; tiles that a descriptor misses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mmulator as mm
from mmulator.driver import why
from mmulator.driver.functions import LoadedModule
from mmulator.driver.memory import Memory
from mmulator.jobs.job import load_job, run_job
from mmulator.launch.arguments import Arguments
from mmulator.launch.launch import Launch
from mmulator.launch.regions import Region, Regions
from mmulator.record.asked import element_of, question
from mmulator.record.names import DeviceArray, DeviceNames
from mmulator.settings import Settings
from tests.support import places

PIPELINES = places.ROOT / "tests/kernels/ptx/gemm_pipelines.ptx"
RIGHT = 0x4000004000010000  # 128B swizzle, leading offset 16, stride 1024
WRONG = {
    "stride": (0x4000002000010000, "row 13 of the tile was meant: the descriptor (128B swizzle, leading offset 16, stride 512) "
               "leads to row 9"),
    "swizzle": (0x8000004000010000, "element [13, 0] of the tile was meant: the descriptor (64B swizzle, leading offset 16, "
                "stride 1024) leads to element [10, 32]"),
}  # fmt: skip


@pytest.mark.parametrize("field", ["right", *WRONG])
def test_a_descriptor_that_leads_elsewhere_is_seen(field: str, tmp_path: Path) -> None:
    word, said = WRONG.get(field, (RIGHT, ""))
    text = PIPELINES.read_text()
    assert text.count(str(RIGHT)) == 16
    (tmp_path / "k.ptx").write_text(text.replace(str(RIGHT), str(word)))
    job = load_job(places.ROOT / "examples/hopper_pipeline/launch.toml")
    (answer,) = run_job(replace(job, ptx=tmp_path / "k.ptx"), why=["D[200,13]"]).report.why
    assert ("was meant" in str(answer)) == bool(said) and said in str(answer), answer


@pytest.mark.parametrize("word, said", [("0x4000404000010000", ""), ("0x4000402000010000", "stride 512) leads to row 9")])
def test_a_descriptor_of_blackwell_that_leads_elsewhere_is_seen(word: str, said: str, tmp_path: Path) -> None:
    folder = places.ROOT / "examples/blackwell_gemm"
    text = (folder / "gemm.ptx").read_text()
    (tmp_path / "k.ptx").write_text(text.replace("fixed, 0x4000404000010000", f"fixed, {word}"))
    job = load_job(folder / "launch.toml")
    (answer,) = run_job(replace(job, ptx=tmp_path / "k.ptx"), why=["C[13,140]"]).report.why
    assert str(answer).count("row 13 of the tile was meant") == bool(said) and said in str(answer), answer


def test_elements_of_a_map_have_rows_and_columns() -> None:
    array = DeviceArray("map B", 4096, 2 * 640, (2, 320), 2, np.dtype(np.float16), (640, 2))
    names = DeviceNames([array, DeviceArray("alloc_3", 4096, 2048), DeviceArray("x", 8192, 64), DeviceArray("y", 8224, 32)])
    assert names(4096 + 640 + 20) == "map B[1,10]" and names(4096 + 1400) == "alloc_3[byte 1400]"
    assert names(4096 + 1400, 4) == "alloc_3[350]"  # in the type that is read
    assert names(8192 + 6, 2) == "x[3]" and names(8224 + 6, 2) == "y[3]"  # y begins in x


STORE = """.version 8.0
.target sm_90
.address_size 64
.visible .entry _Z4takePK6__halfPf(.param .u64 _Z4takePK6__halfPf_param_0, .param .u64 _Z4takePK6__halfPf_param_1)
{ .reg .b64 %a, %b; .reg .b16 %h; .reg .f32 %f;
ld.param.u64 %a, [_Z4takePK6__halfPf_param_0]; ld.param.u64 %b, [_Z4takePK6__halfPf_param_1];
ld.global.b16 %h, [%a+6]; cvt.f32.f16 %f, %h; st.global.f32 [%b+8], %f; ret; }
"""


def test_allocations_have_names_of_their_own_and_errors_are_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    memory, settings = Memory(), Settings(why="param_1[2];take:z[1];z[1];other:x[1]")
    _, second, third, _ = (memory.allocate(64, "device memory").address for _ in range(4))
    function = LoadedModule(STORE, "k.ptx", "sm_90").function("_Z4takePK6__halfPf")
    params = second.to_bytes(8, "little") + third.to_bytes(8, "little")
    function.run(function.check(1, 1, None, 0, None, False), params, memory.regions(), 0, settings)
    why.asking(*settings.asked).tell()
    said = capfd.readouterr().err
    assert "ld.global.b16(param_0[3] = " in said and "param_1[2] = " in said, said
    hint = said.partition("there is no array z (arrays: ")[2].partition(")")[0].split(", ")
    assert hint[:2] == ["param_0", "param_1"] and len(hint) == len({*hint}) == 4 and hint[2].startswith("alloc_"), said
    assert said.count(f"there is no array z (arrays: {', '.join(hint)})") == 2
    assert "why other:x[1]: no kernel with this name was launched" in said
    others = Regions([Region(1 << 40, 64, "a tensor"), Region(1 << 41, 64, "a tensor")])
    arguments = Arguments(np.zeros(16, np.uint8), (0, 8), regions=others)
    launch = Launch(function.kernel, function.check(1, 1, None, 0, None, False), arguments, "sm_90")
    assert [a.name for a in why.device_arrays(launch, [])] == ["a tensor", "a tensor (2)"]
    arrays = [DeviceArray("y", 64, 64, also="param_1")]
    assert element_of(question("param_1[3]:f32"), DeviceNames(arrays)).name == "y[3]"
    with pytest.raises(mm.errors.LaunchError, match="there is no array q"):
        element_of(question("q[3]"), DeviceNames(arrays))
