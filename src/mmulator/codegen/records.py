"""Records of blocks (stencils.py) as they are stored, without what writes them."""

import json
from collections.abc import Mapping

import numpy as np

BEGIN = "run_records"  # the native function that begins a block's records (native/threads/scheduler.py)


class StoredRecords:
    """Records as they are stored. names: the stencils. blocks: as in Records."""

    def __init__(self, data: bytes) -> None:
        first, _, rest = data.partition(b"\n")
        head = json.loads(first)
        self.names: list[str] = head["names"]
        self.blocks: list[tuple[int, int]] = head["blocks"]
        self._words = np.frombuffer(rest, np.uint64, head["words"])
        self._uses = np.frombuffer(rest, np.uint32, -1, 8 * head["words"]).reshape(-1, 2)

    def placed(self, symbols: Mapping[str, int]) -> np.ndarray:
        """The words, with the addresses of the stencils, which are loaded."""
        words = self._words.copy()
        words[self._uses[:, 0]] = np.array([symbols[name] for name in self.names], np.uint64)[self._uses[:, 1]]
        return words
