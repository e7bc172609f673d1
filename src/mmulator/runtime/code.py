"""Machine code of a kernel's blocks: compiled quickly at first, and better in the background if the kernel runs for long.

Both versions compute the same bits: LLVM's optimisation passes are the same, and only the selection of instructions and
registers differs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.base.codegen import loading
from mmulator.base.codegen.engine import CompiledObject, afterwards, code_memory, key_of
from mmulator.base.codegen.loading import ensure, ensure_named, symbols
from mmulator.base.codegen.locks import remaining
from mmulator.base.codegen.references import BEGIN, StoredRecords
from mmulator.base.codegen.sources import of_natives
from mmulator.base.codegen.store import store
from mmulator.base.errors import MmulatorError

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Native
    from mmulator.base.codegen.stencils import Records

GROUP = 160  # PTX instructions compiled together
LEVEL = 1
QUICK = True
# Seconds of running, in all launches together, from which on better code pays: at least, and for each word of the records.
# LLVM takes 50 to 100 microseconds a word, and better code saves at most half of the running.
LONG, LONG_WORD = 0.1, 1e-4


Texts = Callable[[], tuple[Sequence[str], Iterable["Native"]]]  # what writes texts, with the native functions that they call


def _no_texts() -> tuple[list[str], list[Native]]:
    return [], []


def _with_files(text: str) -> str:
    """A text that says which files its natives are from: better code contains parts of them."""
    return f"; of {of_natives()}\n{text}"


def _straight(text: str, natives: Iterable[Native]) -> str:
    """The text of better code: native functions have their straight paths, if it is known of what files these are."""
    from mmulator.base.codegen.loading import straightened  # which a launch of kept code does not need

    return straightened(text, natives) if of_natives() else text


def _key_of_records(keys: Iterable[str]) -> str:
    return key_of("records", *keys)


def groups(sizes: list[int]) -> Iterator[range]:
    """Blocks in groups that are compiled together. sizes: number of instructions of each block."""
    first = weight = 0
    for n, size in enumerate(sizes):
        if n > first and weight + size > GROUP:
            yield range(first, n)
            first, weight = n, 0
        weight += size
    if first < len(sizes):
        yield range(first, len(sizes))


class BlockCode:
    """Machine code of a kernel's blocks.

    table: address of each block's function. Native code reads it at every change of block, so an entry may change during a run.
    records: address of each block's records, if it is joined from stencils.
    cached: whether nothing had to be compiled.
    keys: keys of the pieces' texts in the store.
    natives: names of the native functions that the pieces call.
    """

    def __init__(self, blocks: int) -> None:
        self.table, self.records = np.zeros(blocks, np.uint64), np.zeros(blocks, np.uint64)
        self.cached = True
        self.keys: list[str] = []
        self.natives: list[str] = []
        self._pieces: list[CompiledObject] = []
        self._texts: Texts = _no_texts  # of the pieces
        self._taken: list[tuple[str, range]] = []  # texts, and their blocks
        self._kept: list[Any] = []  # all that was ever in the tables
        self._linked: dict[str, int] = {}
        self._improver = 0  # the process in which better code is on its way
        self._seconds, self._words = 0.0, 0  # of running; of records

    def take(self, text: str, group: range, join: Callable[[], bool]) -> None:
        """Add the LLVM text of a group of blocks, to be compiled. Raises TimeUp (base/codegen/locks.py).

        text: the text.
        group: numbers of the blocks.
        join: called if there is no better code; says whether the blocks have records, which `load` is given.
        """
        remaining()
        said = _with_files(text)
        piece = CompiledObject(said, LEVEL, QUICK, later=True)
        if not piece.cached and not join():
            piece = CompiledObject(said, LEVEL, QUICK)
        self._pieces.append(piece)
        self._taken.append((text, group))
        self.cached &= piece.cached

    def load(self, natives: Iterable[Native], done: Callable[[int], object], records: Records) -> None:
        """Wait until all pieces are compiled.

        natives: functions that they may call.
        done: called with the number of compiled blocks.
        records: those of the blocks that are joined from stencils.
        """
        natives = list(natives)
        codes = []
        for piece, (_, group) in zip(self._pieces, self._taken):
            codes.append(piece.code())
            done(group.stop)
        texts, joined = [text for text, _ in self._taken], None
        self._taken = []
        ensure([*natives, *records.stencils()])
        if records.blocks:
            data, kept = records.data(), store()
            joined = StoredRecords(data)
            if kept:
                kept.write(_key_of_records(piece.key for piece in self._pieces), data)
        self._loaded([f.name for f in natives], codes, lambda: (texts, natives), joined)

    @classmethod
    def kept(cls, blocks: int, keys: Sequence[str], natives: Iterable[str], texts: Texts) -> BlockCode:
        """The code of texts that were compiled before. Raises LookupError if some of it is no longer stored.

        blocks: number of blocks.
        keys: keys of the texts.
        natives: names of the native functions that they call.
        texts: a function that writes the texts again and tells whom they call, called if better code is made.
        """
        code = cls(blocks)
        code._pieces = [CompiledObject.found(key) for key in keys]
        names, joined = list(natives), None
        if not all(piece.cached for piece in code._pieces):
            folder = store()
            data = folder.read(_key_of_records(keys)) if folder else None
            if data is None:
                raise LookupError(keys)
            joined = StoredRecords(data)
        if not ensure_named([*names, *joined.names, BEGIN] if joined else names):
            raise LookupError(names)
        code._loaded(names, [piece.code() for piece in code._pieces], texts, joined)
        return code

    def _loaded(self, natives: list[str], codes: list[bytes], texts: Texts, joined: StoredRecords | None) -> None:
        self.natives, self.keys = natives, [piece.key for piece in self._pieces]
        self._linked = symbols(natives)
        if joined is not None:
            words = joined.placed(symbols(joined.names))
            self._kept.append(words)
            self._words = len(words)
            (at,) = symbols([BEGIN]).values()
            for n, position in joined.blocks:
                self.records[n], self.table[n] = words.ctypes.data + 8 * position, at
        self._enter(codes)
        if any(piece.quick for piece in self._pieces):
            self._texts = texts
        else:
            self._pieces.clear()

    def _enter(self, codes: list[bytes], every: bool = False) -> None:
        """Load machine code. every: whether blocks that have code have it anew."""
        wanted = [n for n in range(len(self.table)) if every or not self.table[n]]
        if not wanted:
            return
        objects = code_memory(LEVEL)
        objects.add(filter(None, codes), self._linked)
        self._kept.append(objects)
        for n in wanted:
            self.table[n] = objects.address(f"block{n}")  # 8 bytes at once

    def give_up(self) -> None:
        """Stop compiling: the code is no longer needed."""
        for piece in self._pieces:
            piece.give_up()

    # better code ----------------------------------------------------------------------------------------------------
    @property
    def patience(self) -> float:
        """Seconds of running after which `improve` should be called: for the blocks, then for the native functions."""
        if self._pieces and self._improver != os.getpid():
            return max(0.0, max(LONG, LONG_WORD * self._words) - self._seconds)
        return loading.patience()

    @property
    def best(self) -> bool:
        """Whether no better code of the blocks can take the place of this."""
        return not self._pieces

    def ran(self, seconds: float) -> None:
        """Record that the code ran for a number of seconds, and start better code if it pays now."""
        self._seconds += seconds
        loading.ran(seconds)
        if not self.patience:
            self.improve()

    def improve(self) -> None:
        """Compile better code in the background; it replaces this code when it is ready. The second call does it for the native
        functions.
        """
        if self._pieces and self._improver != os.getpid():
            self._improver = os.getpid()  # in a thread, so that LLVM's own never waits for texts
            threading.Thread(target=self._write, name="mmulator texts", daemon=True).start()
        elif loading.patience() < float("inf"):
            loading.improve()

    def _write(self) -> None:
        """Write the texts, again if necessary."""
        from mmulator.base.codegen.lang import WRITER

        WRITER.here = True
        with suppress(MmulatorError, RuntimeError):  # as if there were no better code; the second: at the end of the process
            texts, natives = self._texts()
            both = list(zip(self._pieces, map(_with_files, texts), strict=True))
            if all(piece.is_of(text, LEVEL) for piece, text in both):
                self._next([], [(piece, _straight(text, natives)) for piece, text in both])

    def _next(self, codes: list[bytes], rest: list[tuple[CompiledObject, str]]) -> None:
        def work() -> bytes:
            piece, text = rest[0]
            codes.append(piece.better(text, LEVEL) if piece.quick else piece.code())
            if rest[1:]:
                self._next(codes, rest[1:])
            else:
                self._enter(codes, every=True)
                self._pieces.clear()
                self._texts = _no_texts
            return b""

        afterwards(work)
