"""Object code that came with the package: used where it is whole and of these sources, else not there."""

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mmulator.base.codegen import named, shipped, sources
from mmulator.base.codegen.cpus import LEVELS, features, level_of
from mmulator.base.codegen.shipped import of_file
from mmulator.base.codegen.store import digest_of
from tests.support.places import KERNELS, ROOT

RELEASE = 7000  # functions, at least, in a released wheel
ENTRIES = {
    (2, "one"): (b"code of one", ["two"]), (2, "two"): (b"the same", []), (0, "two"): (b"other code", []),
    (2, "three"): (b"the same", ["one", "two"]),
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "level.bin"
    path.write_bytes(shipped.written(ENTRIES, "what was asked for"))
    return path


def test_what_was_written_is_found(file: Path) -> None:
    found = of_file(file)
    assert found.asked == "what was asked for"
    assert {(level, name): found.find(name, level) for level, name in ENTRIES} == ENTRIES
    assert found.find("one", 0) is None and found.find("four", 2) is None
    assert len(found) == len(ENTRIES) and file.read_bytes().count(b"the same") == 2  # one alone, one with its links


@pytest.mark.parametrize("fingerprint", ["of other sources", ""])
def test_a_file_of_other_sources_is_not_used(file: Path, fingerprint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "of_natives", lambda: fingerprint)
    with pytest.raises(ValueError, match="of other sources"):
        of_file(file)
    if not fingerprint:  # nor one that was made where nobody knew of which sources
        file.write_bytes(shipped.written(ENTRIES))
        with pytest.raises(ValueError, match="of other sources"):
            of_file(file)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"", "cut in the head": lambda data: data[:20], "cut in the index": lambda data: data[:100],
    "another kind": lambda data: b"mmuship0" + data[8:],
    "the length": lambda data: data[:136] + (1 << 60).to_bytes(8, "little") + data[144:],
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_not_used(file: Path, damage: str) -> None:
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    with pytest.raises((ValueError, OSError)):
        of_file(file)


def test_no_damaged_byte_goes_unnoticed(file: Path) -> None:
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :])
        with suppress(ValueError):
            found = of_file(file)
            assert all(found.find(name, level) in (None, entry) for (level, name), entry in ENTRIES.items())


def test_damaged_code_is_not_used_and_the_rest_is(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"code of one", b"code of two"))
    found = of_file(file)
    assert found.find("one", 2) is None and found.find("two", 2) == (b"the same", [])
    file.write_bytes(file.read_bytes()[:-3])  # the last is cut
    last = of_file(file)
    assert [name for level, name in ENTRIES if last.find(name, level) is None] == ["one", "three"]


@pytest.fixture
def came(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    shipped.shipped.cache_clear()
    monkeypatch.setattr(shipped, "file_of", lambda level: file)
    yield
    shipped.shipped.cache_clear()


@pytest.mark.usefixtures("came")
def test_what_came_with_the_package_goes_before_the_store() -> None:
    assert named.find("one") == named.NamedCode(b"code of one", ("two",))
    assert named.find("two", [named.QUICK]) == named.NamedCode(b"other code", (), quick=True)
    assert named.find("two") == named.NamedCode(b"the same", ())  # the best there is


def test_what_a_build_has_kept_stands_for_what_came(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A development tree has no file, and a second build makes none."""
    level = level_of(*shipped.target_cpu())
    if level is None:
        pytest.skip("a CPU of no level")
    monkeypatch.setattr(shipped, "file_of", lambda level: tmp_path / "none")
    monkeypatch.setattr(shipped, "of_natives", lambda: digest_of(str(tmp_path).encode()).hexdigest())
    try:
        files = (False, shipped.written(ENTRIES), 4), (True, b"damaged", None), (True, shipped.written({}), 0)
        for release, data, count in files:
            assert shipped.kept(level, release, data) == data
            shipped.shipped.cache_clear()
            found = shipped.shipped()
            assert (found if found is None else len(found)) == count
        monkeypatch.setattr(shipped, "of_natives", lambda: "of other files")
        shipped.shipped.cache_clear()
        assert shipped.kept(level, False) is None and shipped.shipped() is None
    finally:
        shipped.shipped.cache_clear()


def test_a_cpu_has_the_best_level_that_it_has_all_of() -> None:
    for level in LEVELS:
        assert level_of("znver4", features(level)) == level
        assert level_of(level, "") == level
        for name in LEVELS[level]:
            less = features(level).replace(f"+{name},", f"-{name},").replace(f"+{name}", f"-{name}")
            assert level_of("znver4", less) != level
    assert level_of("znver4", features("x86-64-v4") + ",+avx512vnni,-amx") == "x86-64-v4"
    assert level_of("generic", "+sse2") is None


def test_an_installed_wheel_has_code_for_this_cpu() -> None:
    """The build's hook was at work, and the files are of the sources that were installed."""
    level = level_of(*shipped.target_cpu())
    installed = [str(f) for f in importlib.metadata.files("mmulator") or [] if str(f).startswith("mmulator/objects/")]
    if "site-packages" not in str(sources.PACKAGE) or not installed:
        pytest.skip("a development tree, or a wheel without")
    assert level is not None and f"mmulator/objects/{level}.bin" in installed
    found = of_file(shipped.PACKAGE / "objects" / f"{level}.bin")
    assert len(found) > 400


def _came() -> shipped.Shipped | None:
    """What came with the package, not what a build has kept: processes of tests have caches of their own."""
    level = level_of(*shipped.target_cpu())
    return shipped.shipped() if level and shipped.file_of(level).exists() else None


COUNTED = """
import json, re, sys
from pathlib import Path
import mmulator as mm
from mmulator.cli import main
from mmulator.base.codegen import engine
from mmulator.runtime.options import CompileOptions
from mmulator.sanitizer.instrument import SANITIZE
real, found = engine._compile, set()
def compiled(text, *more):
    names = re.findall(r"^define [^@\\n]*@([\\w.$-]+)\\(", text, re.M)
    found.update(name for name in names if not re.fullmatch(r"block\\d+", name))
    return real(text, *more)
engine._compile = compiled
"""
OWN = COUNTED + """
for path in sys.argv[1:]:
    if path.endswith(".toml"):
        sys.argv[1:] = ["run", path]
        try:
            main()
        except SystemExit as end:
            assert not end.code, path
    else:
        for kernel in mm.Module.load(path).values():
            for options in (CompileOptions(), CompileOptions(events=SANITIZE)):
                kernel.compile(options=options)
print(json.dumps(sorted(found)))
"""


@pytest.mark.parametrize("release", [False, True])
def test_a_first_launch_compiles_its_own_blocks_alone(release: bool, tmp_path: Path) -> None:
    """With what an installation came with: a first run, and everything if it is a release."""
    there = _came()
    if there is None or (release and len(there) < RELEASE):
        pytest.skip("a development tree, or a wheel without")
    paths = [ROOT / "examples" / name / "launch.toml" for name in ("hopper_gemm", "handwritten", "hopper_pipeline")]
    if release:
        folders = ROOT / "examples", ROOT / "tests" / "ub", KERNELS
        paths = sorted(path for folder in folders for path in folder.rglob("*.ptx"))
    done = subprocess.run(
        [sys.executable, "-c", OWN, *map(str, paths)], capture_output=True, text=True,
        env={**os.environ, "MMULATOR_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


MATRICES = COUNTED + """
from mmulator.base.codegen.loading import ensure
from mmulator.evaluation.conformance.kernels import module
from mmulator.evaluation.conformance.subjects import subjects
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.targets import DEVICES, TARGETS
from mmulator.matrix.twin.places import key_of
from mmulator.matrix.twin.twin import twin_for
from tools.ship import keys
kernels, sums = 0, 0
for device in DEVICES:
    number = int(device[3:])
    target = max((t for t in TARGETS if t.number == number), key=lambda t: t.suffix == "a")
    forms = {(f.family, key_of(f, False)): f for f in matrix_forms() if f.atype and f.requires.admits(target)}
    for form in forms.values():
        try:
            for kernel in mm.Module.load(module(subjects(form)[:1], target)).values():
                kernel.compile(device)
                kernels += 1
        except mm.errors.UnsupportedError:
            continue
for key in keys():
    for device in DEVICES:
        try:
            ensure(twin_for(key, device).natives.values())
            sums += 1
        except mm.errors.UnsupportedError:
            continue
print(kernels, sums, json.dumps(sorted(name for name in found if not name.startswith("stencil_"))))
"""


def test_a_first_matrix_instruction_of_any_chip_compiles_its_own_blocks_alone(tmp_path: Path) -> None:
    """A kernel for each arithmetic of `mma`, `wgmma` and `wmma` on each chip, dense and sparse, and the sums of `tcgen05.mma`:
    with a release nothing is compiled but code of the kernel itself, which is its blocks and their stencils."""
    there = _came()
    if there is None or len(there) < RELEASE:
        pytest.skip("a development tree, or a wheel that is no release")
    done = subprocess.run(
        [sys.executable, "-c", MATRICES], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "MMULATOR_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kernels, sums, compiled = done.stdout.split(maxsplit=2)
    assert compiled.strip() == "[]"
    assert int(kernels) > 1500 and int(sums) > 2000
