"""A door opens when its library is imported, and the program does not see how."""

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from mmulator.doors.imports import after_import, before_import
from mmulator.errors import LaunchError


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with a module inside, each of which says when it is executed."""
    name = f"library_{abs(hash(tmp_path))}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("import builtins; builtins.said.append('package')\n")
    (tmp_path / name / "inner.py").write_text("import builtins; builtins.said.append('inner')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("builtins.said", [], raising=False)
    return name


def test_functions_run_around_the_module(library: str) -> None:
    said: list[str] = sys.modules["builtins"].said  # type: ignore[attr-defined]
    inner = f"{library}.inner"
    before_import(inner, lambda: said.append("before"))
    after_import(inner, lambda module: said.append(f"after {module.__name__}"))
    after_import(inner, lambda module: said.append("and then"))
    assert importlib.util.find_spec(library) is not None and said == []  # asking is no import
    importlib.import_module(library)
    assert said == ["package"]
    module = importlib.import_module(inner)
    assert said == ["package", "before", "inner", f"after {inner}", "and then"]
    assert "exec_module" not in vars(module.__spec__.loader) and module.__file__.endswith("inner.py")  # type: ignore
    after_import(inner, lambda module: said.append("at once"))
    assert said[-1] == "at once"
    importlib.reload(module)
    assert said[-2:] == ["at once", "inner"]
    with pytest.raises(LaunchError, match=f"{inner} is imported already"):
        before_import(inner, lambda: None)


def test_what_a_door_raises_the_import_raises(library: str) -> None:
    def shut(_: object) -> None:
        raise LaunchError("it does not open")

    after_import(library, shut)
    for _ in range(2):
        with pytest.raises(LaunchError, match="it does not open"):
            importlib.import_module(library)
        assert library not in sys.modules
