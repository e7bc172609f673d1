"""Watched words: where native code sees that bytes change, and what a change means to people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mmulator.isa.types import TYPES, type_bits
from mmulator.observation.debug.breakpoints import MBARRIER, RULE, WATCH, Breakpoint, shared_place, shared_watch
from mmulator.observation.debug.execution import CELLS
from mmulator.observation.debug.stops import DebugError, Reason
from mmulator.observation.record.values import text_of
from mmulator.ptx.program.addresses import SHARED_BASE
from mmulator.runtime.launch.arena import bytes_at, pointer
from mmulator.runtime.native.state import Account, Log, Warp
from mmulator.sanitizer.diagnostics.mbarriers import shared_name

if TYPE_CHECKING:
    from mmulator.observation.debug.execution import Watcher
    from mmulator.observation.record.names import Asked
    from mmulator.runtime.launch.grid import Grid
    from mmulator.runtime.launch.resident import Resident, ResidentCta
    from mmulator.sanitizer.diagnostics.sanitizer import Sanitizer

WARPS = 32  # of a block, at most
LIVE, ALL = Warp.offset["live"], (1 << 32) - 1
ACCOUNT = np.dtype(Account.numpy_dtype())
PARITY = 1 << 63  # of an mbarrier's phase, in its word


@dataclass
class WatchedWord:
    """Up to 8 bytes at an address of the host, which do not cross a multiple of 8.

    breakpoint: that wants to know.
    at, mask: the aligned word, and its bits that count.
    read: gives the text of the whole value that these bytes are part of.
    cta: the block in whose shared memory they are, or None.
    before: text of the value at the last change.
    cluster: number of the cluster that had the memory then.
    name: of the place.
    zero: text of a value of zeros.
    """

    breakpoint: Breakpoint
    at: int
    mask: int
    read: Callable[[], str]
    cta: ResidentCta | None = None
    before: str = ""
    cluster: int = -1
    name: str = ""
    zero: str = ""


@dataclass(frozen=True)
class Hit:
    """A breakpoint that stops the launch.

    reason, text: as in `Stopped`.
    behind: whether what happened came before the step, so that a way back ends at the step before it.
    lanes: mask of the lanes that it is about; 0 where it is about none.
    """

    breakpoint: Breakpoint
    reason: Reason
    text: str
    behind: bool = False
    lanes: int = 0


@dataclass
class WatchedWords:
    """The words that an execution watches.

    element: gives the element of a launch that a text means. Raises DebugError.
    """

    element: Callable[[str], Asked]
    watcher: Watcher
    sanitizer: Sanitizer | None = None
    words: list[WatchedWord] = field(default_factory=list)
    warps: list[int] = field(default_factory=list)

    def arm(self, grid: Grid, breakpoints: list[Breakpoint], host: Callable[[int, int], int], residents: list[Resident]) -> None:
        """Watch what breakpoints say, from now on. host: where device memory is. residents: clusters' memory so far."""
        self.grid, self.breakpoints = grid, breakpoints
        self.words.clear()
        for b in breakpoints:
            b.problem = "" if b.kind in (WATCH, MBARRIER) else b.problem
            try:
                if b.kind == WATCH and (shared_watch(b.place, grid.kernel)) is None:
                    asked = self.element(b.place)
                    at = host(asked.start, asked.size)
                    self._watch(b, at, asked.size, partial(value_text, at, asked.type, asked.size), name=asked.name)
                elif b.kind == MBARRIER:
                    shared_place(b.place, grid.kernel)
            except DebugError as error:
                b.problem = error.message
        for resident in residents:
            self._of_cluster(resident)
        if self.sanitizer is not None:
            at = pointer(self.sanitizer.logs) + Log.offset["count"]
            self.words.append(WatchedWord(Breakpoint(0, RULE, "all"), at & ~7, (1 << 32) - 1 << 8 * (at % 8), str))
        self._fill()

    def arrived(self, resident: Resident) -> None:
        """There is memory of another cluster."""
        if hasattr(self, "grid"):
            self._of_cluster(resident)
            self._fill()

    def _of_cluster(self, resident: Resident) -> None:
        for b in self.breakpoints:
            try:
                place = shared_watch(b.place, self.grid.kernel) if b.kind == WATCH else None
                if b.kind == MBARRIER:
                    place = shared_place(b.place, self.grid.kernel), "b64"
            except DebugError as error:
                b.problem = error.message
                continue
            if place is None:
                continue
            address, kind = place
            size = max(1, type_bits(kind) // 8) if kind in TYPES else 4
            if not SHARED_BASE <= address <= SHARED_BASE + self.grid.shared - size:
                end = SHARED_BASE + self.grid.shared
                b.problem = f"0x{address:x} is not in the block's shared memory (0x{SHARED_BASE:x} to 0x{end:x})"
                continue
            for cta in resident.each():
                at = resident.shared_at(cta.rank) + address - SHARED_BASE
                bits = PARITY if b.kind == MBARRIER else -1
                name = shared_name(self.grid, address) or f"0x{address:x}"
                self._watch(b, at, size, partial(value_text, at, kind, size), bits, cta, name, text_of(0, kind))

    def _watch(
        self, b: Breakpoint, at: int, size: int, read: Callable[[], str], bits: int = -1, cta: ResidentCta | None = None,
        name: str = "", zero: str = "",
    ) -> None:  # fmt: skip
        for word in range(at & ~7, at + size, 8):
            low, high = max(at, word) - word, min(at + size, word + 8) - word
            mask = (1 << 8 * high) - (1 << 8 * low)
            cluster = cta.resident.number if cta is not None else -1
            self.words.append(WatchedWord(b, word, mask & bits, read, cta, read(), cluster, name, zero))

    def _fill(self) -> None:
        """Tell native code."""
        del self.words[CELLS - WARPS :]
        cells = self.watcher.cells
        for cell, word in zip(cells, self.words):
            cell["at"], cell["mask"] = word.at, word.mask & (1 << 64) - 1
            fresh = word.cta is not None and not word.cta.resident.begun[0]  # its memory will be zeros
            cell["old"] = 0 if fresh else int(bytes_at(word.at, 8).view(np.uint64)[0]) & word.mask
            cell["changed"] = 0
        for cell, warp in zip(cells[len(self.words) :], self.warps):
            at, shift = (warp + LIVE) & ~7, 8 * ((warp + LIVE) % 8)
            cell["at"], cell["mask"] = at, ALL << shift
            cell["old"] = int(bytes_at(at, 8).view(np.uint64)[0]) & ALL << shift
        self.watcher.memory["cell_count"] = len(self.words) + len(self.warps)

    def follow(self, low: int, high: int) -> None:
        """Hear of it when lanes of these warps exit: those whose structs are from one address to before another."""
        warps = [*range(low, high, Warp.size)]
        if warps != self.warps:
            self.warps = warps
            self._fill()

    @property
    def left(self) -> bool:
        """Whether all warps that are followed have exited."""
        return not any(int(bytes_at(warp + LIVE, 4).view(np.uint32)[0]) for warp in self.warps)

    def changes(self) -> Iterator[WatchedWord]:
        """The words that have changed since the last time."""
        cells = self.watcher.cells[: len(self.words)]
        for n in np.nonzero(cells["changed"])[0]:
            cells["changed"][n] = 0
            word = self.words[int(n)]
            if word.cta is not None and word.cluster != word.cta.resident.number:
                word.cluster, word.before = word.cta.resident.number, word.zero  # another one has begun, with zeroed memory
                if not int(cells["old"][n]):
                    continue
            yield word


def value_text(at: int, type_name: str, size: int) -> str:
    """Bytes at an address of the host as a value of a PTX type."""
    return text_of(int.from_bytes(bytes_at(at, size).tobytes(), "little"), type_name)


def phase_of(word: WatchedWord) -> int | None:
    """The phase of a watched mbarrier that was completed last, counted from 0; None if no mbarrier is there, or none was."""
    if word.cta is None or not word.cta.resident.grid.kernel.mbarriers:
        return None
    accounts = word.cta.resident.arena.view("accounts", ACCOUNT)
    mine = accounts[(accounts["at"] == word.at) & (accounts["valid"] != 0)]
    return int(mine["phase"][0]) - 1 if len(mine) and mine["phase"][0] else None
