"""The bug that warp-types reproduces: cuda-samples #398, a shuffle from lanes that its mask leaves out, and the mended kernel.

    python -m evidence.judges.warp_types ~/warp-types
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np

from evidence.judges.common import Answer, Count, Judge, arguments, compiled, device_code, finish, sanitized

FILE, QUESTION = "reproduce/reduce7_bug.cu", "shuffles"
JUDGE = Judge(
    "warp_types", "warp-types: cuda-samples #398", "github.com/modelmiser/warp-types", "fc721a24", {QUESTION: Count(1, 1, 0, 1)},
    ("uninitialized-*", "membermask-*"),
)  # fmt: skip


def main() -> int:
    import mmulator as mm

    options = arguments(__doc__ or "").parse_args()
    module = mm.Module.load(compiled(device_code((options.folder / FILE).read_text()), options.work), name="reduce7.ptx")
    given = []
    for name in module:
        arrays = [np.ones(32, np.int32), np.zeros(1, np.int32), 32]
        launch = partial(module[name].launch, 1, 32, arrays, 128, "sm_80", True, timeout=60)
        rules, error = sanitized(launch)
        given.append(Answer(QUESTION, name, "buggy" in name, rules, error))
    return finish(JUDGE, options, given)


if __name__ == "__main__":
    sys.exit(main())
