"""One table of versions (src/mmulator/versions.py): pyproject and the texts say what it says, and the doors keep to it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mmulator.base import versions
from mmulator.base.versions import KNOWN, OLD, TABLE, UNTRIED, dotted, number, place
from mmulator.doors import imports, internals
from mmulator.errors import UnsupportedError
from tests.support import sources
from tests.support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_NVCC = ("nvidia-cuda-nvcc",)  # NVIDIA's package of nvcc
# What is said of a version that is too old, and of one that is newer than any that was tried.
SAID = {
    "python": ("Python 3.1 is too old: mmulator works with Python 3.11 to 3.14", "install Python 3.11 or newer"),
    "numpy": ("NumPy 1.9 is too old: mmulator works with NumPy 2.0 to 2.5", 'pip install "numpy>=2.0,<2.6"'),
    "ml_dtypes": ("ml_dtypes 0.4 is too old: mmulator works with ml_dtypes 0.5 to 0.6", 'pip install "ml_dtypes>=0.5,<0.7"'),
    "llvmlite": ("llvmlite 0.1 is too old: mmulator works with llvmlite 0.46 to 0.50", 'pip install "llvmlite>=0.46,<0.51"'),
    "triton": ("Triton 3.4.0 is too old: mmulator works with Triton 3.5 to 3.9", 'pip install "triton>=3.5,<3.10"'),
    "torch": ("torch 2.8.0 is too old: mmulator works with torch 2.9 to 2.15", 'pip install "torch>=2.9,<2.16"'),
    "numba-cuda": ("numba-cuda 0.29.0 is too old: mmulator works with numba-cuda 0.30", 'pip install "numba-cuda>=0.30,<0.31"'),
    "cupy-cuda13x": ("CuPy 13.6.0 is too old: mmulator works with CuPy 14.0 to 14.2", 'pip install "cupy-cuda13x>=14.0,<14.3"'),
    "cuda-core": ("cuda-core 0.7.0 is too old: mmulator works with cuda-core 1.0 to 1.2", 'pip install "cuda-core>=1.0,<1.3"'),
    "nvcc": ("nvcc 12.9 is too old: mmulator works with nvcc 13.0 to 13.5", "install nvcc 13.0 or newer"),
}  # fmt: skip


@pytest.mark.parametrize("package", TABLE)
def test_what_is_outside_is_refused_or_warned_of_once(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row, (message, mend) = TABLE[package], SAID[package]
    old = message.removeprefix(f"{row.name} ").partition(" ")[0]
    if package != "nvcc":  # an old nvcc is only warned of
        with pytest.raises(UnsupportedError) as told:
            versions.check(package, old)
        assert (told.value.message, told.value.hint) == (message, mend)
    monkeypatch.setattr(versions, "_warned", set())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for version in ("99.1+git", "99.2", dotted(row.floor), row.pinned, dotted(row.newest)):
            versions.check(package, version)
    assert [str(w.message) for w in said] == [
        f"{row.name} 99.1+git was not tried: mmulator knows {message.partition('works with ')[2]}; if it fails, {mend}"
    ]
    assert [place(package, v) for v in (row.pinned, "99.1", "of no version")] == [KNOWN, UNTRIED, UNTRIED]
    assert place(package, old) == (OLD if package != "nvcc" else UNTRIED)


@pytest.mark.parametrize("name", sorted({*imports.DOORS, *imports.PREPARED} - {"cutlass", "cuda.bindings.nvrtc"}))
def test_each_door_asks_for_the_version(name: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """A library that is too old is refused as it is imported, before its door looks at it."""
    module = {"numba.cuda": "numba_cuda", "cuda.core": "cuda.core"}.get(name, name.partition(".")[0])
    made = ModuleType(module)
    vars(made)["__version__"] = "0.1"
    monkeypatch.setitem(sys.modules, module, made)
    monkeypatch.setattr(imports, "import_module", lambda door: pytest.fail(f"{door} is opened"))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(UnsupportedError, match=r" 0\.1 is too old: mmulator works with ") as told:
        (imports._open("a door", made) if name in imports.DOORS else imports._prepare("a door"))
    sys.excepthook(UnsupportedError, told.value, told.value.__traceback__)  # as Python calls it where the program ends
    assert capsys.readouterr().err == f"mmulator: {told.value}\n"


# where else versions are written ------------------------------------------------------------------------------------
def test_the_bounds_of_pyproject_are_the_table_s() -> None:
    extras = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    seen = set()
    for text, pinned in [(text, extra == "full") for extra, texts in extras.items() for text in texts]:
        name, _, bounds = re.fullmatch(r"([\w-]+)(\[\w+\])?([<>=.,\d]*)(?:;.*)?", text).groups()  # type: ignore[union-attr]
        package = "nvcc" if name in OF_NVCC else name
        for relation, version in re.findall(r"([<>=]+)([\d.]+)", bounds) if package in TABLE else ():
            row, found, seen = TABLE[package], number(f"{version}.0") or (0, 0), {*seen, package}
            if pinned:
                assert row.pinned.startswith(version), text
            elif relation == "<":
                assert found > row.newest, text
            else:
                assert (relation, found) == (">=", row.floor), text
    assert seen == TABLE.keys() - {"python"}
    assert PROJECT["requires-python"] == f">={dotted(TABLE['python'].floor)}"
    named = [number(c.rpartition(" ")[2]) for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", c)]
    assert (min(n for n in named if n), max(n for n in named if n)) == (TABLE["python"].floor, TABLE["python"].newest)


RANGE = r"(\d+\.\d+)(?:\.\d+)?(?: to (\d+\.\d+)\b| (?:or|and) (?:newer|later))"


def test_no_other_text_has_a_range_of_its_own() -> None:
    """Pages may say a range where it is the table's; the package says none at all."""
    names = "|".join(re.escape(row.name) for row in TABLE.values())
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    count = 0
    for path in [*pages, *sources.FILES]:
        for match in re.finditer(rf"\b({names}) {RANGE}", sources.text(path)):
            row = next(row for row in TABLE.values() if row.name == match[1])
            assert path.suffix == ".md" or path.name == "versions.py", f"{path}: {match[0]}"
            assert number(match[2]) == row.floor and match[3] in (None, dotted(row.newest)), f"{path}: {match[0]}"
            count += 1
    assert count >= 3


def test_triton_has_an_interface_for_each_version_of_the_table() -> None:
    from mmulator.doors.triton.versions import TABLE as INTERFACES

    row = TABLE["triton"]
    assert [*INTERFACES] == [(row.floor[0], minor) for minor in range(row.floor[1], row.newest[1] + 1)]


# internal names -----------------------------------------------------------------------------------------------------
DOORS = sources.SOURCE / "doors"
INTERNAL = re.compile(r"(?:torch|triton)(?:\.\w+)*\._[A-Za-z]\w*(?:\.\w+)*")


def used(tree: ast.AST) -> Iterator[str]:
    """Dotted names of a file that may be of another library: attributes, imports, texts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node).replace("sys.modules['torch']", "torch").replace("_aten.", "torch.ops.aten.")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and INTERNAL.fullmatch(node.value):
            yield node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            yield f"{ast.unparse(node.args[0])}.{ast.unparse(node.args[1])}".replace("'", "")
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{a.name}" for a in node.names)


def made(tree: ast.AST) -> Iterator[str]:
    """Names that a file defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            yield node.attr


def test_internal_names_of_torch_and_triton_are_in_their_tables() -> None:
    """Names that begin with `_`, of a library that a door uses, have a row in internals.py."""
    rows = {*internals.TORCH, *internals.TORCH_OPTIONAL, *internals.TRITON}
    parents = {row.rpartition(".")[0] for row in rows}
    trees = {path: sources.tree(path) for path in sources.FILES if path.name != "internals.py"}
    ours = {"_fields", *(name for path, tree in trees.items() if DOORS in path.parents for name in made(tree))}
    seen, strange = set(), []
    for path in sorted(trees):
        for name in used(trees[path]):
            own = [row for row in rows if name == row or name.startswith(f"{row}.")]
            attributes = [part for part in name.split(".") if part in internals.TORCH_ATTRIBUTES]
            seen |= {*own, *attributes}
            last = name.rpartition(".")[2]
            foreign = re.match("_[a-z]", last) and last not in ours and not name.startswith("sys.")
            foreign = foreign and path.parent in (DOORS / "torch", DOORS / "triton")
            if (INTERNAL.fullmatch(name) or foreign) and not own and not attributes and name not in parents:
                strange.append(f"{path.relative_to(sources.SOURCE)}: {name}")
    assert not strange, "\n".join(strange)
    assert {*internals.TORCH_ATTRIBUTES, *internals.TORCH_OPTIONAL, *internals.TORCH} <= seen


def test_a_name_that_is_lacking_costs_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = ModuleType("cupy")
    made.__version__, made.there = "14.9", 1
    monkeypatch.setitem(sys.modules, "cupy", made)
    names = {"cupy.there": "arrays", "cupy.gone": "sums", "cupy._core.gone": "products"}
    with pytest.warns(RuntimeWarning) as said:
        internals.stand_in("cupy-cuda13x", names, needed="arrays")
    assert str(said[0].message) == "CuPy 14.9 lacks 2 internal names that mmulator uses; what needs them raises: products, sums"
    with pytest.raises(UnsupportedError, match=r"^CuPy 14\.9 has no cupy\.gone, which mmulator needs for sums\n  hint: pip"):
        made.gone(1)
    with pytest.raises(UnsupportedError, match=r"has no cupy\._core\.gone"):
        internals.stand_in("cupy-cuda13x", {"cupy._core.gone": "arrays"}, needed="arrays")


def test_a_door_of_an_untried_version_that_cannot_be_opened_does_not_end_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    door: Any = ModuleType("a.door")
    door.install = lambda: vars(door)["gone"]
    monkeypatch.setattr(imports, "import_module", lambda _: door)
    monkeypatch.setattr(versions, "_warned", {"cupy-cuda13x"})
    made: Any = ModuleType("cupy")
    made.__version__ = "99.0"
    monkeypatch.setitem(sys.modules, "cupy", made)
    with pytest.warns(RuntimeWarning, match=r"^CuPy 99\.0: the door of a\.door stays closed: 'gone'$"):
        imports._open("a.door", made)
    made.__version__ = "14.2"
    with pytest.raises(KeyError):
        imports._open("a.door", made)


WITHOUT = """
import sys, torch, triton.testing
from mmulator.doors import internals
rows, jit = {**internals.TORCH, **internals.TRITON}, triton.runtime.jit
bind = jit.create_function_from_signature
for name, purpose in rows.items():
    if purpose not in (internals.DEVICE, internals.LAUNCHES, "torch.compile") and not name.startswith("torch.ops."):
        parent, _, leaf = name.rpartition(".")
        delattr(internals.found(parent), leaf)
from mmulator.doors.imports import open_doors
open_doors()
jit.create_function_from_signature = bind  # this Triton itself calls it
sys.path.insert(0, sys.argv[1])
from kernel import twice
x = torch.ones(4, device="cuda")
twice[(1,)](x)
print(x.sum().item())
torch.ones(2, dtype=torch.complex64, device="cuda").conj() + 1
"""
TWICE = """
import triton, triton.language as tl
@triton.jit
def twice(x):
    tl.store(x + tl.arange(0, 4), 2 * tl.load(x + tl.arange(0, 4)))
"""


def test_without_the_names_of_features_the_doors_open(tmp_path: Path) -> None:
    """All that no door needs is taken away at once: operators and launches go on, and a feature says what it lacks."""
    pytest.importorskip("torch"), pytest.importorskip("triton")
    (tmp_path / "without.py").write_text(WITHOUT)
    (tmp_path / "kernel.py").write_text(TWICE)
    environment = {**os.environ, "TRITON_DEFAULT_BACKEND": "mmulator"}
    done = subprocess.run([sys.executable, tmp_path / "without.py", tmp_path], env=environment, capture_output=True, text=True)
    assert done.stdout == "8.0\n", done.stderr
    assert re.search(r"UnsupportedError: torch \S+ has no torch\._C\._set_conj, which mmulator needs for conjugated", done.stderr)
    assert "internal names that mmulator uses; what needs them raises: arrays as arguments, autotuning, benchmarks" in done.stderr
