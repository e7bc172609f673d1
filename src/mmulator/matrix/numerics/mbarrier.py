"""The 64 bits of an mbarrier in plain integers: the model against which native code is tested (PTX ISA 9.1, mbarrier).

    bit 63      the phase's parity
    bits 43-62  2^20 - arrivals that are pending in this phase
    bits 21-41  2^21 - the tx-count: bytes that are awaited, a signed number
    bits 1-20   2^20 - arrivals that the next phase will expect
    bit 0       the layout: 1 for .layout::v1 (PTX ISA 9.4), as machine code for sm_90a sets and tests it

Read off an NVIDIA H200. A phase is complete when no arrival is pending and the tx-count is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

COUNT, BYTES = 20, 21  # bits of a count of arrivals, and of the tx-count
EXPECTED, PENDING_BYTES, PENDING, PHASE = 1, 21, 43, 63  # the first bit of each
LAYOUT = 1
MOST_V1 = (1 << 9) - 1  # arrivals that an mbarrier of .layout::v1 may await (PTX ISA 9.4, mbarrier.init)
MOST = (1 << 20) - 1  # arrivals, and bytes in either direction (PTX ISA 9.1, mbarrier: Supported range)
STATE = 0xFFFFFFFF << 32  # bits of the word that mbarrier.arrive returns

_COUNT, _BYTES = (1 << COUNT) - 1, (1 << BYTES) - 1


@dataclass(frozen=True)
class Mbarrier:
    """The content of an mbarrier.

    expected: arrivals that the next phase expects.
    pending: arrivals that this phase awaits.
    bytes: the tx-count.
    phase: parity of the phase.
    layout: 0 or 1.
    """

    expected: int
    pending: int
    bytes: int = 0
    phase: int = 0
    layout: int = 0

    @staticmethod
    def init(count: int, layout: int = 0) -> Mbarrier:
        return Mbarrier(count, count, layout=layout)

    @staticmethod
    def decode(word: int) -> Mbarrier:
        bytes = -(word >> PENDING_BYTES) & _BYTES
        signed = bytes - (bytes >> BYTES - 1 << BYTES)
        return Mbarrier(-(word >> EXPECTED) & _COUNT, -(word >> PENDING) & _COUNT, signed, word >> PHASE, word & LAYOUT)

    def encode(self) -> int:
        counts = (-self.expected & _COUNT) << EXPECTED | (-self.pending & _COUNT) << PENDING
        return counts | (-self.bytes & _BYTES) << PENDING_BYTES | self.phase << PHASE | self.layout

    @property
    def state(self) -> int:
        """The state that mbarrier.arrive returns for this content."""
        return self.encode() & STATE

    def change(self, arrivals: int = 0, bytes: int = 0, dropped: int = 0) -> Mbarrier:
        """The mbarrier after a number of arrivals and bytes.

        arrivals: number of arrivals.
        bytes: bytes that have come; negative for bytes that are expected in addition.
        dropped: arrivals that no later phase expects.
        """
        after = replace(self, expected=self.expected - dropped, pending=self.pending - arrivals, bytes=self.bytes - bytes)
        if after.pending == 0 and after.bytes == 0:
            return replace(after, pending=after.expected, phase=after.phase ^ 1)
        return after

    def legal(self, arrivals: int = 0, bytes: int = 0) -> bool:
        """Whether the specification supports the result of `change`."""
        return 0 <= arrivals <= self.pending and -MOST <= self.bytes - bytes <= MOST

    def over(self, parity: int) -> bool:
        """Result of test_wait for a phase: the phase is complete if the current phase has the other parity."""
        return self.phase != parity


def pending_count(state: int) -> int:
    """mbarrier.pending_count of a state that arrive returned; 2^20 if no arrival was pending."""
    return (1 << COUNT) - (state >> PENDING & _COUNT)
