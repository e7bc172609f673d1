"""Misuse of mbarriers, and deadlocks of threads that wait at mbarriers, as sentences: what is missing, and who arrived last."""

from collections.abc import Callable, Sequence

from mmulator.base.errors import ExecutionFault
from mmulator.base.rules import mbarriers as rules
from mmulator.matrix.numerics.mbarrier import MOST, MOST_V1
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.resident import Resident, ResidentCta
from mmulator.runtime.native.state import FaultKind
from mmulator.sanitizer.diagnostics.faults.cluster import waits_text
from mmulator.sanitizer.diagnostics.mbarriers import MbarrierEvent, MbarrierState, known, on_host, place_text
from mmulator.sanitizer.diagnostics.whereabouts import LaneGroup, everywhere

_MBARRIER = "(PTX ISA 9.1, Parallel Synchronization and Communication Instructions: mbarrier)"
_SENTENCES = 8  # mbarriers that the report of a deadlock describes


# misuse -------------------------------------------------------------------------------------------------------------
def _plural(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _never(k: MbarrierState, here: ResidentCta, count: int) -> str:
    if k.ended is not None:
        return f"at {k.name(here)}, which {k.ended.text(here)} has invalidated"
    return f"at {k.name(here)}, where no mbarrier has been initialised"


def _arrivals(k: MbarrierState, here: ResidentCta, count: int) -> str:
    if not count:
        return f"of no arrival at {k.name(here)}"
    pending = _plural(k.word.pending, "arrival")
    return f"of {_plural(count, 'arrival')} at {k.name(here)}, where {k.phase_text} awaits {pending}{_last(k, here)}"


def _bytes(k: MbarrierState, here: ResidentCta, count: int) -> str:
    return f"of {_plural(count, 'byte')} at {k.name(here)}, whose tx-count is {k.word.bytes}"


_KINDS: dict[FaultKind, tuple[Callable[[MbarrierState, ResidentCta, int], str], str, str]] = {
    FaultKind.NO_MBARRIER: (
        _never,
        f"mbarrier operations need an mbarrier that mbarrier.init has made and mbarrier.inval has not ended {_MBARRIER}",
        rules.NOT_INITIALISED.hint,
    ),
    FaultKind.MBARRIER_RANGE: (
        lambda k, here, count: f"of {_plural(count, 'arrival')} at {k.name(here)}",
        f"mbarrier.init: the count is 1 to 2^20 - 1 = {MOST}, with .layout::v1 to 2^9 - 1 = {MOST_V1} {_MBARRIER}",
        rules.COUNT_INVALID.hint,
    ),
    FaultKind.MBARRIER_ARRIVALS: (
        _arrivals,
        f"mbarrier.arrive: the count is at least 1 and at most the arrivals that are pending in the phase {_MBARRIER}",
        "arrive once for each arrival of mbarrier.init's count: a thread may arrive again when the phase is over; from sm_90 on "
        "the lanes of one instruction arrive together, so elect one lane or initialise with their number",
    ),
    FaultKind.MBARRIER_BYTES: (
        _bytes,
        f"the tx-count of an mbarrier is -(2^20 - 1) to 2^20 - 1 = {MOST}: bytes that are expected and have not come {_MBARRIER}",
        rules.TX_OVERFLOW.hint,
    ),
    FaultKind.MBARRIER_COMPLETES: (
        lambda k, here, count: f"with the last arrival of {k.phase_text} at {k.name(here)}",
        f"mbarrier.arrive.noComplete must not complete the phase {_MBARRIER}",
        rules.NO_COMPLETE.hint,
    ),
    FaultKind.MBARRIER_STORED: (
        lambda k, here, count: f"at {k.name(here)}, whose word something else has written to: it is 0x{k.word.encode():x}",
        f"an mbarrier is opaque: only mbarrier operations may touch its 64 bits until mbarrier.inval {_MBARRIER}",
        "look for a store or a copy that reaches the mbarrier: beyond the end of an array, or of a buffer that is too small",
    ),
    FaultKind.MBARRIER_ELSEWHERE: (
        lambda k, here, count: f"that completes {k.name(here)}, and writes to the shared memory of "
        f"{ResidentCta(here.resident, count)}",
        "the mbarrier of an asynchronous operation lies in the shared memory of the block that its data goes to (PTX ISA 9.1, "
        "Data Movement and Conversion Instructions: Asynchronous copy)",
        rules.OTHER_BLOCK.hint,
    ),
}
KINDS = frozenset(_KINDS)


def describe_mbarrier(grid: Grid, cta: ResidentCta, kind: FaultKind, who: str) -> ExecutionFault:
    """The exception for a fault at an mbarrier. kind: the kind of fault. who: the thread, in words."""
    state = cta.state
    ins = grid.kernel.sites[int(state["fault_site"])]
    k = known(cta.resident, on_host(cta.resident, int(state["fault_address"])))
    say, rule, hint = _KINDS[kind]
    said = say(k, cta, int(state["fault_bytes"]))
    return ExecutionFault(f"{ins.mnemonic} {said}, in {who}", span=ins.span, rule=rule, hint=hint)


# deadlocks ----------------------------------------------------------------------------------------------------------
def describe_waits(grid: Grid, resident: Resident, found: Sequence[tuple[ResidentCta, list[LaneGroup]]]) -> ExecutionFault:
    """The exception for a deadlock in which some threads wait at mbarriers. found: groups of lanes for each CTA of the
    cluster.
    """
    waits = [g for _, gs in found for g in gs if g.mbarrier is not None]
    awaited = list({g.mbarrier.at: g for g in waits if g.mbarrier is not None}.values())
    awaited.sort(key=lambda g: g.mbarrier.untold if g.mbarrier is not None else 0)
    cta = waits[0].cta
    assert cta is not None
    where = everywhere(cta, found) + waits_text(resident, cta)
    lines = [_account(g, len(found)) for g in awaited[:_SENTENCES]]
    if len(awaited) > _SENTENCES:
        lines.append(f"and {_plural(len(awaited) - _SENTENCES, 'more mbarrier')}")
    first = waits[0].instruction
    hints = dict(reversed([likely(g) for g in awaited]))  # of each kind the first
    hints.pop("", None)
    return ExecutionFault(
        f"deadlock in {cta}: {where}" + "".join(f"\n  {line}" for line in lines),
        span=first.span if first is not None else None,
        rule="a phase is over when all arrivals that mbarrier.init named have come, and all bytes that were expected "
        f"{_MBARRIER}",
        hint="; ".join(list(hints.values())[::-1][:2])
        or "look for a thread that does not arrive, or a copy that completes another mbarrier",
        fault="DEADLOCK",
    )  # fmt: skip


def _last(k: MbarrierState, here: ResidentCta) -> str:
    return f"; the last was by {k.arrived.text(here)}" if k.arrived is not None else ""


def missing_text(k: MbarrierState) -> str:
    """The arrivals and bytes that a phase of an mbarrier lacks: `1 of 4 arrivals is missing, all 512 expected bytes came`."""
    word, parts = k.word, []
    if word.pending:
        parts.append(f"{word.pending} of {_plural(_size(k), 'arrival')} {'is' if word.pending == 1 else 'are'} missing")
    else:
        parts.append(f"all {_plural(_size(k), 'arrival')} came" if _size(k) != 1 else "its arrival came")
    if word.bytes > 0:
        parts.append(f"{word.bytes} of {_plural(k.expected, 'expected byte')} {'has' if word.bytes == 1 else 'have'} not come")
    elif word.bytes < 0:
        parts.append(f"{_plural(-word.bytes, 'byte')} came that nobody expects")
    elif k.came and k.counts_copies:
        parts.append(f"{_plural(k.came, 'arrival')} of cp.async without .noinc took away what they had added")
    elif k.came:
        parts.append(f"all of {_plural(k.came, 'expected byte')} came")
    return ", ".join(parts)


def _account(g: LaneGroup, blocks: int) -> str:
    """The state of an mbarrier in words: what is missing, and the last events. In a deadlock nothing is under way."""
    k, here = g.mbarrier, g.cta
    assert k is not None and here is not None
    word = k.word
    known_phase = "" if k.phases is None else f", of parity {word.phase}"
    lines = [f"{k.name(here if blocks == 1 else None)} is in {k.phase_text}{known_phase}: {missing_text(k)}"]
    if k.phases is not None:
        lines.append(_when("last arrival", k, k.arrived, here) or "nobody has arrived since mbarrier.init")
    if word.bytes > 0:
        lines.append(_when("bytes were expected", k, k.asked, here))
    if word.bytes:
        lines.append(_when("last bytes", k, k.brought, here) or "no bytes have come since mbarrier.init")
    if k.made is not None:
        lines.append(f"made by {place_text(k.made.instruction)}")
    lines.append("nothing is under way for it")
    return "\n    ".join(filter(None, lines))


def _size(k: MbarrierState) -> int:
    """Number of arrivals that a phase expects, as far as the mbarrier's word tells."""
    return max(k.word.expected, k.word.pending)


def _when(what: str, k: MbarrierState, event: MbarrierEvent | None, here: ResidentCta) -> str:
    if event is None:
        return ""
    phase = "" if event.phase == k.phases else f", in phase {event.phase}"
    return f"{what} by {event.text(here)}{phase}"


# what is likely wrong -----------------------------------------------------------------------------------------------
def likely(g: LaneGroup) -> tuple[str, str]:
    """The probable mistake behind an mbarrier's state, as (kind, sentence); two empty texts if the state suggests none."""
    k, here = g.mbarrier, g.cta
    assert k is not None and here is not None
    return next(((find.__name__, text) for find in _LIKELY if (text := find(k, here))), ("", ""))


def _other_block(k: MbarrierState, here: ResidentCta) -> str:
    """A sentence if the mbarrier at the same place in another block received what this mbarrier lacks."""
    for cta in here.resident.each():
        part = k.arrived_now or k.came
        if cta.rank == k.cta.rank or (part and k.word.bytes <= 0):
            continue
        other = known(here.resident, k.at + _distance(k.cta, cta))
        further = (other.phases or 0) > (k.phases or 0)  # or, where nothing came here, anything there
        if other.valid and (further or (not part and (other.arrived_now or other.word.bytes < 0))):
            return (
                f"the mbarrier at the same place of {cta} received more: look whether the thread that should arrive, or the "
                "copy, names the right block (mapa, multicast mask)"
            )
    return ""


def _distance(a: ResidentCta, b: ResidentCta) -> int:
    arena = a.resident.arena
    return arena.at(a.resident.shared[b.rank]) - arena.at(a.resident.shared[a.rank])


def _takes_back(k: MbarrierState, here: ResidentCta) -> str:
    if not k.counts_copies or k.word.pending == 0:
        return ""
    return (
        "cp.async.mbarrier.arrive without .noinc adds one to what the phase awaits, and takes it away when the copies are over: "
        "write cp.async.mbarrier.arrive.noinc where mbarrier.init counts these arrivals"
    )


def _too_many_bytes(k: MbarrierState, here: ResidentCta) -> str:
    if k.word.bytes <= 0:
        return ""
    if not k.came:
        return (
            f"of {_plural(k.word.bytes, 'expected byte')} none came: look whether a copy is issued and completes {k.name(here)}"
        )
    return (
        f"expect_tx announced {_plural(k.expected, 'byte')} and {k.came} came, {k.word.bytes} fewer: let it expect what the "
        "copies bring (a tensor copy brings its whole box, what lies outside of the tensor too)"
    )


def _unexpected_bytes(k: MbarrierState, here: ResidentCta) -> str:
    if k.word.bytes >= 0:
        return ""
    return (
        f"expect_tx announced {_plural(k.expected, 'byte')} and {k.came} came, {-k.word.bytes} more: expect them all in the "
        "phase in which they come"
    )


def _part_of_the_arrivals(k: MbarrierState, here: ResidentCta) -> str:
    if k.word.pending == _size(k):
        return ""
    came = _size(k) - k.word.pending
    return (
        f"mbarrier.init names {_plural(_size(k), 'arrival')} a phase and {came} came: count the threads that arrive (one elected "
        "lane is 1, a warp 32)"
    )


def _empty_from_the_start(k: MbarrierState, here: ResidentCta) -> str:
    if k.phases != 0 or k.arrived is not None or k.brought is not None or k.asked is not None:
        return ""
    return (
        f"nobody has arrived at {k.name(here)} yet: the thread that should waits, too, or took another branch; and a producer's "
        "first wait for a buffer that is empty must be for parity 1, the phase before the first, which is over"
    )


def _one_ahead(k: MbarrierState, here: ResidentCta) -> str:
    if not k.phases or k.word.pending != _size(k):
        return ""
    return (
        f"phase {k.phases - 1} of {k.name(here)} is over and nobody has arrived in {k.phase_text}: look whether the thread that "
        "waits flips the parity once for each phase, and whether those that arrive wait for it before the next one, as with an "
        "mbarrier for empty stages"
    )


_LIKELY = (
    _takes_back, _other_block, _too_many_bytes, _unexpected_bytes, _part_of_the_arrivals, _empty_from_the_start, _one_ahead,
)  # fmt: skip
