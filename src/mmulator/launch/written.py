"""Which bytes of an allocation have been written since it was made; the use of others is a finding (rules/values.py).

Data enters at a door's functions for memory (doors/libcuda/memory.py): they have a `Written` beside each allocation, and mark
what the host copies and fills. With the region (regions.py) it comes to a launch, where native code reads the marks of what a
kernel loads and makes those of what it stores (sanitizer/checks/unwritten.py). It leaves as a finding where a value is used
that nobody has written, and as marks, which stay with the allocation from launch to launch.
"""

import numpy as np

from mmulator.native.state import BY_HOST, BY_KERNEL


class Written:
    """Bytes of one allocation that have been written. marks: a byte for each of its bytes: 0: nobody has written it, BY_HOST,
    BY_KERNEL; None: all of them have values, and nothing is followed any more."""

    def __init__(self, marks: np.ndarray) -> None:
        """marks: zeros, that cost nothing until they are touched (arena.py: blank)."""
        self.marks: np.ndarray | None = marks
        self._whole = False

    def forget(self) -> None:
        """All bytes have values from now on: somebody may have written them whom nobody saw."""
        self.marks = None

    def mark(self, at: int, size: int) -> None:
        """The host has written bytes, from one on."""
        if self.marks is not None:
            self.marks[at : at + size] = BY_HOST

    def of(self, at: int, size: int) -> np.ndarray | None:
        """The marks of some bytes, as they are now; None: all have values."""
        return self.marks[at : at + size].copy() if self.marks is not None else None

    def take(self, at: int, marks: np.ndarray) -> None:
        """Bytes were copied to here, with their marks."""
        if self.marks is not None:
            self.marks[at : at + len(marks)] = marks
            self._whole = False

    def doubted(self) -> np.ndarray | None:
        """The marks for a launch that may take values away; None: those of all bytes, and nobody asks later."""
        self._whole = False
        return self.marks

    @property
    def whole(self) -> bool:
        """Whether all bytes have values."""
        if self.marks is not None and not self._whole:
            self._whole = bool(self.marks.view(np.bool_).all())
        return self.marks is None or self._whole


class Unfilled(Written):
    """Bytes of memory that its allocator filled with a word, 8 bytes that programs do not write: where the word still is nobody
    has written. The marks are made anew for each launch, since the host writes when nobody looks."""

    def __init__(self, memory: np.ndarray, word: int) -> None:
        super().__init__(np.zeros(0, np.uint8))
        self._bytes, self._word = memory, word

    def doubted(self) -> np.ndarray | None:
        return None if self.whole else self.marks

    @property
    def whole(self) -> bool:
        words = self._bytes[: self._bytes.size & -8].view(np.uint64) != self._word
        if not (whole := bool(words.all())):
            self.marks = np.full(self._bytes.size, BY_KERNEL, np.uint8)
            self.marks[: 8 * words.size].reshape(-1, 8)[~words] = 0
        return whole
