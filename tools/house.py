"""The measures of the package, in two tables.

    python -m tools.house              # sizes of rooms and layers beside their budgets; measures of the structure
    python -m tools.house --budgets    # tools/budgets.toml anew: today's sizes and a hundredth more

The second table has what the laws of tests/laws limit or forbid, and what they only watch: who changes the structure compares the
numbers before and after.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from tests.laws import test_architecture as architecture
from tests.laws import test_effects as effects
from tests.laws import test_words as words
from tests.support import sizes
from tests.support.sizes import Size

# Names that a law lets through: the lists by their places in tests/laws.
EXCUSES = (
    ("test_architecture", "OWN"), ("test_effects", "NAMES_AN_ADDRESS"),
    ("test_effects", "WORDS"), ("test_rows", "EXCUSES"), ("test_words", "TWICE"),
)  # fmt: skip
LONG, COMPLEX = 450, 25  # lines of a file; ways through a function
LAUNCH = ("Request", "Launch")  # what a launch is put together as
FILES = [*architecture.FILES, architecture.ROOT / "__init__.py"]
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.comprehension, ast.match_case)
Row = tuple[str, int, str]


def place(path: Path) -> str:
    return str(path.relative_to(architecture.ROOT))


def complexity(function: ast.AST) -> int:
    """Ways through a function, as McCabe counts them: one, and one for each branch and each further operand of `and` and `or`."""
    nodes = list(ast.walk(function))
    return (
        1
        + sum(isinstance(n, BRANCHES) for n in nodes)
        + sum(len(n.values) - 1 for n in nodes if isinstance(n, ast.BoolOp))
        + sum(len(n.ifs) for n in nodes if isinstance(n, ast.comprehension))
    )


def calls(tree: ast.AST, names: tuple[str, ...]) -> int:
    """How often something of these names is called."""
    functions = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call))
    return sum(getattr(f, "attr", getattr(f, "id", "")) in names for f in functions)


def folders() -> dict[str, set[str]]:
    """Which room imports which, types aside."""
    graph: dict[str, set[str]] = defaultdict(set)
    for module, path in architecture.MODULES.items():
        own = architecture.layer(path)
        others = {architecture.layer(architecture.MODULES[m]) for m in architecture.imports(module, for_types=False)}
        graph[own] |= others - {own}
    return graph


def of_structure(trees: dict[Path, ast.AST]) -> Iterator[Row]:
    _, files = architecture.sizes()
    folder, longest = max(((f, n) for f, n in files.items() if f.name != "isa"), key=lambda x: x[1])
    yield "longest folder (files; isa/ has chapters)", longest, place(folder)
    circles = architecture.circles(folders())
    yield "circles of folders", len(circles), "; ".join(" ".join(sorted(c)) for c in circles)
    circles = architecture.circles({m: architecture.imports(m) for m in architecture.MODULES})
    yield "circles of files", len(circles), "; ".join(" ".join(sorted(c)) for c in circles)
    launches = Counter({place(p): calls(tree, LAUNCH) for p, tree in trees.items()})
    yield "ways to put a launch together", launches.total(), ", ".join(+launches)


def of_words(trees: dict[Path, ast.AST]) -> Iterator[Row]:
    for module, name in EXCUSES:
        if (found := getattr(import_module(f"tests.laws.{module}"), name, None)) is not None:
            yield f"excuses in {module}.{name}", len(found), ""
    decided = effects.decided()
    yield "opcode tables outside rows", sum(map(len, decided.values())), ", ".join(decided)
    vague = [where for where, text in words.docstrings() if text.startswith(words.VAGUE)]
    yield "vague docstrings", len(vague), ", ".join(list(Counter(w.partition("/")[0] for w in vague))[:8])
    classes: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].add(place(path))
    twice = sorted(name for name, where in classes.items() if len(where) > 1)
    yield "class names in two files or more", len(twice), ", ".join(twice)


def of_size(trees: dict[Path, ast.AST]) -> Iterator[Row]:
    long = Counter({place(p): n for p in trees if (n := len(p.read_text().splitlines())) > LONG})
    yield f"files over {LONG} lines", len(long), ", ".join(f"{p} {n}" for p, n in long.most_common())
    hard = Counter({
        f"{place(path)}:{node.lineno} {node.name}": n
        for path, tree in trees.items() for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (n := complexity(node)) > COMPLEX
    })  # fmt: skip
    yield f"functions with over {COMPLEX} ways through", len(hard), ", ".join(f"{p} {n}" for p, n in hard.most_common())


def rows() -> list[Row]:
    """(measure, number, where or what) of every measure."""
    trees: dict[Path, ast.AST] = {p: ast.parse(p.read_text()) for p in FILES}
    return [*of_structure(trees), *of_words(trees), *of_size(trees)]


# sizes ----------------------------------------------------------------------------------------------------------------
def layers(every: dict[Path, Size]) -> dict[str, Size]:
    """The size of each layer of a room that has several, in the order of imports, and of each door."""
    found = {name: Size() for name in architecture.RANK if not name.endswith("/.")}
    for path in architecture.FILES:
        name = architecture.layer(path)
        if name == "doors/." and len(parts := path.relative_to(architecture.ROOT).parts) > 2:
            name = "/".join(parts[:2])
        if not name.endswith("/."):
            found[name] = found.get(name, Size()).plus(every[path])
    return found


def table_of_sizes() -> Iterator[str]:
    """Lines of the table: each folder and room beside its budget, each layer, and the goals that are not reached."""
    every = sizes.sizes()
    found, limits, inner = sizes.totals(every), sizes.budgets(), layers(every)

    def line(name: str, one: Size, limit: Size | None = None) -> str:
        share = f"{100 * one.lines / found['src'].lines:.1f} %" if name.startswith(("src/", " ")) else ""
        return f"{name:28}" + "".join(f"{n:10,}" for n in one) + f"{share:>9}" + "".join(f"{n:11,}" for n in limit or ())

    yield f"{'':28}{'files':>10}{'lines':>10}{'tokens':>10}{'of src':>9}{'at most':>11}"
    rooms = [f"src/{room}" for room in architecture.ROOMS if f"src/{room}" in found]
    for name in ("src", *rooms, f"src/{sizes.LOOSE}", *sizes.FOLDERS[1:]):
        yield line(name, found[name], limits.get(name))
        yield from (line(f"    {n}", one) for n, one in inner.items() if n.startswith(f"{name.removeprefix('src/')}/"))
    goals = sizes.budgets("goals")
    yield from (f"goal not reached: {sentence}" for sentence in sizes.passed({n: found[n] for n in goals}, goals))


def with_budgets(text: str, found: dict[str, Size]) -> str:
    """The text of tools/budgets.toml with a budget for each size; what stands before them and the reasons beside numbers stay."""
    head, mark, old = text.partition("[budgets]\n")
    reasons = dict(re.findall(r'^"(.+)" = \{.*\}(  # .*)$', old, re.MULTILINE))
    numbers = {name: zip(Size._fields, one.with_room()) for name, one in sorted(found.items())}
    lines = ((name, ", ".join(f"{what} = {n:_}" for what, n in of)) for name, of in numbers.items())
    return head + mark + "".join(f'"{name}" = {{ {text} }}{reasons.get(name, "")}\n' for name, text in lines)


def main(arguments: list[str]) -> None:
    if arguments == ["--budgets"]:
        sizes.BUDGETS.write_text(with_budgets(sizes.BUDGETS.read_text(), sizes.totals(sizes.sizes())))
        print(f"written: {sizes.BUDGETS}")
        return
    print(*table_of_sizes(), "", sep="\n")
    for what, count, where in rows():
        print(f"{what:44} {count:7,}  {where}")


if __name__ == "__main__":
    main(sys.argv[1:])
