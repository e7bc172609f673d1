"""Names of CUTLASS's atoms and of chips as words of a query."""

import numpy as np
import pytest

import mmulator as mm
from mmulator.cli.app import run
from mmulator.host.driver import Settings
from mmulator.isa.chips import CHIPS, DEVICE_WORDS, PRODUCTS, device_of
from mmulator.isa.names.cutlass import atom_words
from mmulator.isa.names.words import find_forms, split
from mmulator.isa.targets import DEVICES

ATOMS = {
    "SM80_16x8x16_F32F16F16F32_TN": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "SM80_16x8x16_F16F16F16F16_TN": "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    "SM80_16x8x8_F32TF32TF32F32_TN": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "SM80_16x8x32_S32S8U8S32_TN": "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32",
    "SM80_8x8x4_F64F64F64F64_TN": "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "SM80_16x8x256_S32U1U1S32_TN_XORPOPC": "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "SM89_16x8x32_F32E4M3E5M2F32_TN": "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
    "SM70_8x8x4_F32F16F16F32_NT": "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32",
    "SM70_8x8x4_F16F16F16F16_NN": "mma.sync.aligned.m8n8k4.col.col.f16.f16.f16.f16",
    "SM90_64x128x16_F32BF16BF16_SS": "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16",
    "SM90::GMMA::MMA_64x128x16_F16F16F16_RS<Major::K, Major::K>": "wgmma.mma_async.sync.aligned.m64n128k16.f16.f16.f16",
    "SM90_64x256x32_F32E4M3E4M3_SS_TN": "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3",
    "SM90::GMMA::SPARSE::GMMA_64x128x32_F32F16F16_SS": "wgmma.mma_async.sp.sync.aligned.m64n128k32.f32.f16.f16",
    "SM75_U32x4_LDSM_N": "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
    "SM75_U16x8_LDSM_T": "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
    "SM90_U16x2_STSM_T": "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16",
}


@pytest.mark.parametrize("atom", ATOMS)
def test_atoms_of_cutlass_are_instructions(atom: str) -> None:
    assert find_forms(atom)[0].mnemonic == ATOMS[atom]
    assert find_forms(atom.lower())[0].mnemonic == ATOMS[atom]


def test_other_texts_stay_as_they_are() -> None:
    for text in ("wgmma m64n128 bf16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "SM80", "16x8x16"):
        assert atom_words(text) == text


def test_chips_are_devices() -> None:
    """Every chip that docs/explanation/fidelity.md names, and what people write."""
    for device, names in CHIPS.items():
        for name in names.split(", "):
            assert device_of(name) == device, name
    for device, names in PRODUCTS.items():
        assert {device_of(form(name)) for name in names for form in (str, str.lower, "NVIDIA {}".format)} == {device}
    assert device_of("NVIDIA H100 80GB HBM3") == "sm_90" and device_of("NVIDIA A100-SXM4-80GB") == "sm_80"
    for text, device in (("RTX 4090", "sm_89"), ("rtx3090ti", "sm_86"), ("GeForce RTX 5090", "sm_120"), ("Hopper", "sm_90")):
        assert device_of(text) == device
    assert {device_of(w) for w in DEVICE_WORDS} <= set(DEVICES)
    assert device_of("sm_90") is device_of("f16") is device_of("rtx") is None


def test_every_door_takes_the_name_of_a_chip(capsys: pytest.CaptureFixture[str]) -> None:
    i = mm.Instruction.parse("mma m16n8k8 f16")
    a, b, sm_80 = np.ones((16, 8), np.float16), np.ones((8, 8), np.float16), mm.devices()[3]
    for device in ("a100", "NVIDIA A100-SXM4-80GB", sm_80, "sm_80"):
        assert (mm.matmul(a, b, instruction=i, device=device) == i.compute(a, b, device=device)).all()
        assert i.execute(device=device, a=np.zeros((32, 2), np.uint32), b=np.zeros((32, 1), np.uint32),
                         c=np.zeros((32, 4), np.uint32)).shape == (32, 4)  # fmt: skip
        assert Settings.from_environment({"MMULATOR_DEVICE": str(getattr(device, "sm", device))}).device == "sm_80"
        text = ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }"
        assert mm.Module.load(text)["k"].launch(1, 1, [], device=device).device == "sm_80"
    with pytest.raises(mm.errors.UnsupportedError, match=r"unknown device 'H101'(.|\n)*list --devices"):
        mm.matmul(a, b, instruction=i, device="H101")
    assert {d.sm for d in mm.devices()} == {*DEVICES} and sm_80.name == "A100" and sm_80.evidence["f16"] == "published"
    assert "wgmma" in mm.devices()[7].families and not {"wgmma", "stmatrix"} & {*sm_80.families}
    for words in (["list", "--devices"], ["list", "devices", "--json"]):
        assert run(words) == 0 and "GH200" in capsys.readouterr().out


def test_a_chip_narrows_a_query(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(f.requires.describe_targets() != "sm_90a" for f in find_forms("ampere bf16"))
    assert any(f.family == "wgmma" for f in find_forms("H100 bf16"))
    assert {f.shape for f in find_forms("volta mma f16")} == {"m8n8k4"}
    assert split("hopper bf16") == ["hopper", "bf16"]
    for words in (["explain", "hopper", "fp8"], ["list", "hopper", "fp8"], ["layout", "hopper", "fp8", "a", "--element", "0,1"]):
        assert run([*words]) == 0
    capsys.readouterr()
    for option in (["--device", "H100"], ["--device=rtx4090"]):
        assert run(["explain", "mma", "m16n8k16", "f16", "--brief", *option]) == 0
        assert ("sm_90" if "H100" in option else "sm_89") in capsys.readouterr().out
