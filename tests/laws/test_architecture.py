"""One direction of imports, and files that need no map."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support import places

ROOT = places.ROOT / "src" / "mmulator"
# Each layer imports only layers before it; names in one tuple do not know each other.
ORDER: tuple[tuple[str, ...], ...] = (
    ("location",), ("source",), ("errors",), ("interop", "demangle", "tables"), ("codegen",), ("isa",), ("syntax",),
    ("numerics", "layouts"),
    ("twin",), ("instruction",),
    ("ptx",), ("program",), ("machine",), ("devices", "sanitizer"), ("jobs",),
    ("conformance",), ("inspect",), ("cli", "explorer"), ("__main__",),
)  # fmt: skip
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
LONGEST = 620  # lines


def layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """First component below mmulator of everything a file imports, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{a.name}" for a in node.names] if node.module == "mmulator" else [node.module]
        found |= {n.split(".")[1] for n in names if n.startswith("mmulator.")}
    return found


FILES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    own = layer(path)
    for other in imported(path) - {own, "__version__"}:
        assert other in RANK, f"{path}: {other} has no place in the order of layers"
        assert RANK[other] < RANK[own], f"{path} ({own}) imports {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_needs_a_map(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


def test_import_is_light() -> None:
    import subprocess
    import sys

    heavy = ["llvmlite", "numpy", "ml_dtypes", "rich", "typer"]
    code = f"import mmulator, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
