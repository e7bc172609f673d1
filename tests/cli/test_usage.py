"""What a user meets at the command line: help, words without quotes, options that would be ignored, terminals of 80 columns."""

import json
import os
import pty
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator.cli.app import run
from mmulator.cli.commands import COMMANDS, command_of
from mmulator.cli.completion import offered
from mmulator.cli.output import print_table
from mmulator.cli.parser import declared, first_paragraph, parameters
from mmulator.errors import InternalError
from mmulator.host.settings import taken
from tests.support import terminals
from tests.support.places import PACKAGE, ROOT
from tests.support.ptx_text import stored
from tools.pages.reference import commands

ALL = {
    words: [*declared(function)] if function else []
    for name in COMMANDS
    for words, function in commands(command_of(name), (name,))
}


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run([*arguments]) == code, capsys.readouterr()
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert "Traceback" not in text and "has a bug" not in text
    return text


def test_a_bug_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> None:
        raise InternalError("a lane that is no lane")

    monkeypatch.setattr("mmulator.cli.app.command_of", broken)
    assert run(["layout", "mma m16n8k16 f16", "a"]) == 1
    assert "internal error: mmulator has a bug: a lane that is no lane" in capsys.readouterr().err
    monkeypatch.setenv("MMULATOR_TRACEBACK", "1")
    with pytest.raises(InternalError):
        run(["layout", "mma m16n8k16 f16", "a"])


def one_line(text: str) -> str:
    return " ".join(text.split())


# command lines -----------------------------------------------------------------------------------------------------
READ: dict[str, dict[str, Any]] = {
    "run k.ptx --grid 2,2 --block=128 --shared 9 --arg a.npy --arg=C=out:f16:2x2": {
        "file": Path("k.ptx"), "grid": "2,2", "block": "128", "shared": 9, "arg": ["a.npy", "C=out:f16:2x2"]},
    "run --json k.ptx --cooperative --timeout 1.5e3 --threads 8 --rules -races --seed -1 --entry=": {
        "file": Path("k.ptx"), "cooperative": True, "json": True, "timeout": 1500.0, "threads": 8, "rules": "-races", "seed": -1,
        "entry": ""},
    "run -- -k": {"file": Path("-k")}, "run -": {"file": Path("-")}, "run k --seed 1 --seed 2": {"file": Path("k"), "seed": 2},
    "list": {}, "list wgmma --dense fp8": {"words": ["wgmma", "fp8"], "dense": True},
    "why mma --element 1,2 m16n8k16": {"instruction": ["mma", "m16n8k16"], "element": "1,2"},
    "exec --device=H100 --why z[1] --why auto -m x --seed 2": {
        "program": ["-m", "x", "--seed", "2"], "device": "sm_90", "why": ["z[1]", "auto"]},
    "exec p.py -- --device x": {"program": ["p.py", "--", "--device", "x"]},
    "judge --ulp 2 l.toml --json": {"candidate": ["l.toml"], "ulp": 2, "json": True, "seeds": 2},
    "debug -ex run -batch -x f l.toml --seed 3": {
        "program": ["l.toml"], "ex": ["run"], "batch": True, "commands": Path("f"), "seed": 3},
    "nvcc --version -O3": {"arguments": ["--version", "-O3"]},
}  # fmt: skip
REFUSED = {
    "run": "FILE is missing", "run a b": "b is a word too many", "run k --jso": "has no option --jso", "run k --grid": "no value",
    "run k --json=1": "--json takes no value", "run k --seed x": "a whole number", "run k --seeds 0": "a whole number from 1 on",
    "run k --threads 1025": "from 1 to 1024", "run k --timeout soon": "a number", "run k --seed \u0665": "a whole",
    "run k --sanitise": "did you mean --sanitize?", "exec --devise h100 p.py": "did you mean --device?",
    "rnu k": "did you mean run?",
    "exec --device": "--device has no value", "sparse chekc": "did you mean check?", "sparse check A.npy": "--for is missing",
    "run k -s": "has no option -s", "debug l.toml x": "x is a word too many", "--versio": "did you mean --version?",
    "doctor x": "x is a word too many",
}  # fmt: skip


@pytest.mark.parametrize("line", READ)
def test_a_line_is_read(line: str) -> None:
    name, *words = line.split()
    found = parameters(command_of(name), [name], words)
    given = {n: v for owner in (found.pop("given", None),) if owner for n, v in vars(owner).items() if v not in (None, False)}
    assert found | given == READ[line]


@pytest.mark.parametrize("line", REFUSED)
def test_a_wrong_line_is_one_clear_message(capsys: pytest.CaptureFixture[str], line: str) -> None:
    text = said(capsys, *line.split(), code=2)
    assert REFUSED[line] in text and text.startswith("wrong usage: ") and len(text.splitlines()) <= 2
    first, *rest = line.split()
    assert json.loads(said(capsys, first, "--json", *rest, code=2))["errors"][0]["kind"] == "wrong usage"


def test_shells_are_offered_what_may_come_next(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for *words, typed, word in (("sparse", "co", "compress"), ("run", "k", "--rules", "ra", "races"),
                                ("explain", "wgmma-fence-m", "wgmma-fence-missing"),
                                ("descriptor", "encode", "--swizzle", "64", "64B")):  # fmt: skip
        assert word in offered(words, typed)
    assert offered(["exec", "p.py"], "--san") == [] and "--sanitize" in offered(["exec", "--seed", "1"], "--san")
    (tmp_path / "mmulator").write_text(f'#!/bin/sh\nexec {sys.executable} -m mmulator "$@"\n')
    (tmp_path / "mmulator").chmod(0o755)
    script = said(capsys, "--show-completion", "bash") + """
complete -p mmulator
COMP_WORDS=(mmulator run --sani); COMP_CWORD=2; _mmulator_completion mmulator; echo "${COMPREPLY[@]}"
"""
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(PACKAGE), "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout == "complete -o default -F _mmulator_completion mmulator\n--sanitize\n", done.stderr
    install = [sys.executable, "-m", "mmulator", "--install-completion"]
    for shell in ("bash", "zsh", "fish", "fish"):
        assert subprocess.run([*install, shell], env=environment, capture_output=True).returncode == 0
    assert (tmp_path / ".bashrc").read_text() == f"\nsource '{tmp_path}/.bash_completions/mmulator.sh'\n"
    assert {p.name for p in tmp_path.rglob("*mmulator*")} == {"mmulator", "mmulator.sh", "_mmulator", "mmulator.fish"}


@pytest.mark.parametrize("title", ["", "[bold] title"])
def test_a_table_is_the_one_that_rich_writes(
    title: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("a", "[red]1,234[/red]", ""), ("longer than its head", 5, "x\\[y]"), ("", -3.5, "z" * 100)]
    print_table(title, ("one", "two", "three"), rows)
    ours = capsys.readouterr().out
    monkeypatch.setattr("mmulator.cli.output._aligned", lambda _: [])
    print_table(title, ("one", "two", "three"), rows)
    assert ours == capsys.readouterr().out and len(ours.splitlines()) == 4 + bool(title)


# help ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_fits_the_terminal_and_shows_flags_as_flags(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    text = said(capsys, *words, "--help")
    assert text == said(capsys, *words, "-h") == said(capsys, "help", *words)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    head = re.split(r"^(?:Arguments|Options|Commands):$", text, flags=re.MULTILINE)[0]
    for paragraph in re.split(r"\n\s*\n", head):  # no line of a paragraph ends where the next word had room
        lines = [line.rstrip() for line in paragraph.splitlines() if line.strip()]
        if not lines or lines[-1].startswith("   "):
            continue
        for line, following in pairwise(lines):
            assert len(line) + 1 + len(following.split()[0]) > 80, f"broken early: {line!r}"


def test_the_overview_has_all_commands(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert {name: first_paragraph(command_of(name)) for name in COMMANDS} == COMMANDS
    for columns in ("80", "45"):
        monkeypatch.setenv("COLUMNS", columns)
        text = said(capsys, "--help")
        assert text == said(capsys, code=2) == said(capsys, "help")
        assert max(map(len, text.splitlines())) <= int(columns)
        told = " ".join(text.split())
        assert all(f"{name} {summary}" in told for name, summary in COMMANDS.items())
        assert all(option in told for option in ("--version", "--install-completion", "--show-completion", "-h, --help"))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_option_has_help(words: tuple[str, ...]) -> None:
    """docs/reference/commands.md is made of it."""
    assert all(argument.row.help for argument in ALL[words])


@pytest.mark.parametrize("page", ["README.md", "docs/reference/commands.md"])
def test_pages_of_commands_name_no_option_that_is_not_there(page: str) -> None:
    known = {name for command in ALL.values() for argument in command for name in argument.row.names}
    known |= {"--help", "--version", "--install-completion", "--show-completion"}
    known |= {name for row in taken("pytest") for name in row.names}
    assert set(re.findall(r"`(--[\w-]+)", (ROOT / page).read_text())) <= known


def test_help_shows_a_launch_file(capsys: pytest.CaptureFixture[str]) -> None:
    """As it is written there it can be read, but for the files."""
    import tomllib

    text = said(capsys, "run", "--help")
    block = text.partition("A launch file:")[2].partition("Arguments:")[0]
    data = tomllib.loads("\n".join(line.strip() for line in block.splitlines()))
    assert {"ptx", "grid", "block", "arg", "variables", "expect"} <= set(data)


# words --------------------------------------------------------------------------------------------------------------
def test_for_takes_words_without_quotes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", np.eye(16, 32, dtype=np.float16))
    file = str(tmp_path / "A.npy")
    want = said(capsys, "sparse", "check", file, "--for", "mma.sp m16n8k32 f16")
    assert said(capsys, "sparse", "check", file, "--for", "mma.sp", "m16n8k32", "f16") == want
    assert said(capsys, "sparse", "check", "--for", "mma.sp", "m16n8k32", "f16", file) == want
    assert "sm_80" in said(capsys, "explain", "mma", "m16n8k16", "f16")


def test_a_lane_that_holds_nothing_names_the_selector_with_which_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    decode = ("sparse", "decode", "0xe4e4e4e4", "--for", "mma.sp m16n8k32 f16", "--lane", "2")
    assert "it does with --selector 1\n" in said(capsys, *decode)
    assert "lane 2: 0xe4e4e4e4" in said(capsys, *decode, "--selector", "1")


# options that would be ignored ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("list", "--sparse", "--dense"), "not both --sparse and --dense"),
        (("list", "--full", "--json"), "not both --full and --json"),
        (("explain", "mma", "--brief", "--ptx-only"), "not both --brief and --ptx-only"),
        (("explain", "mma", "--json", "--cuda-only"), "not both --cuda-only and --json"),
        (("layout", "mma", "a", "--theme", "dark"), "it goes with --svg or --png"),
        (("layout", "mma", "a", "--by", "lane", "--csv"), "not both --by and --csv"),
        (("layout", "mma", "a", "--full", "--element", "1,1"), "not both --full and --element"),
        (("descriptor", "encode", "--type", "f16", "--theme", "dark"), "it goes with --svg or --png"),
        (("descriptor", "check", "--type", "f16", "--shared-base", "0"), "it goes with --shared"),
        (("sparse", "lanes", "--for", "mma.sp m16n8k32 f16", "--tile", "1,1"), "it is of a matrix, and none is given"),
    ],
)
def test_options_without_effect_are_refused(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    assert message in said(capsys, *words, code=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("conformance", "--cases", "5"), "--cases goes with --gpu"),
        (("conformance", "--seed", "5"), "--seed goes with --gpu"),
        (("explain", "mma", "--device", "foo"), "unknown device 'foo'"),
        (("list", "--shape", "m3"), "nearest shape: mma.sync"),
        (("layout", "mma", "a", "b"), "`a` is no part of a matrix instruction"),
        (("explain", "hoper"), "did you mean hopper"),
        (("explain", "mma", "f16", "wgmma"), "`mma` and `wgmma` are two families"),
        (("layout", "mma", "m16n8k16", "m16n8k8", "f16", "a"), "`m16n8k8` contradicts the shape"),
        (("descriptor", "encode", "0x8100490", "tcgen05", "bf16", "--operand", "idesc"), "a word is decoded, not encoded"),
        (("run", "binary.toml"), "is not text in UTF-8, which a launch file is"),
        (("sparse", "check", "none.npz", "--for", "mma.sp m16n8k32 f16"), "none.npz holds no arrays"),
    ],
)
def test_wrong_use_has_one_clear_message(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("binary.toml").write_bytes(bytes(range(256)))
    np.savez("none.npz")
    text = said(capsys, *words, code=1)
    assert message in text and len(text.splitlines()) <= 3


def test_a_hint_about_triton_is_for_its_kernels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    for last, hint in ((".param .u32 b, .param .u32 c", False), (".param .u64 .ptr b, .param .u64 .ptr c", True)):
        path.write_text(f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, {last}) {{ ret; }}\n")
        text = said(capsys, "run", str(path), "--grid", "1", "--block", "1", "--arg", "0", code=1)
        assert "takes 3 arguments" in text and ("Triton" in text) == hint


# check --------------------------------------------------------------------------------------------------------------
TWO = stored("two_gemms")


def test_check_names_kernels_as_people_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(TWO)
    text = said(capsys, "check", str(path))
    assert "void gemm<float>(float*, int)" in text and "void gemm<int>(int*, int)" in text
    text = said(capsys, "check", str(path), "--entry", "gemm<float>")
    assert "_Z4gemmIfEvPT_i" in text and "_Z4gemmIiEvPT_i" not in text
    assert "'gemm' is a part of 2 names" in said(capsys, "check", str(path), "--entry", "gemm", code=1)
    rows = text.partition("  parameters\n")[2].splitlines()
    assert len(rows) == 3 and all(row.startswith("  ") for row in rows)  # indented like their title


def test_check_and_run_agree_on_shared_memory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Of the module's variables those that are named take room, of the kernel's own all: as ptxas counts."""
    path = tmp_path / "k.ptx"
    path.write_text(TWO)
    assert "shared: 768 bytes" in said(capsys, "check", str(path), "--entry", "gemm<float>")
    launch = ("run", str(path), "--entry", "gemm<float>", "--grid", "1", "--block", "1", "--arg", "out:u32:1", "--arg", "1")
    assert "768 bytes of shared memory" in one_line(said(capsys, *launch))


def test_check_says_what_is_wrong_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(TWO.replace("ld.shared.u32 r, [used]", "add.u32 r, %yy, 1"))
    text = one_line(said(capsys, "check", str(path), code=1))
    assert text.count("%yy is not declared") == 1 and "cannot be run" not in text
    path.write_text(TWO.replace("ld.shared.u32 r, [used]", "tex.1d.v4.f32.s32 {r, r, r, r}, [used, {r}]"))
    assert "1 instruction cannot be run" in said(capsys, "check", str(path), code=1)


# run ----------------------------------------------------------------------------------------------------------------
def test_run_folds_its_lines_on_a_terminal(tmp_path: Path) -> None:
    """On one of 80 columns, and not into a pipe, which has whole lines for other programs."""
    path = tmp_path / "a-kernel-with-a-name-that-takes-much-room-in-messages.ptx"
    path.write_text(TWO)
    np.savez(tmp_path / "want.npz", C=np.arange(64, dtype=np.float32).reshape(8, 8) / 7)
    launch = ["run", path.name, "--entry", "gemm<float>", "--grid", "1", "--block", "1", "--arg", "C=out:f32:8x8", "--arg", "1"]
    launch += ["--expect", str(tmp_path / "want.npz"), "--watch", "C[0,0]", "--watch", "C[7,7]"]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    environment["PYTHONPATH"] = str(PACKAGE)
    command = [sys.executable, "-m", "mmulator", *launch]
    piped = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert piped.returncode == 1, piped.stderr
    assert any(len(line) > 80 for line in piped.stdout.splitlines())
    main, other = pty.openpty()
    done = subprocess.run(command, env=environment, cwd=tmp_path, stdout=other, stderr=subprocess.DEVNULL)
    os.close(other)
    text = plain(main)
    assert done.returncode == 1
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert " ".join(text.split()).count("stores to C[0, 0]: 1") == 1
    assert "stores to C[7, 7]: 0" in text  # nobody stores it: that is said
    assert "0.0 (bits 0x0)" in " ".join(text.split())


def test_errors_fit_the_terminal_and_the_caret_stays_below_what_it_shows(tmp_path: Path) -> None:
    """Long source lines are cut around it, also where `check` prints what it found on standard output."""
    long = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {c0,c0,c0,c0}, {a,a,a,a}, {a,a}, {c0,c0,c0,%undeclared};"
    head = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()"
    text = f"{head}\n{{\n.reg .f32 c0; .reg .b32 a;\n{long}\nret;\n}}\n"
    (tmp_path / "a-file-with-a-name-that-takes-room.ptx").write_text(text)
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    environment["PYTHONPATH"] = str(PACKAGE)
    for words in (["check"], ["run", "--grid", "1", "--block", "32"]):
        command = [sys.executable, "-m", "mmulator", words[0], "a-file-with-a-name-that-takes-room.ptx", *words[1:]]
        main, other = pty.openpty()
        done = subprocess.run(command, env=environment, cwd=tmp_path, stdout=other, stderr=other)
        os.close(other)
        assert done.returncode == 1
        lines = [line.rpartition("\x1b[2K")[2].replace("\x1b[?25h", "") for line in plain(main).splitlines()]  # a bar was there
        assert [line for line in lines if len(line.rstrip()) > 80] == []
        at = next(n for n, line in enumerate(lines) if set(line.split()) and set("".join(line.split())) == {"^"})
        assert lines[at - 1][lines[at].index("^") : lines[at].rindex("^") + 1] == "%undeclared"


def plain(descriptor: int) -> str:
    """Everything that a terminal was sent, without styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", terminals.read(descriptor)).replace("\r", "")


@pytest.mark.parametrize(("macs", "seconds", "text"), [(2e9, 1, "2.0 G/s"), (4096, 0.001, "4.1 M/s"), (4096, 1, "4.1 k/s")])
def test_rates_of_small_kernels(macs: float, seconds: float, text: str) -> None:
    from mmulator.host.report import _rate

    assert _rate(macs / seconds) == text


def test_an_interrupted_command_says_nothing_of_half_made_objects() -> None:
    code = """
from mmulator.cli import app
class HalfMade:
    def __del__(self): raise AttributeError("it was never made")
def interrupted():
    kept = HalfMade()
    raise KeyboardInterrupt
app.command_of = lambda _: interrupted
raise SystemExit(app.run(["run"]))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "interrupted\n")
