"""`mmulator check`: exit codes, JSON, messages; nothing a user does gives a traceback."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mmulator.cli import main
from tests.support import places

KERNELS = places.KERNELS / "ptx"
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
KERNEL = """.extern .shared .align 16 .b8 dynamic[];
.const .align 4 .b8 c[12];
.visible .entry k(.param .u64 .ptr .global .align 16 a, .param .b8 b, .param .align 8 .b8 s[24])
.maxntid 128, 1, 1
{
    .reg .b32 %r<100>; .reg .b64 %d<4>; .reg .pred %p;
    .shared .align 8 .b8 tile[20]; .local .b8 stack[40];
    ld.param.u64 %d1, [a];
    @%p st.shared.u32 [tile], %r1;
    ld.const.u32 %r2, [c];
    st.shared.u32 [dynamic], %r2;
    st.local.u32 [stack], %r3;
    wgmma.fence.sync.aligned;
    ret;
}
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return int(stop.value.code or 0), captured.out, captured.err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code, out, _ = run(capsys, *arguments, "--json")
    return code, json.loads(out)


def test_a_valid_kernel(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(HEAD + KERNEL)
    code, data = as_json(capsys, "check", str(file))
    assert code == 0 and data["ok"] and data["target"] == "sm_90a" and data["version"] == "8.7"
    (kernel,) = data["kernels"]
    assert [(p["name"], p["offset"], p["size"], p["pointer"]) for p in kernel["parameters"]] == [
        ("a", 0, 8, "global"), ("b", 8, 1, None), ("s", 16, 24, None),
    ]  # fmt: skip
    assert kernel["registers"] == {"b32": 3, "b64": 1, "pred": 1}
    assert (kernel["shared_bytes"], kernel["dynamic_shared"]) == (32, True)  # tile, then dynamic at its alignment
    assert (kernel["const_bytes"], kernel["local_bytes"]) == (12, 40)
    assert kernel["directives"] == {"maxntid": [128, 1, 1]}
    assert kernel["matrix_instructions"] == {"wgmma.fence.sync.aligned": 1}
    code, out, err = run(capsys, "check", str(file))
    assert code == 0 and err == "" and "k (line 6): 7 instructions" in out and ".maxntid 128, 1, 1" in out


def test_errors_are_all_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(HEAD + ".entry k() {\n .reg .b32 r;\n add.s32 r, r, 1.0;\n nope r;\n}")
    code, data = as_json(capsys, "check", str(file))
    assert code == 1 and not data["ok"]
    assert [(e["kind"], e["line"], e["column"]) for e in data["errors"]] == [
        ("invalid instruction", 6, 16), ("invalid instruction", 7, 2),
    ]  # fmt: skip
    code, out, _ = run(capsys, "check", str(file))
    assert code == 1 and "k.ptx:6:16: operand b takes .s32" in out and "2 errors" in out


def test_unsupported_instructions_fail_the_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(HEAD + ".entry k() {\n .reg .b64 d;\n tex.1d.v4.f32.s32 {f, f, f, f}, [d, {x}];\n ret;\n}")
    code, data = as_json(capsys, "check", str(file))
    assert code == 1 and data["errors"] == []
    assert [(u["name"], u["line"]) for u in data["unsupported"]] == [("tex", 6)]
    code, out, _ = run(capsys, "check", str(file))
    assert code == 1 and "textures and surfaces are not modelled" in out


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_syntax_errors_and_missing_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, flags: tuple[str, ...]) -> None:
    file = tmp_path / "k.ptx"
    file.write_bytes(b".version 8.7\n.target \xff\n")
    for path, words in (
        (str(file), "k.ptx:2:9"),
        (str(tmp_path / "none.ptx"), "No such file"),
        (str(tmp_path), "directory"),
    ):
        code, out, err = run(capsys, "check", path, *flags)
        assert code == 1
        if flags:
            (error,) = json.loads(out)["errors"]
            assert words in (error["message"], f"k.ptx:{error['line']}:{error['column']}") or words in error["message"]
        else:
            assert words in err and out == ""


def test_target_option(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(HEAD + KERNEL)
    code, data = as_json(capsys, "check", str(file), "--target", "sm_80")
    assert code == 1 and "sm_80" in data["errors"][0]["message"]
    code, _, err = run(capsys, "check", str(file), "--target", "sm_1")
    assert code == 1 and "not a known target" in err


def test_wrong_usage_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "check")[0] == 2
    assert run(capsys, "nonsense")[0] == 2


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.ptx")), ids=lambda p: p.stem)
def test_real_kernels_are_valid(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    code, data = as_json(capsys, "check", str(path))
    assert data["errors"] == [] and data["kernels"]
    assert code == int(bool(data["unsupported"]))


def test_check_imports_nothing_heavy() -> None:
    """No LLVM is needed to check a module."""
    program = (
        "import sys; from mmulator.cli import main\n"
        f"try: main(['check', {str(next(KERNELS.glob('*.ptx')))!r}, '--json'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'llvmlite'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"
