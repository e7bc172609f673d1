"""A search for inputs that tell mutants from their original: in the place of a test's launch, in its memory.

The first input is the launch's own. Others are drawn: numbers in arrays of floating point, the same values in another order where
they may be indices or addresses, and parameters that count less by one. An input by which the original ends in an error is none.
Outputs are all bytes that the launch may write, and are compared bit for bit. Afterwards memory is as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from mmulator.base.errors import MmulatorError
from mmulator.host.campaign import Snapshot
from mmulator.host.module import observing
from mmulator.host.report import Report
from mmulator.observation.record.launches.questions import device_arrays
from mmulator.observation.record.names import DeviceArray, DeviceNames
from mmulator.observation.strictness.trial import SURVIVED, UNDECIDED, Key, MutantOutcome, Mutated, key_of
from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.observers import Observer

INPUTS = 8  # that are drawn
MOST = 256 << 20  # bytes of memory that are copied
_LEAST, _MOST = 1e-8, 1e8  # what numbers of people's inputs lie between


class InputSearch:
    """Looks for an input for each mutant that a test did not notice, at the first launch of the kernel.

    until: the time, of time.monotonic, at which no try is begun any more.
    """

    def __init__(self, key: Key, trials: Sequence[tuple[MutantOutcome, Mutated]], until: float) -> None:
        self.key, self.trials, self.until, self.done = key, trials, until, False

    def __call__(self, launch: Launch, how: How, observers: Sequence[Observer]) -> Report:
        if not self.done and key_of(launch) == self.key:
            self.done = True
            try:
                self._search(launch, replace(how, threads=1))
            except MmulatorError as error:
                for outcome, _ in self.trials:
                    if outcome.state != SURVIVED:
                        outcome.words = f"the search for an input ended: {error.message}"
        report: Report = launch.kernel.run_itself(launch, how, observers)
        return report

    def _search(self, launch: Launch, how: How) -> None:
        launch = replace(launch, arguments=copy(launch.arguments))
        params = launch.arguments.params = launch.arguments.params.copy()  # a program's are read-only
        memory = launch.writable()
        size = sum(live.nbytes for _, live in memory)
        left = {id(o): (o, trial) for o, trial in self.trials}
        if size > MOST:
            for outcome, _ in self.trials:
                outcome.words = f"no input was tried: the launch may write {size >> 20} MiB"
            return
        given_arrays = bool(launch.arguments.buffers)  # by a launch of mm.Module, which knows them
        names = DeviceNames.of(launch, {}) if given_arrays else DeviceNames(device_arrays(launch, ()))
        own = Snapshot(memory)
        before, tried, wrong = params.copy(), 0, 0
        try:
            for number in range(INPUTS + 1):
                if not left or time.monotonic() > self.until:
                    break
                own.restore()
                said = _draw(launch, names, number) if number else "with the launch's own input"
                given = Snapshot(memory)
                wanted = _left(launch.kernel, launch, how)
                wrong += isinstance(wanted, str)
                if isinstance(wanted, str):
                    params[:] = before
                    continue
                given.keep()
                tried += 1
                for mark, (outcome, trial) in list(left.items()):
                    given.restore()
                    if words := self._differs(launch, how, outcome, trial, given, names, not number):
                        outcome.state, outcome.words = SURVIVED, f"{said}: {words}"
                        del left[mark]
                    if time.monotonic() > self.until:
                        break
                params[:] = before
        finally:
            params[:] = before
            own.restore()
        for outcome, _ in left.values():
            more = f", and the kernel ends in an error by {wrong} others" if wrong else ""
            outcome.state, outcome.words = UNDECIDED, f"no input found in {tried}{more}"

    def _differs(
        self, launch: Launch, how: How, outcome: MutantOutcome, trial: Mutated, given: Snapshot, names: DeviceNames, first: bool
    ) -> str:
        """The difference that a mutant makes from one input; "" for none.

        launch, how: of the original.
        outcome, trial: of the mutant.
        given: memory before, and as the original leaves it.
        names: of the memory.
        first: undefined behaviour is looked for too, if order is missing.
        """
        kernel = trial.kernel(launch.kernel)
        mutated = replace(launch, kernel=kernel)
        ended = _left(kernel, mutated, replace(how, timeout=trial.timeout))
        if isinstance(ended, str):
            return f"it ends in an error: {ended}"
        for piece in given.differing():
            at = int(np.argmax(piece.live != piece.wanted))
            array = names.at(piece.owner + piece.start + at)
            return _value(piece.live, piece.wanted, at, piece.owner + piece.start, array, names)
        if first and outcome.mutant.kind == "order":
            rules = []
            for one in (launch, mutated):
                given.restore()
                found = one.kernel.run_itself(one, how, observing(True)).findings
                rules.append({(f.rule, f.instruction) for f in found if f.is_error})
            if new := sorted(rules[1] - rules[0]):
                return f"the sanitizer finds {new[0][0]} ({new[0][1]}): run the test with --sanitize"
        return ""


def _left(kernel: object, launch: Launch, how: How) -> str | None:
    """None when a launch has run to its end; else the error."""
    try:
        kernel.run_itself(launch, how)  # type: ignore[attr-defined]
    except MmulatorError as error:
        return error.message
    return None


def _value(live: np.ndarray, wanted: np.ndarray, at: int, start: int, array: DeviceArray | None, names: DeviceNames) -> str:
    """`y[3] is 0 and not 1.5`

    live, wanted: bytes of a piece of memory, as they are and as the original leaves them.
    at: the first that differs.
    start: the address of the piece.
    array, names: the array there, if it is known, and all names.
    """
    size = array.itemsize if array is not None and array.itemsize > 1 else 4
    begin = array.start if array is not None else start
    at -= (start + at - begin) % size
    at = max(at, 0)
    got, want = (_number(a[at : at + size], array) for a in (live, wanted))
    return f"{names(start + at, size)} is {got} and not {want}"


def _number(raw: np.ndarray, array: DeviceArray | None) -> str:
    if array is not None and array.dtype is not None and array.dtype.itemsize == raw.size:
        return str(raw.view(array.dtype)[0])
    bits = int.from_bytes(raw.tobytes(), "little")
    value = float(np.uint32(bits).view(np.float32)) if raw.size == 4 else 0.0
    return f"0x{bits:0{2 * raw.size}x}" + (f" ({value:.9g} as f32)" if _LEAST < abs(value) < _MOST else "")


# inputs -----------------------------------------------------------------------------------------------------------------
def _draw(launch: Launch, names: DeviceNames, number: int) -> str:
    """Put other inputs into the memory and the parameters of a launch; what they are, in words."""
    rng, said = np.random.default_rng(number), f"with drawn input {number}"
    for start, live in launch.writable():
        array = names.at(start)
        _fill(rng, live, array.dtype if array is not None else None)
    counts = list(_counts(launch))
    if counts and number % 2:
        name, at = counts[number // 2 % len(counts)]
        word = launch.arguments.params[at : at + 4].view(np.uint32)
        said += f" and {name} = {int(word[0]) - 1} in place of {int(word[0])}"
        word -= 1
    return said


def _counts(launch: Launch) -> Iterator[tuple[str, int]]:
    """(name, offset) of the integer parameters that may count something."""
    for p, at in zip(launch.kernel.signature.params, launch.arguments.offsets):
        whole = p.bits == 32 and not p.shape and not p.type.startswith("f")
        if whole and 1 < int(launch.arguments.params[at : at + 4].view(np.uint32)[0]) < 1 << 31:
            yield p.name, at


def _fill(rng: np.random.Generator, live: np.ndarray, dtype: np.dtype | None) -> None:
    """Other values in an array: numbers where it has numbers of floating point or nothing; else its own in another order."""
    types = [dtype] if dtype is not None and dtype.kind == "f" else [] if dtype is not None else map(np.dtype, ("f4", "f2", "f8"))
    for kind in types:
        words = live[: live.size // kind.itemsize * kind.itemsize].view(kind)
        with np.errstate(all="ignore"):
            size = np.abs(words[np.isfinite(words)])
            plausible = size.size == words.size and bool(((size == 0) | ((size > _LEAST) & (size < _MOST))).all())
        if plausible:
            words[:] = rng.standard_normal(words.size).astype(kind)
            return
    width = dtype.itemsize if dtype is not None else 4
    words = live[: live.size // width * width].reshape(-1, width)
    words[:] = rng.permutation(words)
