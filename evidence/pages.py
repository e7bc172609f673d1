"""The regions of pages that show results of evidence/, made from the results that are kept.

    python -m evidence.pages            # rewrite what has changed
    python -m evidence.pages --check    # exit code 1 if a page is not up to date

tools/pages/spec_map.py makes such regions of the tables.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from evidence import evaluate
from evidence.judges import indigo, judges
from evidence.suites import page as suites
from tools.pages.spec_map import ROOT, Makers, figures, main, with_regions
from tools.pages.tables import table


def summary() -> str:
    """README's table: what was compared with what, one line each."""
    n = figures()
    run = json.loads((ROOT / "vectors/sm_90/report.json").read_text())["totals"]
    core, beside = (json.loads((ROOT / f"evidence/suites/results/{name}.json").read_text()) for name in (
        "triton-core-sm_90", "shadow-triton-core"))  # fmt: skip
    cases, launches = core["counts"], beside["launches"]
    ran = sum(launches[verdict] for verdict in ("same", "differ", "not deterministic", "fault"))
    races = [indigo.JUDGE.expected[f"races, {graph}"] for graph in indigo.GRAPHS]
    sums = json.loads((judges.RESULTS / "bits.json").read_text())["rows"]
    random, vectors = ([row for row in sums if row["source"] == name] for name in ("mmasim", "vectors"))
    public, launched = judges.of_projects(), judges.beside_a_gpu()
    compared = launched.total() - launched["not compared"]
    other = sum(row["differ"] - row["explained"] for row in (*random, *vectors))
    return table(("compared", "with", "result"), (
        ("single instructions, registers", "an H200", f"{run['words']:,} words of {run['forms']:,} forms: {run['wrong']} differ"),
        ("sums of seven architectures", "mmasim; vectors of 8 GPUs", f"{sum(row['compared'] for row in random):,} and "
         f"{sum(row['compared'] for row in vectors):,}: {other} differ unexplained"),
        ("real kernels, bytes", "an H200", f"{n['launches']} launches, replayed by the tests"),
        ("what is legal", "ptxas", f"{n['verdicts']:,} statements"),
        ("Triton's `test_core.py`, sm_90", "its own results", f"{cases['passed']:,} of {sum(cases.values()):,} pass, "
         f"{cases['skipped by the suite']} skipped, {cases.get('wrong', 0)} wrong"),
        ("its launches", "an H100, beside", f"{launches['same']:,} of {ran:,} leave the same bytes"),
        (f"kernels of {len(public)} public projects", "an H100, beside", f"{launched['same']} of {compared} launches leave the "
         f"same bytes; {launched['not deterministic']} the GPU does not repeat, the others are "
         "[defects](docs/reference/found.md)"),
        (f"Indigo's {races[0].planted} planted races", "its authors", f"{min(r.found for r in races)} found; "
         f"{max(r.flagged for r in races)} of {races[0].clean} clean kernels flagged"),
    ))  # fmt: skip


REGIONS: Makers = {"evaluation": evaluate.page, "summary": summary, **judges.REGIONS, **suites.REGIONS}


def pages() -> Iterator[tuple[Path, str]]:
    """Every page with such a region, and its text as it should be."""
    return with_regions(REGIONS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], pages()))
