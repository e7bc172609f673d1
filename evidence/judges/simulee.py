"""Simulee's kernels with synchronisation bugs of real projects (kaldi, arrayfire, CudaSift, gunrock, thundersvm) and of GKLEE.

    python -m evidence.judges.simulee ~/Simulee --json simulee.json

The folder has kernels that its authors cut out of the projects, each with the bug. Those that its tests (EvolutionaryDetect.py)
or its list of bugs name are planted. Kaldi's copies race for a stride that Simulee's search has found; with the stride of a
matrix they do not. Kernels are compiled without optimisation: many have no result, and would vanish.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from evidence.judges.common import OPTIONS, Answer, Count, Judge, arguments, compiled, device_code, finish, sanitized

QUESTION = "races and barriers"
_PRELUDE = "typedef unsigned int uint;\n#define INFINITY __int_as_float(0x7f800000)\n"


@dataclass(frozen=True)
class Case:
    """A kernel and a launch. given: makes the arguments. planted: whether Simulee says that this has a bug. what: the launch."""

    file: str
    kernel: str
    grid: Any
    block: Any
    given: Callable[[], list[Any]]
    planted: bool = True
    what: str = ""

    @property
    def name(self) -> str:
        return f"{self.file.partition('/')[0]}: {self.kernel}" + f", {self.what}" * bool(self.what)


def ints(size: int = 1024) -> np.ndarray:
    return np.zeros(size, np.int32)


def floats(size: int = 1024) -> np.ndarray:
    return np.ones(size, np.float32)


def _kaldi(kernel: str, given: Callable[[int], list[Any]], degenerate: int) -> list[Case]:
    file = "kaldi-new-bug/new-func.cu"
    return [
        Case(file, kernel, 1, (5, 5, 1), partial(given, degenerate), True, f"stride {degenerate}"),
        Case(file, kernel, 1, (5, 5, 1), partial(given, 5), False, "stride 5"),
    ]


def _smo() -> list[Any]:
    """Two warps, whose threads share the instances of the training set, as numbers that Simulee draws do."""
    zeros, order = partial(np.zeros, dtype=np.float32), np.arange(64, dtype=np.int32)
    label, f, rows = (
        np.where(order % 2, 1, -1).astype(np.int32),
        np.linspace(-8, 8, 64, dtype=np.float32),
        np.eye(64, dtype=np.float32),
    )
    return [label, f, zeros(64), zeros(64), order % 32, 64, 1.0, 1.0, rows.ravel(), floats(64), 64, 0.001, zeros(2), 3]


_SIFT, _AF, _GKLEE = "cudaSift-new-bug/new-func.cu", "arrayfire-repair", "gklee-test-repair"
_MATCH = [floats, floats, floats, lambda: 16, lambda: 16]
CASES = (
    Case(f"{_GKLEE}/conel.cu", "colonel", 1, 52, lambda: [ints()]),
    Case(f"{_GKLEE}/barrier1.cu", "dl", 1, 32, lambda: [ints()], True, "barrier1"),
    Case(f"{_GKLEE}/barrier2.cu", "dl", 2, 32, lambda: [ints()], False, "barrier2"),
    Case(f"{_GKLEE}/barrier3.cu", "dl", 1, 64, lambda: [ints()], True, "barrier3"),
    *_kaldi("_copy_low_upp", lambda stride: [floats(), 5, stride], 0),
    *_kaldi("_copy_upp_low", lambda stride: [floats(), 5, stride], 0),
    *_kaldi("_add_diag_vec_mat", lambda stride: [1.0, floats(), stride, 5, 5, floats(), floats(), stride, 1, 0.5], 1),
    *_kaldi("_copy_from_tp", lambda stride: [floats(), floats(), 5, 5, stride], 1),
    *_kaldi("_copy_from_mat", lambda stride: [floats(), np.arange(1024, dtype=np.float32), stride, 5, 5, 5], 1),
    *_kaldi("_splice", lambda stride: [floats(), np.arange(1024, dtype=np.float32), ints(), 5, 5, stride, 5, 5, 5], 1),
    Case(
        "kaldi-new-bug/new-func.cu", "_trace_mat_mat_trans", 1, (32, 8, 1),
        lambda: [floats(), floats(), 32, 32, 32, 32, floats()],
    ),
    Case("kaldi-repair/_add_diag_mat.cu", "_add_diag_mat_mat", 1, 128, lambda: [
        1.0, np.zeros(64), 10, np.ones(1024), 8, 8, 1, np.ones(1024), 1, 8, 0.5,
    ]),
    Case(_SIFT, "FindMaxCorr", 2, (16, 16, 1), lambda: [floats(), floats(), floats(), 32, 32, 0]),
    Case(_SIFT, "FindMaxCorr_2", 2, (16, 16, 1), lambda: [floats(), floats(), floats(), 32, 32, 0]),
    *(
        Case(_SIFT, f"MatchSiftPoints{n}", 1, (16, 16, 1), lambda: [make() for make in _MATCH], False) for n in ("", 2, 3, 4)
    ),
    Case("cudpp-new-bug/new-func.cu", "sparseMatrixVectorSetFlags", 2, 32, lambda: [
        ints(), np.arange(1024, dtype=np.int32), 500,
    ], False),
    Case("cuda-cnn-new-bug/new-func.cu", "g_getCost_3", 1, 32, lambda: [floats(), floats(), 1.0, 100], False),
    Case(f"{_AF}/select_matches.cu", "select_matches", 1, (8, 8, 1), lambda: [ints(), ints(), 64, 64, 100]),
    Case(f"{_AF}/hamming1.cu", "hamming_matcher_unroll", 1, 256, lambda: [ints(), ints(), 100], True, "hamming1"),
    Case(f"{_AF}/hamming2.cu", "hamming_matcher", 1, 256, lambda: [ints(), ints(), 100, 6], True, "hamming2"),
    Case(f"{_AF}/hamming3.cu", "hamming_matcher", 1, 256, lambda: [ints(), ints(), 100, 6], True, "hamming3"),
    Case(f"{_AF}/hamming5.cu", "hamming_matcher_unroll", 1, 36, lambda: [ints(), ints(), 100, 6], True, "hamming5"),
    Case(f"{_AF}/JacobiSVD.cu", "JacobiSVD", 1, (3, 3, 1), lambda: [ints(), ints(), 10, 3]),
    Case(f"{_AF}/reduce.cu", "warp_reduce", 1, 34, lambda: [np.ones(64)]),
    Case(f"{_AF}/scan_dim.hpp", "scan_dim_kernel", 2, (5, 5, 1), lambda: [1, 1, 1, 3]),
    Case(f"{_AF}/Descriptor1.cu", "computeDescriptor", 1, (3, 10, 1), lambda: [
        floats(), 6, 1, floats(), floats(), ints(), floats(), floats(), floats(), 8, 4, 8, 1.0, 1.0, 3,
    ]),
    Case("gunrock/gunrock.cu", "Join", 4, 33, lambda: [
        2, 0, np.array([3, 8, 12, 16], np.int32), ints(), ints(), ints(), ints(), ints(), ints(), ints(),
    ]),
    Case("thundersvm-new-bug/new-fun.cu", "c_smo_solve_kernel", 1, 64, _smo),
)  # fmt: skip
REASONS = {
    "gklee-test-repair: dl, barrier3": "two warps meet at one barrier in two places of the text, each whole: PTX permits it",
    "arrayfire-repair: hamming_matcher, hamming3": "the write never happens: what was cut out makes all distances equal",
}
JUDGE = Judge(
    "simulee", "Simulee's kernels of projects", "github.com/Lebronmydx/Simulee", "d8ec336",
    {QUESTION: Count(22, 24, 0, 13)}, ("race-*", "store-lanes-differ", "aligned-partial-warp", "deadlock-*"),
)  # fmt: skip


def judged(case: Case, text: str, work: Any) -> Answer:
    import mmulator as mm

    module = mm.Module.load(compiled(_PRELUDE + device_code(text), work, (*OPTIONS, "-G")), name=f"{case.kernel}.ptx")
    [name] = [name for name in module if name.startswith(f"_Z{len(case.kernel)}{case.kernel}")]
    launch = partial(module[name].launch, case.grid, case.block, case.given(), device="sm_80", sanitize=True, timeout=60)
    rules, error = sanitized(launch)
    found = rules or ((error,) if error else ())
    if case.planted:
        found = tuple(rule for rule in rules if rule.startswith(("race-", "store-lanes-differ", "aligned-", "deadlock-")))
    reason = "" if case.planted == bool(found) else REASONS.get(case.name, error)
    return Answer(QUESTION, case.name, case.planted, found, reason)


def main() -> int:
    options = arguments(__doc__ or "").parse_args()
    cases = [case for case in CASES if options.only in case.name]
    return finish(JUDGE, options, [judged(case, (options.folder / case.file).read_text(), options.work) for case in cases])


if __name__ == "__main__":
    sys.exit(main())
