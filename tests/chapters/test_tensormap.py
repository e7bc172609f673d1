"""Tensor maps that a kernel makes: every field of tensormap.replace as an H200 writes it, and publishing."""

from __future__ import annotations

from tests.support import rows

test_rows = rows.run_or_refused("tensormap")
