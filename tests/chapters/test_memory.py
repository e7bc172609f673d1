"""Loads and stores, and hints to caches. (Bounds and every way into memory: laws/test_memory.py.)"""

from __future__ import annotations

from tests.support import rows, vectors

test_vectors = vectors.replay("memory")
test_rows = rows.run_or_refused("memory")
