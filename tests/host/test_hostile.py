"""Text and launches that mean harm, or were made by accident: one error of the family, soon, and no memory asked for."""

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator.base.source import Source, Span, printable
from mmulator.cli.app import run
from mmulator.errors import InvalidInstructionError, LaunchError, MmulatorError, PtxSyntaxError
from mmulator.host.module import Module
from mmulator.ptx.parser import parse_module
from tests.support import terminals
from tests.support.ptx_text import HEAD, STORE_R1, kernel


def variables(text: str, body: str = "") -> str:
    return kernel(body + STORE_R1, top=text)


# Sizes -------------------------------------------------------------------------------------------------------------
TOO_LARGE: dict[str, tuple[str, type[MmulatorError], str]] = {
    "global": (variables(".global .b8 x[8589934592];"), LaunchError, r":4:1: x takes 8589934592 bytes"),
    "globals together": (
        variables("".join(f".global .b8 x{n}[1500000000];\n" for n in range(3))), LaunchError, r":6:1: x2 takes .* 4500000000",
    ),
    "dimensions": (variables(".global .b8 x[65536][65536][65536];"), PtxSyntaxError, "281474976710656 bytes"),
    "beyond 64 bits": (variables(".shared .b64 x" + "[1000000000]" * 9 + ";"), PtxSyntaxError, "a variable has less than"),
    "const": (variables(".const .b8 x[60000]; .const .b8 y[6000];"), LaunchError, "with y .const variables take 66000 bytes"),
    "initialiser": (variables(".global .b8 x[2][1000000000] = {{1}, {2}};"), PtxSyntaxError, "reaches byte 1000000001"),
    "initialiser of an open array": (variables(".global .b8 x[][1000000000] = {{1}, {2}};"), PtxSyntaxError, "reaches byte"),
    "kernel parameters": (
        kernel("", ".param .u64 out, .param .b8 q[1000000000]"), InvalidInstructionError, "take 1000000008 bytes; at most 4352",
    ),
    "parameter": (kernel("", ".param .u64 out, .param .b8 q[9999999999999]"), PtxSyntaxError, "must be from 0"),
    "register names": (kernel(".reg .b32 %y<2000000000>;"), PtxSyntaxError, "number of registers is 2000000000"),
    "modifiers": (kernel("mma" + ".s32" * 100000 + " %r1;"), PtxSyntaxError, "mma has 100000 modifiers"),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_LARGE)
def test_sizes_are_refused_with_the_line(name: str) -> None:
    text, kind, message = TOO_LARGE[name]
    began = time.process_time()
    with pytest.raises(kind, match=message) as caught:
        Module.load(text)
    assert caught.value.span is not None
    assert time.process_time() - began < 3


def test_names_of_a_module_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmulator.ptx.cursor.MAX_NAMES", 4096)
    with pytest.raises(PtxSyntaxError, match=r":6:.*too many names: 4096 at most"):
        Module.load(HEAD + "".join(f".func f{n}() {{ .reg .b32 %r<1500>; }}\n" for n in range(4)))
    with pytest.raises(PtxSyntaxError, match=r":6:.*too many names: 256 at most"):
        Module.load(variables("".join(f".global .b8 x{n}_<100>;\n" for n in range(4))))


def launched(text: str, **options: Any) -> np.ndarray:
    out = np.zeros(32, np.uint32)
    Module.load(text)["k"].launch(1, 32, [out], **options)
    return out


def test_local_memory_has_the_bounds_of_the_chip() -> None:
    use = "mov.u64 %rd1, x; st.local.u32 [%rd1], 7; ld.local.u32 %r1, [%rd1];" + STORE_R1
    assert (launched(kernel(".local .align 4 .b8 x[65536];" + use)) == 7).all()
    for size in (524289, 1 << 30, 1 << 36):
        with pytest.raises(LaunchError, match=f":9:1: with x the local memory of k takes {size} bytes a thread; at most 524288"):
            launched(kernel(f".local .align 4 .b8 x[{size}];" + use))
    inner = ".func f() { .local .b8 y[600000]; ret; }"
    with pytest.raises(LaunchError, match="with y the local memory of f"):
        launched(kernel("call f;" + STORE_R1, top=inner))


def test_shared_memory_has_the_bounds_of_the_chip() -> None:
    with pytest.raises(LaunchError, match="8589934592 static and 0 dynamic bytes of shared memory"):
        launched(kernel("mov.u64 %rd1, x;", top=".shared .b8 x[8589934592];"))
    with pytest.raises(LaunchError, match="static and 1000000000000 dynamic"):
        launched(kernel(""), shared=10**12)


def test_blocks_that_this_machine_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmulator.runtime.launch.limits.host_memory", lambda: 1 << 24)
    text = kernel(".local .align 4 .b8 x[262144]; mov.u64 %rd1, x; st.local.u32 [%rd1], 7;")
    with pytest.raises(LaunchError, match="not fit into the memory of this machine"):
        Module.load(text)["k"].launch(1, 1024, [np.zeros(32, np.uint32)])


# Names -------------------------------------------------------------------------------------------------------------
MANY: dict[str, tuple[str, Callable[[Module], object]]] = {
    "numbered variables": (variables(".global .b8 x<30000>;"), lambda m: m.image.addresses["x29999"]),
    "variables with values": (
        variables("".join(f".global .u32 g{n} = {n};\n" for n in range(12000))), lambda m: m.image.addresses["g11999"],
    ),
    "variables with addresses": (
        variables(".global .u32 g;" + "".join(f".global .u64 g{n} = g;\n" for n in range(12000))),
        lambda m: m.image.addresses["g9"],
    ),
    "one name over and over": (variables(".extern .global .u32 g;\n" * 20000), lambda m: m.tree.variable("g")),
    "functions": (
        HEAD + "".join(f".func f{n}() {{ ret; }}\n" for n in range(12000)), lambda m: m.tree.function("f11999"),
    ),
    "calls": (
        kernel("".join(f"call f{n};" for n in range(8000)), top="".join(f".extern .func f{n}();\n" for n in range(8000))),
        lambda m: m.tree.function("f7999"),
    ),
    "arguments": (
        kernel("".join("{ .param .b32 a; call f, (a); }" for n in range(8000)), top=".extern .func f(.param .b32 x);"),
        lambda m: True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MANY)
def test_names_take_time_in_proportion(name: str) -> None:
    text, wanted = MANY[name]

    def seconds() -> float:
        began = time.process_time()
        assert wanted(Module.load(text))
        return time.process_time() - began

    assert any(seconds() < 5 for _ in range(3))  # once may be disturbed; what is not in proportion takes ten seconds


def test_wrong_names_take_no_time_for_hints() -> None:
    """100 undeclared names in a module with very many others."""
    labels = "".join(f"L{n}:\n" for n in range(20000))
    text = kernel(labels + "".join(f"bra M{n}; add.u32 %r1, %r1, %q{n}; add.u32 %r1, %r1, q{n};\n" for n in range(100)))
    began = time.process_time()
    with pytest.raises(InvalidInstructionError, match="there is no label M0"):
        Module.load(text.replace("%r<64>", "%r<100000>"))
    assert time.process_time() - began < 6


def test_variables_of_functions_do_not_meet() -> None:
    """Variables of one name in different functions, and beside one of the module."""
    top = """.shared .align 4 .u32 x[4];
.func f() { .shared .align 4 .u32 x[8]; .reg .u32 %a; mov.u32 %a, x; st.shared.u32 [%a], 5; st.shared.u32 [%a+28], 5; ret; }
.func g() { .shared .align 4 .u32 x[2]; .reg .u32 %a; mov.u32 %a, x; st.shared.u32 [%a], 6; st.shared.u32 [%a+4], 6; ret; }"""
    body = "st.shared.u32 [x], 1; st.shared.u32 [x+12], 2; call f; call g;\n"
    body += "ld.shared.u32 %r1, [x]; ld.shared.u32 %r2, [x+12]; mad.lo.u32 %r1, %r2, 10, %r1;"
    assert (launched(kernel(body + STORE_R1, top=top)) == 21).all()


@pytest.mark.parametrize("mask", ["0", "0xFFFF", "0xF0", "-1"])
def test_masks_of_addresses(mask: str) -> None:
    with pytest.raises(PtxSyntaxError, match="selects no byte of an address"):
        Module.load(variables(f".global .u32 y; .global .u8 x[1] = {{{mask}(y)}};"))


def test_initialisers_name_what_is_declared() -> None:
    with pytest.raises(InvalidInstructionError, match="nosuch is not declared"):
        Module.load(variables(".global .u64 x = nosuch;"))


# Kinds -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": "x"}, {"seed": 1.5}, {"seed": None}, {"shared": "x"}, {"shared": None}, {"shared": -1}, {"shared": 0.5},
        {"args": None}, {"args": 5}, {"args": "x"}, {"args": {}}, {"args": np.zeros(1)}, {"args": [Ellipsis]},
        {"timeout": "x"}, {"timeout": -1}, {"timeout": float("nan")}, {"threads": 0}, {"threads": "x"}, {"grid": None},
        {"grid": "x"}, {"grid": 0}, {"grid": [1, 2, 3, 4]}, {"grid": float("inf")}, {"grid": 1 << 70}, {"block": {}},
        {"block": (1024, 1024)}, {"device": 5}, {"device": []}, {"watch": 5}, {"watch": [5]}, {"watch": [(0,)]}, {"progress": 5},
    ],
    ids=str,
)  # fmt: skip
def test_kinds_of_what_a_launch_is_given(wrong: dict[str, Any]) -> None:
    out = np.zeros(32, np.uint32)
    with pytest.raises(MmulatorError):
        Module.load(kernel(""))["k"].launch(**{"grid": 1, "block": 1, "args": [out], **wrong})


@pytest.mark.parametrize("seed", [-3, 1 << 70, np.int64(5), True - True])
def test_any_whole_number_is_a_seed(seed: Any) -> None:
    if not isinstance(seed, bool):
        launched(kernel(""), seed=seed)


# What reaches the terminal ------------------------------------------------------------------------------------------
STEERING = "\x1b[2J\x1b]0;owned\x07\x00\x08\r\x7f\x9b31m\u202eabc\u2066\u200f\ufeff"


def clean(text: str) -> bool:
    return all(c in "\n\t" or printable(c) == c for c in text)


def test_messages_do_not_steer_the_terminal() -> None:
    error = MmulatorError(f"no {STEERING}", span=Span(Source(f"{STEERING}.ptx", f"/*{STEERING}*/ foo"), 3, 5), hint=STEERING)
    assert clean(str(error)) and "\x1b" in error.message and not clean(STEERING)
    shown, caret = str(error).split("\n")[1:3]
    assert len(caret) <= len(shown)


def on_terminal(*arguments: str, cwd: Path) -> str:
    """What a command writes to a terminal."""
    main, other = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "mmulator", *arguments], stdout=other, stderr=other, cwd=cwd)
    os.close(other)
    text = terminals.read(main)
    process.wait()
    return text.replace("\r\n", "\n")


PRINTS = """
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 1 .b8 text[12] = {27, 91, 50, 74, 104, 105, 13, 155, 33, 10, 0};
"""


def test_what_a_kernel_prints_does_not_steer_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = "{ .param .b64 a; .param .b64 b; .param .b32 r; mov.u64 %rd1, text; cvta.global.u64 %rd1, %rd1;"
    call += "st.param.b64 [a], %rd1; st.param.b64 [b], 0; call (r), vprintf, (a, b); }"
    name = f"k{STEERING.replace(chr(0), '')}.ptx"
    (tmp_path / name).write_text(kernel(call, top=PRINTS))
    arguments = ["run", name, "--grid", "1", "--block", "1", "--arg", "out:u32:32"]
    said = on_terminal(*arguments, cwd=tmp_path)
    assert "?[2Jhi" in said and "\x1b[2J" not in said and "\x9b" not in said
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 0 and "\x1b[2Jhi\r" in capsys.readouterr().out  # to a file it goes as it is
    (tmp_path / name).write_text(kernel(f"/*{STEERING.replace(chr(0), '')}*/ foo.bar;", top=PRINTS))
    said = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal("check", name, cwd=tmp_path))
    assert "there is no instruction 'foo'" in " ".join(said.split())
    assert f"k{printable(name[1:])}: PTX 8.0" in said and clean(said)


# What is no PTX ----------------------------------------------------------------------------------------------------
BINARY = {
    "an ELF file": b"\x7fELF\x02\x01\x01\x33" + bytes(range(256)),
    "a cubin": b"\x7fELF\x02\x01\x01\x33" + bytes(8) + b"\x02\0\xbe\0" + bytes(64),
    "a program without kernels of CUDA": b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\0\x3e\0" + bytes(64) + b".nv_fatbin",
    "CUDA C++": b"__global__ void k(float *x) { *x = 1; }\n",
    "an object file": b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x01\0\x3e\0" + bytes(64),
    "gzip": b"\x1f\x8b\x08\x00abc",
    "zip": b"PK\x03\x04abc",
    "UTF-16": ".version 8.0\n".encode("utf-16"),
    "binary": b".version 8.0\n\0\0\x90",
}


@pytest.mark.parametrize("what", BINARY)
def test_files_that_are_no_text(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.ptx"
    path.write_bytes(BINARY[what])
    for command in (["check"], ["run", "--grid", "1", "--block", "1"]):
        assert run([command[0], str(path), *command[1:]]) == 1
        said = capsys.readouterr().err
        assert f"{path} is not PTX text: it is " in said and what in said and "hint: " in said and clean(said)
    with pytest.raises(MmulatorError, match="is not PTX text"):
        Module.load(path)


def test_a_damaged_fatbin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.fatbin"
    path.write_bytes(b"\x50\xed\x55\xba\x01\x00\x10\x00")
    assert run(["check", str(path)]) == 1
    assert f"{path}: the fat binary is damaged: it ends in its header of 16 bytes" in capsys.readouterr().err


def test_a_byte_order_mark_is_no_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\ufeff" + kernel("")
    (tmp_path / "k.ptx").write_text(text.replace("\n", "\r\n"), encoding="utf-8")
    assert run(["check", str(tmp_path / "k.ptx")]) == 0
    assert list(Module.load(tmp_path / "k.ptx")) == list(Module.load(text)) == ["k"]
    capsys.readouterr()


# Depth -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        variables(".global .u32 x = " + "(" * 20000 + "1" + ")" * 20000 + ";"),
        variables(".global .u32 x = " + "-" * 20000 + "1;"),
        variables(".global .u32 x = " + "1 ? " * 20000 + "1" + " : 1" * 20000 + ";"),
        variables(".global .u32 x[1] = " + "{" * 20000 + "1" + "}" * 20000 + ";"),
        kernel("{" * 20000 + "}" * 20000),
        kernel("mov.b64 %rd1, " + "{" * 20000 + "%r1" + "}" * 20000 + ";"),
        kernel("ld.global.u32 %r1, " + "[" * 20000 + "%rd1" + "]" * 20000 + ";"),
        kernel("call " + "(" * 20000 + "%r1" + ")" * 20000 + ", f;"),
        kernel("setp.eq.u32 %p1" + "|%p1" * 20000 + ", %r1, %r1;"),
    ],
    ids=["parentheses", "signs", "choices", "initialisers", "scopes", "vectors", "addresses", "arguments", "pairs"],
)
def test_depth_is_bounded(text: str) -> None:
    with pytest.raises(PtxSyntaxError):
        parse_module(Source("deep.ptx", text))
