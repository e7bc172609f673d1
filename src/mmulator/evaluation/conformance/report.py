"""Results as a matrix of forms and verdicts: text, JSON, HTML."""

import html
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mmulator import __version__
from mmulator.base import files
from mmulator.base.errors import MmulatorError
from mmulator.evaluation.conformance import vectors
from mmulator.evaluation.conformance.compare import Difference
from mmulator.evaluation.conformance.probes import Observation
from mmulator.evaluation.conformance.run import ItemResult, RunOutcome, RunSettings


def summary(rows: list[ItemResult]) -> list[dict[str, Any]]:
    """One line a group: forms, cases, words, wrong, verdict."""
    out: dict[str, dict[str, Any]] = {}
    for row in rows:
        zero = dict.fromkeys(("forms", "cases", "words", "wrong", "different", "errors", "seconds"), 0)
        line = out.setdefault(row.item.group, {"group": row.item.group, **zero})
        line["forms"] += 1
        for name in ("cases", "words", "wrong", "seconds"):
            line[name] += getattr(row, name)
        line["different"] += row.verdict == "different"
        line["errors"] += row.verdict == "error"
    for line in out.values():
        line["verdict"] = "error" if line["errors"] else "different" if line["different"] else "same"
        line["seconds"] = round(line["seconds"], 1)
    return list(out.values())


def totals(rows: list[ItemResult]) -> dict[str, int]:
    """Sums over all rows."""
    out = {name: sum(getattr(r, name) for r in rows) for name in ("cases", "executions", "words", "wrong")}
    return {"forms": len(rows), **out, "different": sum(r.verdict == "different" for r in rows),
            "errors": sum(r.verdict == "error" for r in rows)}  # fmt: skip


Run = tuple[RunSettings, RunOutcome]


def as_data(runs: Sequence[Run]) -> dict[str, Any]:
    """The report as JSON data: one entry of `runs` for each device."""
    return {"ok": bool(runs) and all(o.ok for _, o in runs), "runs": [run_data(o, s) for s, o in runs]}


def run_data(outcome: RunOutcome, settings: RunSettings) -> dict[str, Any]:
    """The report of one device as JSON data."""
    return {
        "ok": outcome.ok,
        "complete": outcome.complete,
        "left": outcome.left,
        "mmulator": __version__,
        "date": datetime.now(UTC).date().isoformat(),
        "gpu": outcome.chip.as_dict(),
        "run": settings.key,
        "seconds": round(outcome.seconds, 1),
        "totals": totals(outcome.rows),
        "groups": summary(outcome.rows),
        "forms": [r.as_dict() for r in outcome.rows],
        "observations": [o.as_dict() for o in outcome.observations],
        "not_on_this_gpu": outcome.missing,
    }


def lines(outcome: RunOutcome, settings: RunSettings, limit: int = 8) -> Iterator[str]:
    """The report as text of at most 80 columns (mnemonics may be longer)."""
    info = outcome.chip
    how = f"vectors in {settings.replay}" if settings.replay else f"seed {settings.seed}"
    head = f"{info.name} ({info.device}), CUDA {info.cuda}, driver {info.driver or 'unknown'}"
    yield from [f"{head}; {how}"] if len(head + how) <= 78 else [head, how]
    yield f"{'':38} {'forms':>5} {'cases':>11} {'words':>13}  verdict"
    for g in summary(outcome.rows):
        bad = g["different"] + g["errors"]
        verdict = g["verdict"] if not bad else f"{g['verdict']} ({bad})"
        yield f"{g['group'][:38]:38} {g['forms']:5} {g['cases']:11,} {g['words']:13,}  {verdict}"
    shown = 0
    for row in outcome.rows:
        if row.verdict == "same":
            continue
        shown += 1
        if shown > limit:
            continue
        yield ""
        yield f"{row.item.name}: {row.verdict}" + (f", {row.wrong:,} of {row.words:,} words" if row.wrong else "")
        if row.first is not None:
            if row.subject != row.item.mnemonic:
                yield f"in {row.subject}"
            yield from explanation(row.first)
        if row.error:
            yield row.error
    if shown > limit:
        yield f"and {shown - limit} more forms"
    for o in outcome.observations:
        yield f"observed: {o.line()}"
    if outcome.missing:
        yield f"not on this GPU: {len(outcome.missing)} forms"
    if not outcome.rows:
        yield "no form has that name" if settings.filter else "nothing was compared"
    t = totals(outcome.rows)
    state = f", {outcome.left} forms left" if outcome.left else "" if outcome.complete else ", interrupted"
    yield (
        f"{t['forms']:,} forms, {t['cases']:,} cases, {t['words']:,} words: {t['wrong']:,} differ; "
        f"{t['errors']} errors; {outcome.seconds:.0f} s{state}"
    )


def explanation(first: dict[str, Any]) -> list[str]:
    """The lines of a stored Difference."""
    return Difference(**{**first, "products": tuple(first["products"])}).lines()


def write(path: Path, runs: Sequence[Run]) -> None:
    """Write the report as .json or .html. Raises MmulatorError for another ending, or if the file cannot be written."""
    data = as_data(runs)
    if path.suffix == ".json":
        text = json.dumps(data, indent=1)
    elif path.suffix == ".html":
        text = as_html(data)
    else:
        raise MmulatorError(f"--report {path}: the name must end in .json or .html")
    files.write(path, text)


def write_vectors(folder: Path, outcome: RunOutcome, settings: RunSettings) -> list[Path]:
    """Write the captured vectors to folder/DEVICE, with the summary of the run beside them; returns the paths."""
    data = run_data(outcome, settings)
    provenance = {
        "gpu": data["gpu"], "date": data["date"], "mmulator": data["mmulator"],
        "compiler": f"the driver's own, CUDA {outcome.chip.cuda}",
    }  # fmt: skip
    device = folder / outcome.chip.device
    paths = vectors.write(device, [v for r in outcome.rows for v in r.vectors], provenance)
    kept = {k: v for k, v in data.items() if k not in ("forms", "complete")}
    kept["different"] = [r for r in data["forms"] if r["verdict"] != "same"]
    path = device / "report.json"
    files.write(path, json.dumps(kept, indent=1) + "\n")
    return [*paths, path]


_STYLE = """
:root{color-scheme:light dark;--line:#8884;--good:#1a7f37;--bad:#cf222e}
body{font:15px/1.45 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%}td,th{padding:.2rem .6rem;border-bottom:1px solid var(--line);text-align:right}
td:first-child,th:first-child{text-align:left}.same{color:var(--good)}.different,.error{color:var(--bad);font-weight:600}
code,pre{font:13px/1.4 ui-monospace,monospace}pre{overflow-x:auto;padding:.6rem;border:1px solid var(--line)}
"""


def _table(rows: list[dict[str, Any]], name: str) -> str:
    head = "".join(f"<th>{h}</th>" for h in (name, "cases", "words", "different words", "verdict"))
    body = ""
    for r in rows:
        cells = f"<td><code>{html.escape(r['name'])}</code></td>"
        cells += "".join(f"<td>{r[k]:,}</td>" for k in ("cases", "words", "wrong"))
        body += f'<tr>{cells}<td class="{r["verdict"]}">{r["verdict"]}</td></tr>\n'
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def as_html(data: dict[str, Any]) -> str:
    """The report as an HTML page, without scripts."""
    names = ", ".join(run["gpu"]["name"] for run in data["runs"])
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>mmulator conformance: {html.escape(names)}</title><style>{_STYLE}</style>
{"".join(map(_run_html, data["runs"]))}</html>
"""


def _run_html(data: dict[str, Any]) -> str:
    gpu, t = data["gpu"], data["totals"]
    rows = [{**r, "name": r["item"]["name"]} for r in data["forms"]]
    wrong = ""
    for r in rows:
        if r["verdict"] != "same":
            text = "\n".join([r["subject"], *(explanation(r["first"]) if r["first"] else []), r["error"]]).strip()
            wrong += f"<h3><code>{html.escape(r['name'])}</code></h3><pre>{html.escape(text)}</pre>\n"
    groups = _table([{**g, "name": g["group"]} for g in data["groups"]], "group")
    seen = [Observation(**o).line() for o in data["observations"]]
    observed = "".join(f"<li>{html.escape(line)}</li>" for line in seen)
    missing = "".join(f"<li><code>{html.escape(m)}</code></li>" for m in data["not_on_this_gpu"])
    return f"""<h1>Conformance on {html.escape(gpu["name"])}</h1>
<p>mmulator {data["mmulator"]}, {gpu["device"]}, CUDA {gpu["cuda"]}, driver {gpu["driver"] or "unknown"}, {data["date"]},
seed {data["run"]["seed"]}: {t["forms"]:,} forms, {t["cases"]:,} cases, {t["words"]:,} words, {t["wrong"]:,} different.</p>
{"<h2>Differences</h2>" + wrong if wrong else ""}
<h2>Groups</h2>{groups}
<h2>Forms</h2>{_table(rows, "form")}
{"<h2>Observed</h2><ul>" + observed + "</ul>" if observed else ""}
{"<h2>Not on this GPU</h2><ul>" + missing + "</ul>" if missing else ""}
"""
