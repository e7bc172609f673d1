"""The fence around what is judged: what holds inside, what is missing where the system refuses it, and how answers are read."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from mmulator.evaluation.judging import handover
from mmulator.evaluation.judging.child import ChildEnd, Limits, run

PEEK = """
import os, signal, socket, sys
def tried(name, what):
    try: what()
    except OSError: return
    print(name)
tried("wrote", lambda: open(sys.argv[1] + "/theirs", "w"))
tried("made", lambda: os.mkdir(sys.argv[1] + "/new"))
tried("killed", lambda: os.kill(int(sys.argv[2]), signal.SIGCONT))
tried("looked", lambda: open(f"/proc/{sys.argv[2]}/mem", "rb"))
tried("reached", lambda: socket.create_connection(("127.0.0.1", int(sys.argv[3])), 5))
tried("read", lambda: open(sys.argv[1] + "/hidden").read() or os.stat("/nowhere"))
open(os.environ["TMPDIR"] + "/own", "w").write("own")
open("/dev/null", "w").write("x")
os.write(int(sys.argv[4]), b"answer")
print("end")
if not os.fork():
    os.setsid()
    if not os.fork(): os.execvp("sleep", ["sleep", sys.argv[5]])
    os._exit(0)
"""
# calls of x86-64 that a system may refuse: unshare; Landlock's first
REFUSED = {"nothing": (), "namespaces": (272,), "namespaces and Landlock": (272, 444)}


def peek(folder: str, port: str, word: str) -> None:
    """Run PEEK inside a fence, and print what is missing, then what it did."""
    with tempfile.TemporaryDirectory() as made, Path(made, "answer").open("x+b") as answer:
        words = [sys.executable, "-c", PEEK, folder, str(os.getpid()), port, str(answer.fileno()), word]
        ended = run(words, Limits(60), Path(made), answer, hidden=[Path(folder, "hidden")])
        print("|".join(ended.missing), "|".join(ended.told.split()), os.pread(answer.fileno(), 99, 0), sep="\n")


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="numbers of calls")
@pytest.mark.parametrize("refused", REFUSED)
def test_what_is_not_enforced_is_said(refused: str, tmp_path: Path) -> None:
    """A process inside can do what the fence says that it does not prevent, and nothing else."""
    import socket

    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "hidden").write_text("hidden")
    word = f"8{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        code = f"""
from mmulator.evaluation.judging import fence
from tests.judging.test_fence import peek
fence._REFUSED["x86_64"] = (fence._REFUSED["x86_64"][0], {REFUSED[refused]})
fence.control(fence.NO_NEW_RIGHTS, 1)
if {REFUSED[refused]}: fence.refuse_calls()
peek({str(tmp_path)!r}, {port!r}, {word!r})
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    missing, told, answer = done.stdout.splitlines()
    did = dict.fromkeys(told.split("|"))
    said = {  # what it did: what the fence says then
        "wrote": "it changes no files of the user", "made": "it changes no files of the user",
        "killed": "it neither ends nor traces processes outside", "looked": "it neither ends nor traces processes outside",
        "reached": "it reaches no network", "read": "it does not read the files that the launch names",
    }  # fmt: skip
    assert {what for did_it, what in said.items() if did_it in did} <= {*missing.split("|")}
    assert ("it changes no files of the user" in missing) == ("wrote" in did)
    assert ("it reaches no network" in missing) == ("reached" in did)
    assert "end" in did and answer == str(b"answer")
    if refused == "nothing" and not missing:
        assert [*did] == ["end"]
    assert not any(word.encode() in p.read_bytes().split(b"\0") for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists())


def test_a_program_seems_to_write(tmp_path: Path) -> None:
    """To its current folder; nothing of it stays."""
    (tmp_path / "there").write_text("there")
    with (tmp_path / "answer").open("x+b") as answer:
        words = ["/bin/sh", "-c", f"cd {tmp_path}/work && cat old && echo new > new && cat new && echo more >> old && cat old"]
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "old").write_text("old\n")
        ended = run(words, Limits(60), tmp_path, answer, layer=str(tmp_path / "work"))
    if not ended.missing:
        assert ended.told.split() == ["old", "new", "old", "more"], ended.told
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["old"] and (tmp_path / "work" / "old").read_text() == "old\n"


def _file(folder: Path, data: bytes) -> Path:
    (path := folder / "answer").write_bytes(data)
    return path


WHOLE = b'{"ptx": "text", "entry": "k", "threads": 32, "shared": 0, "params": ["x"], "scratch": [0, 8], "cluster": [1, 1, 1], ' \
    b'"cooperative": false, "more": 1}'  # fmt: skip
# a part of it, and what stands there: none is taken
DAMAGED = {
    b'"text"': b"[]", b'"k"': b"null", b"32": b"0", b'"shared": 0': b'"shared": -1', b'["x"]': b'["q"]', b"[0, 8]": b"[0, 1e9]",
    b"[1, 1, 1]": b"[1, 1]", b"false": b"0", b'"threads"': b'"thread"', b"{": b"[", b"}": b"", b'"x"]': b'"x", "x"]',
}  # fmt: skip


def test_answers_are_checked_field_by_field(tmp_path: Path) -> None:
    def read(data: bytes) -> object:
        with _file(tmp_path, data).open("r+b") as file:
            return handover.compiled(file, True, {"x": 1})

    whole = read(WHOLE)
    assert isinstance(whole, dict) and whole["scratch"] == [0, 8] and "more" not in whole
    for old, new in DAMAGED.items():
        assert old in WHOLE and read(WHOLE.replace(old, new, 1)) is None, (old, new)
    assert read(b'{"message": "why"}') == {"message": "why"}
    assert read(b"[" * 100000) is None and read(b"") is None


def test_answers_of_runs_are_whole_or_nothing(tmp_path: Path) -> None:
    text = b'{"device": "sm_90"}'
    arrays = {"y": np.arange(3, dtype=np.int16)}
    data = arrays["y"].tobytes() * 2 + text + len(text).to_bytes(8, "little")
    with _file(tmp_path, data).open("r+b") as file:
        said, runs = handover.answered(file, arrays, ["y"], 2) or pytest.fail("whole")
    assert said["device"] == "sm_90" and len(runs) == 2 and (runs[1]["y"] == arrays["y"]).all()
    for cut in range(len(data)):
        with _file(tmp_path, data[:cut]).open("r+b") as file:
            assert handover.answered(file, arrays, ["y"], 2) is None


def test_limits_of_time_and_memory_end_all(tmp_path: Path) -> None:
    def ended(code: str, limits: Limits) -> ChildEnd:
        with tempfile.TemporaryDirectory() as made, Path(made, "answer").open("x+b") as answer:
            return run([sys.executable, "-c", code], limits, Path(made), answer)

    late = ended("import os\nos.fork()\nos.fork()\nwhile True: pass", Limits(0.5))
    assert late.limit == "timeout" and late.seconds >= 0.5
    much = "x = bytearray(1 << 30); x[::4096] = bytes(1 << 18); import time; time.sleep(600)"
    assert ended(much, Limits(600, 1 << 28)).limit == "memory"
    assert ended("raise SystemExit(3)", Limits(60)).code == 3
