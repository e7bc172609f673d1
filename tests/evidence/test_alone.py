"""Every row alone in a kernel ends in a result or an error of the family, the same one in every mode (evidence/fuzz/alone.py)."""

from pathlib import Path

import pytest

from evidence.fuzz import alone
from tests.evidence.test_fuzz import fuzz

PART = 30


def test_rows_whose_hooks_keep_a_state(tmp_path: Path) -> None:
    found(tmp_path, 0, len(alone.kinds()[0]))


@pytest.mark.full
def test_some_of_all_rows_in_blocks_pairs_and_clusters(tmp_path: Path) -> None:
    """All of them: `python -m evidence.fuzz.alone` (docs/developers/release.md)."""
    hooked, runs = map(len, alone.kinds())
    found(tmp_path, hooked, hooked + runs * len(alone.PLACES) // PART)


def found(out: Path, first: int, end: int) -> None:
    code, said = fuzz(out, "--first", str(first), "--modules", str(end), "--launches", "0", "--seed", "1", what="alone")
    assert (code, said["failures"]) == (0, [])
    assert said["loaded"] == end - first and said["launched"] == len(alone.MODES) * said["loaded"]
    assert said["finished"] > said["launched"] // 2 and said["fault"] > said["launched"] // 10
