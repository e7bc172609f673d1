"""The record of a program: for each launch a few digits of what it was given and what it left.

Another person's run of the program is compared with it launch by launch. Addresses differ from run to run, so a word that leads
to memory counts as the number of the memory and the offset in it.
"""

import json
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mmulator import __version__
from mmulator.base import files
from mmulator.base.codegen.store import digest_of
from mmulator.base.demangle import demangle
from mmulator.base.errors import LaunchError, MmulatorError
from mmulator.host.driver.inquiries import ProcessRecord, ProgramLaunch, say
from mmulator.observation.record.launches.snapshot import WORD, LaunchSnapshot, MemorySnapshot, SnapshotInquiry, Take

VARIABLE = "MMULATOR_REPLAYED"  # a file that receives what differs, if `mmulator exec` wants to know
PARTS = ("kernel", "grid, block or arguments", "memory that it reads", "results")
DIGITS = 6


class Following(ProcessRecord):
    """The launches of this process. record: a file that they are written to. replay: a file that they are compared with."""

    def __init__(self, record: str, replay: str) -> None:
        self.record, self.replay = record, replay
        before: list[str] = read(replay)["launches"] if replay else []
        self.program = program()  # Python forgets the name of the script as it ends
        self.where: tuple[str, int] | None = None  # device and seed
        self.differs = ""
        self.rows: list[str] = []
        super().__init__()
        self.before = before

    def clear(self) -> None:
        self.rows, self.before = [], list[str]()

    def take(self, seen: LaunchSnapshot, error: BaseException | None) -> None:
        """Note a launch that is over, and say if it is the first that differs."""
        row = " ".join([demangle(seen.kernel.name), *digests(seen, error is not None)])
        with self:
            self.rows.append(row)
            self.where = self.where or (seen.launch.device, seen.seed)
            number = len(self.rows)
            if self.before and not self.differs:
                self.differs = difference(number, row, self.before[number - 1] if number <= len(self.before) else "")
                if self.differs:
                    self._tell(self.differs)

    def finish(self) -> None:
        """Write the record, or say how the comparison ended, as the process ends."""
        if self.record and self.rows:
            self._write()
        if self.replay and self.rows and not self.differs:
            if len(self.rows) < len(self.before):
                name = self.before[len(self.rows)].rsplit(" ", len(PARTS))[0]
                self._tell(f"launch {len(self.rows) + 1} of the record, {name}, does not come")
            else:
                say(f"mmulator: replay: {len(self.rows):,} launch{'es' * (len(self.rows) != 1)}, all as recorded")

    def _write(self) -> None:
        """Write the record, if no other process of the program has written one."""
        (name, digest), (device, seed) = self.program, self.where or ("", 0)
        data = {"mmulator": __version__, "program": name, "digest": digest, "device": device, "seed": seed, "launches": self.rows}
        told = os.environ.get(VARIABLE)
        own = Path(f"{told}.own" if told else self.record)  # made by the process whose record it is
        try:
            own.touch(exist_ok=False)
            files.write(self.record, json.dumps(data, indent=0) + "\n")
        except FileExistsError:
            say(f"mmulator: {len(self.rows):,} launches of another process of the program are not recorded")
        except (MmulatorError, OSError) as error:
            if not told:
                own.unlink(missing_ok=True)
            self._tell(str(error), "")

    def _tell(self, text: str, about: str = "replay: ") -> None:
        say(f"mmulator: {about}{text}")
        if file := os.environ.get(VARIABLE):
            files.append(file, text.encode())


@cache
def following(record: str, replay: str) -> Following:
    """The launches of this process. Raises LaunchError for a file that is no record."""
    return Following(record, replay)


class ReplayInquiry(SnapshotInquiry):
    """The wish for a record, or for the comparison with one: `Settings.record` and `Settings.replay`."""

    def sink(self, one: ProgramLaunch) -> Take:
        return following(one.settings.record, one.settings.replay).take


REPLAY = ReplayInquiry()


def difference(number: int, row: str, before: str) -> str:
    """The difference of a launch from the recorded one; "" for none. row, before: a name and digests."""
    if not before:
        return f"launch {number}, {row.rsplit(' ', len(PARTS))[0]}, is not in the record"
    (name, *new), (old_name, *old) = row.rsplit(" ", len(PARTS)), before.rsplit(" ", len(PARTS))
    if name != old_name:
        return f"launch {number} is of {name}; the record has {old_name}"
    part = next((part for part, a, b in zip(PARTS, new, old) if a != b), None)
    return "" if part is None else f"launch {number}, {name}, is the first that differs: other {part}"


# files --------------------------------------------------------------------------------------------------------------
def program() -> tuple[str, str]:
    """(name, digest) of the program that runs."""
    file = getattr(sys.modules.get("__main__"), "__file__", None) or os.path.realpath("/proc/self/exe")
    try:
        return Path(file).name, _digits(Path(file).read_bytes())
    except OSError:
        return Path(file).name, ""


def read(file: str) -> dict[str, Any]:
    """A record. Raises LaunchError for another file."""
    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
        known = {"device": str, "seed": int, "launches": list}
        if all(isinstance(data[key], kind) for key, kind in known.items()) and all(
            isinstance(row, str) and row.count(" ") >= len(PARTS) for row in data["launches"]
        ):
            return dict(data)
    except OSError as error:
        raise LaunchError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise LaunchError(f"{file} is no record", hint="mmulator exec --record FILE.json PROGRAM writes one")


# digests ------------------------------------------------------------------------------------------------------------
_NO_CODE = re.compile(r'//[^\n]*|\.(?:loc|file)\b[^\n]*|\.section\s+"?\.debug_\w+"?\s*\{[^}]*\}')


def digests(seen: LaunchSnapshot, failed: bool) -> list[str]:
    """Digests of a launch: of PARTS. failed: a fault ended it, and where is not certain."""
    kernel, shape = seen.kernel, seen.launch.shape
    order = _order(seen)
    params = seen.launch.arguments.params
    whole = params[: len(params) // WORD * WORD]
    text = " ".join(_NO_CODE.sub("", kernel.module.source.text).split())
    given = repr((shape.grid, shape.block, shape.shared, shape.cluster, shape.cooperative))
    return [
        _digits(text.encode(), kernel.name.encode()),
        _digits(given.encode(), _plain(whole, order).tobytes(), params[len(whole) :].tobytes()),
        *(["-"] * 2 if failed else [_contents(order, written) for written in (False, True)]),
    ]


def _contents(order: list[MemorySnapshot], written: bool) -> str:
    """The digest of the bytes that a launch read alone, or of those that it wrote."""
    made = digest_of()
    for number, p in enumerate(order):
        mask = p.written if written else p.read
        if mask is None:
            continue
        mask = mask if written or p.written is None else mask & ~p.written
        data = np.where(mask, p.live if written else p.before, np.uint8(0))
        skip = -p.start % WORD
        whole = data[skip:][: max(0, len(data) - skip) // WORD * WORD]
        whole[:] = _plain(whole, order)
        made.update(f"{number} {len(data)} ".encode())
        made.update(data.tobytes())
    return str(made.hexdigest()[:DIGITS])


def _order(seen: LaunchSnapshot) -> list[MemorySnapshot]:
    """The touched memory of a launch, variables first, then as pointers lead to it from the parameters on."""
    found = {id(p): p for p in sorted((p for p in seen.pieces if p.is_variable), key=lambda p: p.start)}
    found |= {id(p): p for word in seen.pointers for p in [seen.at(word)] if p is not None}
    others = {id(p): p for p in seen.pieces if p.touched and id(p) not in found}
    queue = [*found.values()]
    while queue and others:
        p = queue.pop(0)
        if p.read is None:
            continue
        data = np.where(p.read, p.before, np.uint8(0))[-p.start % WORD :]
        words = data[: len(data) // WORD * WORD].view(np.uint64)
        for word in words[_inside(words, [*others.values()]) >= 0]:
            there = seen.at(int(word))
            if there is not None and others.pop(id(there), None) is not None:
                found[id(there)] = there
                queue.append(there)
    found |= {id(p): p for p in sorted(others.values(), key=lambda p: (p.name, len(p.live)))}
    return [*found.values()]


def _inside(words: np.ndarray, pieces: list[MemorySnapshot]) -> np.ndarray:
    """For each word the number of the piece that it leads to, -1 for none."""
    by = np.argsort([p.start for p in pieces])
    starts = np.array([pieces[n].start for n in by], np.uint64)
    ends = np.array([pieces[n].end for n in by], np.uint64)
    at = np.searchsorted(starts, words, "right") - 1
    return np.where((at >= 0) & (words < ends[at]), by[at], -1) if len(pieces) else np.full(len(words), -1)


def _plain(data: np.ndarray, order: list[MemorySnapshot]) -> np.ndarray:
    """Bytes whose words that lead to memory are its number and the offset in it. data: whole words."""
    words = np.frombuffer(data.tobytes(), np.uint64).copy()
    there = _inside(words, order)
    hit = there >= 0
    if hit.any():
        starts = np.array([p.start for p in order], np.uint64)
        words[hit] = words[hit] - starts[there[hit]] + (there[hit].astype(np.uint64) + np.uint64(1) << np.uint64(48))
    return words.view(np.uint8)


def _digits(*data: bytes) -> str:
    made = digest_of()
    for part in data:
        made.update(part)
    return str(made.hexdigest()[:DIGITS])
