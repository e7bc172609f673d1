"""`.loc` is followed: whatever is said of PTX names the line that it was compiled from."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

import mmulator as mm
from mmulator.base.location import Location, in_one_function
from mmulator.base.source import Source
from mmulator.cli.app import run
from mmulator.errors import PtxSyntaxError
from mmulator.ptx.lexer import tokenize
from mmulator.ptx.parser import parse_module
from tests.support.ptx_text import HEAD

HELPER = "_Z6helperPf"
STRING = ",".join(str(b) for b in HELPER.encode())
# As nvcc -lineinfo and Triton write it: the files and the names of inlined functions stand at the end.
TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 out)
{{
  .reg .pred %p<4>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %rd<8>;
  .loc 1 3 0
  ld.param.u64 %rd0, [a];
  ld.param.u64 %rd1, [out];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd2, %r0, 4;
  .loc 1 4 9
  .loc 1 2 3, function_name $L__info_string0, inlined_at 1 4 9
  add.u64 %rd3, %rd0, %rd2;
  {load}
  mul.f32 %f1, %f0, 0f40000000;
  add.f32 %f2, %f1, 0f3F800000;
  .loc 1 5 5                                                 // mm.py:5:5
  add.u64 %rd4, %rd1, %rd2;
  {store}
  ret;
}}
.visible .entry no_lines(.param .u64 out)
{{
  .reg .b64 %rd<2>;
  ld.param.u64 %rd0, [out];
  st.global.u32 [%rd0+64], 0;
  ret;
}}
  .file 1 "{file}"{stamp}
  .section .debug_str
  {{
$L__info_string0:
.b8 {string},0
  }}
"""
SOURCE = "def helper(p):\n    return load(p)\n\nx = helper(a)\nstore(out, x)\n"


LOAD, STORE = "ld.global.f32 %f0, [%rd3];", "st.global.f32 [%rd4], %f2;"


def ptx(load: str = LOAD, store: str = STORE, file: str = "mm.py", stamp: str = "") -> str:
    return TEXT.format(load=load, store=store, file=file, stamp=stamp, string=STRING)


def failure(text: str, entry: str = "k", elements: int = 32) -> mm.errors.MmulatorError:
    arrays = [np.zeros(32, np.float32)] * (entry == "k") + [np.zeros(elements, np.float32)]
    with pytest.raises(mm.errors.MmulatorError) as caught:
        mm.Module.load(text, name="k.ptx")[entry].launch(1, 32, arrays)
    return caught.value


CALLED = ("mm.py:2", ["mm.py:4"])
PLAIN = ("mm.py:5", [])
WRONG = {
    "fault": (ptx(), PLAIN),
    "fault in an inlined function": (ptx(load="ld.global.f32 %f0, [%rd3+128];"), CALLED),
    "trap": (ptx(store="trap;"), PLAIN),
    "deadlock": (ptx(store="setp.eq.u32 %p0, %r0, 3; @%p0 bar.sync 1, 64;"), PLAIN),
    "instruction that cannot run": (ptx(store="{.reg .b64 %t; tex.1d.v4.f32.f32 {%f3,%f4,%f5,%f6}, [%t, {%f0}];}"), PLAIN),
    "wrong type": (ptx(store="add.f32 %f3, %f2, %rd0;"), PLAIN),
    "not PTX": (ptx(store="add.f32 %f3, %f2 %f2;"), PLAIN),
}


@pytest.mark.parametrize("what", WRONG)
def test_every_error_names_the_line_of_the_program(what: str) -> None:
    text, (line, calls) = WRONG[what]
    error = failure(text, elements=8)
    first = str(error).split("\n")[0]
    assert f" ({line}): " in first and first.startswith("k.ptx:")
    assert error.location is not None
    assert [str(at) for at in error.location.chain] == [line, *calls]
    assert [at.function for at in error.location.chain] == (["helper(float*)", ""] if calls else [""])
    for call in calls:
        assert f"inlined at {call}" in str(error)


def test_a_line_of_another_file_names_the_kernels_too() -> None:
    text = ptx(load="ld.global.f32 %f0, [%rd3+128];").replace(".loc 1 2 3,", ".loc 2 138 3,") + '.file 2 "lib/half.hpp"\n'
    assert " (half.hpp:138 from mm.py:4): " in str(failure(text))


def test_lines_of_one_function_do_not_reach_the_next() -> None:
    assert failure(ptx(), "no_lines", 4).location is None


def test_rewritten_instructions_keep_their_lines() -> None:
    """mul and add become one fma."""
    compiled = mm.Module.load(ptx())["k"].compile()
    blocks = [ins for block in compiled.program.blocks for ins in block.body]
    assert "fma.rn.f32" in {i.mnemonic for i in blocks}
    assert all(i.span.location for i in blocks)


def test_the_line_is_quoted_where_the_file_is_the_one_that_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "mm.py"
    source.write_text(SOURCE)
    state = source.stat()
    quoted = "\n    store(out, x)\n"
    assert quoted in str(failure(ptx(file=str(source)), elements=8))
    assert quoted in str(failure(ptx(file=str(source), stamp=f", {int(state.st_mtime)}, {state.st_size}"), elements=8))
    assert quoted not in str(failure(ptx(file=str(source), stamp=f", {int(state.st_mtime)}, {state.st_size + 1}"), elements=8))
    text = str(failure(ptx(load="ld.global.f32 %f0, [%rd3+128];", file=str(source)), elements=32))
    assert f"source: {source}:2, in helper(float*)\n    return load(p)\n  inlined at {source}:4\n    x = helper(a)\n" in text


def test_a_relative_name_is_looked_for_beside_the_ptx(tmp_path: Path) -> None:
    (tmp_path / "mm.py").write_text(SOURCE)
    (tmp_path / "k.ptx").write_text(ptx())
    out = np.zeros(8, np.float32)
    with pytest.raises(mm.errors.ExecutionFault, match=r"store\(out, x\)"):
        mm.Module.load(tmp_path / "k.ptx")["k"].launch(1, 32, [np.zeros(32, np.float32), out])


def test_only_lines_of_programs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PTX can name any file: no secrets, no devices, nothing for the terminal."""
    monkeypatch.chdir(tmp_path)
    secret = tmp_path / "password.txt"
    secret.write_text("secret\n" * 9)
    assert "secret" not in str(failure(ptx(file=str(secret)), elements=8))
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    failure(ptx(file=str(pipe)), elements=8)
    odd = tmp_path / "odd.py"
    odd.write_text("\n" * 4 + "\x1b[2Jx\x07\n")
    text = str(failure(ptx(file=str(odd)), elements=8))
    assert "[2Jx" in text and "\x1b" not in text and "\x07" not in text
    monkeypatch.setenv("MMULATOR_QUOTE_SOURCE", "0")
    assert "[2Jx" not in str(failure(ptx(file=str(odd)), elements=8))


def test_no_line_comes_from_elsewhere_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service may give messages to whoever sent the PTX: what links and `..` lead to, hidden folders and the rest of the
    disk are not read."""
    own = tmp_path / "own"
    for folder in (own, own / ".hidden"):
        folder.mkdir()
        (folder / "mm.py").write_text(SOURCE)
    (tmp_path / "secret.py").write_text("password = 1\n" * 9)
    (tmp_path / "secret.txt").write_text("password = 1\n" * 9)
    (own / "link.py").symlink_to(tmp_path / "secret.txt")
    (own / "loop.py").symlink_to(own / "loop.py")
    (own / "folder.py").mkdir()
    monkeypatch.chdir(own)
    assert "store(out, x)" in str(failure(ptx(file=str(own / "mm.py")), elements=8))
    outside = ["../secret.py", str(tmp_path / "secret.py"), "link.py"]
    for name in (*outside, "loop.py", "folder.py", ".hidden/mm.py", "x" * 9999 + ".py"):
        text = str(failure(ptx(file=name), elements=8))
        assert "password" not in text and "store(out" not in text and "source: " in text
    monkeypatch.setenv("MMULATOR_QUOTE_SOURCE", "1")
    assert "password" in str(failure(ptx(file=str(tmp_path / "secret.py")), elements=8))
    assert "password" not in str(failure(ptx(file="link.py"), elements=8))


def test_watch_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.ptx").write_text(ptx())
    base = ["run", str(tmp_path / "k.ptx"), "--entry", "k", "--grid", "1", "--block", "32", "--arg", "out:f32:32"]
    assert run([*base, "--arg", "C=out:f32:32", "--watch", "C[3]"]) == 0
    assert "(mm.py:5)" in capsys.readouterr().out
    assert run([*base, "--arg", "C=out:f32:32", "--watch", "C[3]", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"]["stores"][0]["source"] == "mm.py:5"
    assert run([*base, "--arg", "out:f32:8", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["errors"][0]["source"]
    assert (found["file"], found["line"], found["column"], found["inlined_at"]) == ("mm.py", 5, 5, [])


@pytest.mark.parametrize("loc", ["1", "1 2 3, function_name x;", "1 2 3, function_name x, inlined_at 1 2;", "1 x 3", "09 1"])
def test_what_is_no_loc_is_refused(loc: str) -> None:
    with pytest.raises(mm.errors.PtxSyntaxError):
        mm.Module.load(ptx(store=f".loc {loc}"))


# LLVM gives lines of its own to inline assembly: that of the statement and so many more. Here the text begins elsewhere.
ASM = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{{
  .reg .b64 %o; .reg .b32 %t;
  .loc 1 2 1
  ld.param.u64 %o, [out];
  mov.u32 %t, %ctaid.x;
  .loc 1 4 9
  // begin inline asm
  {{
  .loc 1 6 9
  {first}
  .loc 1 7 9
  @p st.global.b32 [%o], %t;
  .loc 1 8 9
  st.global.b64 [%o], %o;
  }}
  // end inline asm
  .loc 1 30 1
  ret;
}}
.file 1 "{file}"
"""
PROGRAMS = {
    "in several strings": (["// st.global", "asm(", '"{ .reg .pred p;"', 'V("setp.eq.u32 p, t, 0;")',
                            '"@p st.global.b32 [%0], %1;"', '"st.global.b64 [%0], %0; }" :: x)'], [5, 6, 7]),
    "on one line": (['asm("{ setp.eq.u32 p, t, 0; @p st.global.b32 [%0], %1; st.global.b64 [%0], %0; }" :: x)'], [2, 2, 2]),
    "built at run time": (["a = 1", "asm(made(of), x)", "b = 2", "c = 3", "d = 4", "e = 5"], [4, 4, 4]),
    "the same twice": (['"st.global.b64 [%0], %0;"', '"setp.eq.u32 p, t, 0;"', "asm(made(of))", "b", "c",
                        '"st.global.b64 [%0], %0;"'], [3, 4, 4]),
}  # fmt: skip


@pytest.mark.parametrize("how", PROGRAMS)
def test_inline_assembly_is_found_in_the_program_or_is_its_statement(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is quoted that has not the instruction, or the statement."""
    monkeypatch.chdir(tmp_path)
    rows, lines = PROGRAMS[how]
    (tmp_path / "asm.cu").write_text("\n".join(["", *rows, *[""] * 30]))
    text = ASM.format(first=".reg .pred p; setp.eq.u32 p, %t, 0;".replace("; ", ";\n  "), file=tmp_path / "asm.cu")
    (function,) = parse_module(Source("k.ptx", text)).functions
    inside = [i for i in function.instructions if i.opcode in ("setp", "st")]
    assert [i.span.location and i.span.location.line for i in inside] == lines


@pytest.mark.parametrize("seed", range(40))
def test_marks_inside_inline_assembly_count_for_nothing(seed: int) -> None:
    """LLVM writes a mark in front of an instruction whose place differs from the last one's, and one in front of each row of
    assembly that begins with a name: the statement's line plus the row's number. So a run of pieces has marks inside alone, and
    what stands after a piece may have none of its own.
    """
    draw = random.Random(seed)
    rows, truth, last = list[str](), list[tuple[int, int]](), (1, 0)

    def instruction(text: str, place: tuple[int, int]) -> None:
        rows.append(text)
        truth.append(place)

    for _ in range(60):
        place = last if draw.random() < 0.5 else (draw.randrange(2, 30), draw.randrange(1, 9))
        if place != last:
            rows.append(f".loc 1 {place[0]} {place[1]}")
        last = place
        if draw.random() < 0.4:
            instruction("add.u32 %r, %r, 1;", place)
            continue
        rows.append("// begin inline asm")
        for number in range(draw.randrange(1, 6)):
            guard = draw.choice(("", "", "@%p "))
            rows.extend([] if guard else [f".loc 1 {place[0] + number} {place[1]}"])
            instruction(f"{guard}mov.u32 %r, {number};", place)
        rows.append("// end inline asm")
    body = ".reg .pred %p; .reg .u32 %r;\n.loc 1 1 0\nmov.u32 %r, 0;\n" + "\n".join(rows)
    (function,) = parse_module(Source("k.ptx", f'{HEAD}.visible .entry k() {{\n{body}\nret;\n}}\n.file 1 "k.py"\n')).functions
    truth = [(1, 0), *truth, last]
    found = [at and (at.line, at.column) for at in (i.span.location for i in function.instructions)]
    assert found == truth


def test_long_chains_of_calls_fit_the_columns() -> None:
    """The path loses its front, a function its end; of a long chain the middle goes, but not a line that can be read."""
    at: Location | None = None
    for n in range(9, -1, -1):
        at = Location(f"/opt/include/library/part/file{n}.h", n, function=f"f{n}<{'x' * (40 if n == 1 else 3)}>", inlined_at=at)
    assert (
        at is not None
        and len(at.lines()) == 10
        and at.lines()[1].startswith("inlined at /opt/include/library/part/file1.h:1, in f1<xx")
    )
    assert at.lines(48) == [
        "source: .../library/part/file0.h:0, in f0<xxx>",
        "inlined at file1.h:1, in f1<xxxxxxxxxxxxxxxxx...",
        "inlined at .../part/file2.h:2, in f2<xxx>",
        "inlined at ...",
        "inlined at .../part/file8.h:8, in f8<xxx>",
        "inlined at .../part/file9.h:9, in f9<xxx>",
    ]


def test_a_loc_that_is_a_statement_is_one_token_and_a_section_two_braces() -> None:
    body = (
        ".loc 1 2 3\n mov.b32 %r, 1; .loc 1 4 0 // a comment\n"
        "$L: .loc 1 30 26, function_name $L__info_string3+8, inlined_at 1 9 12\n"
        ".loc 1 5 6\r\n mov.b32 %r, 2; .loc 1 7\n .loc 1 07 1\n ret;"
    )
    section = ".section .debug_str { $L__info_string3:\n.b8 107 // }} \n.b8 0 }\n"
    tokens = tokenize(Source("k.ptx", f"{HEAD}.visible .entry k() {{ .reg .b32 %r;\n{body}\n}}\n{section}"))
    assert [mark[1:] for mark in tokens.marks.values()] == [
        (1, 2, 3, "", 0, None), (1, 4, 0, "", 0, None), (1, 30, 26, "$L__info_string3", 8, (1, 9, 12)), (1, 5, 6, "", 0, None),
    ]  # fmt: skip
    assert tokens.kinds[-5:] == ["dot", "dot", "{", "}", "end"]
    text, marks = tokens.source.text, parse_module(tokens.source).source.lines.marks[-3:]
    places = [text.index(words) for words in (".loc 1 5 6", ".loc 1 7", ".loc 1 07")]
    assert [mark[:4] for mark in marks] == [(places[0], 1, 5, 6), (places[1], 1, 7, 0), (places[2], 1, 7, 1)]


@pytest.mark.parametrize(
    ("text", "said"), [
        ("mov.b32 %r, 1 .loc 1 2 3\n;", "expected ',' or ';', found '.loc'"), ("mov.b32 .loc 1 2 3\n;", "expected"),
        (".loc 1 2 3, function_name, inlined_at 1 2 3\n", "expected a label"), (".loc 1 2 3 4\n", "expected"),
    ]
)  # fmt: skip
def test_a_loc_elsewhere_is_read_word_by_word(text: str, said: str) -> None:
    with pytest.raises(PtxSyntaxError, match=said):
        parse_module(Source("k.ptx", f"{HEAD}.visible .entry k() {{ .reg .b32 %r;\n{text} ret; }}"))


@pytest.mark.parametrize("inside", ['"', "{ }", "#", ". ", "`"])
def test_a_section_that_no_compiler_writes_is_read_word_by_word(inside: str) -> None:
    source = Source("k.ptx", f"{HEAD}.section .s {{ .b8 1, {inside} }}\n")
    try:
        assert len(tokenize(source).kinds) > 13
    except PtxSyntaxError as error:
        assert "closed" in error.message or "cannot stand here" in error.message


def test_two_places_are_named_in_the_innermost_function_that_holds_both() -> None:
    """For a hint, `between g.cuh:3 and :6` says nothing if two inline functions are at these lines: their calls do."""
    calls = [Location("k.cu", line, 5) for line in (10, 12)]
    outer = [Location("o.cuh", 7, 1, "outer()", at) for at in calls]
    inner = [Location("g.cuh", line, 1, f"inner{line}()", at) for line, at in ((3, outer[0]), (6, outer[0]), (6, outer[1]))]
    last = Location("g.cuh", 4, 1, "inner3()", outer[0])
    apart = Location("a.cu", 1, 1, "f()"), Location("b.cu", 2, 1, "g()")
    for here, there, found in (
        (calls[0], calls[1], (calls[0], calls[1])),
        (inner[0], last, (inner[0], last)),
        (inner[0], inner[1], (outer[0], outer[0])),
        (inner[0], inner[2], (calls[0], calls[1])),
        (inner[0], calls[1], (calls[0], calls[1])),
        (calls[1], inner[0], (calls[1], calls[0])),
        (*apart, apart),
    ):
        assert in_one_function(here, there) == found
