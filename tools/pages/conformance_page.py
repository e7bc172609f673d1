"""docs/reference/conformance.md: what was compared with which GPU, from the vectors' reports and the tables.

    python -m tools.pages.conformance_page            # rewrite the page
    python -m tools.pages.conformance_page --check    # exit code 1 if it is not up to date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmulator.errors import MmulatorError
from mmulator.evaluation.conformance.probes import EDGES, Observation
from mmulator.evaluation.conformance.subjects import group
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.targets import DEVICES, TARGETS, Target
from mmulator.matrix.numerics.profiles import dot_key, profile_for

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/conformance.md"
LETTERS = {"measured": "M", "published": "P", "as specified": "S", "inferred": "i"}
EDGE = "edge: "

HEAD = """<!-- Made by tools/pages/conformance_page.py; do not edit. -->

# Conformance

How each matrix instruction is compared with a GPU, bit for bit, and what came out. On a machine with an NVIDIA GPU:

```
pip install '.[gpu]'
mmulator conformance --gpu
```

compares the model with the GPU. For every form of a matrix instruction that the GPU has,
the command writes PTX, lets the driver compile and run it on difficult operands, and
compares all result registers (or memory). It prints a line for each group of forms. For a
form that differs it prints the first differing element with its operands, the exact sum
and both results. The exit code is 0 only if no bit differs.

```
mmulator conformance
```

without a GPU replays recorded answers of GPUs: those in `vectors/` of the clone in which it
runs. Vectors hold results alone; operands follow from a seed, by generators that do not
depend on the version of NumPy.

| option | meaning |
| --- | --- |
| `--gpu` | compare with the GPU of this machine |
| `--capture DIR` | write the GPU's answers as vectors, with GPU, driver, compiler and date |
| `--vectors DIR` | replay these vectors |
| `--device sm_90` | replay those of one device |
| `--filter REGEX` | only these forms |
| `--cases N`, `--seed N` | how many operands, and which |
| `--processes N` | how many processes share the work |
| `--seconds S` | end after this time; forms of every group are taken in turn, so a part of them has all kinds |
| `--resume` | continue a run that ended early; the rows are in the [code cache](settings.md#the-cache) |
| `--report FILE.html` | write what is printed, for every form |
| `--json` | print the report as JSON |
| `--dask ADDRESS` | spread the forms over a [Dask cluster](../how-to/python.md) |

`mmulator run launch.toml --compare-gpu` runs one launch on both sides. It names the thread
and the line that stored the first differing element of each array. It compares array
arguments, arrays that structs point to, and the module's variables that the model changed.
Both sides are a `Backend` (`host/backend.py`): the CPU, and a GPU through the CUDA driver
(`evaluation/conformance/gpu.py`).

## Cases

A case is eight columns of results with operands of their own: an m16n8 `mma` is one case, an
m64n256 `wgmma` is 32. For loads, stores and matrix moves a case is an execution. The cases of
a form are divided among the ways of writing it (selectors; for `wgmma` A in registers or
in shared memory, signs, transposes) and the kinds of operands:

| kind | operands |
| --- | --- |
"""

SUITES = """Two suites test more than single instructions (`evaluation/conformance/suites.py`). **mbarrier sequences**
are random legal programs of up to 24 operations, of one lane or of many lanes of a warp. They
compare what every operation returns, and the word at the end, after `mbarrier.inval` has
brought it to memory. `--filter "mbarrier sequences"` runs them alone. **Tensor copies**
(`evaluation/conformance/tensors.py`) are loads, stores and reductions, of tiles and of images, with random
legal maps (types, ranks, swizzles, interleaves, element strides, fills), boxes inside, across
and outside of the tensor, and data with the edges of every format. They compare all bytes of
the shared memory and of the tensor. `--filter "^tensor"` runs them.
"""


def kinds() -> Iterator[str]:
    from mmulator.evaluation.conformance.values import FLOATS, INTEGERS

    for name, function in {**FLOATS, **INTEGERS}.items():
        text = " ".join((function.__doc__ or "").split("\n\n")[0].split()).rstrip(".")
        yield f"| {name} | {text} |"


def target_of(device: str) -> Target:
    number = int(device[3:])
    return next(t for t in (Target(number, "a"), Target(number)) if t in TARGETS)


def confidence() -> dict[str, dict[str, str]]:
    """Group of multiplications -> device -> letter."""
    out: dict[str, dict[str, str]] = {}
    for form in matrix_forms():
        if not form.atype:
            continue
        for device in DEVICES:
            if not form.requires.admits(target_of(device)):
                continue
            try:
                letter = LETTERS[profile_for(dot_key(form), device).confidence]
            except MmulatorError:
                continue
            row = out.setdefault(group(form), {})
            row[device] = " ".join(sorted({letter, *row.get(device, "").split()}))  # shapes may differ
    return out


def measured() -> Iterator[str]:
    reports = sorted((ROOT / "vectors").glob("sm_*/report.json"))
    if not reports:
        yield "No GPU's answers are in the repository yet.\n"
    for path in reports:
        data = json.loads(path.read_text())
        yield from device_section(data, path.parent.name)
        more = path.with_name("runs.json")
        runs = json.loads(more.read_text()) if more.exists() else []
        for run in runs:
            yield run_line(run)
        observed = next((r for r in reversed(runs) if r.get("observations")), None)
        if observed is not None:
            yield observations(observed)


def observations(run: dict[str, Any]) -> str:
    """What probes saw where the specification promises nothing."""
    lines = [f"Observed on the {run['gpu']['name']}, where the specification promises nothing:\n"]
    lines += [f"- {Observation(**o).line()}" for o in run["observations"]]
    lines.append("\nptxas, which is in the driver too, inserts the wait (C7517) and the fence (C7519) that are missing.")
    return "\n".join(lines) + "\n"


def run_line(data: dict[str, Any]) -> str:
    """A run without vectors: what it took part in."""
    gpu, t, run = data["gpu"], data["totals"], data["run"]
    return (
        f"{data['date']}, {gpu['name']}, driver {gpu['driver']}, seed {run['seed']}, {run['count']:,} cases a form, "
        f"{data['what']}:\n"
        f"{t['forms']:,} forms, {t['cases']:,} cases, {t['words']:,} words, {t['wrong']:,} different.\n"
    )


def device_section(data: dict[str, Any], device: str) -> Iterator[str]:
    gpu, t = data["gpu"], data["totals"]
    yield f"### {gpu['name']} ({device})\n"
    yield (
        f"{data['date']}, driver {gpu['driver']}, CUDA {gpu['cuda']}, seed {data['run']['seed']}: "
        f"{t['forms']:,} forms and edges,\n{t['cases']:,} cases, {t['words']:,} words compared, "
        f"{t['wrong']:,} different.\n"
    )
    for row in data["different"]:
        name, first = row["item"]["name"], row["first"]
        yield f"- `{name}`: {row['verdict']}. {first['arithmetic'] if first else row['error']}"
    yield "\n| forms | number | cases | words | different |\n| --- | --- | --- | --- | --- |"
    groups = [g for g in data["groups"] if not g["group"].startswith(EDGE)]
    for g in groups:
        yield f"| {g['group']} | {g['forms']} | {g['cases']:,} | {g['words']:,} | {g['wrong']:,} |"
    by_name = {g["group"].removeprefix(EDGE): g for g in data["groups"] if g["group"].startswith(EDGE)}
    yield "\n| question | forms | cases | different |\n| --- | --- | --- | --- |"
    for edge in EDGES:
        if g := by_name.get(edge.name):
            yield f"| {edge.name}: {edge.question} | {g['forms']} | {g['cases']:,} | {g['wrong']:,} |"
    yield ""


def page() -> str:
    lines = [*kinds(), "| metadata | near one, with any metadata, also what the specification calls invalid |", ""]
    lines += [SUITES, "## Measured\n", *measured()]
    lines += [
        "## Every device\n",
        "M: measured on an NVIDIA H200, register by register. P: published models and vectors. S: the",
        "specification defines the result. i: inferred from a sibling. Empty: the device has no such",
        "form. [Fidelity](../explanation/fidelity.md) has the numbers.\n",
        "| forms | " + " | ".join(d.removeprefix("sm_") for d in DEVICES) + " |",
        "|" + " --- |" * (len(DEVICES) + 1),
    ]
    for name, row in confidence().items():
        lines.append(f"| {name} | " + " | ".join(row.get(d, "") for d in DEVICES) + " |")
    return HEAD + "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    text = page()
    if "--check" in arguments:
        return int(not PAGE.exists() or PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
