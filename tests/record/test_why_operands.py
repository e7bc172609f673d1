"""Operands of products as users know them: by tensor map, row and column, in their type; tiles that a descriptor misses."""

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import mmulator as mm
from mmulator.host.driver.functions import LoadedModule
from mmulator.host.driver.memory import Memory
from mmulator.host.jobs.job import load_job, run_job
from mmulator.host.settings import Settings
from mmulator.observation.record.launches import questions as why
from mmulator.observation.record.losses import losses_of
from mmulator.observation.record.names import DeviceArray, DeviceNames, element_of, question
from mmulator.runtime.launch.arguments import Arguments
from mmulator.runtime.launch.launch import Launch
from mmulator.runtime.launch.regions import Region, Regions
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


@pytest.mark.parametrize("wrong", [False, True])
def test_an_accumulator_that_is_thrown_away_is_told(wrong: bool, tmp_path: Path) -> None:
    """The third of the four wgmma of each round does not add to D: two of its own round and two of the one before are lost."""
    parts = (places.ROOT / "examples/hopper_gemm/gemm.ptx").read_text().split(", 1, 1, 0, 1;")
    parts[2] = f"{parts[2].rpartition('%p')[0]}0" if wrong else parts[2]
    (tmp_path / "k.ptx").write_text(", 1, 1, 0, 1;".join(parts))
    job = load_job(places.ROOT / "examples/hopper_gemm/launch.toml")
    (answer,) = run_job(replace(job, ptx=tmp_path / "k.ptx"), why=["C[3,5]"]).report.why
    said = "k.ptx:681: the sum of the 4 products before it, which the accumulator held, is lost"
    assert (said in str(answer)) == wrong == ("is lost" in str(answer)), answer


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
    made = memory.allocate(64, "device memory", place=lambda: "main at a.cu:7")
    launch = Launch(function.kernel, launch.shape, Arguments(np.zeros(16, np.uint8), (0, 8), regions=Regions([made])), "sm_90")
    (array,) = why.device_arrays(launch, [])
    assert array.listed == f"{array.name} (main at a.cu:7)" and array.name.startswith("alloc_")
    arrays = [DeviceArray("y", 64, 64, also="param_1")]
    assert element_of(question("param_1[3]:f32"), DeviceNames(arrays)).name == "y[3]"
    with pytest.raises(mm.errors.LaunchError, match="there is no array q"):
        element_of(question("q[3]"), DeviceNames(arrays))


_SUM = "mma.sync.aligned."
_MX = ", %s0, {0, 0}, %s1, {0, 0}"
SUMS = {  # an instruction: registers of A, B and D, what stands after C
    "m16n8k8.row.col.f32.tf32.tf32.f32": (4, 2, 4, ""), "m16n8k16.row.col.f32.bf16.bf16.f32": (4, 2, 4, ""),
    "m16n8k16.row.col.f16.f16.f16.f16": (4, 2, 2, ""), "m16n8k32.row.col.s32.s8.u8.s32": (4, 2, 4, ""),
    "m16n8k32.row.col.satfinite.s32.s8.s8.s32": (4, 2, 4, ""), "m16n8k64.row.col.s32.s4.u4.s32": (4, 2, 4, ""),
    "m16n8k32.row.col.f32.e4m3.e5m2.f32": (4, 2, 4, ""), "kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e3m2.f32": (4, 2, 4, ""),
    "kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e5m2.f32.ue8m0": (4, 2, 4, _MX),
    "kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0": (4, 2, 4, _MX),
    "kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3": (4, 2, 4, _MX),
    "sp m16n8k32.row.col.f32.f16.f16.f32": (4, 4, 4, ", %m, 0x0"), "sp m16n8k64.row.col.s32.s8.s8.s32": (4, 4, 4, ", %m, 0x0"),
    "sp m16n8k16.row.col.f32.tf32.tf32.f32": (4, 4, 4, ", %m, 0x0"),
    "sp m16n8k64.row.col.f32.e4m3.e4m3.f32": (4, 4, 4, ", %m, 0x0"),
    "m8n8k4.row.col.f64.f64.f64.f64": (1, 1, 2, ""), "m16n8k16.row.col.f64.f64.f64.f64": (8, 4, 4, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_the_model_makes_the_bits_of_the_machine(name: str) -> None:
    """Two products one after the other, of random numbers and of random bits: the explained sum ends in the bits that were stored
    (an InternalError says if not), and the parts of the difference to the exact sum are all of it (here, too).
    """
    na, nb, nd, more = SUMS[name]
    double = ".f64." in name
    kind, size = ("f64", 8) if double else ("b32", 4)
    head = _SUM + name if not name.startswith("sp ") else f"mma.sp::ordered_metadata.sync.aligned.{name[3:]}"
    a, b, d = ("{" + ", ".join(f"%{x}{i}" for i in range(n)) + "}" for x, n in (("a", na), ("b", nb), ("d", nd)))
    loads = [f"ld.global.{kind} %{x}{i}, [%{x}p+{size * i}];" for x, n in (("a", na), ("b", nb), ("d", nd)) for i in range(n)]
    once = f"{head} {d}, {a}, {b}, {d}{more};"
    text = "\n".join([
        ".version 8.8\n.target sm_120a\n.address_size 64\n.entry k(.param .u64 A, .param .u64 B, .param .u64 D, .param .u64 S) {",
        f".reg .{kind} %a<8>, %b<4>, %d<4>; .reg .b32 %s<2>, %m, %t; .reg .b64 %ap, %bp, %dp, %sp;",
        "ld.param.u64 %ap, [A]; ld.param.u64 %bp, [B]; ld.param.u64 %dp, [D]; ld.param.u64 %sp, [S]; mov.u32 %t, %tid.x;",
        *(f"mad.wide.u32 %{x}p, %t, {size * n}, %{x}p;" for x, n in (("a", na), ("b", nb), ("d", nd), ("s", 8 // size))),
        "ld.global.b32 %s0, [%sp]; ld.global.b32 %s1, [%sp+4]; mov.b32 %m, 0x4E4EE44E;", *loads, once, once,
        *(f"st.global.{kind} [%dp+{size * i}], %d{i};" for i in range(nd)), "ret; }",
    ])  # fmt: skip
    module, rng = mm.Module.load(text, name="k.ptx"), np.random.default_rng(len(name))
    stored = np.dtype("f8" if double else "i4" if ".s32." in name else "f2" if ".f16.f16.f16.f16" in name else "f4")
    narrow = 2 if ".f16." in name or "bf16" in name else 4
    for wild in (False, True):
        raw = [rng.integers(0, 1 << 32, size=(32, n * size // 4), dtype=np.uint32) for n in (na, nb, nd)]
        if not wild and (double or "f16" in name or "tf32" in name):
            dtype = np.float64 if double else ml_dtypes.bfloat16 if "bf16" in name else np.float16 if narrow == 2 else np.float32
            raw[:2] = [rng.standard_normal(r.nbytes // np.dtype(dtype).itemsize).astype(dtype).view(np.uint32).reshape(r.shape)
                       for r in raw[:2]]  # fmt: skip
        if not wild:
            raw[2][:] = 0
        scales = rng.integers(120, 134, size=256, dtype=np.uint8) if not wild else rng.integers(0, 255, size=256, dtype=np.uint8)
        out = raw[2].reshape(-1).view(stored)
        ask = [f"D[{i}]" for i in rng.integers(0, len(out), 4)]
        report = module["k"].launch(1, 32, [*raw[:2], out, scales.view(np.uint32)], device="sm_120", why=ask, timeout=600)
        for element, answer in zip(ask, report.why):
            product = next(c for c in answer.cause.walk() if c.element is not None)
            assert answer.cause.bits == int.from_bytes(out[int(element[2:-1])].tobytes(), "little") and product.products == 2
            assert isinstance(losses_of(answer.cause), tuple)
