"""Tensor copies and tensor maps are not modelled yet: every row is refused by name."""

from __future__ import annotations

from tests.support import rows

test_rows = rows.run_or_refused("tensor")
