"""DRACC, the part in CUDA C++: 29 whole programs with errors between host and device, and races; the end of a name is the label.

    python -m evidence.judges.dracc ~/DRACC --work /tmp/dracc --json dracc.json

nvcc compiles a program, and `mmulator exec --sanitize` runs it, host code and all. The matrices of the programs have 25,600 rows;
here they are smaller, and their result vectors are cleared (EDITS). A program that ends with an error code of CUDA's, which it
prints itself, has been found too.
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from evidence.judges.common import Answer, Count, Judge, arguments, finish, program, restored, resumed

QUESTION = "whole programs"
_RESULT = r"cudaErrorCheck\( cudaMalloc\(&d_c, C\*sizeof\(int\)\)\);"
# (files, pattern, replacement): sizes; and the result vector of MxV: all these programs add to it, and none fills it, a defect
# of its own that hides the planted one.
EDITS = (
    ("MxV", _RESULT, r"\g<0> cudaErrorCheck( cudaMemset(d_c, 0, C*sizeof(int)));"),
    ("MxV", r"(?m)^#define B 100$", "#define B 4"), ("MxV", r"(?m)^#define T 256$", "#define T 64"),
    ("MxV", r"(?m)^#define N 100$", "#define N 2"), ("020_", r"(?m)^#define B 5120$", "#define B 512"),
    ("021_", r"(?m)^#define T 5120$", "#define T 1500"),
)  # fmt: skip
OUT_OF_REACH = {
    "007_buffer_overflow_recursion": "a recursion without end: its stack is as deep as the host's time",
    "014_MxV_Missing_Free": "memory that the host does not free; labelled neither yes nor no",
    "019_Large_Data_Alloc": "60 GB of the host's memory",
}
JUDGE = Judge(
    "dracc", "DRACC, CUDA", "github.com/RWTH-HPC/DRACC", "ef76b1dc", {QUESTION: Count(18, 23, 0, 3)},
    ("race-*", "memory-*", "uninitialized-*"),
)  # fmt: skip
_HOST = "the host reads or writes memory while a copy or a kernel may use it; the sanitizer does not look at the host"
_BACK = "the host reads memory of its own to which it forgot to copy the result; the device does nothing wrong"
REASONS = {
    "012_MxV_outdated_Data_yes": _BACK, "013_MxV_partially_outdated_Data_yes": _BACK, "024_MxV_copy_missing_wait_yes": _HOST,
    "025_MxV_Kernel_missing_wait_yes": _HOST, "026_MxV_Kernel_wrong_update_yes": _HOST,
}  # fmt: skip


def judged(source: Path, work: Path) -> Answer:
    name = source.stem.removeprefix("DRACC_CUDA_")
    text = source.read_text()
    for files, pattern, replacement in EDITS:
        text = re.sub(pattern, replacement, text) if files in name else text
    work.mkdir(parents=True, exist_ok=True)
    (code := work / source.name).write_text(text)
    rules, done = program([code.name], code.stem, work)
    codes = set(re.findall(r"CUDA Error - .*?: '(.*?)'", done.stdout))
    died = {f"ended by signal {-done.returncode}"} if done.returncode < 0 else set()
    planted = name.endswith("_yes")
    found = tuple(sorted(rules | codes | died))
    reason = "" if planted == bool(found) else REASONS.get(name, (done.stderr or done.stdout)[-200:])
    return Answer(QUESTION, name, planted, found, reason)


def main() -> int:
    options = arguments(__doc__ or "").parse_args()
    sources = [
        path for path in sorted((options.folder / "CUDA" / "src").glob("*.cu"))
        if options.only in path.stem and not any(name in path.stem for name in OUT_OF_REACH)
    ]  # fmt: skip
    found = resumed(options, {path.stem: partial(judged, path) for path in sources}, ThreadPoolExecutor)
    return finish(JUDGE, options, [*map(restored, found.values())], OUT_OF_REACH)


if __name__ == "__main__":
    sys.exit(main())
