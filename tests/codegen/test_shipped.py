"""Object code that came with the package: used where it is whole and of these sources, else not there."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mmulator.codegen import named, shipped, sources
from mmulator.codegen.cpus import LEVELS, features, level_of
from mmulator.codegen.shipped import Shipped

ENTRIES = {
    (2, "one"): (b"code of one", ["two"]), (2, "two"): (b"the same", []), (0, "two"): (b"other code", []),
    (2, "three"): (b"the same", ["one", "two"]),
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "objects" / "level.bin"
    shipped.write(path, ENTRIES)
    return path


def test_what_was_written_is_found(file: Path) -> None:
    found = Shipped(file)
    assert {(level, name): found.find(name, level) for level, name in ENTRIES} == ENTRIES
    assert found.find("one", 0) is None and found.find("four", 2) is None
    assert Shipped(file).all() == ENTRIES
    assert file.read_bytes().count(b"the same") == 1


@pytest.mark.parametrize("fingerprint", ["of other sources", ""])
def test_a_file_of_other_sources_is_not_used(file: Path, fingerprint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "fingerprint", lambda: fingerprint)
    with pytest.raises(ValueError, match="of other sources"):
        Shipped(file)
    if not fingerprint:  # nor one that was made where nobody knew of which sources
        shipped.write(file, ENTRIES)
        with pytest.raises(ValueError, match="of other sources"):
            Shipped(file)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"", "cut in the head": lambda data: data[:20], "cut in the index": lambda data: data[:100],
    "another kind": lambda data: b"mmuship0" + data[8:], "the index": lambda data: data.replace(b"three", b"seven"),
    "the length": lambda data: data[:40] + (1 << 60).to_bytes(8, "little") + data[48:],
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_not_used(file: Path, damage: str) -> None:
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    with pytest.raises((ValueError, OSError)):
        Shipped(file)


def test_damaged_code_is_not_used_and_the_rest_is(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"code of one", b"code of two"))
    found = Shipped(file)
    assert found.find("one", 2) is None and found.find("two", 2) == (b"the same", [])
    file.write_bytes(file.read_bytes()[:-3])  # the last is cut
    last = Shipped(file)
    assert [name for level, name in ENTRIES if last.find(name, level) is None] == ["one", "two", "three"]


@pytest.fixture
def came(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    shipped.shipped.cache_clear()
    monkeypatch.setattr(shipped, "file_of", lambda level: file)
    yield
    shipped.shipped.cache_clear()


@pytest.mark.usefixtures("came")
def test_what_came_with_the_package_goes_before_the_store() -> None:
    assert named.find("one") == named.NamedCode(b"code of one", ("two",))


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
    found = Shipped(shipped.PACKAGE / "objects" / f"{level}.bin")
    assert len(found.entries) > 400
