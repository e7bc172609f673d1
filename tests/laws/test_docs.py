"""The documentation does what it says: commands and snippets run, links lead somewhere, tables are current."""

import contextlib
import fnmatch
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from evidence import pages as results
from mmulator.base.rules import RULES
from mmulator.host.driver import Settings
from mmulator.host.module import Module
from mmulator.host.settings import INTERNAL, variables
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.row import OperandSpec
from mmulator.isa.targets import DEVICES, TARGETS, Target
from tests.laws.test_architecture import RANK, ROOMS
from tests.laws.test_rows import EXCUSES
from tests.support import forks, quick
from tests.support.places import PACKAGE, ROOT
from tools.pages import reference, spec_map

TUTORIAL, OBSERVERS = "docs/developers/adding-an-instruction.md", "docs/developers/native-code.md"
WHOLE = ("docs/developers/adding-a-rule.md", "docs/developers/adding-a-runtime-function.md")  # carried out in a copy, too
OBSERVED = "A count of barriers"  # the part of OBSERVERS that is carried out in a copy, as all of TUTORIAL is
PAGES = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md"),
    *sorted(p.relative_to(ROOT).as_posix() for folder in ("docs", "examples") for p in ROOT.glob(f"{folder}/**/*.md")),
]


# reading a page -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Step:
    """Something a page tells the reader. kind: `shell` (one command), or the language of a fenced block.

    directive: of the comment before it, as `<!-- file: average.ptx -->`. line: where it stands, in the page or a part of it.
    needs: the module without which it is left out.
    """

    kind: str
    text: str
    directive: str
    argument: str
    line: int
    needs: str = ""


_DIRECTIVE = re.compile(r"<!-- (\w+)(?:: (.*))? -->$")


def steps(text: str) -> Iterator[Step]:
    """Fenced blocks and indented commands, in order."""
    lines = text.split("\n")
    at = 0
    directive = argument = needs = ""
    while at < len(lines):
        line, start = lines[at], at + 1
        found = _DIRECTIVE.match(line)
        if found and found[1] == "needs":
            needs = found[2]
        elif found:
            directive, argument = found[1], found[2] or ""
        elif line.startswith("```"):
            end = lines.index("```", at + 1)
            yield Step(line[3:] or "text", "\n".join(lines[at + 1 : end]) + "\n", directive, argument, start, needs)
            at, directive, needs = end, "", ""
        elif line.startswith("    ") and line.strip():
            command = line.strip()
            while command.endswith("\\"):
                at += 1
                command = command[:-1] + lines[at].strip()
            yield Step("shell", command, directive, argument, start)
            if not (at + 1 < len(lines) and lines[at + 1].startswith("    ")):
                directive = ""
        at += 1


def read(page: str) -> str:
    return (ROOT / page).read_text()


def here(page: str) -> str:
    """The text of a page, but for what test_tutorial carries out in a copy of the repository."""
    before, heading, rest = read(page).partition(f"\n## {OBSERVED}\n")
    return "" if page in (TUTORIAL, *WHOLE) else before + rest[rest.find("\n## ") :] if heading else before


def commands(step: Step) -> list[str]:
    """The parts of a command line that start with mmulator."""
    parts = re.split(r"\s*&&\s*", step.text.partition("  #")[0]) if step.kind in ("shell", "sh") else []
    return [p for p in parts if p.startswith("mmulator ")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a clone and may be written to."""
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))  # it would remember where its sources were
    return tmp_path


def run_mmulator(command: str) -> tuple[int, str]:
    """Exit code and standard output."""
    # a process that becomes the program; a cache of its own; no standard input
    if command.startswith(("mmulator exec ", "mmulator cache ", "mmulator debug ")):
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        with tempfile.TemporaryDirectory() as own:
            if command.startswith("mmulator cache "):
                environment["MMULATOR_CACHE"] = own
            words = ["-m", *shlex.split(command)]
            if words[2] == "exec":
                done = forks.run(words, Path.cwd(), environment)
            else:
                words = [sys.executable, *words]
                done = subprocess.run(words, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout
    from mmulator.cli.app import run

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = run(shlex.split(command)[1:])
    return code, out.getvalue()


def comparable(output: str) -> list[str]:
    """Lines without what differs from run to run: times and rates, a cache, and with them where such a line is folded."""
    output = re.sub(r" \(from the cache\)", "", output)
    output = re.sub(r"[\d.]+ [kMG]/s", "N/s", output)
    output = re.sub(r"; [\d,]+ times$", "; N times", output, flags=re.MULTILINE)  # of a finding: how closely it is looked at
    output = re.sub(r"[\d.]+(?= ?s\b| threads)", "N", output)
    output = re.sub(r"^(time: .*)\n  (\S.*)", r"\1 \2", output, flags=re.MULTILINE)
    return [line.rstrip() for line in output.strip().splitlines()]


# pages --------------------------------------------------------------------------------------------------------------
def code_of(step: Step) -> int:
    """`mmulator run ... --sanitize  # exit code 3`: the code that a command ends with; 0 if the page does not say."""
    found = re.search(r"  # exit code (\d+)", step.text)
    return int(found[1]) if found else 0


COMMANDS = [(page, (c, code_of(s))) for page in PAGES for s in steps(here(page)) for c in commands(s)]


def test_pages_have_commands_and_snippets() -> None:
    """The reader above has not lost the pages."""
    assert len(COMMANDS) >= 6
    assert sum(s.kind == "python" for p in PAGES for s in steps(read(p))) >= 6


@pytest.mark.parametrize(("command", "code"), sorted({c for _, c in COMMANDS}))
def test_command_runs(command: str, code: int, folder: Path) -> None:
    found, output = run_mmulator(command)
    assert found == code, output


def starts_programs(page: str) -> bool:
    """Whether a page needs `[full]`, or processes of their own."""
    return any(step.needs or step.directive in ("run", "pytest") for step in steps(here(page)))


@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.full if starts_programs(p) else ()) for p in PAGES])
def test_snippets_run_and_output_is_as_shown(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python blocks of a page, one after the other. A block under `<!-- output: COMMAND -->` is what that prints, under
    `excerpt: COMMAND` a part of it, under `output: python` what the snippet before it printed. `file: NAME` is a file that later
    blocks use, `pytest: NAME` one that passes; `run: COMMAND` is what a shell prints, but for figures and what stands in
    parentheses. A block under `needs: MODULE` is left out, by name, where the module is not installed."""
    printed: str | None = ""
    space: dict[str, Any] = {}
    left_out: set[str] = set()
    monkeypatch.syspath_prepend(folder)
    for step in steps(here(page)):
        if step.needs and find_spec(step.needs) is None:
            left_out.add(step.needs)
            printed = None
        elif step.directive == "run":
            printed = run_shell(folder, step.argument)
            assert skeleton(step.text) == skeleton(printed), f"{page}:{step.line}\n{printed}"
        elif step.directive == "excerpt":
            assert step.text in run_mmulator(step.argument)[1], f"{page}:{step.line}"
        elif step.directive in ("file", "pytest"):
            (folder / step.argument).write_text(step.text)
            if step.directive == "pytest":
                printed = run_pytest(folder, step.argument)
        elif step.directive == "output" and (printed is not None or step.argument != "python"):
            if step.argument != "python":
                printed = run_mmulator(step.argument)[1]
            assert comparable(step.text) == comparable(printed or ""), f"{page}:{step.line}"
        elif step.kind == "python" and step.directive not in ("output", "quote", "excerpt"):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(step.text, f"{page}:{step.line}", "exec"), space)
            printed = out.getvalue()
    if left_out:
        pytest.skip(f"{page}: all but the blocks that need {', '.join(sorted(left_out))}")


def test_quotations_are_in_the_files() -> None:
    quotes = [(page, s) for page in PAGES for s in steps(read(page)) if s.directive == "quote"]
    for page, step in quotes:
        assert step.text.strip("\n") in read(step.argument), f"{page}:{step.line}: not in {step.argument}"


def run_shell(folder: Path, command: str) -> str:
    """What a command prints; a Python in it is this one, with mmulator's plug-in for pytest."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    plugin = "" if any(e.name == "mmulator" for e in entry_points(group="pytest11")) else "-p mmulator.doors.pytest_plugin"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(PACKAGE), "MMULATOR_TRACEBACK": ""}
    environment |= {"PYTEST_ADDOPTS": f"{plugin} -p no:hypothesispytest"}
    environment |= {"PYTHONWARNINGS": "ignore"}  # warnings of Triton's next version
    environment = {n: v for n, v in environment.items() if n not in ("CI", "BUILD_NUMBER")}  # there pytest prints more
    words = shlex.split(command)
    at = next(n for n, word in enumerate(words) if "=" not in word)
    if words[at] == "python" and words[at + 1] != "-m":
        done = forks.run(words[at + 1 :], folder, environment | dict(word.split("=", 1) for word in words[:at]))
    else:
        done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    return (done.stdout + done.stderr).replace(str(folder), "/home/me")


def skeleton(output: str) -> list[str]:
    """Words without figures, and without what stands in parentheses or in rules across the page."""
    output = re.sub(r"\s*\([^)]*\)|[-=_^]{4,}", "", output)
    return re.sub(r"\b(0x[0-9a-f]+|[\d.,]*\d)( [kMG]\b)?", "N", output).split()


def run_pytest(folder: Path, name: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "MMULATOR_TRACEBACK": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"```.*?```", "", read(page), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        where = (ROOT / page).parent / path if path else ROOT / page
        assert where.exists(), f"{page}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", where.read_text(), re.MULTILINE)
            known = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in known, f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page: str) -> None:
    """Paths in backquotes that look like the repository's, from its root or from src/mmulator/."""
    folders = {p.name for root in (ROOT, ROOT / "src/mmulator") for p in root.iterdir() if p.is_dir()}
    for name in re.findall(r"`((?:[\w.]+/)+[\w.*]*)`", read(page)):
        if name.partition("/")[0] in folders:
            known = [*ROOT.glob(name), *(ROOT / "src/mmulator").glob(name)]
            assert known, f"{page}: {name}"


def test_nothing_is_installed_from_an_index_that_does_not_have_it() -> None:
    """Neither a page nor a message names mmulator to pip: it is installed from a checkout."""
    folders = ("src", "docs", "tools", "evidence", "examples")
    files = [p for folder in folders for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".md")]
    for path in (*files, ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for line in path.read_text().replace("in a checkout of mmulator", "").splitlines():
            wrong = re.search(r"pip install[^`&\n]*[\s\"']mmulator\b|pypi\.org/project/mmulator", line)
            assert not wrong, f"{path}: {line.strip()}"


def test_variables_of_the_environment_are_in_the_table() -> None:
    """Every MMULATOR_ name of code, tools, evidence, tests and pages is known, and every one that is known is used."""
    named = set()
    for folder in ("src", "tools", "evidence", "tests", "docs", "benchmarks"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in (".py", ".md") and path.parent.name != "settings" and path.name != "settings.md":
                named |= {*re.findall(r"(?<![_A-Z])MMULATOR_([A-Z_]*[A-Z])", path.read_text())}
    named |= {"SHIP", *(f.name.upper() for f in fields(Settings))}
    assert named - {"DEVCE"} == {*variables()} | INTERNAL


def test_the_map_is_complete() -> None:
    """The table of the house has every room of src/mmulator/ and every layer of one, layers in the order of imports."""
    lines = re.findall(r"^\| ((?:`[\w./]+`(?:, )?)+) \|", read("docs/developers/design.md"), re.MULTILINE)
    named = [n.strip("`/") for line in lines for n in line.split(", ")]
    named = [n.removesuffix(".py") for n in named if n.split("/")[0] in ROOMS]
    rooms = [room for room in ROOMS if (ROOT / "src/mmulator" / room).is_dir()]
    layers = [n for n in RANK if n.split("/")[0] in rooms and not n.endswith("/.")]
    assert sorted(n for n in named if n in {*layers, *rooms}) == sorted([*layers, *rooms])
    ranks = [RANK[n] for n in named if n in RANK]
    assert ranks == sorted(ranks)


def test_the_table_of_tests_has_every_folder() -> None:
    """docs/developers/testing.md says of each folder of tests what it proves, and when to run it."""
    named = re.findall(r"^\| `(\w+)` \|", read("docs/developers/testing.md"), re.MULTILINE)
    there = {p.name for p in (ROOT / "tests").iterdir() if any(p.rglob("test_*.py"))} - {"support", "data"}
    assert {*named} == there and len(named) == len(there)


def test_the_table_of_quick_tests_names_tests() -> None:
    """tests/support/quick.py: each pattern fits a file or a test that is there."""
    names = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        names.append(file := path.relative_to(ROOT / "tests").as_posix())
        names += [f"{file}::{name}" for name in {*re.findall(r"\btest_\w+", path.read_text())}]
    assert [glob for glob in quick.QUICK_CASES if not fnmatch.filter(names, glob)] == []


@pytest.mark.parametrize("maker", [spec_map, results], ids=["tables", "evidence"])
def test_made_pages_are_up_to_date(maker: Any) -> None:
    stale = [path.name for path, text in maker.pages() if not path.exists() or path.read_text() != text]
    assert not stale, f"run python -m {maker.__name__}: {stale}"


# what a reader has to read -------------------------------------------------------------------------------------------
MOST_PAGES, MOST_WORDS, MOST_LINKS = 30, 55_000, 10
# Pages of docs/reference/ that are neither made nor run, and the test that compares them with what there is.
COMPARED = {"found": "test_what_was_found_has_a_rule_and_a_text", "glossary": "test_words_of_the_glossary_are_used",
            "provenance": "test_what_a_row_names_exists"}  # fmt: skip


def by_hand(page: str) -> str:
    """The text of a page of docs/ that a person wrote: nothing of a page that is made, and no made region."""
    text = read(page)
    made = page in spec_map.PAGES or text.startswith("<!-- Made by")
    return "" if made else re.sub(r"<!-- made: \w+ -->.*?<!-- end -->", "", text, flags=re.DOTALL)


def test_pages_are_few() -> None:
    """At most 30 pages that people write, and 55,000 words, those of docs/reference/ counted too, but for what is made."""
    texts = {page: by_hand(page) for page in PAGES if page.startswith("docs/")}
    pages = [page for page, text in texts.items() if text and not page.startswith("docs/reference/")]
    words = {page: len(text.split()) for page, text in texts.items()}
    assert len(pages) <= MOST_PAGES, pages
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda item: -item[1])


def test_reference_is_made_or_run_or_compared() -> None:
    """A page of docs/reference/ is made, has a made region or a block that tests run, or a test compares its tables."""
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for page in (page for page in PAGES if page.startswith("docs/reference/")):
        own = by_hand(page)
        run = any(step.directive or step.kind == "python" for step in steps(own)) or any(commands(step) for step in steps(own))
        test = COMPARED.get(Path(page).stem)
        assert not own or own != read(page) or run or (test and f"def {test}(" in tests), page


def test_readme_has_few_links() -> None:
    links = re.findall(r"\]\((docs/[^)\s]+\.md)[^)]*\)", read("README.md"))
    assert len(links) <= MOST_LINKS, links


def test_the_changelog_is_one_page() -> None:
    """Until the first release: whoever opens it has nothing to compare with."""
    text = read("CHANGELOG.md")
    assert text.count("\n## ") > 1 or len(text.split()) <= 900


def test_folders_of_pages_are_in_the_index() -> None:
    assert {page.split("/")[1] for page in PAGES if page.startswith("docs/") and page.count("/") > 1} == {*reference.FOLDERS}
    assert [page for page in PAGES if page.startswith("docs/") and page.count("/") == 1] == ["docs/README.md"]


def test_words_of_the_glossary_are_used() -> None:
    """In another page, or in the package."""
    texts = "\n".join(read(page) for page in PAGES if page != "docs/reference/glossary.md")
    texts += "\n".join(path.read_text() for path in (ROOT / "src/mmulator").rglob("*.py"))
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", read("docs/reference/glossary.md"), re.MULTILINE)
    words = [word for row in rows for word in row.split(", ") if word not in ("word", "---")]
    assert len(words) > 30
    assert not [word for word in words if word.lower() not in texts.lower()]


def test_what_was_found_has_a_rule_and_a_text() -> None:
    """docs/reference/found.md: rules are rules of the sanitizer, and each finding ends with a text for its authors."""
    page = read("docs/reference/found.md")
    assert {*re.findall(r"\[([a-z-]+)\]$", page, re.MULTILINE)} | {*re.findall(r"\(`([a-z-]+)`\)", page)} <= {*RULES}
    findings = re.split(r"\n\n(?=\*\*)", page.partition("\n## TritonBench")[0])[1:]
    assert len(findings) > 20
    without = [text.partition("\n")[0] for text in findings if "*For its authors: " not in text]
    assert [text for text in without if not text.startswith("**Code of Triton")] == []


def test_pages_speak_of_what_there_is() -> None:
    """Every region that a page asks for is made, and every maker is used."""
    asked = {m for page in PAGES for m in re.findall(r"<!-- made: (\w+) -->", read(page))}
    assert asked == {*spec_map.REGIONS, *results.REGIONS} and not spec_map.REGIONS.keys() & results.REGIONS.keys()


# supported.md: tried ------------------------------------------------------------------------------------------------
SAMPLES = [
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc",
    "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32",
    "wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e5m2",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
    "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16",
    "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64",
]


def operand(spec: OperandSpec) -> tuple[str, str]:
    """(declaration, operand) with some legal value."""
    names = [f"%{spec.key}{i}" for i in range(spec.count)]
    match spec.kind:
        case "registers":
            return f".reg .{spec.type} {', '.join(names)};", f"{{{', '.join(names)}}}"
        case "register":
            return f".reg .{spec.type} {names[0]};", names[0]
        case "address":
            return "", "[%cells]"
        case "descriptor":
            return "", "0x0000001000010040"
        case "group":
            return "", f"{{{', '.join(operand(p)[1] for p in spec.parts)}}}"
        case _:
            return "", "1" if not spec.values or 1 in spec.values else str(spec.values[0])


def run_alone(form: Form) -> None:
    """Run a kernel of this one instruction."""
    device = next(d for d in ("sm_90", *DEVICES[::-1]) if spec_map.runs_on(form, d))
    target = next(t for s in ("a", "f", "") if (t := Target(int(device[3:]), s)) in TARGETS)
    declared, operands = zip(*map(operand, form.operands))
    wait = "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" if form.family == "wgmma" else ""
    text = (
        f".version 9.0\n.target {target}\n.address_size 64\n.shared .align 1024 .b8 cells[32768];\n"
        f".visible .entry k() {{\n.reg .b64 %cells;\n{chr(10).join(declared)}\nmov.u64 %cells, cells;\n"
        f"{form.mnemonic} {', '.join(operands)};\n{wait}\nret;\n}}\n"
    )
    Module.load(text)["k"].launch(1, 128, [], device=device, timeout=600)


@pytest.mark.parametrize("name", SAMPLES)
def test_what_kernels_can_contain(name: str) -> None:
    """docs/reference/supported.md says that a kernel can contain every matrix form."""
    form = next(f for f in matrix_forms(name.split(".")[0]) if f.mnemonic == name)
    run_alone(form)


# the tutorial -------------------------------------------------------------------------------------------------------
class Copy:
    """A copy of the repository that the tutorial is carried out in; data is not copied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("src", "tools", "evidence", "tests/laws", "tests/support", "tests/ub"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("tests/__init__.py", "tests/conftest.py", "tests/data"):
            (folder / name).symlink_to(ROOT / name)
        for _, _, place in EXCUSES:
            (folder / "tests" / place).parent.mkdir(parents=True, exist_ok=True)
            if not (folder / "tests" / place).exists():
                (folder / "tests" / place).symlink_to(ROOT / "tests" / place)

    def edit(self, path: str, diff: str) -> None:
        """Replace the lines of a diff's context and `-` by those of its context and `+`; they must stand there once."""
        lines = diff.splitlines()
        old = "".join(line[1:] + "\n" for line in lines if line[0] in " -")
        new = "".join(line[1:] + "\n" for line in lines if line[0] in " +")
        text = (self.folder / path).read_text()
        assert text.count(old) == 1, f"{TUTORIAL}: this is not in {path} (once):\n{old}"
        (self.folder / path).write_text(text.replace(old, new))

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.folder / "src")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # the next command finds what this one compiled
        words = [sys.executable, *command]
        return subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True)

    def command(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        if words[0] == "mmulator":
            return self.run("-c", f"from mmulator.cli import main; main({words[1:]})")
        if words[0] == "python":
            return self.run(*words[1:])
        assert words[0] == "pytest"
        return self.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *words[1:])


def carry_out(copy: Copy, step: Step) -> bool:
    """Do what a step says and check that it succeeds, or fails with the words it should; False if it is nothing to do."""
    words = shlex.split(step.text) if step.kind == "shell" else []
    if step.directive == "file":
        (copy.folder / step.argument).write_text(step.text)
    elif step.directive == "edit":
        copy.edit(step.argument, step.text)
    elif step.directive == "append":
        with (copy.folder / step.argument).open("a") as file:
            file.write("\n\n" + step.text)
    elif step.kind == "python":
        result = copy.run("-c", step.text)
        assert result.returncode == 0, f"{TUTORIAL}:{step.line}\n{result.stderr}"
    elif words[:1] in (["mmulator"], ["pytest"], ["python"]):
        result = copy.command(words)
        said = result.stdout + result.stderr
        assert (result.returncode != 0) == (step.directive == "fails"), f"{TUTORIAL}:{step.line}\n{said}"
        assert step.directive != "fails" or step.argument in said, f"{TUTORIAL}:{step.line}\n{said}"
        assert words[0] != "pytest" or step.directive == "fails" or " passed" in said
    else:
        return False
    return True


def parts(page: str) -> list[str]:
    return re.split(r"^## ", read(page), flags=re.MULTILINE)[1:]


OBSERVER = next(part for part in parts(OBSERVERS) if part.startswith(OBSERVED))
PARTS = dict(zip(("matrix", "scalar", "lanes", "observer"), [*parts(TUTORIAL)[:3], OBSERVER]))
PARTS |= dict(zip(("rule", "runtime"), map(read, WHOLE)))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.full
def test_tutorial(part: str, tmp_path: Path) -> None:
    """An instruction, a rule, a function or an observer, added to a copy as its page says, with a test."""
    copy = Copy(tmp_path)
    done = [s.directive or s.kind for s in steps(PARTS[part]) if carry_out(copy, s)]
    assert "edit" in done and {"shell", "python"} & {*done} and {"file", "python"} & {*done}
