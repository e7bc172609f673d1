"""NaNs and infinities that a launch makes and stores: its memory is looked through when it is over, and one of them is followed
to its birth, in the launch run again. Until one is there, a launch costs a copy of its memory.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from mmulator.base.errors import ExecutionFault, NotFinite
from mmulator.host.driver.inquiries import Inquiry, ProgramLaunch
from mmulator.host.report import Report
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.types import TYPES, type_bits
from mmulator.observation.record.birth import NAN, numbers
from mmulator.observation.record.launches.answers import About, WhyAnswer
from mmulator.observation.record.names import Asked, DeviceArray, DeviceNames, ptx_type
from mmulator.ptx.program.calls import reached
from mmulator.runtime.launch.launch import How, Launch
from mmulator.sanitizer.diagnostics.watch import Watches

MOST = 32  # elements of an array that are followed
RULE = "inf - inf, 0 * inf, 0 / 0 and functions outside of their domain are NaN; what is too large, or divided by 0, is infinite"


def checked(wanted: str, launch: Launch, how: How, arrays: Sequence[DeviceArray], run: Callable[[], Report]) -> Report:
    """The report of a launch. Raises NotFinite if it stores a NaN that it has made of other values.

    wanted: "nan"; "inf": an infinity, too.
    launch, how: what runs, and how.
    arrays: what is known of its memory.
    run: runs it.
    """
    names = DeviceNames(arrays)
    before = About([], launch, how, names).memory
    report = run()
    for array in arrays:
        for type_name in _types(array, launch.kernel):
            found = [start for piece in before.pieces for start in _new(piece, array, type_name, wanted == "inf")]
            some = found[:: max(1, len(found) // MOST)][:MOST]
            for asked in (some[:1], some[1:]):
                for answer in _answers([Asked(names(at), at, type_name) for at in asked], launch, how, names, before):
                    if answer.birth is not None and answer.birth.made:
                        raise _error(answer, array, len(found), wanted)
    return report


class NotFiniteInquiry(Inquiry):
    """The wish that a NaN of a launch's own making is an error: `Settings.nan`."""

    def around(self, one: ProgramLaunch, run: Callable[[], Report]) -> Report:
        return checked(one.settings.nan, one.launch, one.how, one.arrays(), run)


NOT_FINITE = NotFiniteInquiry()


def _types(array: DeviceArray, kernel: Any) -> list[str]:
    """Types of floating point that the elements of an array may have: its own, or all that the kernel's stores may be of."""
    if array.dtype is not None:
        name = ptx_type(array.dtype)
        return [name] if name in TYPES and TYPES[name].kind == "float" else []
    every = (i for f in reached(kernel.module.tree, kernel.function).functions.values() for i in f.instructions)
    stores = (i for i in every if i.effects.memory in (MemoryEffect.WRITE, MemoryEffect.ATOMIC) and i.form["type"])
    most = max((type_bits(i.form["type"]) for i in stores), default=64)
    return [name for name in ("f32", "f64", "f16", "bf16") if type_bits(name) <= most]


def _new(piece: Any, array: DeviceArray, type_name: str, infinities: bool) -> Iterator[int]:
    """Addresses of elements of an array that the launch has changed to a NaN. piece: of memory before and after it."""
    size = type_bits(type_name) // 8
    at = piece.owner + piece.start
    low, high = (min(max(end, at), at + len(piece.live)) for end in (array.start, array.start + array.size))
    low += (array.start - low) % size
    old, new = (raw[low - at : max(low, high - (high - low) % size) - at].view(f"u{size}") for raw in (piece.before, piece.live))
    changed = np.flatnonzero(old != new)
    values = numbers(new[changed], type_name)
    for n in changed[~np.isfinite(values) if infinities else np.isnan(values)]:
        yield low + int(n) * size


def _answers(asked: list[Asked], launch: Launch, how: How, names: DeviceNames, before: Any) -> Sequence[WhyAnswer]:
    """Why elements have their values, in the launch from the memory that it found."""
    if not asked:
        return []
    how = replace(how, threads=1, progress=None, meanwhile=None, keep_going=False, watched=False)
    before.keep()
    before.restore()
    about = About(asked, launch, how, names)
    watches = Watches([], launch.arguments, about.places)
    try:
        with suppress(ExecutionFault):
            return about.answers(watches, launch.run(how, [watches]))
    finally:
        before.leave()
    return []


def _error(answer: WhyAnswer, array: DeviceArray, count: int, wanted: str) -> NotFinite:
    birth = answer.birth
    assert birth is not None
    now = "NaN" if wanted == "nan" else "NaN or infinite"
    others = f"{count - 1:,} other elements of {array.name} are" if count > 2 else f"another element of {array.name} is"
    more = f", and {others} {now} now" if count > 1 else ""
    lines = "".join(f"; {value} since {said}" for value, said in birth.of)
    return NotFinite(
        f"{'a NaN' if birth.kind == NAN else 'an infinity'} is made: {birth.what}{birth.by}; {answer.name} is "
        f"{answer.cause.text if answer.cause else ''} because of it{more}{lines}",
        span=birth.span, rule=RULE,
        hint=f"--why '{answer.name}' in place of --nan shows the way from there to the element",
        fault="TRAP",  # for programs of C++, whose launch has failed
    )  # fmt: skip
