"""What the documentation says of the tables, made from the tables.

    python -m tools.pages.spec_map            # rewrite what has changed
    python -m tools.pages.spec_map --check    # exit code 1 if a page is not up to date

Whole pages are those of PAGES. Regions of other pages stand between `<!-- made: NAME -->` and `<!-- end -->`; those about
results of evidence/ are made by evidence/pages.py.
tests/laws/test_docs.py checks that all of it is up to date.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path

from mmulator.base.versions import TABLE, dotted
from mmulator.evaluation.conformance import vectors as stored_vectors
from mmulator.isa import special_registers as scalar_registers
from mmulator.isa import table as scalar_tables
from mmulator.isa.chips import CHIPS
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.form import Form, forms_of
from mmulator.isa.matrix import FAMILIES, FILES
from mmulator.isa.row import Row
from mmulator.isa.targets import DEVICES
from mmulator.matrix.inspect.explanation.arithmetic import KINDS, LETTERS, runs_on, spans
from mmulator.matrix.inspect.explanation.arithmetic import devices as known_devices
from mmulator.matrix.numerics import profiles
from tests.support.ptxas import differences as ptxas_differences
from tests.support.ptxas.row_differences import DIFFERENCES as ROW_DIFFERENCES
from tools.pages import planted, reference, rules, runtime_page
from tools.pages import types as element_types
from tools.pages.tables import table

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "mmulator"
HEAD = "<!-- Made by tools/pages/spec_map.py from the tables; do not edit. -->\n\n"


def code(words: Iterable[str]) -> str:
    return " ".join(f"`{w}`" for w in words)


# where things are ---------------------------------------------------------------------------------------------------
def module_path(module: str) -> str:
    """Path of a module below src/mmulator/."""
    return module.removeprefix("mmulator.").replace(".", "/") + ".py"


def meaning(table: str, row: Row) -> list[str]:
    """Files that give a scalar row its meaning: on each storey that of the same name as the row's."""
    name = table.rpartition("/")[2]
    native = (f"runtime/native/{folder}" for folder in ("memory", "asynchrony", "threads", "matrix"))
    storeys = "compiler/meaning", *native
    return [f for s in storeys if row.status.runs and (PACKAGE / (f := f"{s}/{name}")).exists()]


def scalar_rows() -> Iterator[tuple[str, str, Row]]:
    """(file of the table, chapter of the specification, row)."""
    for chapter in scalar_tables.CHAPTERS:
        for row in (r for r in chapter.ROWS if r.signatures is None):
            yield module_path(chapter.__name__), row.section.title.partition(":")[0], row


# spec-map.md ---------------------------------------------------------------------------------------------------
MATRIX_FILES = {
    "mma": "matrix/instruction/mma.py matrix/layouts/fragments.py matrix/layouts/sparse/ matrix/layouts/scales.py "
    "matrix/twin/product.py compiler/meaning/mma.py",
    "wgmma": "matrix/instruction/wgmma.py matrix/layouts/fragments.py matrix/layouts/descriptors.py matrix/layouts/swizzle.py "
    "matrix/layouts/sparse/ matrix/twin/shared.py matrix/twin/moves.py compiler/meaning/wgmma.py runtime/native/matrix/wgmma.py "
    "ptx/program/as_ptxas/inflight.py",
    "wmma": "matrix/instruction/wmma.py matrix/layouts/fragments.py matrix/twin/moves.py compiler/meaning/wmma.py",
    "matrix_move": "matrix/instruction/matrix_move.py matrix/layouts/operands.py matrix/twin/moves.py "
    "compiler/meaning/matrix_move.py",
}
LANGUAGE = (
    ("PTX Module Directives; Identifiers, Constants", "ptx/lexer.py ptx/cursor.py ptx/parser.py"),
    ("State Spaces, Types, and Variables", "isa/types.py ptx/declarations.py ptx/program/image.py runtime/native/state.py"),
    ("Instruction Operands", "ptx/operands.py ptx/tree.py compiler/emit/block.py"),
    ("Abstracting the ABI: functions, calls, parameters",
     "ptx/check.py ptx/program/image.py ptx/program/calls.py runtime/native/threads/control.py"),
    ("Predicated Execution", "ptx/body.py ptx/program/blocks.py"),
    ("Special Registers", "isa/special_registers.py compiler/lowering/special_registers.py"),
    (".target and .version, Target Architecture Families", "isa/targets.py ptx/verify.py"),
    ("Performance-Tuning Directives (.maxntid, .reqntid)", "ptx/resources.py host/module.py"),
    ("Memory Consistency Model", "runtime/native/memory/memory.py (host memory, in program order of the lanes)"),
    ("Matrix data-types, fragments, strides, descriptors", "isa/types.py matrix/layouts/"),
    ("Tensors: boxes, im2col, interleave, swizzling, tensor maps",
     "matrix/layouts/tensormap/ runtime/native/asynchrony/maps.py runtime/native/asynchrony/boxes.py"),
    ("arithmetic that the specification leaves open", "matrix/numerics/profiles.py matrix/numerics/dot.py"),
    ("approximate functions", "matrix/numerics/sfu/"),
)


def spec_map() -> str:
    out = HEAD + (
        "# From the specification to the code\n\n"
        "Sections are those of the PTX ISA, version 9.1; files are below `src/mmulator/`.\n"
        "What is supported of each instruction: [supported.md](supported.md). How the files work together:\n"
        "[design.md](../developers/design.md).\n\n## The language\n\n"
    )
    out += table(("section", "files"), ((title, code_paths(files)) for title, files in LANGUAGE))
    out += "\n## Matrix instructions\n\nArithmetic: `matrix/numerics/`, for all of them.\n\n"
    rows = []
    for family, members in FAMILIES.items():
        for title in dict.fromkeys(r.section.title for r in members):
            here = [r for r in members if r.section.title == title]
            ops = dict.fromkeys(r.op if r.op != family else family for r in here)
            forms = len({f for r in here for f in forms_of(r)})
            file = FILES[family]
            moves = file == "matrix_move" and here[0].effects.memory is not MemoryEffect.NONE
            native = f" runtime/native/matrix/{file}.py" if moves else ""
            rows.append((title, code(ops), forms, f"`isa/{file}.py`", code_paths(MATRIX_FILES[file] + native)))
    out += table(("section", "instructions", "forms", "table", "semantics"), rows)
    chapters: dict[str, dict[str, list[tuple[str, Row]]]] = {}
    for file, chapter, row in scalar_rows():
        chapters.setdefault(chapter, {}).setdefault(row.opcode, []).append((file, row))
    for chapter, opcodes in chapters.items():
        out += f"\n## {chapter}\n\n"
        grouped: dict[tuple[str, str], list[str]] = {}
        for opcode, members in opcodes.items():
            tables = sorted({f for f, _ in members})
            files = sorted({f for table, r in members for f in meaning(table, r)})
            grouped.setdefault((" ".join(tables), " ".join(files)), []).append(opcode)
        out += table(
            ("instructions", "table", "semantics"),
            ((code(names), code_paths(t), code_paths(f) or "not supported") for (t, f), names in grouped.items()),
        )
    return out


def code_paths(text: str) -> str:
    """`a.py b/` with each path in backquotes and the rest as it is."""
    return " ".join(f"`{w}`" if w.endswith((".py", "/")) else w for w in text.split())


# supported.md --------------------------------------------------------------------------------------------------
def row_name(row: Row) -> str:
    """The mnemonic of a row, with a word for each choice of several."""
    parts = [row.name]
    for slot in row.slots:
        choices = [c for c in slot.choices if c]
        if slot.name == "shape" and len(choices) > 3:
            choices = [choices[0], "...", choices[-1]]
        text = "/".join(choices)
        parts.append(f"{{.{text}}}" if slot.optional and not slot.since > (0, 0) else f".{text}")
    return parts[0] + "".join(parts[1:])


def devices_of(row: Row) -> str:
    """Devices on which a row runs, as spans of the list of devices."""
    return spans(d for d in DEVICES if any(runs_on(f, d) for f in forms_of(row))) or "none"


def matrix_lines() -> Iterator[tuple[str, int, str]]:
    """(mnemonic, forms, devices, in kernels); the loads and stores of wmma in one line for the same devices."""
    for family, members in FAMILIES.items():
        seen: set[Form] = set()
        moves: dict[tuple[str, str], list[Form]] = {}
        for row in members:
            new = [f for f in forms_of(row) if f not in seen]
            seen.update(new)
            if new and family == "wmma" and row.op != "mma":
                moves.setdefault((row.op, devices_of(row)), []).extend(new)
            elif new:
                yield f"`{row_name(row)}`", len(new), devices_of(row)
        for (op, where), forms in moves.items():
            shapes, types = (dict.fromkeys(str(x) for x in xs) for xs in zip(*((f.shape, f.type) for f in forms)))
            name = f"wmma.{op}.sync.aligned.layout.{'/'.join(shapes)}{{.ss}}.{'/'.join(types)}"
            yield f"`{name}`", len(forms), where
        yield f"**{family}**", len(seen), ""


def supported() -> str:
    out = HEAD + (
        "# What is supported\n\n"
        "Which instructions, forms and special registers run, made from the instruction tables. Everything listed is parsed\n"
        "and verified.\n\n"
        "## Matrix instructions\n\n"
        "*devices*: chips that have the instruction and whose arithmetic is known; `a/b` is a choice, `{...}` may be\n"
        "left out. `Instruction` and `matmul` take all of them, and a PTX kernel can contain them.\n\n"
    )
    lines = list(matrix_lines())
    out += table(("forms", "number", "devices"), lines)
    rest: dict[str, dict[str, list[Row]]] = {}
    for _, chapter, row in scalar_rows():
        rest.setdefault(chapter, {}).setdefault(row.opcode, []).append(row)
    out += "\n## Other instructions\n\n"
    lines, missing = [], []
    for chapter, opcodes in rest.items():
        whole = [o for o, rows_ in opcodes.items() if not any(map(reason, rows_))]
        if whole:
            lines.append((chapter, code(whole)))
        reasons: dict[str, list[str]] = {}
        for rows_ in opcodes.values():
            for r in rows_:
                if reason(r):
                    alone = {reason(other) for other in rows_} == {reason(r)}  # the opcode has nothing that is supported
                    reasons.setdefault(reason(r), []).append(r.name if alone else unsupported_name(r))
        missing += [(chapter, code(dict.fromkeys(names)), why) for why, names in reasons.items()]
    out += table(("section", "every form is supported"), lines)
    out += "\n## Not supported\n\n" + table(("section", "instructions", "why"), missing)
    names = ", ".join(folded(list(scalar_registers.SPECIAL_REGISTERS)))
    out += f"\n## Special registers\n\nSupported, all of them: {names}.\n"
    return out


def reason(row: Row) -> str:
    """Why the machine does not run a row; empty if it does."""
    return "" if row.status.runs else row.status.reason


def unsupported_name(row: Row) -> str:
    shown = ("type", "dtype", "stype", "atype") if row.name == "cvt" else ("type", "dtype", "stype")
    types = [g.choices for g in row.slots if g.name in shown]
    narrow = [a for a in types if not row.open]
    return row.name + "".join("." + "/".join(dict.fromkeys(a)) for a in narrow)


def folded(names: list[str]) -> list[str]:
    """`pm0 ... pm7` as `pm0..7`, and .x .y .z as one."""
    out: dict[str, None] = {}
    numbered: dict[str, list[int]] = {}
    for name in names:
        match = re.fullmatch(r"([a-z]+)(\d+)(_64)?", name)
        if match and match[1] in ("pm", "envreg"):
            numbered.setdefault(match[1] + "N" + (match[3] or ""), []).append(int(match[2]))
        else:
            base, _, axis = name.partition(".")
            axes = "".join(n[-1] for n in names if n.startswith(base + "."))
            if not axis and axes:
                continue
            out[f"`%{base}" + (f".{axes}`" if axis else "`")] = None
    return [*out, *(f"`%{k}` (N = {min(v)} to {max(v)})" for k, v in numbered.items())]


# regions ------------------------------------------------------------------------------------------------------------
def devices() -> str:
    rows = [(f"`{d.sm}`", CHIPS[d.sm], *(LETTERS.get(d.evidence.get(k, ""), "") for k in KINDS)) for d in known_devices()]
    return table(("device", "chip", *KINDS), rows)


def arithmetic() -> str:
    """The rows of matrix/numerics/profiles.py."""
    rows = []
    for r in profiles.ROWS:
        kinds = [k for k in r.kinds if k]
        also = "," if None in r.kinds else ""
        name = " ".join(r.families) + (f"{also} with " + " ".join(f".kind::{k}" for k in kinds) if kinds else "")
        floors = f"{r.floor_f32}" + ("" if r.floor_f16 is None else f" / {r.floor_f16}")
        how = {"fused": "", "halves": "two halves", "groups": "groups of 16"}.get(r.method, r.method)
        notes = "; ".join(x for x in (how, f"{r.keep} bits kept" if r.keep != 23 else "", r.note) if x)
        name += f" k{r.k}" if r.k else ""
        cells = (spans(r.devices), name, " ".join(r.types), r.chunk, r.fraction, floors, r.confidence, notes)
        rows.append(cells)
    return table(("device", "instruction", "types", "L", "F", "floor f32 / f16", "confidence", "notes"), rows)


def matrix_names(text: str) -> list[str]:
    return re.findall(r"\b(?:mma|wgmma|wmma|ldmatrix|stmatrix|movmatrix)\.[a-z0-9_.:]+", text)


def figures() -> dict[str, int]:
    """What can be counted in the repository."""
    manifest = json.loads((ROOT / "tests/kernels/manifest.json").read_text())
    files = sorted({entry["ptx"] for entry in manifest.values()})
    texts = [(ROOT / "tests/kernels" / f).read_text() for f in files]
    cases = json.loads((ROOT / "tests/data/scalar_vectors.json").read_text())["cases"]
    verdicts = [v for f in (ROOT / "tests/data").glob("*_verdicts.txt") for v in f.read_text().splitlines()]
    return {
        "launches": len(manifest),
        "ptx files": len(files),
        "matrix names": len({m for t in texts for m in matrix_names(t)}),
        "statements": len(cases),
        "results": sum(c["count"] for c in cases),
        "contraction": (ROOT / "tests/data/contraction_kernels.txt").read_text().count("\n== "),
        "rows": len(json.loads((ROOT / "tests/data/row_vectors.json").read_text())),
        "verdicts": sum(v[:2] in ("+ ", "- ") for v in verdicts),
        "matrix forms": sum(len({f for r in rows for f in forms_of(r)}) for rows in FAMILIES.values()),
        "scalar instructions": len(scalar_tables.ROWS) - len(FAMILIES),
    }


@cache
def evidence() -> str:
    n = figures()
    executions, words, stored = stored_vectors.extent(ROOT / "vectors")
    sources = Counter(e["source"].split()[0] for e in json.loads((ROOT / "tests/kernels/manifest.json").read_text()).values())
    makers = {"nvcc": "nvcc", "triton": "Triton", "numba": "Numba", "by": "by hand"}
    by = ", ".join(f"{makers.get(k, k)} {v}" for k, v in sources.most_common())
    run = json.loads((ROOT / "vectors/sm_90/report.json").read_text())
    return (
        f"- `vectors/`: {run['totals']['words']:,} result words of {run['totals']['forms']:,} forms and edge cases\n"
        f"  were compared with an H200 once, {run['totals']['wrong']:,} differ. Of its answers {words:,}\n"
        f"  words, in {executions:,} executions of all forms, are kept as digests ({stored:,}\n"
        "  of them in full); `mmulator conformance` replays these.\n"
        f"- `tests/kernels/`: {n['launches']} launches of real kernels and the outputs of an H200\n"
        f"  ({by}; {n['ptx files']} PTX files with\n"
        f"  {n['matrix names']} different matrix instructions). Every output is compared bit for bit.\n"
        "  Launches that need a later release are skipped by name; the few that cannot\n"
        "  match are listed in `tests/kernels/test_kernels.py`, with the reason.\n"
        f"- `tests/data/scalar_vectors.*`: {n['statements']:,} single statements with\n"
        f"  {n['results']:,} operand tuples, and the results of an H200.\n"
        f"- `tests/data/contraction_vectors.npz`: {n['contraction']} kernels whose bits depend on what ptxas\n"
        "  fuses and computes beforehand, and the results of an H100.\n"
        f"- `tests/data/row_vectors.json`: {n['rows']:,} statements made from the rows of the tables,\n"
        "  128 operand tuples each, and digests of the results of an H100.\n"
        "- `tests/data/approx_sm_90.npz`: for every coefficient in the tables of the\n"
        "  approximate functions, H200 outputs that show it one too large or too small.\n"
        f"- `tests/data/ptx_verdicts.txt`, `matrix_verdicts.txt`, `row_verdicts.txt`,\n"
        f"  `tcgen05_verdicts.txt`: {n['verdicts']:,}\n"
        "  statements that ptxas accepts or rejects.\n"
    )


def differences(cases: Iterable[ptxas_differences.Difference]) -> str:
    rows = ((c.document, c.ptxas, c.judge, f"{c.target}, {c.version[0]}.{c.version[1]}") for c in cases)
    return table(("the document", "ptxas", "of releases", "shown for"), rows)


def row_differences() -> str:
    return table(("ptxas 13.5", "verdict"), ((d.reason, "accepts" if d.accepted else "rejects") for d in ROW_DIFFERENCES))


def versions_table() -> str:
    """The versions of other software that mmulator works with."""
    cells = [(row.name, dotted(row.floor), row.pinned, dotted(row.newest), row.purpose) for row in TABLE.values()]
    return table(("software", "oldest", "the project's tests", "newest that was tried", "for"), cells)


SHOWN = (
    "race-read-write", "proxy-fence-missing", "wgmma-accumulator-read-before-wait", "matrix-descriptor-misplaced",
    "uninitialized-store",
)  # fmt: skip
"""Rules that docs/how-to/sanitizer.md shows broken."""
Makers = dict[str, Callable[[], str]]
REGIONS: Makers = {
    "devices": devices,
    "arithmetic": arithmetic,
    "evidence": evidence,
    "followed": lambda: differences(ptxas_differences.FOLLOWED),
    "refused": lambda: differences(ptxas_differences.REFUSED),
    "rows": row_differences,
    **{f"shown_{name.replace('-', '_')}": partial(rules.shown, name) for name in SHOWN},
    "errors": reference.errors_table,
    "versions": versions_table,
    "types": element_types.types,
}
PAGES: Makers = {
    "docs/reference/spec-map.md": spec_map, "docs/reference/supported.md": supported,
    "docs/reference/cuda-runtime.md": runtime_page.page, "docs/reference/commands.md": reference.commands_page,
    "docs/reference/settings.md": reference.settings_page, "docs/reference/rules.md": rules.page,
    "docs/reference/planted.md": planted.page, "docs/README.md": reference.index_page, "llms.txt": reference.llms_text,
}  # fmt: skip
_LAST = ("docs/README.md", "llms.txt")  # made of the other pages
_REGION = re.compile(r"(<!-- made: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def with_regions(regions: Makers) -> Iterator[tuple[Path, str]]:
    """Every page that has one of these regions, and its text as it should be."""

    def made(found: re.Match[str]) -> str:
        return f"{found[1]}\n{regions[found[2]]()}\n{found[4]}" if found[2] in regions else found[0]

    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text()
        if path.relative_to(ROOT).as_posix() not in PAGES and any(found[2] in regions for found in _REGION.finditer(text)):
            yield path, _REGION.sub(made, text)


def pages() -> Iterator[tuple[Path, str]]:
    """Every page with something made of the tables in it, and its text as it should be."""
    yield from ((ROOT / name, make()) for name, make in PAGES.items() if name not in _LAST)
    yield from with_regions(REGIONS)
    yield from ((ROOT / name, PAGES[name]()) for name in _LAST)


def main(arguments: list[str], pages: Iterable[tuple[Path, str]]) -> int:
    """Write the pages whose text is another, or with --check only name them. Returns the exit code."""
    check, stale = "--check" in arguments, 0
    for path, text in pages:
        if not path.exists() or path.read_text() != text:
            stale += 1
            print(path.relative_to(ROOT), "is not up to date" if check else "written")
            if not check:
                path.write_text(text)
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], pages()))
