"""docs/reference/planted.md: bugs that are planted in kernels, and the command that names each, from tests/support/planted.py."""

from __future__ import annotations

from tests.support.planted import PLANTED

_HEAD = """# Planted bugs

Which command names which bug: each is one small change to a kernel of `tests/data/planted` or `examples`, and a test runs the
command with the bug and without it.

| bug | kernel | `mmulator` ... | what you see |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The page."""
    return _HEAD + "".join(f"{bug.row}\n" for bug in PLANTED)
