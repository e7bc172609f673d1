"""Findings as SARIF 2.1.0 (OASIS, Static Analysis Results Interchange Format), which code hosts and editors show at the lines;
and an earlier SARIF file as a baseline.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmulator import __version__
from mmulator.base.errors import LaunchError
from mmulator.base.findings import Finding, Place, grouped
from mmulator.base.location import Location
from mmulator.base.rules import RULES, Rule
from mmulator.base.source import Span

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
PRINT = "mmulator/v2"  # key in `partialFingerprints`
_RELATED = 32  # instructions of one finding that are named
Result = dict[str, Any]


def sarif(findings: Sequence[Finding], suppressed: Iterable[tuple[Finding, str]] = (), known: Baseline | None = None) -> Result:
    """The SARIF log of one run, as data.

    suppressed: expected findings with the reason; they become results with a suppression.
    known: findings of an earlier run. Every result then says whether it is new, and results that are gone are there, too.
    """
    return log([*results(findings), *(r for f, why in suppressed for r in results([f], why))], known)


def results(findings: Iterable[Finding], why: str | None = None) -> list[Result]:
    """SARIF results, one for each group of findings told as one (`findings.grouped`). `log` puts results of several processes
    together.

    why: the reason, if the findings are suppressed.
    """
    found = []
    for group in grouped(findings):
        result = _result(group)
        if why is not None:
            result["suppressions"] = [{"kind": "external", **({"justification": why} if why else {})}]
        found.append(result)
    return found


def log(
    found: Iterable[Result], known: Baseline | None = None, refused: Sequence[Result] = (), explained: Sequence[Result] = ()
) -> Result:
    """A whole SARIF log: results, numbered where they are equal, with their rules and files.

    refused: what was not run, as `RefusedWork.as_dict` has it: a notification each; no success if one is not handled.
    explained: answers of --why: a notification each.
    """
    every = [dict(result) for result in found]
    count = Counter[str]()
    for result in every:
        count[print_ := _print(result)] += 1  # numbers equal lines: the first, the second and so on
        result["partialFingerprints"] = {PRINT: f"{print_}:{count[print_]}"}
        if known is not None:
            result["baselineState"] = "unchanged" if count[print_] <= known.count[print_] else "new"
    if known is not None:
        every += [{**result, "baselineState": "absent"} for result in known.gone(count)]
    names = sorted({result["ruleId"] for result in every})
    files: dict[str, int] = {}
    for result in every:
        result["ruleIndex"] = names.index(result["ruleId"])
        for place in (*result["locations"], *result["relatedLocations"]):
            artifact = place["physicalLocation"]["artifactLocation"]
            artifact["index"] = files.setdefault(artifact["uri"], len(files))
    artifacts = [{"location": {"uri": uri}, "sourceLanguage": _language(uri)} for uri in files]
    return {
        "$schema": SCHEMA, "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "mmulator", "version": __version__, "semanticVersion": __version__,
                "rules": [_rule(RULES[name]) for name in names],
            }},
            "columnKind": "unicodeCodePoints", "artifacts": artifacts, "results": every,
            **({"invocations": [{
                "executionSuccessful": all(r["handled"] for r in refused),
                "toolExecutionNotifications": [
                    *({"level": "note" if r["handled"] else "error", "message": {"text": r["why"]}} for r in refused),
                    *({"level": "note", "message": {"text": e["said"]}, "properties": e} for e in explained),
                ],
            }]} if refused or explained else {}),
        }],
    }  # fmt: skip


# what is known already ----------------------------------------------------------------------------------------------
@dataclass
class Baseline:
    """The findings of an earlier SARIF log: its results, and how many results each fingerprint has."""

    results: list[Result] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)

    @classmethod
    def read(cls, path: str | Path) -> Baseline:
        """The baseline in a file. Raises LaunchError for a file that is no SARIF file of mmulator's."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            found = [r for one in data["runs"] for r in one["results"]]
            kept = [r for r in found if r.get("baselineState") != "absent" and r["ruleId"] in RULES]
            return cls(kept, Counter(_print(r) for r in kept))
        except OSError as error:
            raise LaunchError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise LaunchError(f"{path} is no baseline", hint="a file that --sarif of this version has written is one") from None

    def new(self, findings: Iterable[Finding]) -> list[Finding]:
        """Findings that the baseline does not have. Of equal findings as many are known as the baseline has."""
        seen = Counter[str]()
        left: list[Finding] = []
        for group in grouped(findings):
            seen[print_ := fingerprint(group)] += 1
            if seen[print_] > self.count[print_]:
                left += group
        return left

    def gone(self, count: Counter[str]) -> list[Result]:
        """Results of the baseline of which there are fewer now."""
        seen = Counter[str]()
        left = []
        for result in self.results:
            seen[print_ := _print(result)] += 1
            if seen[print_] > count[print_]:
                left.append(result)
        return left


def _print(result: Result) -> str:
    return str(result["partialFingerprints"][PRINT]).partition(":")[0]


def fingerprint(group: Sequence[Finding]) -> str:
    """A hash of the rule's family and the texts of both lines, of the program where they are known. Equal from run to run,
    after lines
    have been added above, and for other registers of a compiler's.
    """
    first = group[0]
    texts = sorted(_text(record) for record in (first, first.conflict) if record is not None)
    return hashlib.sha256("\0".join([first.about.kind, *texts]).encode()).hexdigest()[:32]


def _text(record: Finding | Place) -> str:
    if record.span is None:
        return record.location
    at = record.span.location
    if at is not None:
        return f"{Path(at.file).name}: " + (at.quote() or str(at.line))
    return f"{record.instruction} {' '.join(record.span.text.split())}"


# as SARIF has it ----------------------------------------------------------------------------------------------------
def _rule(rule: Rule) -> dict[str, Any]:
    text = f"{rule.text}\n\n{rule.section}\n\nWhat to do: {rule.hint}."
    markdown = f"{rule.text}\n\n*{rule.section}*\n\n**What to do:** {rule.hint}."
    return {
        "id": rule.name, "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": _sentence(rule.title)}, "fullDescription": {"text": rule.text},
        "help": {"text": text, "markdown": markdown}, "defaultConfiguration": {"level": str(rule.severity)},
        "properties": {"tags": ["undefined behaviour", "CUDA", "PTX"], "precision": "very-high"},
    }  # fmt: skip


def _sentence(text: str) -> str:
    """A text with a capital letter, unless it begins with the name of an instruction, and a full stop."""
    first = text if "." in text.split(" ")[0] else text[:1].upper() + text[1:]
    return first + ("" if text.endswith(".") else ".")


_LANGUAGES = {".ptx": "ptx", ".py": "python", ".cu": "cuda", ".cuh": "cuda", ".rs": "rust", ".jl": "julia", ".c": "c"}


def _language(uri: str) -> str:
    suffix = Path(uri).suffix.lower()
    return _LANGUAGES.get(suffix, "cplusplus") if suffix else "ptx"


def _uri(file: str) -> str:
    """A path as SARIF writes it: relative if it is below the working directory; what is no file keeps its name."""
    from urllib.parse import quote

    if file.startswith("<"):
        return quote(file.strip("<>") or "ptx")
    path = Path(file)
    if path.is_absolute():
        try:
            return quote(str(path.relative_to(Path.cwd())))
        except ValueError:
            return path.as_uri()
    return quote(path.as_posix())


def _result(group: Sequence[Finding]) -> Result:
    """One result, at the line of the program where it is known, else at the line of PTX, with all its instructions."""
    first = group[0]
    at = first.span.location if first.span is not None else None
    related = [_located(first, f"compiled to: {first.instruction}")] if at is not None else []
    for n, finding in enumerate(group[:_RELATED]):
        if n:
            related.append(_located(finding, f"the same: {finding.instruction}"))
        if finding.conflict is not None:
            related += [*_sources(finding.conflict, f"against: {finding.conflict}"),
                        _located(finding.conflict, f"against: {finding.conflict}")]  # fmt: skip
    related = [*_sources(first, "")[1:], *_distinct(related)]
    for n, location in enumerate(related):
        location["id"] = n
    facts = {
        "threads": first.threads, "where": first.where, "instruction": first.instruction, "seed": first.seed,
        "seeds": sorted({seed for f in group for seed in (f.seeds or (f.seed,))}), "hint": first.hint,
        "rules": [*dict.fromkeys(f.rule for f in group)],
    }  # fmt: skip
    return {
        "ruleId": first.rule, "kind": "fail", "level": first.severity,
        "message": {"text": _told(first)}, "locations": [_from(at, "") if at is not None else _located(first, "")],
        "relatedLocations": related, "occurrenceCount": sum(f.count for f in group),
        "partialFingerprints": {PRINT: fingerprint(group)},
        "properties": {name: value for name, value in facts.items() if value != ""},
    }  # fmt: skip


def _distinct(places: Iterable[Result]) -> list[Result]:
    """Locations without repetition."""
    return [*{json.dumps(p["physicalLocation"]): p for p in reversed([*places])}.values()][::-1]


def _told(finding: Finding) -> str:
    """The message that code hosts show: what is wrong, where in memory, by whom, and what mends it."""
    more = (f"{name}: {text}." for name, text in (
        ("Where", finding.where), ("By", finding.threads), ("What to do", finding.hint),
    ) if text)  # fmt: skip
    return " ".join([_sentence(finding.message), *more])


def _located(record: Finding | Place, message: str) -> Result:
    span = record.span
    if span is None:
        file, _, line = record.location.rpartition(":")
        physical = {"artifactLocation": {"uri": _uri(file)}, "region": {"startLine": int(line)}}
    else:
        physical = {"artifactLocation": {"uri": _uri(span.source.file)}, "region": _region(span)}
    return {"physicalLocation": physical, **({"message": {"text": message}} if message else {})}


def _sources(record: Finding | Place, message: str) -> list[Result]:
    """The line of the program, and the calls of inlined functions that led there."""
    at = record.span.location if record.span is not None else None
    return [_from(a, "inlined at" if n else message) for n, a in enumerate(at.chain)] if at is not None else []


def _region(span: Span) -> dict[str, Any]:
    (line, column), (last, end) = span.source.position(span.start), span.source.position(span.end)
    return {"startLine": line, "startColumn": column, "endLine": last, "endColumn": end, "snippet": {"text": span.text}}


def _from(at: Location, message: str) -> Result:
    text = at.quote()
    region: dict[str, Any] = {"startLine": at.line}
    if at.column:
        region["startColumn"] = at.column
    if text:
        region["snippet"] = {"text": text}
    where = {"artifactLocation": {"uri": _uri(at.file)}, "region": region}
    said = message + (f", in {at.function}" if at.function and message else "")
    return {"physicalLocation": where, **({"message": {"text": said}} if said else {})}
