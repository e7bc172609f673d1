"""`mmulator reduce`: a launch of each kind of failure becomes as small as a person would make it, and fails in the same way."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mmulator.base.errors import MmulatorError
from mmulator.base.rules.choice import chosen
from mmulator.base.source import Source
from mmulator.cli.app import run
from mmulator.cli.reduce import _against
from mmulator.host.jobs.comparison import Expectation
from mmulator.host.jobs.inputs import parse_argument
from mmulator.host.jobs.job import Job, load_job
from mmulator.host.text import verified
from mmulator.observation.reduce.failure import FailureTrial, fresh
from mmulator.observation.reduce.launches import ReducedLaunch, ReductionRequest, arrays_of, reduced
from mmulator.observation.reduce.program import lines_of
from mmulator.ptx.program.calls import reached
from tests.support import places

HEAD = """.version 8.5
.target {target}
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pc, .param .u32 n) {{
  .reg .b64 %rd<20>; .reg .b32 %r<40>; .reg .f32 %f<80>; .reg .pred %p<4>; .reg .b16 %h<4>;
  .shared .align 128 .b8 tile[16384];
  ld.param.u64 %rd1, [pa]; ld.param.u64 %rd2, [pc]; ld.param.u32 %r1, [n];
  cvta.to.global.u64 %rd3, %rd1; cvta.to.global.u64 %rd4, %rd2;
  mov.u32 %r2, %tid.x; mul.wide.u32 %rd5, %r2, 4; add.s64 %rd6, %rd3, %rd5; add.s64 %rd7, %rd4, %rd5;
  mov.u32 %r3, tile; shl.b32 %r4, %r2, 2; add.u32 %r5, %r3, %r4; mov.f32 %f1, 0f00000000; mov.u32 %r6, 0;
LOOP: // of four turns
  ld.global.f32 %f2, [%rd6];
  {{ .reg .f32 %g<4>; mul.f32 %g1, %f2, 0f40000000; st.shared.f32 [%r5], %g1; }}
  {barrier}
  ld.shared.f32 %f3, [%r5+{offset}];
{unrolled}
  {planted}
  bar.sync 0;
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p1, %r6, %r1;
  @%p1 bra LOOP;
  st.global.f32 [%rd7], %f1;
  ret;
}}
"""
FUSED = (f"  fma.rn.f32 %f{10 + n}, %f3, 0f3F000000, %f{10 + (n + 1) % 8};" for n in range(8))
UNROLLED = "\n".join([*(f"  mov.f32 %f{10 + n}, %f2;" for n in range(8)), *FUSED, "  add.f32 %f1, %f1, %f10;"])


def job_of(folder: Path, target: str = "sm_90a", barrier: str = "bar.sync 0;", offset: int = 0, planted: str = "") -> Job:
    """The kernel above with a mistake, in a file."""
    file = folder / "k.ptx"
    file.write_text(HEAD.format(target=target, barrier=barrier, offset=offset, planted=planted, unrolled=UNROLLED))
    arguments = [parse_argument(text, n) for n, text in enumerate(("A=random:f32:512:1", "C=out:f32:512", "4"))]
    return Job(file, None, [2, 1], 128, arguments=arguments)


def small(job: Job, to: Path, **more: Any) -> tuple[ReducedLaunch, str]:
    """The smaller launch that `reduced` makes, and its PTX."""
    found = reduced(ReductionRequest(job, to / "out", chosen(""), **more))
    assert found.whole and found.again and len(list((to / "out").glob("launch.toml"))) == 1
    return found, (to / "out" / "kernel.ptx").read_text()


STRUCT = """.version 8.5
.target sm_90
.address_size 64
.visible .entry k(.param .align 8 .b8 s[16]) {
  .reg .b64 %rd<4>; .reg .b32 %r<4>;
  ld.param.u64 %rd1, [s+8]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 16; add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1; ret;
}
"""
FENCED = "wgmma.fence.sync.aligned; "
WGMMA = (
    "mov.b64 %rd10, 0x4000004000010040; {fence}"
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f40,%f41,%f42,%f43}}, %rd10, %rd10, 0, 1, 1, 0, 0; "
    "wgmma.commit_group.sync.aligned; {wait} add.f32 %f1, %f40, %f1;"
)
FAULTS: dict[str, tuple[dict[str, Any], str, str, int]] = {  # planted, the failure, its instruction, the most instructions
    "a race": ({"barrier": "", "offset": 128}, "race-", "ld.shared.f32", 7),
    "misaligned": ({"offset": 2}, "misaligned", "ld.shared.f32", 1),
    "out of bounds": ({"planted": "st.global.f32 [%rd7+8192], %f3;"}, "out of bounds", "st.global.f32", 3),
    "a trap": ({"planted": "setp.gt.u32 %p2, %r2, 100; @%p2 trap;"}, "trap", "trap", 1),
    "no such instruction": ({"target": "sm_80", "planted": WGMMA.format(fence=FENCED, wait="")}, "wgmma", "wgmma.fence", 1),
    "a missing fence": (
        {"planted": WGMMA.format(fence="", wait="wgmma.wait_group.sync.aligned 0;")}, "fence", "wgmma.mma_async", 3
    ),
    "a missing wait": ({"planted": WGMMA.format(fence=FENCED, wait="wgmma.wait_group.sync.aligned 1;")}, "", "add.f32", 9),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_failure_becomes_small_and_stays_the_same(name: str, tmp_path: Path) -> None:
    planted, said, instruction, most = FAULTS[name]
    found, text = small(job_of(tmp_path, **planted), tmp_path)
    assert said in found.failure and found.instruction.startswith(instruction), found.failure
    assert isinstance(found.after["instructions"], int) and found.after["instructions"] <= most, text
    assert found.after["grid"] == "1" and "LOOP" not in text
    job = load_job(tmp_path / "out" / "launch.toml")
    again = reduced(ReductionRequest(job, tmp_path / "more", chosen(""), seconds=0))
    assert (again.rule, again.instruction) == (found.rule, found.instruction)
    assert again.after["instructions"] == found.after["instructions"]


def right(job: Job) -> Expectation:
    """The array that the kernel stores."""
    return Expectation({"C": arrays_of(fresh(job, job.ptx.read_text()))["C"]}, source="another")


def test_a_nan_is_followed_to_the_instruction_that_makes_it(tmp_path: Path) -> None:
    expect = right(job_of(tmp_path))
    job = replace(job_of(tmp_path, planted="sub.f32 %f4, %f2, %f2; div.rn.f32 %f1, %f4, %f4;"), expect=expect)
    found, text = small(job, tmp_path, reference=True)
    assert found.instruction == "div.rn.f32" and found.options == ("--nan",) and len(text.splitlines()) < 20, text
    assert run(["run", str(tmp_path / "out" / "launch.toml"), *found.options]) != 0


def test_a_wrong_element_keeps_its_bits(tmp_path: Path) -> None:
    expect = right(job_of(tmp_path))
    job = replace(job_of(tmp_path, planted="add.f32 %f1, %f1, 0f3F800000;"), expect=expect)
    wrong, want = right(job).arrays["C"][0], expect.arrays["C"][0]
    found, text = small(job, tmp_path)
    assert text.count(";") < 24 and "0f3F800000" in text and str(wrong)[:7] in found.failure, text
    compared = load_job(tmp_path / "out" / "launch.toml")
    assert compared.expect is not None and compared.expect.arrays["C"].reshape(-1)[0] == want
    assert arrays_of(fresh(compared, text))["C"].reshape(-1)[0] == wrong


def test_what_devices_compute_otherwise_stays_different(tmp_path: Path) -> None:
    job = load_job(places.ROOT / "examples" / "handwritten" / "launch.toml")
    found, text = small(job, tmp_path, **_against("sm_90", job))
    assert "mma.sync" in text and text.count(";") < 20, text
    assert run(["run", str(tmp_path / "out" / "launch.toml"), *found.options]) != 0


def test_what_another_build_stores_is_the_reference(tmp_path: Path) -> None:
    job = replace(job_of(tmp_path), grid=[1], block=32)
    other = tmp_path / "other.ptx"
    other.write_text(job.ptx.read_text().replace("0f40000000", "0f40400000"))
    found, text = small(job, tmp_path, **_against(str(other), job))
    assert text.count(";") < 24 and job.expect is not None and job.expect.source == "other.ptx", text
    assert run(["run", str(tmp_path / "out" / "launch.toml"), *found.options]) != 0


# what is told ---------------------------------------------------------------------------------------------------------
def test_a_launch_that_does_not_fail_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job_of(tmp_path)
    words = ["--grid", "2", "--block", "128", "--arg", "out:f32:512", "--arg", "out:f32:512", "--arg", "4"]
    out = str(tmp_path / "out")
    assert run(["reduce", str(tmp_path / "k.ptx"), *words, "-o", out]) == 1
    assert "the launch does not fail" in (said := capsys.readouterr().err) and "hint" in said
    assert run(["reduce", str(tmp_path / "no.ptx"), "-o", out]) == 1 and "No such file" in capsys.readouterr().err
    assert run(["reduce", str(tmp_path / "k.ptx"), *words, "-o", str(tmp_path)]) == 1
    assert "folder of the launch" in capsys.readouterr().err
    assert run(["reduce", str(tmp_path / "k.ptx"), *words, "-o", out, "--nan", "--rules", "races"]) == 2
    (tmp_path / "bad.ptx").write_text(".version 8.5\n.target sm_80\n.address_size 64\nfoo")
    assert run(["reduce", str(tmp_path / "bad.ptx"), *words, "-o", out]) == 1 and "syntax" in capsys.readouterr().err


def test_the_command_says_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job_of(tmp_path, offset=2)
    words = ["--grid", "2", "--block", "128", "--arg", "out:f32:512", "--arg", "out:f32:512", "--arg", "4"]
    code = run(["reduce", str(tmp_path / "k.ptx"), *words, "-o", str(tmp_path / "out"), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert code == 0 and said["ok"] and said["before"]["instructions"] > 40 and said["after"]["instructions"] == 1


def test_ctrl_c_keeps_the_smallest_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, call, stop = job_of(tmp_path, barrier="", offset=128), FailureTrial.__call__, 25

    def tried(self: FailureTrial, *of: Any) -> Any:
        if self.tries == stop:
            self.tries += 1
            raise KeyboardInterrupt
        return call(self, *of)

    monkeypatch.setattr(FailureTrial, "__call__", tried)
    found = reduced(ReductionRequest(job, tmp_path / "out", chosen("")))
    kept = load_job(tmp_path / "out" / "launch.toml")
    assert not found.whole and found.again and kept.ptx.read_text().count(";") < 40
    stop = 1
    with pytest.raises(KeyboardInterrupt):
        reduced(ReductionRequest(job, tmp_path / "none", chosen("")))
    assert not (tmp_path / "none").exists()


def test_a_nan_is_asked_for_where_there_is_none(tmp_path: Path) -> None:
    for offset, said in ((0, "stores no NaN that it makes$"), (2, "fails in another way: .*misaligned")):
        with pytest.raises(MmulatorError, match=said):
            reduced(ReductionRequest(job_of(tmp_path, offset=offset), tmp_path / "out", chosen(""), nan="nan"))


def test_a_launch_with_pointers_in_structs_is_captured_first(tmp_path: Path) -> None:
    """A kernel that stores through a pointer in a struct, beyond its end."""
    (tmp_path / "s.ptx").write_text(STRUCT)
    (tmp_path / "launch.toml").write_text(
        'ptx = "s.ptx"\ngrid = 2\nblock = 32\n[[arg]]\n'
        'struct = [{ type = "i32", value = 3 }, { name = "Z", type = "f32", shape = [64], zeros = true }]\n'
    )
    found, text = small(load_job(tmp_path / "launch.toml"), tmp_path)
    assert "out of bounds" in found.failure and found.again and text.count(";") < 10, text


# programs -------------------------------------------------------------------------------------------------------------
def test_kernels_written_anew_are_the_same_and_stay_so() -> None:
    count = 0
    others = [places.ROOT / "tests" / name for name in ("ub/races/halo.ptx", "kernels/ptx/control.ptx")]
    for file in (*sorted((places.ROOT / "examples").rglob("*.ptx")), *others):
        tree = verified(Source(str(file), file.read_text()))
        for entry in tree.entries:
            lines = lines_of(tree, entry.name)
            again = verified(Source("again", lines.text()))
            assert sum(len(f.instructions) for f in again.functions) == lines.instructions
            assert sum(len(f.instructions) for f in reached(tree, entry).functions.values()) == lines.instructions
            assert lines_of(again, entry.name).text() == lines.text()
            count += 1
    assert count > 6
