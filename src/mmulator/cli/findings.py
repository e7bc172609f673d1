"""Findings in the output of commands: paragraphs for people, SARIF for programs, and the exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mmulator.base.files import write
from mmulator.cli.output import WrongUsage, check_writable, colours, narrow, print_line, width

if TYPE_CHECKING:
    from mmulator.base.findings import Finding
    from mmulator.host.certificate import Certificate
    from mmulator.host.jobs.judgement import Judged, SanitizerOptions
    from mmulator.host.jobs.suppressions import Suppression
    from mmulator.sanitizer.sarif import Baseline

FOUND = 3  # exit code
_COLOURS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "note": "\x1b[1m"}
_SEVERITY = re.compile(rf": ({'|'.join(_COLOURS)}):(?= |$)")


def wish(seeds: int | None, rules: str | None, certify: bool | str, strict: bool, keep_going: bool = False) -> SanitizerOptions:
    """The sanitizer's options from those of a command line. Raises WrongUsage."""
    from mmulator.base.rules.choice import chosen
    from mmulator.host.jobs.judgement import SanitizerOptions

    try:
        looked_for = chosen(rules or "", strict)
    except ValueError as error:
        raise WrongUsage(f"--rules {rules}", hint=f"a choice of rules: {error}") from None
    if not looked_for:
        raise WrongUsage(f"--rules {rules}: nothing is left to look for", hint="such as races,wgmma-* or -races")
    return SanitizerOptions(seeds or 1, looked_for, certify, keep_going)


def print_paragraphs(findings: Sequence[Finding], seeds: int = 1) -> None:
    """Print one paragraph for the findings of a rule and a line. seeds: how many were run."""
    from mmulator.base.findings import paragraphs

    for first, *lines in paragraphs(findings, width() if narrow() else None, seeds):
        print("\n".join(["", _coloured(first) if colours() else first, *lines]))


def _coloured(line: str) -> str:
    """`k.ptx:7: error: ...`, with its severity in colour."""
    return _SEVERITY.sub(lambda found: f": {_COLOURS[found[1]]}{found[1]}\x1b[0m:", line, count=1)


def print_findings(judged: Judged) -> None:
    """Print the findings, a paragraph each, and the last line."""
    print_paragraphs(judged.findings, len(judged.seeds))
    if judged.findings:
        print()
    for note in judged.notes:
        print_line(f"note: {note}", hang=2)
    print(judged.last_line)


def code_of(findings: Sequence[Finding], strict: bool = False) -> int:
    """The exit code of a good run: 3 if there are findings of severity error, with `strict` if there are any."""
    return FOUND if any(strict or f.is_error for f in findings) else 0


def code_of_certificate(certificate: Certificate | None) -> int:
    """The exit code of a good run with a certificate, if one was asked for: 3 for a counterexample."""
    return FOUND if certificate is not None and certificate.verdict == "counterexample" else 0


def print_certificate(certificate: Certificate | None) -> None:
    """Print a certificate, if there is one, and how a counterexample is run again."""
    if certificate is None:
        return
    for line in certificate.lines():
        print_line(line, hang=2)
    if certificate.schedule is not None:
        print_line(f"again: {certificate.schedule.options}", hang=2)


def check_sarif(path: str | None) -> None:
    """Check, before the run, that the SARIF file can be written. Raises MmulatorError."""
    if path is not None and path != "-":
        check_writable(path)


def write_sarif(
    path: str, findings: Sequence[Finding], suppressed: Sequence[tuple[Finding, Suppression]] = (), known: Baseline | None = None
) -> None:
    """Write findings as SARIF to a file; `-` is standard output. Raises MmulatorError if it cannot be written."""
    from mmulator.sanitizer.sarif import sarif

    write_log(path, sarif(findings, [(f, s.reason or "") for f, s in suppressed], known))


def write_log(path: str, log: dict[str, object]) -> None:
    """A SARIF log to a file, or to standard output (`-`)."""
    text = json.dumps(log, indent=1) + "\n"
    if path == "-":
        print(text, end="")
    else:
        write(path, text)


def baseline(path: str | None) -> Baseline | None:
    """The findings of the earlier SARIF file that `--baseline` names. Raises MmulatorError for another file."""
    if path is None:
        return None
    from mmulator.sanitizer.sarif import Baseline

    return Baseline.read(path)
