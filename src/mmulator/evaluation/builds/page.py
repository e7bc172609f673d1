"""The comparison of two builds as text, as data, and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from mmulator.base.tables import element, html_table
from mmulator.evaluation.builds.changes import CHANGES, EQUAL, BuildsComparison, sentences
from mmulator.observation.record.tree import page as html_page
from mmulator.observation.same.comparison import SAME

_COLUMNS = ("kernel", "bits", "its code, for all values", "what changed")

def head(found: BuildsComparison) -> list[str]:
    """Lines about the builds, and how many kernels changed."""
    said = []
    for which, build in zip(("first", "second"), found.builds):
        versions = ", ".join(f"{name} {version}" for name, version in build.versions.items())
        count = f"{len(build.launches):,} launch{'es' * (len(build.launches) != 1)}"
        ended = f"; the program ended with exit code {build.exit_code}" if build.exit_code else ""
        said.append(f"{which} build, {build.name}: {versions}; {count}{ended}")
    counts = Counter(k.change for k in found.kernels)
    said.append(f"kernels: {len(found.kernels):,}; " + ", ".join(f"{what}: {counts[what]:,}" for what in CHANGES if counts[what]))
    open_ = sum(k.change == EQUAL and k.same.grade != SAME for k in found.kernels)
    return [*said, f"of those with the same bits {open_:,} may have others for other values"] if open_ else said


def alone(found: BuildsComparison) -> Iterator[str]:
    """A line for each launch that has no partner."""
    for which, launches in zip(("first", "second"), found.alone):
        yield from (f"only the {which} build has {launch}" for launch in launches)


def page(found: BuildsComparison) -> str:
    """The page, in full: a row for each kernel."""
    rows = [(k.kernel, k.change, k.same.grade, "; ".join(sentences(k))) for k in found.kernels]
    parts = [*(element("p", line) for line in (*head(found), *alone(found))), html_table(_COLUMNS, rows)]
    return html_page(["".join(parts)], "Two builds")


def as_dict(found: BuildsComparison) -> dict[str, Any]:
    """The answer as JSON can hold it."""
    return {
        "ok": found.exit_code == 0,
        "builds": [
            {"name": b.name, "versions": b.versions, "launches": len(b.launches), "exit_code": b.exit_code} for b in found.builds
        ],
        "kernels": [
            {
                "kernel": k.kernel, "bits": k.change, "grade": k.same.grade, "reason": k.same.reason, "lines": [*k.same.lines],
                "rests_on": [*k.same.rests_on], "fusion": k.fusion,
                "instructions": {name: [*counts] for name, counts in k.instructions.items()},
                "launches": [
                    {
                        "first": p.first.number, "second": p.second.number, "test": p.first.test,
                        "other_inputs": None if p.inputs is None else [*p.inputs], "outputs": p.outputs, "note": p.note,
                        "arrays": [
                            {"name": c.name, "size": c.size, "differ": c.wrong, "ulps": c.most, "specials": c.specials,
                             "first": [*(c.first or ())], "values": [str(c.want), str(c.got)]} for c in p.arrays
                        ],
                    } for p in k.pairs
                ],
            } for k in found.kernels
        ],
        "alone": [[{"launch": x.number, "kernel": x.kernel, "test": x.test} for x in side] for side in found.alone],
    }  # fmt: skip
