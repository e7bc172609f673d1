"""Findings as SARIF 2.1.0 (OASIS, Static Analysis Results Interchange Format), which code hosts and editors show at the lines."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmulator import __version__
from mmulator.findings import Finding, Place
from mmulator.rules import RULES, Rule

if TYPE_CHECKING:
    from mmulator.jobs.suppressions import Suppression
    from mmulator.location import Location
    from mmulator.source import Span

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
URL = "https://pypi.org/project/mmulator/"


def sarif(findings: Sequence[Finding], suppressed: Sequence[tuple[Finding, Suppression]] = ()) -> dict[str, Any]:
    """The log of one run, as data. Findings that are expected are results with a suppression."""
    every = [*findings, *(f for f, _ in suppressed)]
    reasons = {id(f): s.reason for f, s in suppressed}
    rules = sorted({f.rule for f in every})
    files = _Files()
    results = [_result(f, rules.index(f.rule), files) for f in every]
    prints = Counter[str]()
    for finding, result in zip(every, results):
        prints[print_ := fingerprint(finding)] += 1  # of equal statements the first, the second and so on
        result["partialFingerprints"] = {"mmulator/v1": f"{print_}:{prints[print_]}"}
        if id(finding) in reasons:
            reason = {"justification": reasons[id(finding)]} if reasons[id(finding)] else {}
            result["suppressions"] = [{"kind": "external", **reason}]
    return {
        "$schema": SCHEMA, "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "mmulator", "version": __version__, "semanticVersion": __version__, "informationUri": URL,
                "rules": [_rule(RULES[name]) for name in rules],
            }},
            "columnKind": "unicodeCodePoints", "artifacts": files.artifacts, "results": results,
        }],
    }  # fmt: skip


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
    """With a capital letter, but for the name of an instruction, and a full stop."""
    first = text if "." in text.split(" ")[0] else text[:1].upper() + text[1:]
    return first + ("" if text.endswith(".") else ".")


class _Files:
    """The artifacts of a run, in the order in which they are named."""

    def __init__(self) -> None:
        self.artifacts: list[dict[str, Any]] = []
        self._known: dict[str, int] = {}

    def location(self, file: str, language: str) -> dict[str, Any]:
        """An artifactLocation."""
        uri = _uri(file)
        if uri not in self._known:
            self._known[uri] = len(self.artifacts)
            self.artifacts.append({"location": {"uri": uri}, "sourceLanguage": language})
        return {"uri": uri, "index": self._known[uri]}


_LANGUAGES = {".ptx": "ptx", ".py": "python", ".cu": "cuda", ".cuh": "cuda", ".rs": "rust", ".jl": "julia", ".c": "c"}


def _uri(file: str) -> str:
    """A path below the working directory is relative to it, as code hosts want it; what is no file keeps its name."""
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


def _result(finding: Finding, index: int, files: _Files) -> dict[str, Any]:
    related = []
    if finding.conflict is not None:
        related.append(_located(finding.conflict, f"against: {finding.conflict}", files))
    for record, what in ((finding, "compiled from"), (finding.conflict, "the conflict was compiled from")):
        span = record.span if record is not None else None
        if span is not None and span.location is not None:
            related += [_from(at, "inlined at" if n else what, files) for n, at in enumerate(span.location.chain)]
    for n, location in enumerate(related):
        location["id"] = n
    facts = {
        "threads": finding.threads, "where": finding.where, "instruction": finding.instruction, "seed": finding.seed,
        "seeds": list(finding.seeds or (finding.seed,)), "proof": finding.proof,
    }  # fmt: skip
    return {
        "ruleId": finding.rule, "ruleIndex": index, "kind": "fail", "level": finding.severity,
        "message": {"text": _told(finding)}, "locations": [_located(finding, "", files)],
        "relatedLocations": related, "occurrenceCount": finding.count,
        "properties": {name: value for name, value in facts.items() if value != ""},
    }  # fmt: skip


def _told(finding: Finding) -> str:
    """What code hosts show: what is wrong, where in memory, and by whom."""
    more = (f"{name}: {text}." for name, text in (("Where", finding.where), ("By", finding.threads)) if text)
    return " ".join([_sentence(finding.message), *more])


def fingerprint(finding: Finding) -> str:
    """The same from run to run, and after lines have been added above: of the rule and the texts of both statements."""
    texts = [finding.rule]
    for record in (finding, finding.conflict):
        if record is not None:
            texts += [record.instruction, " ".join(record.span.text.split()) if record.span else record.location]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


def _located(record: Finding | Place, message: str, files: _Files) -> dict[str, Any]:
    span = record.span
    if span is None:
        file, _, line = record.location.rpartition(":")
        physical = {"artifactLocation": files.location(file, "ptx"), "region": {"startLine": int(line)}}
    else:
        physical = {"artifactLocation": files.location(span.source.name, "ptx"), "region": _region(span)}
    return {"physicalLocation": physical, **({"message": {"text": message}} if message else {})}


def _region(span: Span) -> dict[str, Any]:
    (line, column), (last, end) = span.source.position(span.start), span.source.position(span.end)
    return {
        "startLine": line, "startColumn": column, "endLine": last, "endColumn": end, "snippet": {"text": span.text},
    }  # fmt: skip


def _from(at: Location, message: str, files: _Files) -> dict[str, Any]:
    suffix = Path(at.file).suffix.lower()
    text = at.quote()
    region: dict[str, Any] = {"startLine": at.line}
    if at.column:
        region["startColumn"] = at.column
    if text:
        region["snippet"] = {"text": text}
    where = {"artifactLocation": files.location(at.file, _LANGUAGES.get(suffix, "cplusplus")), "region": region}
    return {"physicalLocation": where, "message": {"text": message + (f", in {at.function}" if at.function else "")}}

