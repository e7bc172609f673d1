"""Run the cases of one project in this process, and append a line of JSON for each to a file.

    mmulator exec --sanitize --keep-going -m evidence.projects.child lightllm --folder ~/projects --out lines.jsonl
    python -m evidence.projects.child lightllm --folder ~/projects --out lines.jsonl --shadow launches.jsonl     # with a GPU

A line has: project, case, verdict (`pass`, `differs`, `failed`), reason, launches (of Triton's kernels), outputs (name, error,
tolerance, digest), seconds of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from evidence.projects import kit
from evidence.projects.table import PROJECTS


def paths(name: str, folder: Path) -> None:
    """Let a project's modules be found."""
    for part in PROJECTS[name].paths:
        sys.path.insert(0, str(folder / part))


def tuned_first() -> None:
    """Let Triton's autotuner, and PyTorch's, take the first configuration that runs, without timing the others."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from triton.runtime.autotuner import Autotuner

    CachingAutotuner.bench = lambda self, *args, **kwargs: 1.0

    bench = Autotuner._bench

    def first(self: Any, *args: Any, config: Any, **meta: Any) -> Any:
        if getattr(self, "_first_that_runs", None) is not None:
            return [float("inf")] * 3
        self.__dict__["do_bench"] = lambda call, quantiles=None: (call(), [1.0, 1.0, 1.0])[1]
        found = bench(self, *args, config=config, **meta)
        if found[0] != float("inf"):
            self._first_that_runs = config
        return found

    run = Autotuner.run

    def fresh(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._first_that_runs = None
        return run(self, *args, **kwargs)

    Autotuner._bench, Autotuner.run = first, fresh


def count_launches(launcher: Any) -> list[int]:
    """A count, in a list of one, of calls of a class of Triton's launchers."""
    count, call = [0], launcher.__call__

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return call(self, *args, **kwargs)

    launcher.__call__ = counted
    return count


def launcher() -> Any:
    from triton.runtime import driver

    return driver.active.launcher_cls


def outcome(case: kit.Case, count: list[int]) -> dict[str, Any]:
    """Run a case."""
    os.environ["PYTEST_CURRENT_TEST"] = f"{case.project}::{case.name} (call)"
    before, started = count[0], time.process_time()
    line: dict[str, Any] = {"project": case.project, "case": case.name, "verdict": "pass", "reason": "", "outputs": []}
    try:
        for name, got, want, tolerance in case.run(kit.Inputs(f"{case.project} {case.name}")):
            error = kit.error(got, want)
            line["outputs"].append([name, float(f"{error:.3g}"), tolerance, kit.digest(got)])
            if not error <= tolerance:
                line |= {"verdict": "differs", "reason": f"{name}: {error:.3g}, tolerance {tolerance:g}"}
    except Exception as raised:
        traceback.print_exc()
        line |= {"verdict": "failed", "reason": f"{type(raised).__name__}: {str(raised).strip().partition(chr(10))[0][:300]}"}
    return line | {"launches": count[0] - before, "seconds": round(time.process_time() - started, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project")
    parser.add_argument("--folder", type=Path, required=True, help="the folder of the projects")
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shadow", type=Path, help="where launches beside a GPU are written to")
    options = parser.parse_args()
    if options.shadow:
        os.environ["TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER"] = "0"  # so that PyTorch launches as Triton does
    sys.path.insert(0, str(options.folder / "site"))
    paths(options.project, options.folder)
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.zeros(1, device="cuda")
    count = count_launches(launcher())
    if options.shadow:
        from evidence.suites import shadow

        tuned_first()
        shadow.install(shadow.Shadow(str(options.shadow.resolve()), shadow.Cuda()), launcher())
    for case in kit.cases():
        if case.project == options.project and options.only in case.name:
            line = outcome(case, count)
            print(json.dumps(line), flush=True)
            with options.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
