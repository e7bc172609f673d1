"""PTX versions, targets and what each of them takes, as ptxas 13.5 says."""

import pytest

from mmulator.base.source import Source
from mmulator.isa.targets import PTX_VERSIONS, Target
from mmulator.ptx.parser import parse_module
from mmulator.ptx.verify import verify


def test_versions_and_targets_of_ptxas_13_5() -> None:
    assert PTX_VERSIONS[-1] == (9, 5)
    cases = (("9.4", "sm_107a", True), ("9.3", "sm_107a", False), ("9.5", "sm_90a", True), ("9.2", "sm_121f", True))
    for version, target, good in cases:
        tree = parse_module(Source("v.ptx", f".version {version}\n.target {target}\n.visible .entry k() {{ ret; }}\n"))
        assert (verify(tree) == ()) == good, (version, target)
    assert Target(107, "f").family() == Target(103, "f").family() == 100
    assert Target(100, "f").runs_on("sm_103") and not Target(107, "f").runs_on("sm_103")


@pytest.mark.parametrize(
    ("statement", "good", "bad"),
    [
        ("add.sat.u8x4 r1, r2, r3;", "sm_120f sm_121a sm_107a", "sm_100a sm_103f sm_110a sm_120"),
        ("cvt.rs.f16x2.f32 r1, f1, f2, r2;", "sm_100a sm_103a sm_107a", "sm_100f sm_110a sm_120a"),
        ("min.NaN.f32 f1, f2, f3, f4;", "sm_100 sm_120a", "sm_90a"),
        ("min.abs.f32 f1, f2, f3;", "", "sm_100a"),
        ("redux.sync.min.f32 f1, f2, r1;", "sm_100a sm_103f sm_107a", "sm_110a sm_120a sm_100"),
        ("ld.global.v4.b64 {d1,d2,d3,d4}, [d1];", "sm_100 sm_120a", "sm_90a"),
        ("fence.acquire.gpu;", "sm_90 sm_100", "sm_80"),
        ("ld.mmio.acquire.sys.global.b32 r1, [d1];", "sm_75 sm_90a", ""),
        ("clmad.hi.u64 d1, d2, d3, d4;", "sm_80 sm_120", "sm_75"),
        ("set.lt.f16.bf16 h1, h2, h3;", "", "sm_90a"),
        ("ld.shared.v4.b64 {d1,d2,d3,d4}, [d1];", "", "sm_100a"),
        ("vadd.s32.u32.s32 r1.h0, r2.b0, r3, r4;", "sm_75 sm_90", ""),
        ("vadd.s32.u32.s32 r1.h0, r2.b0, r3;", "", "sm_90"),
        ("add.u32 r1, r2.b0, r3;", "", "sm_90"),
        ("add.u32 r1, -r2, r3;", "", "sm_90"),
        ("vmad.s32.u32.u32 r1, -r2.b0, r3, -r4;", "", "sm_90"),
        ("vavrg4.u32.u32.u32 r1, r2, r3, 5;", "", "sm_90"),
    ],
)
def test_verdicts_of_ptxas_13_5(statement: str, good: str, bad: str) -> None:
    registers = " ".join(f".reg .{t} {x}<9>;" for t, x in (("b32", "r"), ("b64", "d"), ("f32", "f"), ("b16", "h")))
    for target in (*good.split(), *bad.split()):
        text = f".version 9.5\n.target {target}\n.address_size 64\n.visible .entry k() {{ {registers}\n{statement}\nret; }}\n"
        assert (verify(parse_module(Source("v.ptx", text))) == ()) == (target in good.split()), target
