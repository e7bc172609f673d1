"""A program of `mmulator exec` as a child process, whose findings are put together at its end.

Without the sanitizer, this process becomes the program itself. Here the program has a process of its own, because its findings
decide the exit code. Signals reach it as if it were alone: those of the terminal go to both processes, others are passed on,
and
a program that a signal ends makes exec end by that signal.
"""

import json
import os
import shlex
import signal
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmulator.base.refusals import GATHERED, REFUSED
from mmulator.cli.findings import FOUND, write_log
from mmulator.cli.output import print_json
from mmulator.cli.program import command
from mmulator.host.certificate import CERTIFIED, COUNTEREXAMPLE, VERDICTS, weakest
from mmulator.host.driver.findings import Row, read
from mmulator.host.driver.products import merged
from mmulator.observation.record.launches import profiles, replay, traces
from mmulator.sanitizer.sarif import Baseline, log

SUPERVISOR = "MMULATOR_SUPERVISOR"  # the process that waits for the program, which shall not outlive it
_FROM_TERMINAL = 0x80  # si_code of a signal that the kernel sent, to the whole group of processes
_PASSED_ON = {
    signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
}  # fmt: skip


@dataclass(frozen=True)
class ReportRequest:
    """The report to write at the end of the program.

    sarif: a file for SARIF.
    known: findings of an earlier run.
    json: a report on standard output; what the program prints then goes to standard error.
    strict: any finding gives exit code 3.
    """

    sarif: str | None = None
    known: Baseline | None = None
    json: bool = False
    strict: bool = False


def run(program: list[str], environment: dict[str, str], wanted: ReportRequest) -> int:
    """Run a program. Returns its exit code; where that is 0: 1 if it differs from a record, 3 for findings, 4 for work that was
    refused and that the program did not ask about. It is 3, too, where --nan stopped the program."""
    words, environment = command(program, environment)
    with tempfile.TemporaryDirectory(prefix="mmulator-") as folder:
        found, told = Path(folder, "findings.jsonl"), Path(folder, "launches.jsonl")
        lines = Path(folder, "profiles.jsonl")
        differs = Path(folder, "replayed")
        more = {replay.VARIABLE: str(differs)}
        more |= {GATHERED: str(found), profiles.VARIABLE: str(lines), traces.VARIABLE: folder, SUPERVISOR: str(os.getpid())}
        if wanted.json and "MMULATOR_REPORT" not in environment:
            more["MMULATOR_REPORT"] = str(told)
        status = _wait(words, {**environment, **more}, wanted.json)
        gathered = read(found)
        if trace := environment.get("MMULATOR_TRACE"):
            from mmulator.observation.record.trace import write

            write(trace, [*traces.joined(traces.read(folder))])
        other = differs.exists()
        kernels, profiled = _kernels(told), _profiles(lines, environment.get("MMULATOR_PROFILE", ""), wanted.json)
    code = os.waitstatus_to_exitcode(status)
    launches, rows, refused, explained = gathered.launches, gathered.found, gathered.refused, gathered.explained
    code = FOUND if gathered.stopped and code in (0, 1) else code  # 1 of an error that nobody caught
    data = log((row["result"] for row in rows), wanted.known, refused, explained)
    results = data["runs"][0]["results"]
    new = [r for r in results if r.get("baselineState", "new") == "new"]
    if wanted.sarif is not None:
        write_log(wanted.sarif, data)
    found_any = any(wanted.strict or r["level"] == "error" for r in new)
    found_any |= any(c["verdict"] == COUNTEREXAMPLE for c in gathered.certificates)
    ended = code or int(other) or (FOUND if found_any else REFUSED if not all(r["handled"] for r in refused) else 0)
    after = _next(program, environment, launches) if code and not rows else ""
    if after:
        print(f"mmulator: {after}", file=sys.stderr, flush=True)
    if wanted.json:
        groups = enumerate(_new(rows, data))
        print_json("exec", {
            "ok": not ended, "exit_code": code, "kernels": kernels, "sanitized_launches": launches,
            "known": sum(r.get("baselineState") == "unchanged" for r in results), "refused": refused,
            "findings": [f | {"kernel": row["kernel"], "group": n} for n, row in groups for f in row["findings"]],
            **({"certificates": certificates(gathered.certificates)} if gathered.certificates else {}),
            **({"library_calls": library_calls(gathered.library)} if gathered.library else {}),
            **({"products": merged(gathered.products)} if gathered.products else {}),
            **({"profiles": profiled} if profiled else {}), **({"why": explained} if explained else {}),
            **({"next": after} if after else {}),
        })  # fmt: skip
    if code < 0:
        sys.stdout.flush()
        with suppress(OSError):  # SIGKILL cannot be caught
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return ended


def certificates(rows: list[Row]) -> dict[str, Any]:
    """The certificates of a program: the weakest verdict, how many launches have each, those that are not certified, and those
    that say what they need.
    """
    verdicts = [row["verdict"] for row in rows]
    return {
        "verdict": weakest(verdicts), "launches": {v: verdicts.count(v) for v in VERDICTS},
        "open": [row for row in rows if row["verdict"] != CERTIFIED],
        "needed": [row for row in rows if row["needed"] is not None],
    }  # fmt: skip


def library_calls(calls: Counter[str]) -> dict[str, Any]:
    """Calls of libraries in a certified program, none of which was checked: all, and those of which no library promises one
    result.
    """
    return {"calls": calls.total(), "not_promised": {name: n for name, n in sorted(calls.items()) if name}}


def _next(program: list[str], environment: dict[str, str], launches: int) -> str:
    """The next step for a program that has failed, where no finding says why; "" where nothing of it ran here."""
    if not launches:
        return ""
    asked = environment.get("MMULATOR_WHY")
    python = program[0] == "-m" or program[0].endswith(".py") or Path(program[0]).name.startswith("python")
    what, does = ["exec", "--why", "auto"], "says why an element that a comparison rejects has its value"
    if not python:  # its own comparisons are not seen
        what, does = ["exec", "--why", "NAME[INDEX]"], "says why an element of an array has its value"
    if asked:
        what, does = ["debug"], "stops in its kernels"
    return f"the program failed, and no finding explains it; next: `{shlex.join(['mmulator', *what, *program])}` {does}"


def _new(rows: list[Row], data: dict[str, Any]) -> list[Row]:
    """Rows whose results are new. Rows and results are in one order."""
    return [row for row, r in zip(rows, data["runs"][0]["results"]) if r.get("baselineState", "new") == "new"]


def _profiles(path: Path, wanted: str, as_json: bool) -> list[dict[str, Any]]:
    """Profiles of all processes, which are told here unless they are part of the JSON report alone."""
    if not path.exists():
        return []
    found = profiles.read(path)
    if wanted != "1" or not as_json:
        profiles.tell(found, wanted)
    return [p.as_dict() for p in found]


def _kernels(path: Path) -> list[dict[str, Any]]:
    """Launches of all processes by kernel and device."""
    from mmulator.host.driver.report import Totals

    totals = Totals()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        row = json.loads(line)
        seconds = row["seconds"]
        totals.add([{
            "kernel": row["name"], "device": row["device"], "launches": 1, "run": seconds["run"],
            "compile": seconds["compile"], "instructions": sum(row["instructions"].values()), "macs": row["macs"],
        }])  # fmt: skip
    return totals.as_list()


def _wait(words: list[str], environment: dict[str, str], stdout_to_stderr: bool) -> int:
    """Start a process, pass signals on, and wait; returns its status as `waitpid` does."""
    sys.stdout.flush()
    sys.stderr.flush()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    try:
        moved = [(os.POSIX_SPAWN_DUP2, 2, 1)] if stdout_to_stderr else []
        child = os.posix_spawnp(words[0], words, environment, file_actions=moved, setsigmask=before)
        while True:
            came = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD})
            if came.si_signo != signal.SIGCHLD:
                if came.si_code != _FROM_TERMINAL:
                    os.kill(child, came.si_signo)
                continue
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
