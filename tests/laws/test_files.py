"""Every file that a user asks for is written by files.py: beside, and renamed, so that a full disk leaves the old one."""

import ast
import os
import re
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest

from mmulator.base import files
from mmulator.errors import LaunchError, MmulatorError
from mmulator.observation.record.trace import write as write_trace
from tests.support import sources
from tests.support.places import ROOT

# Who writes files without files.py, and why
OTHERS = {
    "base/files.py": "writes beside and renames",
    "base/codegen/store.py": "the cache, which renames by itself, in a folder that it holds open",
    "evaluation/judging/judge.py": "a folder of one child, which it removes",
    "evaluation/judging/child.py": "the same folder",
    "evaluation/judging/fence.py": "files of /proc and /dev",
    "host/driver/report.py": "adds lines to a file that other processes add to, too",
    "doors/triton/configs.py": "the same",
    "observation/record/launches/replay.py": "makes an empty file, to be the one that writes the record",
    "cli/app.py": "opens /dev/null",
    "ptx/toolkit/wrapper.py": "writes to /dev/stdout, where nvcc was asked to",
    "doors/pytest_tests.py": "opens a file to see, before the tests, that it can be written",
}
SAVERS = {"save", "savez", "savez_compressed", "tofile", "dump"}  # of NumPy, json and pickle


def writes(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls that may write a file named by a path."""
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        of = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        words = [n.value for a in (*call.args, *(k.value for k in call.keywords)) for n in ast.walk(a)
                 if isinstance(n, ast.Constant) and isinstance(n.value, str)]  # fmt: skip
        text = ast.unparse(call)
        if (
            name in ("write_text", "write_bytes", "mkstemp", "NamedTemporaryFile", "copyfile", "copy2", "copytree")
            or (name == "open" and of == "os" and any(flag in text for flag in ("O_WRONLY", "O_RDWR", "O_CREAT")))
            or (name == "open" and of != "os" and any(set(word) & set("wax+") and set(word) <= set("rwxabt+") for word in words))
            or (name == "touch" and not call.args)
            or (name == "ZipFile" and "w" in words)
            or (name in SAVERS and of in ("np", "numpy", "json", "pickle"))
        ):
            yield call


def test_all_files_are_written_by_one_function() -> None:
    found: dict[str, list[str]] = {}
    used = set()
    for path in sources.FILES:
        name, tree = path.relative_to(sources.SOURCE).as_posix(), sources.tree(path)
        into = [n for n in ast.walk(tree) if isinstance(n, ast.With) and "replacing(" in ast.unparse(n).splitlines()[0]]
        inside = {id(call) for block in into for call in ast.walk(block)}
        calls = [call for call in writes(tree) if id(call) not in inside]
        exempt = [glob for glob in OTHERS if fnmatch(name, glob)]
        if calls and exempt:
            used.update(exempt)
        elif calls:
            found[name] = [f"{call.lineno}: {ast.unparse(call)}" for call in calls]
    assert not found, "use mmulator.base.files, or say here why not"
    assert used == {*OTHERS}


def test_a_file_takes_the_place_of_another(tmp_path: Path) -> None:
    file, link = tmp_path / "a", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    files.write(link, "new")
    assert (file.read_text(), link.is_symlink(), stat.S_IMODE(file.stat().st_mode)) == ("new", True, 0o640)
    files.write(tmp_path / "fresh", b"1", mode=0o700)
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o700
    files.write("/dev/null", "x")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "fresh", "link"]


def test_what_a_block_raises_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(KeyError), files.replacing(tmp_path / "a") as file:
        file.write(b"new")
        raise KeyError
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a", "old")]


def limited(write: Callable[[Path], None], path: Path) -> int:
    """Write in a child whose files have at most 10 bytes; 7: it raised the family's error."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
            write(path)
            code = 0
        except MmulatorError as error:
            code = 7 if "File too large" in str(error) else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _arrays(path: Path) -> None:
    with files.replacing(path) as file:
        np.savez(file, a=np.zeros(100))


@pytest.mark.parametrize("write", [
    lambda path: files.write(path, "x" * 100), _arrays, lambda path: write_trace(str(path), []),
])  # fmt: skip
def test_no_room(write: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "a").write_text("precious")
    assert limited(write, tmp_path / "a") == 7
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a", "precious")]


def test_no_room_to_add(tmp_path: Path) -> None:
    assert limited(lambda path: files.append(path, b"x" * 100, LaunchError), tmp_path / "a") == 7
    files.append(tmp_path / "gone" / "a", b"x")


EXAMPLE = str(ROOT / "examples" / "hopper_gemm" / "launch.toml")
RUNS = {
    "save": ("a.npz", "run", EXAMPLE, "--save", "a.npz"),
    "sarif": ("a.sarif", "run", EXAMPLE, "--sanitize", "--sarif", "a.sarif"),
    "profile": ("a.html", "run", EXAMPLE, "--profile-to", "a.html"), "trace": ("a.json", "run", EXAMPLE, "--trace", "a.json"),
    "why": ("a.html", "run", EXAMPLE, "--why", "C[3,5]", "--why-to", "a.html"),
    "vscode": ("a.vsix", "debug", "--vscode", "a.vsix"), "export": ("index.html", "explore", "--export", "."),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("what", [*RUNS])
def test_commands_without_room(what: str, tmp_path: Path) -> None:
    """A command whose file does not fit ends with 1, one message, and the file that was there."""
    name, *words = RUNS[what]
    (tmp_path / name).write_text("precious")
    run = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from mmulator.cli.app import run;" \
        "import mmulator.base.files; resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)); sys.exit(run(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", run, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "cannot write" in done.stderr, "Traceback" in done.stderr) == (1, True, False), done.stderr
    assert {p.name: p.read_text() for p in tmp_path.rglob("*") if p.is_file()} == {name: "precious"}


def test_tools_write_what_their_reader_asked_for_with_the_same_function() -> None:
    named = [f"{path.relative_to(ROOT)}:{n}" for folder in ("tools", "evidence") for path in (ROOT / folder).rglob("*.py")
             for n, line in enumerate(path.read_text().splitlines(), 1) if re.search(r"\.json\.write_text\(", line)]  # fmt: skip
    assert not named
