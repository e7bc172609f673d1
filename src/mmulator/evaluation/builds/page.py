"""The comparison of two builds as text, as data, and as one HTML page that needs no other file and no script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from mmulator.base.tables import element, html_table
from mmulator.evaluation.builds.changes import CHANGES, EQUAL, BuildsComparison, KernelOfBuilds, sentences
from mmulator.observation.same.comparison import SAME

_STYLE = """
:root{color-scheme:light dark}body{font:15px/1.45 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .6rem;border-bottom:1px solid #8884;text-align:left}
h2,p,td{overflow-wrap:anywhere}
"""


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
    """The page, in full."""
    rows = [(k.kernel, k.change, k.same.grade, len(k.pairs), " / ".join(filter(None, k.same.lines))) for k in found.kernels]
    lonely = "".join(element("li", line) for line in alone(found))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Two builds</title><style>{_STYLE}</style></head>\n<body><h1>Two builds</h1>"
        + "".join(element("p", line) for line in head(found))
        + html_table(("kernel", "bits", "its code, for all values", "launches", "values part at"), rows)
        + "".join(_section(k) for k in found.kernels if k.change != EQUAL or k.instructions)
        + (f"<h2>Without a partner</h2><ul>{lonely}</ul>" if lonely else "")
        + "</body></html>\n"
    )


def _section(k: KernelOfBuilds) -> str:
    counts = [(name, a, b) for name, (a, b) in k.instructions.items()]
    arrays = [
        (p.first.number, p.second.number, p.first.test, c.name, f"{c.wrong:,} of {c.size:,}", f"{c.most:,}")
        for p in k.pairs for c in p.arrays
    ]  # fmt: skip
    parts = [element("h2", k.kernel), *(element("p", line) for line in sentences(k))]
    if arrays:
        parts.append(html_table(("launch", "and", "test", "array", "elements differ", "largest ULP"), arrays))
    if counts:
        parts.append(html_table(("instruction of the PTX", "first build", "second build"), counts))
    return "".join(parts) + "\n"


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
                        "first": p.first.number, "second": p.second.number, "test": p.first.test, "inputs": p.inputs,
                        "outputs": p.outputs, "note": p.note, "arrays": [
                            {"name": c.name, "size": c.size, "differ": c.wrong, "ulps": c.most, "specials": c.specials,
                             "first": [*(c.first or ())], "values": [str(c.want), str(c.got)]} for c in p.arrays
                        ],
                    } for p in k.pairs
                ],
            } for k in found.kernels
        ],
        "alone": [[{"launch": x.number, "kernel": x.kernel, "test": x.test} for x in side] for side in found.alone],
    }  # fmt: skip
