"""`python -m mmulator.conformance`: the command without typer and rich, for machines that have neither."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from mmulator.conformance import report
from mmulator.conformance.run import ItemResult, RunSettings, run
from mmulator.errors import MmulatorError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mmulator.conformance", description="Compare the model with a GPU.")
    parser.add_argument("--gpu", type=int, default=0, help="number of the GPU")
    parser.add_argument("--machine", default="", metavar="DEVICE", help="the model in the GPU's place, as sm_90")
    parser.add_argument("--filter", default="", metavar="REGEX")
    parser.add_argument("--cases", type=int, default=10_000, help="a form")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--no-edges", action="store_true")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--report", type=Path, action="append", default=[])
    parser.add_argument("--capture", type=Path, metavar="DIR", help="write vectors to DIR/DEVICE")
    parser.add_argument("--replay", default="", metavar="DIR", help="replay vectors of one device")
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    settings = RunSettings(
        seed=o.seed, count=o.cases, filter=o.filter, gpu=o.gpu, machine=o.machine, replay=o.replay,
        capture=o.capture is not None, processes=o.processes, edges=not o.no_edges,
    )  # fmt: skip
    last = 0.0

    def progress(done: int, total: int, row: ItemResult | None) -> None:
        nonlocal last
        if row is not None and row.verdict != "same":
            print(f"{row.item.name}: {row.verdict} {row.error[:200]}", file=sys.stderr, flush=True)
        if time.monotonic() - last > 5 or done == total:
            last = time.monotonic()
            print(f"{done}/{total}", file=sys.stderr, flush=True)

    try:
        outcome = run(settings, o.state, progress)
        for path in o.report:
            report.write(path, [(settings, outcome)])
        if o.capture:
            report.write_vectors(o.capture, outcome, settings)
    except MmulatorError as error:
        print(f"{error.kind}: {error}", file=sys.stderr)
        return 1
    if o.json:
        print(json.dumps(report.as_data([(settings, outcome)]), indent=1))
    else:
        print("\n".join(report.lines(outcome, settings)))
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    sys.exit(main())
