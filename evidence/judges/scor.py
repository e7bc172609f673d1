"""ScoR: 32 microbenchmarks of scoped synchronisation (fences, atomics and locks of scope block and device); names are labels.

    python -m evidence.judges.scor ~/ScoR --json scor.json

Each kernel has one or two blocks of 1 or 33 threads, as its file says, and one word of data. In most of them that is volatile,
so what ScoR calls a race is none by PTX's memory model; without the word it is. Each is launched under SEEDS seeds.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path

import numpy as np

from evidence.judges.common import OPTIONS, Answer, Count, Judge, arguments, compiled, device_code, finish, sanitized

SEEDS = 8
VOLATILE, PLAIN = "as it is", "data that is not volatile"
_UNREAD = "nothing acquires: the flag is read by a relaxed operation, and no fence follows"
REASONS = {
    **dict.fromkeys((
        "norace_interblock_fence_raw", "norace_interwarp_blkfence_raw", "norace_interwarp_fence_raw",
        "norace_interwarp-block_fence_hrf-indirect", "norace_interwarp-block_fence-atom_hrd-indirect",
    ), _UNREAD),
}  # fmt: skip
JUDGE = Judge(
    "scor", "ScoR, 32 microbenchmarks", "github.com/csl-iisc/ScoR", "6dc3507e",
    {VOLATILE: Count(2, 18, 1, 14), PLAIN: Count(18, 18, 5, 14)}, ("race-*",),
)  # fmt: skip


def judged(source: Path, question: str, work: Path | None) -> Answer:
    import mmulator as mm

    text = device_code(source.read_text())
    grid, block = (int(re.search(rf"define\s+{name}\s+(\d+)", text)[1]) for name in ("NBLOCKS", "TPERBLK"))  # type: ignore[index]
    options = (*OPTIONS, "-Dvolatile=") if question == PLAIN else OPTIONS
    kernel = mm.Module.load(compiled(text, work, options), name=f"{source.stem}.ptx")["kmain"]
    found: dict[str, str] = {}
    for seed in range(SEEDS):  # the seed decides which block or warp takes a lock first
        launch = partial(
            kernel.launch, grid, block, [np.zeros(1, np.uint32)], device="sm_80", sanitize=True, timeout=60, seed=seed,
            order=seed or None,
        )  # fmt: skip
        broken, error = sanitized(launch)
        found |= dict.fromkeys(broken, error)
    rules, error = tuple(sorted(found)), next(filter(None, found.values()), "")
    reason = "" if source.stem.startswith("race_") == bool(rules) else REASONS.get(source.stem, "")
    if question == VOLATILE and source.stem.startswith("race_"):
        reason = "volatile accesses are strong: no race by the specification"
    return Answer(question, source.stem, source.stem.startswith("race_"), rules, error or reason)


def main() -> int:
    options = arguments(__doc__ or "").parse_args()
    sources = sorted((options.folder / "microbenchmarks" / "src").glob("*race_*.cu"))
    given = [
        judged(path, question, options.work) for question in (VOLATILE, PLAIN) for path in sources if options.only in path.stem
    ]
    return finish(JUDGE, options, given)


if __name__ == "__main__":
    sys.exit(main())
