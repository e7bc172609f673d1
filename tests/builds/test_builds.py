"""`mmulator compare-builds`: two builds of one program, whose kernels differ in a known way."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator.base.errors import LaunchError
from mmulator.cli.app import run
from mmulator.evaluation.builds.changes import compare_builds, sentences
from mmulator.evaluation.builds.suites import matched, read
from tests.support.schemas import checked

KERNEL = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry NAME(.param .u64 x, .param .u64 y, .param .u64 z) {
  .reg .f32 %f<10>; .reg .b32 %r<4>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u64 %rd3, [z]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd4, %r1, 4;
  add.u64 %rd5, %rd1, %rd4; add.u64 %rd6, %rd2, %rd4; add.u64 %rd7, %rd3, %rd4;
  ld.global.f32 %f2, [%rd5]; ld.global.f32 %f3, [%rd6]; ld.global.f32 %f4, [%rd6+128];
  BODY
  st.global.f32 [%rd7], %f1; ret;
}
"""
TWICE, FAULT = "add.rn.f32 %f1, %f2, %f2;", "ld.global.f32 %f1, [%rd5+1048576];"
BODIES = {  # of each build
    "contracted": ("fma.rn.f32 %f1, %f2, %f3, %f4;", "mul.rn.f32 %f5, %f2, %f3;\n  add.rn.f32 %f1, %f5, %f4;"),
    "after": (TWICE, TWICE),  # reads what `contracted` stored
    "later": ("add.f32 %f1, %f2, %f2;", TWICE),  # so does this one, whose text is another
    "reordered": (
        "add.rn.f32 %f5, %f2, %f3; add.rn.f32 %f1, %f5, %f4;", "add.rn.f32 %f5, %f3, %f4; add.rn.f32 %f1, %f2, %f5;",
    ),
    "commuted": ("add.rn.f32 %f1, %f2, %f3;", "add.rn.f32 %f1, %f3, %f2;"),
    "equal": (TWICE, TWICE),
    "wrong": (TWICE, FAULT),
        "in_place": ("fma.rn.f32 %f1, %f2, %f3, %f2;", "mul.rn.f32 %f5, %f2, %f3;\n  add.rn.f32 %f1, %f5, %f2;"),
    "lonely": (TWICE, ""),
}  # fmt: skip
PROGRAM = """import os
import numpy as np
from mmulator.base.errors import ExecutionFault
from mmulator.host.driver import Region, current
rng = np.random.default_rng(0)
x, y = rng.standard_normal(32, np.float32), rng.standard_normal(64, np.float32)
made = {name: np.zeros(32, np.float32) for name in NAMES}
for name, z in made.items():
    file = f"{os.environ['BUILD']}-{name}.ptx"
    arrays = {"x": made["contracted"] if name in ("after", "later") else x, "y": y, "z": z}
    if not os.path.exists(file):
        continue
    if name == "in_place":
        arrays["z"] = z = x.copy()
        arrays["x"] = z
    kernel = current().load(open(file).read(), file).function(name)
    params = b"".join(a.ctypes.data.to_bytes(8, "little") for a in arrays.values())
    try:
        current().launch(kernel, 1, 32, params, [Region(a.ctypes.data, a.nbytes, name) for name, a in arrays.items()])
    except ExecutionFault:
        pass
"""


def written(folder: Path, names: str) -> None:
    """A program and the PTX of its two builds."""
    for name in names.split():
        for build, body in zip("ab", BODIES[name]):
            if body:
                (folder / f"{build}-{name}.ptx").write_text(KERNEL.replace("NAME", name).replace("BODY", body))
    (folder / "p.py").write_text(f"NAMES = {names.split()}\n{PROGRAM}")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A folder with the records, the page and the JSON of all kernels in two builds; and the exit code."""
    folder = tmp_path_factory.mktemp("builds")
    with pytest.MonkeyPatch.context() as patch, (folder / "out.json").open("w") as out, (folder / "err").open("w") as err:
        patch.chdir(folder)
        patch.delenv("PYTEST_CURRENT_TEST")
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        written(folder, " ".join(BODIES))
        words = "compare-builds --json --records kept --to page.html --build BUILD=a --build BUILD=b p.py"
        return folder, run(words.split())


def kernels(folder: Path) -> dict[str, dict[str, Any]]:
    data = json.loads((folder / "out.json").read_text())
    assert checked(data) == "compare-builds"
    return {k["kernel"]: k for k in data["kernels"]}


def test_each_kernel_has_its_verdict(compared: tuple[Path, int]) -> None:
    folder, code = compared
    assert code == 3
    found = kernels(folder)
    assert {name: (k["bits"], k["grade"]) for name, k in found.items()} == {
        "contracted": ("other bits", "same algebra"), "reordered": ("other bits", "same algebra"),
        "wrong": ("other bits", "not decided"), "in_place": ("other bits", "same algebra"),
        "after": ("other inputs", "same bits"), "later": ("other inputs", "same bits"), "commuted": ("same bits", "same bits"),
        "equal": ("same bits", "same bits"),
    }  # fmt: skip
    assert found["contracted"]["instructions"] == {"add.rn.f32": [0, 1], "fma.rn.f32": [1, 0], "mul.rn.f32": [0, 1]}
    assert "the first build fuses" in found["contracted"]["fusion"] and not found["reordered"]["fusion"]
    assert found["contracted"]["lines"] == ["a-contracted.ptx:9", "b-contracted.ptx:10"]
    assert found["equal"]["reason"] == "both builds made the same instructions"
    assert "the first ended with no error, the second with ExecutionFault" in found["wrong"]["launches"][0]["note"]
    data = json.loads((folder / "out.json").read_text())
    assert data["alone"] == [[{"launch": 9, "kernel": "lonely", "test": ""}], []]


def test_the_elements_that_differ_are_those_that_numpy_says(compared: tuple[Path, int]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(32, np.float32), rng.standard_normal(64, np.float32)
    fused = (x.astype(np.float64) * y[:32] + y[32:]).astype(np.float32)  # exact: 48 bits and 24 more, but for far sums
    apart = x * y[:32] + y[32:]
    steps = np.abs(fused.view(np.int32).astype(np.int64) - apart.view(np.int32))
    (launch,) = kernels(compared[0])["contracted"]["launches"]
    (array,) = launch["arrays"]
    assert launch["other_inputs"] == [] and not launch["outputs"]
    assert (array["differ"], array["ulps"]) == (np.count_nonzero(steps), steps.max())
    first = int(np.flatnonzero(steps)[0])
    assert array["first"] == [first] and array["values"] == [str(float(fused[first])), str(float(apart[first]))]


def test_the_page_and_the_text_say_it(compared: tuple[Path, int], capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = compared
    page = (folder / "page.html").read_text()
    assert "<td>contracted</td>" in page and "lonely" in page and "<script" not in page
    assert run(["compare-builds", str(folder / "kept/first"), str(folder / "kept/second")]) == 3
    said = capsys.readouterr().out
    for line in (
        "kernels: 8; other bits: 4, other inputs: 2, same bits: 2", "add.rn.f32 0 -> 1, fma.rn.f32 1 -> 0, mul.rn.f32 0 -> 1",
        "inputs differ in 1 of 1 launch, so that outputs say nothing of the builds: x",
        "only the first build has launch 9, lonely (1x1x1 blocks of 32x1x1 threads)", "values part at",
    ):  # fmt: skip
        assert line in said, said


def test_codes_of_what_does_not_differ(compared: tuple[Path, int], capsys: pytest.CaptureFixture[str]) -> None:
    """A record beside itself has no differences; without a launch, or without files, not all was compared."""
    first = compared[0] / "kept" / "first"
    assert run(["compare-builds", str(first), str(first)]) == 0
    failed = read(first, exit_code=1)
    assert compare_builds(failed, failed).exit_code == 4 and compare_builds(read(first), read(first)).exit_code == 0
    other = compared[0] / "cut"
    other.mkdir()
    rows = [json.loads(line) for line in (first / "launches.jsonl").read_text().splitlines()]
    (other / "launches.jsonl").write_text("".join(json.dumps(r | {"files": ""}) + "\n" for r in rows[:-1]))
    assert run(["compare-builds", str(first), str(other)]) == 4
    assert "only the first build has launch 9" in capsys.readouterr().out
    (other / "launches.jsonl").write_text(
        "".join(json.dumps(r | ({"files": "", "missing": "no room"} if "kernel" in r else {})) + "\n" for r in rows)
    )
    assert run(["compare-builds", str(first), str(other)]) == 4
    assert "its files were not kept: no room" in capsys.readouterr().out


def test_other_inputs_are_no_difference_of_builds(compared: tuple[Path, int], capsys: pytest.CaptureFixture[str]) -> None:
    """The same code on other numbers: the arrays are named first, and nothing is said of the builds' bits."""
    first = compared[0] / "kept" / "first"
    suite = read(first)
    one, other = (next(x for x in suite.launches if x.kernel == name) for name in ("equal", "after"))
    beside = replace(suite, launches=(replace(other, kernel="equal", code=one.code),))
    found = compare_builds(replace(suite, launches=(one,)), beside)
    (kernel,) = found.kernels
    assert found.exit_code == 4 and kernel.change == "other inputs" and kernel.pairs[0].inputs == ("x",)
    assert next(sentences(kernel)).startswith("inputs differ in 1 of 1 launch") and next(sentences(kernel)).endswith(": x")


def test_records_that_cannot_be_compared_say_why(compared: tuple[Path, int]) -> None:
    suite = read(compared[0] / "kept" / "first")
    with pytest.raises(LaunchError, match="none has no launches"):
        compare_builds(suite, replace(suite, name="none", launches=()))
    one, other = ([replace(x, kernel=x.kernel + end) for x in suite.launches] for end in ("", "2"))
    with pytest.raises(LaunchError, match="no kernel in common"):
        compare_builds(replace(suite, launches=one), replace(suite, launches=other))


def test_launches_belong_together_by_what_they_have_in_common(compared: tuple[Path, int]) -> None:
    suite = read(compared[0] / "kept" / "first")
    one = suite.launches[0]
    a = replace(suite, launches=tuple(replace(one, number=n, grid=(g, 1, 1)) for n, g in enumerate((4, 8, 8, 2), 1)))
    b = replace(suite, launches=tuple(replace(one, number=n, grid=(g, 1, 1)) for n, g in enumerate((8, 8, 4, 3, 1), 1)))
    pairs, left, right = matched(a, b)
    assert [(x.number, y.number) for x, y in pairs] == [(1, 3), (2, 1), (3, 2), (4, 4)]
    assert not left and [y.number for y in right] == [5]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("one", "1 word, and no --build"), ("a b", "a has no record of launches"), ("--build X=1 p.py", "given 1 time"),
        ("--build no-such-python --build X=1 none.py", "there is no program no-such-python"),
        ("--build 'python X=1' --build X=1 none.py", "--build 'python X=1'"), ("--to a.txt a b", "the name ends in .html"),
        ("--device H100 a b", "--device goes with --build"), ("damaged damaged", "is damaged, or no record"),
        ("--build X=1 --build X=2 none.py", "the program launched no kernel"),
    ],
)  # fmt: skip
def test_wrong_use(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none.py").write_text("")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "launches.jsonl").write_text('{"kernel": "k"}\n')
    assert run(["compare-builds", *shlex.split(words)]) in (1, 2)
    assert said in capfd.readouterr().err
