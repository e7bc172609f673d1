"""Instructions that PTX 9.2 to 9.4 added for sm_90a, in one kernel and against plain Python: a chip was not asked for these."""

import numpy as np
import pytest

import mmulator as mm
from tests.support.ptx_text import stored

SIZE = 64  # bytes that the bulk copy moves

KERNEL = mm.Module.load(stored("newest"), name="newest.ptx")["k"]


def run(size: int = SIZE, begin: int = 0, left: int = 0, right: int = 0, count: int = 1, sanitize: bool = False):
    """source: of so many bytes, of which the copy takes SIZE from `begin` on."""
    source = np.arange(1, size + 1, dtype=np.uint8)
    out, sums = np.zeros(48, np.uint32), np.array([0, 0, 0, 0, 77], np.uint32).view(np.float32)
    report = KERNEL.launch(1, 16, [source, out, sums, begin, left, right, count], sanitize=sanitize)
    return source, out, sums.view(np.uint32), report


@pytest.mark.parametrize("size, left, right", [(64, 0, 0), (49, 0, 15), (64, 4, 9), (57, 15, 7)])
def test_bytes_that_are_ignored_need_not_be_there(size: int, left: int, right: int) -> None:
    """The bytes between the ignored ends arrive. An ignored byte has no value; where all of them are in memory they arrive as on
    a chip, whose machine code (sm_90a) is a plain copy."""
    source, out, sums, report = run(size, left=left, right=right, sanitize=True)
    want = np.full(SIZE, 0xFF, np.uint8)
    ends = slice(None) if size == SIZE else slice(left, SIZE - right)
    want[ends] = source[ends]
    assert np.array_equal(out[:16].view(np.uint8), want)
    assert {f.rule for f in report.findings} == ({"uninitialized-store"} if left or right else set())
    assert set(out[16:32]) == {16 + 128} and set(out[32:]) == {77}
    assert sums[:3].tolist() == [16 * 3, 0, 16 * 3]  # without .noftz a chip's memory flushes subnormals


WRONG = [
    ({"size": 48, "right": 15}, "out of bounds"),  # a byte that is not ignored is not there
    ({"begin": -16, "left": 15}, "out of bounds"),
    ({"left": 16}, "is to ignore 16 bytes"),
    ({"count": 512}, "of 512 arrivals"),
]


@pytest.mark.parametrize("given, message", WRONG, ids=[m for _, m in WRONG])
def test_what_is_wrong_with_them(given: dict[str, int], message: str) -> None:
    with pytest.raises(mm.errors.ExecutionFault, match=message):
        run(**given)
