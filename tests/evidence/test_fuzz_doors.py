"""A little of evidence/fuzz/doors.py; more of it, and sanitized launches beside plain ones, in docs/developers/testing.md."""

import pytest

from evidence.fuzz import doors


@pytest.mark.parametrize("what", ["regions", "warm"])
def test_a_little_finds_nothing(what: str) -> None:
    done = doors.child(what, seconds=0.5, seed=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= 2
