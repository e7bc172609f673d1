"""What a person meets in Python beside results: variables, structs, names, reprs, short tracebacks."""

import ctypes
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import LaunchError, MmulatorError
from tests.support.ptx_text import kernel

# out[i] = coef[i % 4] * scale; counter += 1
VARIABLES = kernel(
    """
  mov.u32 %r0, %tid.x;
  and.b32 %r1, %r0, 3;
  mov.u64 %rd1, coef;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd1, %rd1, %rd2;
  ld.const.f32 %f0, [%rd1];
  ld.global.f32 %f1, [scale];
  mul.rn.f32 %f0, %f0, %f1;
  mul.wide.u32 %rd2, %r0, 4;
  add.u64 %rd3, %rd0, %rd2;
  st.global.f32 [%rd3], %f0;
  red.global.add.u32 [_ZN3app7counterE], 1;
""",
    top="""
.const .align 4 .b8 coef[16] = {0, 0, 128, 63, 0, 0, 0, 64};
.global .f32 scale = 0f3F000000;
.global .align 4 .u32 _ZN3app7counterE;
.global .align 2 .bf16 table[2][2] = {{0x3F80, 0}, {0, 0x4000}};
.extern .global .u32 elsewhere;
.shared .u32 tile[4];
""",
)


def test_variables_are_arrays_on_the_memory_of_kernels() -> None:
    module = mm.Module.load(VARIABLES)
    v, out = module.variables, np.zeros(8, np.float32)
    assert list(v) == ["coef", "scale", "_ZN3app7counterE", "table"]
    assert (v["coef"].dtype, v["coef"].shape) == (np.uint8, (16,)) and v["scale"].shape == ()
    assert v["coef"].view(np.float32).tolist() == [1, 2, 0, 0] and v["scale"] == 0.5
    assert v["table"].dtype == ml_dtypes.bfloat16 and v["table"].tolist() == [[1, 0], [0, 2]]
    module["k"].launch(1, 8, [out])
    assert out.tolist() == [0.5, 1, 0, 0] * 2 and v["_ZN3app7counterE"] == 8
    v["coef"].view(np.float32)[:] = [1, 2, 3, 4]
    v["scale"] = 2
    v["app::counter"] = 100
    module["k"].launch(1, 8, [out])
    assert out.tolist() == [2, 4, 6, 8] * 2 and v["counter"] == 108
    for four in (np.full(4, 7, np.float32), memoryview(np.full(4, 7, np.float32)), np.full(4, 7, np.float32).tobytes()):
        v["coef"] = 0
        v["coef"] = four
        assert (v["coef"].view(np.float32) == 7).all()
    v["table"] = [[1.5, 2], [3, 4]]
    assert v["table"].tolist() == [[1.5, 2], [3, 4]]
    assert mm.Module.load(VARIABLES).variables["scale"] == 0.5  # each module has its own


WRONG_VARIABLES: list[tuple[str, Any, str]] = [
    ("cof", 1, "no .const or .global variable 'cof'"),
    ("elsewhere", 1, "no .const or .global variable"),
    ("tile", 1, "no .const or .global variable"),
    ("coef", [1.0, 2.0, 3.0, 4.0], "coef is uint8\\[16\\], 16 bytes"),
    ("coef", np.zeros(3, np.float32), "16 bytes"),
    ("counter", -1, "do not fit"),
    ("counter", 1.5, "do not fit"),
    ("scale", "x", "do not fit"),
    ("scale", [1, 2], "does not take"),
    ("table", [[1], [1, 2]], "inhomogeneous"),
    (3, 1, "by its name, not by int"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG_VARIABLES)
def test_values_that_are_none_of_the_variable(name: str, value: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        mm.Module.load(VARIABLES).variables[name] = value


def test_a_variable_is_no_kernel_and_says_so() -> None:
    with pytest.raises(LaunchError, match=r"module\.variables\['coef'\]"):
        mm.Module.load(VARIABLES)["coef"]


# *p.x = p.n * p.s for struct { float* x; int n; float s; short h; }, aligned to 8
STRUCT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .align 8 .b8 p[24]) {
  .reg .b64 %rd; .reg .b32 %n; .reg .f32 %f, %s; .reg .b16 %h;
  ld.param.u64 %rd, [p];
  ld.param.u32 %n, [p+8];
  ld.param.f32 %s, [p+12];
  ld.param.u16 %h, [p+16];
  cvt.rn.f32.s32 %f, %n;
  mul.f32 %f, %f, %s;
  st.global.f32 [%rd], %f;
  st.global.u16 [%rd+4], %h;
  ret; }
"""


class P(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint64), ("n", ctypes.c_int), ("s", ctypes.c_float), ("h", ctypes.c_short))


def test_structs_are_laid_out_as_c_does() -> None:
    out = np.zeros(2, np.float32)
    own = np.zeros((), np.dtype([("x", "u8"), ("n", "i4"), ("s", "f4"), ("h", "i2")], align=True))
    own["n"], own["s"], own["h"] = 3, 1.5, 7
    same = [
        mm.struct(out, np.int32(3), np.float32(1.5), np.int16(7)),
        mm.struct(P(0, 3, 1.5, 7), pointers={0: out}),
        mm.struct(own, pointers={0: out}),
        mm.struct(bytes(own), pointers={0: memoryview(out)}),
        mm.struct(mm.struct(out, np.int32(3)), np.float32(1.5), np.int16(7), pack=True),  # the inner one ends at 16
    ]
    for n, p in enumerate(same[:4]):
        out[:] = 0
        mm.Module.load(STRUCT)["k"].launch(1, 1, [p])
        assert out[0] == 4.5 and out.view(np.uint16)[2] == 7, n
    assert len(same[4].data) == 22 and mm.struct(np.int8(1), np.int64(2)).data == b"\1" + bytes(7) + b"\2" + bytes(7)
    wrong: list[tuple[Any, str]] = [
        (mm.struct(out), "has 24 bytes, not 8"),
        (bytes(23), "aggregate of 24 bytes: pass bytes of that length, not 23"),
        (P, "24 bytes"),
        ([out, 3, 1.5, 7], "mm.struct"),
        (out, "24 bytes|not a pointer"),
    ]
    for value, message in wrong:
        with pytest.raises(LaunchError, match=message):
            mm.Module.load(STRUCT)["k"].launch(1, 1, [value])
    for value, message in [(3, "np.int32"), (1.5, "np.float32"), ([1], "is a pointer"), (object(), "is a pointer")]:
        with pytest.raises(LaunchError, match=f"field 0 of the struct.*(\n.*)?{message}"):
            mm.struct(value)
    with pytest.raises(LaunchError, match="does not fit into a struct of 8 bytes"):
        mm.struct(bytes(8), pointers={1: out})


MANGLED = """.version 8.0
.target sm_90
.address_size 64
.visible .entry _Z4gemmIfEvPKT_PS0_i(.param .u64 a, .param .u64 b, .param .u32 n) { ret; }
.visible .entry _Z4gemmI6__halfEvPKT_PS1_i(.param .u64 a, .param .u64 b, .param .u32 n) { ret; }
.visible .entry _Z5scalePff(.param .u64 a, .param .f32 b) { ret; }
"""


def test_kernels_are_found_by_cpp_names_and_by_parts() -> None:
    module = mm.Module.load(MANGLED)
    first, second, scale = module.values()
    assert module["scale"] is module["scale(float*, float)"] is module["sca"] is scale
    assert module["gemm<float>"] is module["gemmIf"] is first and module["__half"] is second
    with pytest.raises(LaunchError, match=r"gemm.*2 names"):
        module["gemm"]
    with pytest.raises(LaunchError, match="no kernel 'copy'; it has void gemm<float>"):
        module["copy"]
    with pytest.raises(LaunchError, match="not by int"):
        module[0]  # type: ignore[index]
    assert "scale" not in module and list(module)[2] == "_Z5scalePff"


def test_what_things_look_like() -> None:
    module = mm.Module.load(MANGLED, name="gemm.ptx")
    assert repr(module).startswith("<Module gemm.ptx: PTX 8.0 for sm_90; kernels: void gemm<float>(")
    assert repr(module["scale"]) == "<Kernel scale(float*, float)(.u64, .f32)>"
    report = module["scale"].launch((2, 3), 64, [None, 1.0])
    assert repr(report).startswith("<Report scale(float*, float) on sm_90: grid 2 x 3, block 64") and len(repr(report)) < 150
    text = str(report).split("\n")
    assert text[1].split() == ["instructions", "of", "warps", "executed"] and text[2].split() == ["control", "12"]
    variables = mm.Module.load(VARIABLES).variables
    assert "app::counter .global uint32" in repr(variables)
    i = mm.Instruction.parse("mma m16n8k16 f16")
    groups = mm.inspect.group(mm.inspect.find_forms("wgmma bf16"))
    assert str(groups).split("\n")[1].startswith("wgmma.mma_async.m64n{8..256}k16.f32.bf16.bf16 ")
    shown = (
        (module, "void gemm&lt;float&gt;"),
        (module["scale"], "<td>.f32</td>"),
        (report, "<td>control</td><td>12</td>"),
        (i, "mma.sync.aligned.m16n8k16"),
        (mm.MatrixDescriptor(swizzle="128B"), "<td>128B</td>"),
        (groups, "wgmma.mma_async.m64n{8..256}k16"),
        (variables, "<td>float32</td>"),
    )
    for thing, part in shown:
        assert part in thing._repr_html_()
    assert not [name for name in dir(mm) if name.startswith("_") and name != "__version__"]
    assert {"Kernel", "Report", "Module", "struct", "inspect"} <= set(dir(mm)) and "Any" not in dir(mm)
    assert all(getattr(mm, name) is not None for name in dir(mm))


def test_sanitize_is_said_in_one_of_three_ways() -> None:
    with pytest.raises(mm.errors.LaunchError, match="sanitize is 'yes', not True, False, 'strict' or 'raise'"):
        mm.Module.load(MANGLED)["scale"].launch(1, 1, [None, 1.0], sanitize="yes")


FAILING = """
import numpy as np
import mmulator as mm

def test_it():
    out = np.zeros(2, np.float32)
    {line}
"""
LINES = [
    "mm.Module.load({text!r})['k'].launch(1, 32, [out])",
    "mm.Module.load('.version 8.0 .target sm_90 x')",
    "mm.Module.load({text!r})['z']",
    "mm.matmul(out, out, instruction='mma m16n8k16 f16')",
    "mm.Instruction.parse('mma m16n8k16 f16').execute(a=1)",
    "mm.sparse.prune(out, 'mma m16n8k16 f16')",
]


@pytest.mark.parametrize("line", LINES)
def test_tracebacks_show_the_caller(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile(FAILING.format(line=line.format(text=VARIABLES)) + "test_it()", "test_mine.py", "exec")
    lengths = []
    for whole in ("", "1"):
        monkeypatch.setenv("MMULATOR_TRACEBACK", whole)
        with pytest.raises(MmulatorError) as caught:
            exec(code, {})
        frames = traceback.extract_tb(caught.value.__traceback__)[1:]
        assert [f.filename for f in frames[:2]] == ["test_mine.py"] * 2
        assert caught.value.__context__ is None or caught.value.__suppress_context__
        lengths.append(len(frames))
    assert lengths[0] == 3 and lengths[1] > 3


def test_pytest_shows_the_line_and_the_message_only(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(FAILING.format(line=LINES[0].format(text=VARIABLES)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    environment = {**os.environ, "PYTHONPATH": str(Path(mm.__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "out of bounds" in done.stdout
    assert "mmulator/" not in done.stdout
