"""What is legal and cannot be run: `check` names it as a launch does; and what no chip was asked is noted."""

import pytest

from mmulator.base.source import Source
from mmulator.errors import UnsupportedError
from mmulator.host.module import Module
from mmulator.isa.chips import as_device
from mmulator.isa.targets import DEVICES, PTX_VERSIONS, TARGETS, Target, default_device
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.runnable import unsupported
from mmulator.runtime.launch.limits import check_device
from tests.support.one_block import launch


def test_a_target_that_is_no_device_runs_on_a_later_one() -> None:
    for target in TARGETS:
        device = default_device(target)
        if target.runs_on(device):
            check_device(device, target)
        else:
            with pytest.raises(UnsupportedError, match="does not run") as caught:
                check_device(device, target)
            assert device not in str(caught.value.hint) and "is modelled" in str(caught.value.hint)
        version = "{}.{}".format(*PTX_VERSIONS[-1])
        text = f".version {version}\n.target {target}\n.visible .entry k() {{ ret; }}\n"
        named = [u.name for u in unsupported(parse_module(Source("t.ptx", text)))]
        assert named == ([] if target.runs_on(device) else [f".target {target}"])
    assert [default_device(Target(n)) for n in (88, 101, 107, 110)] == ["sm_89", "sm_110", "sm_107", "sm_110"]


def test_thor_runs_code_of_its_old_name() -> None:
    for target in ("sm_110a", "sm_110f", "sm_101a", "sm_101f"):
        assert [d for d in DEVICES if Target.parse(target).runs_on(d)] == ["sm_110"]
        text = f".version 9.0\n.target {target}\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
        report = Module.load(text)["k"].launch(1, 32, [], shared=227 << 10)
        assert report.device == "sm_110" and not report.notes
    assert {as_device(name) for name in ("sm_101", "Thor", "NVIDIA Thor", "Jetson AGX Thor", "sm_110")} == {"sm_110"}


NOT_HERE = {  # (before the kernel, in it): what is said
    ("", "ld.global.b32 r, [there];"): "there .* defined elsewhere",
    (".extern .func f();", "mov.b64 d, f;"): "f .* defined elsewhere",
    (".func f(.param .b64 x) { ret; }", "call f, (given);"): "given .* cannot be passed on by its name",
    ("", "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {g, g1, g2, g3}, {r, r, r, 5}, d, 1, 1, 1, 0;"): "5 as operand a",
    ("", "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3 {g, g1, g2, g3}, {r, r, 6, r}, d, r, 0, 1, 1, 1;"):
        "6 as operand a",
}


@pytest.mark.parametrize(("before", "body"), NOT_HERE)
def test_check_names_what_a_launch_refuses(before: str, body: str) -> None:
    text = (
        f".version 8.2\n.target sm_90a\n.address_size 64\n.extern .global .b32 there;\n{before}\n"
        f".visible .entry k(.param .b64 given) {{ .reg .b32 r; .reg .b64 d; .reg .f32 g, g1, g2, g3; {body} ret; }}\n"
    )
    (named,) = unsupported(parse_module(Source("e.ptx", text)))
    with pytest.raises(UnsupportedError, match=NOT_HERE[before, body]) as caught:
        Module.load(text)["k"].compile()
    assert caught.value.message == named.error.message


def test_what_no_chip_was_asked_is_noted() -> None:
    body = "mov.b64 d1, 0; add.rn.f32x2 d1, d1, d1; add.f32.f16 f1, h1, f1; add.f32 f1, f1, f1; st.global.f32 [out], f1;"
    _, report = launch(body, target="sm_100a")
    assert report.notes == ["add.rn.f32x2, add.f32.f16: as the PTX ISA describes them; no chip that has them was asked"]
    assert launch("add.f32 f1, f1, f1; st.global.f32 [out], f1;")[1].notes == []
    body = "".join(f"mov.b64 d1, 0; {op}.f32x2 d1, d1, d1{', d1' * (op == 'fma.rn')};" for op in ("add.rn", "mul.rn", "fma.rn"))
    _, report = launch(f"{body} add.rz.f32x2 d1, d1, d1; mul.rz.f32x2 d1, d1, d1;", target="sm_100a")
    assert report.notes[0].startswith("add.rn.f32x2, add.rz.f32x2, mul.rn.f32x2, mul.rz.f32x2, fma.rn.f32x2: as")
