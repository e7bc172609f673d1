"""The strictness of a judge's check: a right kernel is changed as people err, and each change is judged as the kernel was.

`stand_in` is of the child that runs kernels: there a mutant takes the kernel's place. `rated` is of the judge: it asks for one
mutant after another, and for those that are right in its eyes for an input that tells them from the kernel.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mmulator.base.errors import UnsupportedError
from mmulator.evaluation.judging.verdict import Verdict, VerdictKind
from mmulator.host.instead import stack
from mmulator.host.module import Kernel
from mmulator.host.report import Report
from mmulator.observation.strictness.search import InputSearch
from mmulator.observation.strictness.trial import (
    EQUIVALENT,
    NOTICED,
    SURVIVED,
    UNDECIDED,
    MutantOutcome,
    Mutated,
    TestedKernel,
    equivalent,
)
from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.observers import Observer

OVER = "there are no more mutants"
_MARK = "mutant: "  # of a note that says which one ran


def stand_in(kernel: Kernel, said: Mapping[str, Any], answer: dict[str, Any]) -> None:
    """From now on launches of a kernel run the mutant that a job asks for, if it does.

    kernel: of the job.
    said: the job: `mutant` is the number of one, `apart` asks for an input that tells it from the kernel.
    answer: of the child.

    Raises UnsupportedError if there are no more, or the change is not legal.
    """
    if "mutant" not in said:
        return
    seen, number, key = TestedKernel(kernel, seconds=1.0), said["mutant"], (kernel.module.source.text, kernel.name)
    if number >= len(seen.outcomes):
        raise UnsupportedError(OVER)
    outcome = seen.outcomes[number]
    if words := equivalent(seen, outcome.mutant):
        outcome.state, outcome.words = EQUIVALENT, words
    answer["report"] = {"notes": [_note(outcome)]}
    trial = Mutated(key, outcome.mutant.source, seen.seconds)
    apart = InputSearch(key, [(outcome, trial)], time.monotonic() + said["apart"]) if "apart" in said else None

    def run(launch: Launch, how: How, observers: Sequence[Observer]) -> Report:
        if apart is not None and not apart.done:
            apart(launch, how, ())
        report = trial(launch, how, observers)
        report.notes.append(_note(outcome))
        return report

    stack.append(run)  # for the rest of this process


def _note(outcome: MutantOutcome) -> str:
    return _MARK + json.dumps({**outcome.as_dict(), "place": outcome.mutant.place})


def rated(verdict: Verdict, again: Callable[[dict[str, Any]], Verdict], seconds: float) -> dict[str, Any]:
    """The fates of the mutants of a kernel that is right: counts by state, and a dictionary for each that was run.

    verdict: on the kernel.
    again: judges a mutant; it has what the job says besides.
    seconds: after which none is begun; the counts then have `more`.
    """
    until, rows = time.monotonic() + seconds, list[dict[str, Any]]()
    over = not verdict.ok
    while not over and time.monotonic() < until:
        try:
            found = again({"mutant": len(rows)})
        except KeyboardInterrupt:
            break
        over = found.outcome is VerdictKind.REFUSED and OVER in found.message
        row = _row(found)
        if not over:
            if found.ok and row["state"] != EQUIVALENT:
                row = _row(again({"mutant": len(rows), "apart": max(1.0, min(20.0, until - time.monotonic()))}))
                row["state"] = row["state"] if row["state"] in (SURVIVED, EQUIVALENT) else UNDECIDED
            elif not found.ok and row["kind"]:
                row |= {"state": NOTICED, "words": f"{found.outcome}: {found.message}"}
            rows.append(row)
    rows = [row for row in rows if row["kind"]]  # the others are no kernels: nobody could have written them
    return {"counts": dict(Counter(row["state"] for row in rows)), "more": not over, "mutants": rows}


def _row(verdict: Verdict) -> dict[str, Any]:
    """The mutant that a verdict is about."""
    note = next((n for n in reversed(verdict.report.get("notes", ())) if n.startswith(_MARK)), None)
    try:
        return dict(json.loads(note.removeprefix(_MARK))) if note else {"kind": "", "state": "", "words": verdict.message}
    except (ValueError, TypeError):
        return {"kind": "", "state": "", "words": verdict.message}

