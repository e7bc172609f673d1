"""One direction of imports, no circles, one name on every storey, and files that need no map."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from mmulator.isa import table
from tests.support import places, sources

ROOT = sources.SOURCE
# The rooms of src/mmulator/, each with its layers (folders and files of it): a room imports only rooms before it, a layer only
# layers before it; layers in one tuple do not know each other. ".": what a room has beside the layers that are named.
ROOMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "base": (
        ("lazy", "classes", "refusals"), ("schemas", "floating"), ("location",), ("source",), ("rules", "demangle"),
        ("findings",), ("errors",), ("files", "versions", "interop", "tables"), ("distance", "names"), ("codegen",),
    ),
    "errors": ((".",),),
    "isa": ((".",),),
    "matrix": (("numerics", "layouts"), ("twin",), ("instruction",), ("inspect",), ("explore",)),
    "inspect": ((".",),),
    "ptx": (("toolkit",), (".",), ("program",)),
    "runtime": (("native",), ("options", "code"), ("compiled",), ("launch",)),
    "sanitizer": ((".", "sarif"), ("diagnostics",)),
    "compiler": ((".",),),
    "host": (("entries",), ("settings",), (".",), ("driver",), ("jobs",)),
    "observation": (("record",), ("debug", "same", "strictness", "reduce"), ("tolerance",)),
    "doors": ((".",),),
    "evaluation": (("spread",), ("judging",), ("conformance",), ("builds",)),
    "cli": ((".",),),
    "__main__": ((".",),),
}  # fmt: skip
RANK = {
    f"{room}/{name}": (number, rank)
    for number, (room, layers) in enumerate(ROOMS.items()) for rank, names in enumerate(layers) for name in names
}  # fmt: skip
LONGEST = 500  # lines


def layer(path: Path) -> str:
    """The room and the layer of a file, or of a folder."""
    room, *parts = path.relative_to(ROOT).with_suffix("").parts
    name = parts[0] if parts and f"{room}/{parts[0]}" in RANK else "."
    return room if name == "." and f"{room}/." not in RANK else f"{room}/{name}"


Imports = tuple[ast.Import | ast.ImportFrom, ...]


@cache
def statements(path: Path) -> tuple[Imports, Imports]:
    """The imports of a file, inside functions too: all, and those that are not for types alone."""
    tree = sources.tree(path)
    every, running = (
        tuple(s for s in sources.statements(tree, types) if isinstance(s, ast.Import | ast.ImportFrom)) for types in (True, False)
    )
    return every, running


FILES = [p for p in sources.FILES if p != ROOT / "__init__.py"]


# circles ---------------------------------------------------------------------------------------------------------------
def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


@cache
def imports(module: str, for_types: bool = True) -> set[str]:
    """Modules of the package that a module imports, inside functions and perhaps for types alone too."""
    found: set[str] = set()
    for node in statements(MODULES[module])[not for_types]:
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif node.module:
            for a in node.names:
                whole = f"{node.module}.{a.name}"
                found.add(whole if whole in MODULES else node.module)
    return (found & MODULES.keys()) - {module}


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Sets of modules each of which imports every other, directly or not (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    out: list[set[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for other in graph[module]:
            if other not in number:
                visit(other)
            if other in path:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            at = path.index(module)
            if len(path) - at > 1:
                out.append(set(path[at:]))
            del path[at:]

    for module in graph:
        if module not in number:
            visit(module)
    return out


@pytest.mark.parametrize("for_types", [False, True])
def test_there_is_no_circle_of_imports(for_types: bool) -> None:
    assert not list(circles({module: imports(module, for_types) for module in MODULES}))


def test_imports_go_one_way() -> None:
    upward = []
    for module, path in MODULES.items():
        own = layer(path)
        for other in {layer(MODULES[m]) for m in imports(module)} - {own}:
            if RANK.get(other, (0, 0)) >= RANK.get(own, (0, 0)):
                upward.append(f"{path.relative_to(ROOT)} ({own}) imports {other}")
    assert len(FILES) > 500 and not upward


def test_every_file_has_a_layer() -> None:
    """A file of a room whose layers are all named stands in one of them; only a room's first page stands beside them."""
    without = sorted(str(p.relative_to(ROOT)) for p in FILES if layer(p) not in RANK)
    assert without == [f"{room}/__init__.py" for room in sorted(ROOMS) if f"{room}/." not in RANK]


def test_what_code_is_written_with_knows_no_instruction() -> None:
    """compiler/emit/ is below all else of the compiler."""
    emit = [m for m in MODULES if m.startswith("mmulator.compiler.emit")]
    above = {m: [n for n in imports(m, for_types=False) if n.startswith("mmulator.compiler.") and ".emit" not in n] for m in emit}
    assert len(emit) > 4 and not {m: names for m, names in above.items() if names}


LARGEST_ROOM, LARGEST, LARGEST_DOOR = 0.20, 0.10, 0.04  # of all lines: a room, a layer, a door
MOST_ROOMS, MOST_LOOSE, LONGEST_FOLDER = 12, 6, 30  # folders and files of src/mmulator/; files of a folder, but of chapters


def sizes() -> tuple[Counter[str], Counter[Path]]:
    """Lines of each room, each layer and each door, and files of each folder."""
    lines, files = Counter[str](), Counter[Path]()
    for path in FILES:
        room = path.relative_to(ROOT).parts[0]
        for name in {room, layer(path), *(["/".join(path.relative_to(ROOT).parts[:2])] if room == "doors" else ())}:
            lines[name] += len(path.read_text().splitlines())
        files[path.parent] += path.stem != "__init__"
    return lines, files


def test_no_room_is_too_large() -> None:
    """A room has at most a fifth of all lines, a layer a tenth, a door a twenty-fifth (doors/ is many), a folder 30 files."""
    lines, files = sizes()
    every = sum(n for name, n in lines.items() if "/" not in name)
    for name, n in lines.items():
        most = LARGEST_ROOM if "/" not in name or name.endswith("/.") else LARGEST_DOOR if name.startswith("doors/") else LARGEST
        assert n <= most * every, name
    assert not {str(f): n for f, n in files.items() if n > LONGEST_FOLDER and f != ROOT / "isa"}


def test_the_package_explains_itself() -> None:
    """`ls src/mmulator`: rooms, and few files beside them; each room says on its first page what it is for."""
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and p.name != "__pycache__"}
    loose = {p.stem for p in ROOT.iterdir() if p.is_file()}
    assert folders | loose - {"__init__", "py"} == {*ROOMS} and len(folders) <= MOST_ROOMS and len(loose) <= MOST_LOOSE
    assert all(ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())) for room in folders)


# chapters -----------------------------------------------------------------------------------------------------------
CHAPTERS = {module.__name__.rpartition(".")[2] for module in table.CHAPTERS}
OWN = {"chunks", "cublas", "execution", "instruction", "matmul", "operands", "why"}  # of matrix/instruction/


def test_chapters_have_one_name_on_every_storey() -> None:
    """A file of meanings and one of `Instruction` is named as the file of its rows in isa/."""
    for storey, shared in (("compiler/meaning", set()), ("matrix/instruction", OWN)):
        files = {p.stem for p in (ROOT / storey).glob("*.py")} - {"__init__"}
        assert files <= CHAPTERS | shared and not CHAPTERS & shared


def test_no_two_native_functions_have_one_name() -> None:
    """A kernel's native code is one program: of two functions of one name it would call whichever came first."""
    where: dict[str, list[str]] = {}
    for storey in ("runtime/native", "sanitizer"):
        for path in sorted((ROOT / storey).rglob("*.py")):
            for node in {*sources.natives(tree := sources.tree(path))} & {*tree.body}:
                where.setdefault(node.name, []).append(f"{storey}/{path.stem}")
    assert len(where) > 100 and not {name: files for name, files in where.items() if len(files) > 1}


def test_files_of_tests_have_the_names_of_chapters() -> None:
    """chapters/test_chapters.py goes through the vectors and rows of all; a chapter's file has what is its own."""
    files = {p.stem.removeprefix("test_") for p in (places.ROOT / "tests" / "chapters").glob("*.py")}
    assert len(files) > 20 and files - CHAPTERS == {"chapters"}


def test_no_file_needs_a_map() -> None:
    long = {str(p.relative_to(ROOT)): n for p in FILES if (n := len(sources.text(p).splitlines())) > LONGEST}
    assert not long


# What a folder beside src/mmulator does not import; tests/tools and tests/evidence are there to test them.
STRANGERS = {
    "src": ("tools", "evidence", "tests", "benchmarks"), "tools": ("evidence", "benchmarks"),
    "tests": ("tools", "evidence", "benchmarks"),
}  # fmt: skip
PAGES = ("tools.pages", "evidence.pages")  # tests compare made pages with the files that there are


@pytest.mark.parametrize("folder", STRANGERS)
def test_the_product_does_not_use_its_evidence(folder: str) -> None:
    """src stands alone, tools make the product without the evidence, and what tests need is in tests/support."""
    word, found = re.compile("|".join(STRANGERS[folder])), []
    for path in sorted((places.ROOT / folder).rglob("*.py")):
        if path.parent.relative_to(places.ROOT).as_posix() in ("tests/tools", "tests/evidence"):
            continue
        for node in statements(path)[0] if word.search(path.read_text()) else ():
            before = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            modules = [m for a in node.names if (m := before + a.name).split(".")[0] in STRANGERS[folder]]
            found += [f"{path}: {m}" for m in modules if folder != "tests" or not m.startswith(PAGES)]
    assert not found


def test_import_is_light() -> None:
    import subprocess
    import sys

    heavy = ["llvmlite", "numpy", "ml_dtypes", "rich", "argparse"]
    code = f"import mmulator, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# answers and views -----------------------------------------------------------------------------------------------------
VIEWS = "mmulator.matrix.inspect.views"


def test_nothing_below_imports_a_view() -> None:
    """Views know the answers; an answer finds its view by the table of matrix/inspect/answer.py, and the commands use both."""
    known = {m for m in MODULES if any(i.startswith(VIEWS) for i in imports(m))}
    assert all(m.startswith((VIEWS, "mmulator.matrix.explore", "mmulator.cli")) for m in known), known


def test_every_answer_has_its_views() -> None:
    """The table names functions that take that answer, and every answer is in it."""
    import inspect
    from importlib import import_module

    from mmulator.matrix.inspect.answer import VIEWS as TABLE
    from mmulator.matrix.inspect.answer import Answer

    for module in MODULES:
        if module.startswith("mmulator.matrix.inspect."):
            import_module(module)
    assert {c.__name__ for c in Answer.__subclasses__()} == set(TABLE)
    for answer, views in TABLE.items():
        assert "html" in views
        for place in views.values():
            file, _, function = place.partition(".")
            first = next(iter(inspect.signature(getattr(import_module(f"{VIEWS}.{file}"), function)).parameters.values()))
            assert first.annotation == answer


LIGHT = (
    ("layout", "mma m16n8k16 f16", "a", "--svg", "-"), ("layout", "mma.sp m16n8k32 f16", "e", "--element", "1,1"),
    ("explain", "wgmma-fence-missing"), ("explain", "rules"),
    ("explain", "wgmma m64n128 bf16"), ("list", "wgmma fp8"), ("descriptor", "decode", "0x4000004000010040"),
    ("sparse", "decode", "0xe9c84eed", "--for", "mma.sp m16n8k32 f16"),
)  # fmt: skip


@pytest.mark.parametrize("words", LIGHT, ids=lambda w: " ".join(w[:2]))
def test_questions_load_neither_llvm_nor_the_twin(words: tuple[str, ...]) -> None:
    import subprocess
    import sys

    heavy = [
        "llvmlite", "mmulator.base.codegen", "mmulator.matrix.twin", "mmulator.runtime.native", "mmulator.host.module",
        "mmulator.host.driver", "mmulator.matrix.instruction",
    ]  # fmt: skip
    code = (
        f"import sys; from mmulator.cli.app import run; code = run({[*words]}); "
        f"print(code, [m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip().splitlines()[-1] == "0 []"
