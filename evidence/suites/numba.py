"""Numba-CUDA's own test suite on this machine: `python -m evidence.suites.numba [FILE ...]`, one process a file, a line each.

The suite is that of the installed numba_cuda; it needs pytest, filecheck and psutil besides. A FILE is as `cudapy/test_sync`;
without any, all of cudadrv, cudapy, nocuda and doc_examples. MMULATOR_DEVICE and the rest of the environment are passed on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

FOLDERS = ("cudadrv", "cudapy", "nocuda", "doc_examples")
LIMIT = 900  # seconds a file
PLUGIN = """
import pytest

@pytest.fixture
def initialize_from_pytest_config(request):
    request.instance._dump_failed_filechecks = False
"""
_REASON = re.compile(r"^E   (?:[\w.]*\.)?(\w*(?:Error|Fault|Reached|Exception)): ?(.*)$", re.MULTILINE)


def files() -> list[str]:
    spec = find_spec("numba_cuda")
    if spec is None or spec.origin is None:
        raise SystemExit("Numba-CUDA is not installed: pip install '.[numba]'")
    tests = Path(spec.origin).parent / "numba" / "cuda" / "tests"
    return [f"{folder}/{path.stem}" for folder in FOLDERS for path in sorted((tests / folder).glob("test_*.py"))]


def run(name: str, plugins: Path) -> tuple[Counter[str], Counter[str], str]:
    """Outcomes, reasons of failures, and what pytest printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(plugins), *sys.path[1:]])}
    module = "numba.cuda.tests." + name.replace("/", ".")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "mmulator_suite",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
        "--tb=short",
    ]
    command += ["--import-mode=importlib", "-o", "consider_namespace_packages=true", "--pyargs", module]
    try:
        printed = subprocess.run(command, env=environment, cwd=plugins, capture_output=True, text=True, timeout=LIMIT).stdout
    except subprocess.TimeoutExpired:
        return Counter({"out of time": 1}), Counter(), ""
    last = printed.strip().splitlines()[-1] if printed.strip() else ""
    counts = Counter({what: int(n) for n, what in re.findall(r"(\d+) (passed|failed|skipped|errors?|xfailed)", last)})
    return counts, Counter(f"{kind}: {text[:100]}" for kind, text in _REASON.findall(printed)), printed


def main(names: list[str]) -> None:
    total: Counter[str] = Counter()
    why: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mmulator_suite.py").write_text(PLUGIN)
        for name in names or files():
            counts, reasons, _ = run(name, Path(folder))
            total += counts
            why += reasons
            print(f"{name:45}", ", ".join(f"{n} {what}" for what, n in sorted(counts.items())), flush=True)
    print(f"{'all':45}", ", ".join(f"{n} {what}" for what, n in sorted(total.items())))
    for reason, n in why.most_common():
        print(f"{n:5} {reason}")


if __name__ == "__main__":
    main(sys.argv[1:])
