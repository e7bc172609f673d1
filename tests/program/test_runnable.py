"""What is legal and cannot be run: `check` names it as a launch does; and what no chip was asked is noted."""

from __future__ import annotations

import pytest

from mmulator.errors import UnsupportedError
from mmulator.isa.targets import PTX_VERSIONS, TARGETS, Target, default_device
from mmulator.machine.launch.limits import check_device
from mmulator.machine.module import Module
from mmulator.program.runnable import unsupported
from mmulator.ptx import parse_module
from mmulator.source import Source
from tests.support.one_block import LANES, launch


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
    assert [default_device(Target(n)) for n in (88, 101, 107, 110)] == ["sm_89", "sm_103", "sm_120", "sm_120"]


def test_a_variable_of_another_module_is_named_by_check() -> None:
    text = (
        ".version 8.0\n.target sm_90\n.address_size 64\n.extern .global .b32 there;\n"
        ".visible .entry k() { .reg .b32 r; ld.global.b32 r, [there]; ret; }\n"
    )
    (named,) = unsupported(parse_module(Source("e.ptx", text)))
    with pytest.raises(UnsupportedError, match="defined elsewhere") as caught:
        Module.load(text)["k"].launch(1, LANES)
    assert caught.value.message == named.error.message


def test_what_no_chip_was_asked_is_noted() -> None:
    body = "mov.b64 d1, 0; add.rn.f32x2 d1, d1, d1; add.f32.f16 f1, h1, f1; add.f32 f1, f1, f1; st.global.f32 [out], f1;"
    _, report = launch(body, target="sm_100a")
    assert report.notes == ["add.rn.f32x2, add.f32.f16: as the PTX ISA describes them; no chip that has them was asked"]
    assert launch("add.f32 f1, f1, f1; st.global.f32 [out], f1;")[1].notes == []
