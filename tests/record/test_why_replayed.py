"""A launch that is run again for its answers: it goes on as the launch did, and says what it knows of a value that differs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.observation.record.launches.answers import Again, WhyAnswer
from tests.support import forks

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 at) {\n"
LOADS = HEAD + """  .reg .b64 %x, %y, %at; .reg .b32 %v<4>, %r<3>;
  ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; ld.param.u64 %at, [at];
  add.s64 %x, %x, %at;
LOAD
  add.s32 %v0, %v0, 1; st.global.u32 [%y+4], %v0; ret;
}
"""
RACE = HEAD + """  .reg .b64 %y; .reg .b32 %t, %v<2>;
  ld.param.u32 %v0, [at]; ld.param.u64 %y, [y];
  mov.u32 %t, %tid.x; shr.u32 %t, %t, 5; add.s32 %v1, %t, %v0; st.global.u32 [%y+4], %v1; ret;
}
"""


def asked(text: str, at: int = 0, threads: int = 1, **options: Any) -> WhyAnswer:
    x, y = np.full(16, 3, np.uint32), np.zeros(2, np.uint32)
    (answer,) = mm.Module.load(text, name="k.ptx")["k"].launch(1, threads, [x, y, at], why="y[1]", **options).why
    return answer


@pytest.mark.parametrize(
    ("load", "at", "said"),
    [
        ("ld.global.u32 %v0, [%x];", 64, "memory of no argument = 0: out of bounds: the load gets 0"),
        ("ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%x];", 40, "x[10] = 0: misaligned: the load gets 0"),
        ("ld.global.v2.u32 {%v1, %v0}, [%x];", 4, "x[2] = 0: misaligned: the load gets 0"),
        ("ld.global.v2.u32 {%v0, %v1}, [%x];", 8, "x[2] = 3: as the launch found it"),
    ],
)
def test_loads_that_get_zero(load: str, at: int, said: str) -> None:
    answer = asked(LOADS.replace("LOAD", load), at, keep_going=True)
    assert said in str(answer) and not answer.notes, answer


def test_an_index_that_overflows_is_said_of_a_load_that_gets_zero() -> None:
    load = "mov.u32 %r0, 70000; mul.lo.s32 %r1, %r0, 32768; cvt.s64.s32 %at, %r1; add.s64 %x, %x, %at; ld.global.u32 %v0, [%x];"
    said = str(asked(LOADS.replace("LOAD", load), keep_going=True))
    assert "out of bounds: the load gets 0" in said and "mul.lo.s32 at k.ptx:8 makes -2001207296 of 70000 * 32768" in said


@pytest.mark.parametrize("by_order", [False, True])
def test_a_value_that_another_run_does_not_give(by_order: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note says that the order of warps decides only where two orders gave two values."""
    threads = 64 if by_order else 32
    values = [int(asked(RACE, threads=threads, seed=seed).cause.bits) for seed in range(12)]  # type: ignore[union-attr]
    seed = next(n for n, value in enumerate(values[:-1]) if (value != values[n + 1]) == by_order)
    launched = next(n for n, value in enumerate(values) if (value != values[seed]) == by_order)
    whole = Again.answers

    def answers(self: Again, *rest: Any) -> list[WhyAnswer]:
        self.launch.arguments.params[16] += not by_order  # stands for memory that a host changes meanwhile
        return whole(replace(self, how=replace(self.how, seed=seed)), *rest)

    monkeypatch.setattr(Again, "answers", answers)
    (note,) = asked(RACE, threads=threads, seed=launched).notes
    order = "depends on the order in which warps run" in note
    assert order == by_order and ("in another order gave this value, too" in note) == (not by_order), note


@pytest.mark.skipif(not forks.THERE, reason="Triton or torch is not installed")
def test_a_question_after_a_fault(tmp_path: Any) -> None:
    (tmp_path / "prog.py").write_text(
        "import torch, triton, triton.language as tl\n\n@triton.jit\ndef k(x, y, at):\n    tl.store(y, tl.load(x + at))\n\n"
        "x = torch.zeros(8, device='cuda')\nk[(1,)](x, torch.empty_like(x), 4096)\n"
    )
    ran = forks.run(["-m", "mmulator", "exec", "--why", "y[0]", "prog.py"], tmp_path)
    assert "launch 1 of k ended in a fault: mend that first, or ask with --keep-going" in ran.stderr
    ran = forks.run(["-m", "mmulator", "exec", "--why", "y[0]", "--against", "reference", "prog.py"], tmp_path)
    assert ran.stderr.startswith("wrong usage: against reference: there is no reference to compare with") and ran.returncode == 2
