"""The code cache: nothing is executed that is not what it says, nothing is left behind, nobody else has a say."""

import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mmulator.base.codegen import store as module
from mmulator.base.codegen.store import CacheWarning, Store, open_store
from mmulator.cli.app import run
from tests.support.places import ROOT
from tests.support.ptx_text import STORE_R1, kernel

KEY, OTHER = "ab" * 32, "cd" * 32
CODE = bytes(random.Random(1).randbytes(5000))

LAUNCH = f"""
import numpy as np, mmulator as mm
out = np.zeros(32, np.uint32)
mm.Module.load({kernel("mov.u32 %r1, %laneid;" + STORE_R1)!r})["k"].launch(1, 32, [out])
assert (out == np.arange(32)).all()
"""


def launch(folder: Path, before: str = "", **limits: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MMULATOR_CACHE": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", before + LAUNCH], capture_output=True, text=True, env=environment, timeout=600, cwd=ROOT, **limits
    )  # type: ignore[call-overload]
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done


def opened(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Store:
    monkeypatch.setenv("MMULATOR_CACHE", str(folder))
    found, place = open_store()
    assert found is not None, place
    return found


def rewrite(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(change(path.read_bytes())) and None


def replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def flip(data: bytes) -> bytes:
    at = len(data) - 17
    return data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]


def other_entry(path: Path) -> None:
    """A valid entry of another key under this name."""
    other = next((p for p in sorted(path.parent.glob("*.o")) if p.name != path.name and p.is_file()), None)
    path.write_bytes(other.read_bytes() if other else b"")


def of_nobody(path: Path) -> None:
    os.chown(path, 65534, 65534)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "empty": rewrite(lambda data: b""),
    "cut to 20 bytes": rewrite(lambda data: data[:20]),
    "cut to half": rewrite(lambda data: data[: len(data) // 2]),
    "longer": rewrite(lambda data: data + b"\0"),
    "random": rewrite(lambda data: random.Random(2).randbytes(len(data))),
    "zeros": rewrite(lambda data: bytes(len(data))),
    "one bit": rewrite(flip),
    "code without a header": rewrite(lambda data: data[80:]),
    "another entry": other_entry,
    "link to the entry": replaced(lambda path: path.symlink_to(os.devnull)),
    "link to an endless file": replaced(lambda path: path.symlink_to("/dev/zero")),
    "pipe": replaced(os.mkfifo),
    "folder": replaced(Path.mkdir),
    "others may write": lambda path: path.chmod(0o666),
    **({"another user's": of_nobody} if os.geteuid() == 0 else {}),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_does_not_fit_is_no_entry(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = opened(monkeypatch, tmp_path / "cache")
    kept.write(OTHER, CODE[::-1])
    kept.write(KEY, CODE)
    assert kept.read(KEY) == CODE
    path = tmp_path / "cache" / f"{KEY}.o"
    DAMAGES[name](path)
    assert kept.read(KEY) is None
    kept.write(KEY, CODE)
    assert kept.read(KEY) == (None if path.is_dir() else CODE)
    assert [p.name for p in path.parent.iterdir() if not p.name.endswith(".o")] == []


def test_a_damaged_cache_is_compiled_anew_in_silence(tmp_path: Path) -> None:
    """Entries damaged in every way, some of which the process would die of; the launch is right, and the next one finds
    all entries whole."""
    folder = tmp_path / "cache"
    alone = "import mmulator.base.codegen.named as n\nn.shipped = lambda: None\n"  # an installed wheel came with most of it
    launch(folder, alone)
    entries = sorted(folder.glob("*.o"))
    assert len(entries) > 10
    sizes = {p: p.stat().st_size for p in entries}
    for number, path in enumerate(entries):
        list(DAMAGES.values())[number % len(DAMAGES)](path)
    assert launch(folder, alone).stderr == ""
    whole = [p for p in entries if not p.is_dir()]
    assert [p for p in whole if p.is_symlink() or p.stat().st_size != sizes[p]] == []
    compiled = (
        "import mmulator.base.codegen.engine as e\nreal = e._compile\ne._compile = lambda *a: print('compiled') or real(*a)\n"
    )
    # a folder cannot be replaced by an entry; what it stands for may have another one, by its name or by its text
    assert launch(folder, alone + compiled).stdout.count("compiled") <= len(entries) - len(whole)


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    limit = (4000, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    launch(tmp_path / "cache", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    assert [p for p in (tmp_path / "cache").iterdir() if p.suffix != ".o"] == []


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = opened(monkeypatch, tmp_path)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept.write(KEY, CODE)
    assert list(tmp_path.iterdir()) == []


def test_what_killed_writers_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f".{KEY}.{'0' * 12}.tmp", f".{KEY}.{'1' * 12}.tmp", "tmpabcd_123", "notes.txt"]
    for name in names:
        (tmp_path / name).write_text("x")
        if "1" not in name or name[0] == "t":
            os.utime(tmp_path / name, (time.time() - 7200,) * 2)
    opened(monkeypatch, tmp_path).write(KEY, CODE)
    assert {p.name for p in tmp_path.iterdir()} == {f"{KEY}.o", names[1], "notes.txt"}


def refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    monkeypatch.setenv("MMULATOR_CACHE", str(folder))
    module.store.cache_clear()
    try:
        with pytest.warns(CacheWarning) as said:
            assert module.store() is None
            assert module.store() is None
        assert len(said) == 1
        return str(said[0].message)
    finally:
        monkeypatch.undo()
        module.store.cache_clear()


def test_a_folder_that_others_may_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in (0o777, 0o770, 0o1777):
        tmp_path.chmod(mode)
        assert "others may write to it" in refused(monkeypatch, tmp_path)


def test_a_folder_or_link_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(folder)
    if os.geteuid() == 0:
        os.chown(link, 65534, 65534, follow_symlinks=False)
        assert "another user" in refused(monkeypatch, link)
        os.chown(folder, 65534, 65534)
    else:
        stranger = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: stranger)
    assert "another user" in refused(monkeypatch, folder)


def test_own_links_are_followed_to_a_safe_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    opened(monkeypatch, tmp_path / "link").write(KEY, CODE)
    assert (tmp_path / "elsewhere" / f"{KEY}.o").exists()


def test_nobody_can_put_another_folder_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent may be open to others: the folder that was found safe stays the one that is used."""
    kept = opened(monkeypatch, tmp_path / "cache")
    kept.write(KEY, CODE)
    (tmp_path / "cache").rename(tmp_path / "away")
    (tmp_path / "cache").mkdir(mode=0o777)
    (tmp_path / "cache" / f"{KEY}.o").write_bytes(b"planted")
    assert kept.read(KEY) == CODE


def test_the_folder_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = os.umask(0)
    try:
        opened(monkeypatch, tmp_path / "new")
        monkeypatch.delenv("MMULATOR_CACHE")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        (tmp_path / "mmulator").mkdir(mode=0o775)  # of an earlier version
        found = open_store()[0]
        assert found is not None
        found.write(KEY, CODE)
    finally:
        os.umask(old)
    modes = [p.stat().st_mode & 0o777 for p in (tmp_path / "new", tmp_path / "mmulator", tmp_path / "mmulator" / f"{KEY}.o")]
    assert modes == [0o700, 0o700, 0o600]


def test_no_folder_at_all_is_no_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none")):
        monkeypatch.setenv("MMULATOR_CACHE", str(folder))
        assert open_store()[0] is None
    assert launch(tmp_path / "file").stderr == ""


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    kept = opened(monkeypatch, tmp_path)
    kept.write(KEY, CODE)
    kept.write(OTHER, CODE)
    (tmp_path / "notes.txt").write_text("mine")
    libraries = tmp_path / f"libraries-{KEY[:16]}"
    libraries.mkdir()
    (libraries / "libcuda.so.1").write_bytes(b"12345")
    size = sum(p.stat().st_size for p in tmp_path.glob("*.o")) + 5
    assert run(["cache", "--json"]) == 0
    folder = str(tmp_path)
    said = json.loads(capsys.readouterr().out)
    assert said.pop("schema") == "mmulator.cache/1.0"
    assert said == {"ok": True, "folder": folder, "used": True, "reason": "", "entries": 3, "bytes": size}
    assert run(["cache"]) == 0
    assert f"entries  3\nbytes    {size} " in capsys.readouterr().out
    assert run(["cache", "clear", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"schema": "mmulator.cache-clear/1.0", "ok": True, "folder": folder, "removed": 3, "bytes": size}
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_the_command_line_says_once_that_it_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    (tmp_path / "k.ptx").write_text(kernel("mov.u32 %r1, 1;" + STORE_R1))
    environment = {**os.environ, "MMULATOR_CACHE": str(folder)}
    arguments = ["run", str(tmp_path / "k.ptx"), "--grid", "1", "--block", "1", "--arg", "out:u32:1", "--json"]
    done = subprocess.run([sys.executable, "-m", "mmulator", *arguments], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and json.loads(done.stdout)["ok"]
    why = "others may write to it: `chmod go-w` makes it yours alone"
    assert done.stderr == f"note: the code cache {folder} is not used: {why}\n"
    assert list(folder.iterdir()) == []
