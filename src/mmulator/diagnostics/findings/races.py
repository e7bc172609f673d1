"""Sentences about races: accesses to memory without an order between them."""

from collections.abc import Callable, Mapping

from mmulator.diagnostics.findings.context import FindingContext
from mmulator.diagnostics.findings.near import WRITES, changes_in_place, nearly
from mmulator.isa.effects import Queue
from mmulator.ptx.tree import Instruction
from mmulator.rules import BY_NUMBER
from mmulator.rules import races as rules
from mmulator.sanitizer.shadow.judgement import AGAIN
from mmulator.sanitizer.shadow.records import STRONG

CHANGES = 4


def _does(flags: int) -> str:
    return "changes" if flags & CHANGES else "writes" if flags & WRITES else "reads"


def _race(c: FindingContext) -> str:
    """The message of a race with a placeholder for the missing order: `st.shared.f32 writes bytes that ld.shared.f32 reads, and
    {}`.
    """
    word = c.words[0]
    now, before = word >> 32 & 0x7FFFFFFF, word & 0xFFFFFFFF
    return f"{c.instruction.mnemonic} {_does(now)} bytes that {c.against} {_does(before)}, and {{}}"


_ATOMIC = (
    "if all these threads add to one element, add with atom.add or red.add: of two loads and stores at the same time, one update "
    "is lost, and no barrier helps; else let each thread change an element of its own"
)
Said = str | tuple[str, str] | tuple[str, str, str]


def _sentence(missing: str) -> Callable[[FindingContext], Said]:
    return lambda c: _near(c, _race(c).format(missing))


def _near(c: FindingContext, said: str) -> Said:
    """The message and hint of a race. If an operation almost orders the two accesses, both name it."""
    what, mend = nearly(c)
    hint = BY_NUMBER[int(c.entry["rule"])].hint
    if not what and changes_in_place(c):
        other = hint.partition("; or ")[2]  # than an atomic operation; a barrier would not help
        return said, c.where(), f"{_ATOMIC}; or {other}" if other else _ATOMIC
    word = c.words[0]
    plain = word >> 32 & word & WRITES and not (word >> 32 | word) & CHANGES
    if plain and c.against == c.instruction.mnemonic:
        hint = f"if each thread should write bytes of its own, correct the stride and the offsets of the address; else {hint}"
        if not what:
            return said, c.where(), hint
    if what:
        return f"{said}: {what}", c.where(), f"{mend}; else {hint}"
    if word & STRONG and word & WRITES and not word >> 32 & (STRONG | WRITES):
        return said, c.where(), f"where any value that was there will do, read it with ld.relaxed or ld.volatile; else {hint}"
    return said, c.where()


def _of_block(c: FindingContext) -> Said:
    """The message and hint of a race between threads of a block; a repeated write that came second is called an overwritten
    buffer.
    """
    said = _race(c).format("no barrier lies between")
    return _near(c, f"buffer overwritten while it may still be read: {said}" if c.words[0] >> AGAIN else said)


def _copies(ins: Instruction) -> bool:
    return ins.effects.queue is Queue.COPIES


def _of_copy(said: str) -> Callable[[FindingContext], str]:
    """A function that writes the message of a race between an access and a cp.async, whichever of the two was found second."""

    def sentence(c: FindingContext) -> str:
        access, copy = c.instruction.mnemonic, c.against
        if _copies(c.instruction) and not (c.other is not None and _copies(c.other)):
            access, copy = copy, access
        return said.format(access, copy)

    return sentence


def _lanes(said: str) -> Callable[[FindingContext], str]:
    return lambda c: f"{c.instruction.mnemonic}: lanes {c.words[0] & 0xFF} and {c.words[0] >> 32} store {said}"


SENTENCES: Mapping[int, Callable[[FindingContext], Said]] = {
    rules.WRITE_WRITE.number: _sentence("no barrier lies between"),
    rules.READ_WRITE.number: _of_block,
    rules.IN_WARP.number: _sentence("nothing orders the two threads of a warp"),
    rules.BETWEEN_BLOCKS.number: _sentence("nothing orders the two blocks"),
    rules.PLAIN_SYNC.number: lambda c: (_race(c).format("one of the two is plain"), c.where()),
    rules.IN_CLUSTER.number: _sentence("nothing orders the two blocks of the cluster"),
    rules.COPY_READ.number: _of_copy("{} reads bytes that {} may not have copied yet"),
    rules.COPY_OVERWRITTEN.number: _of_copy("{} writes bytes that {} may copy to later"),
    rules.COPY_SOURCE.number: _of_copy("{} writes bytes that {} may copy from later"),
    rules.HALF_STRONG.number: _sentence("nothing orders the two, of which one is weak"),
    rules.NOT_RELEASED.number: _sentence("nothing orders the two, of which one is weak"),
    rules.REPLICATED_READ.number: _sentence("no barrier lies between"),
    rules.UNREAD.number: _sentence("no barrier lies between; nothing reads what it loaded"),
    rules.STEADY.number: lambda c: (
        f"{c.instruction.mnemonic} reads as read-only what {c.against} has written in this launch"
    ),
    rules.STEADY_LATER.number: lambda c: (
        f"{c.instruction.mnemonic} reads as read-only what {c.against} writes later in this launch"
    ),
    rules.LANES_DIFFER.number: _lanes("different values to the same bytes; which stays is not defined"),
    rules.MATRIX_ROWS.number: _lanes("different rows at one address; which stays is not defined"),
    rules.SIZES.number: lambda c: (_race(c).format("the two are of different sizes"), c.where()),
    rules.SCOPE.number: _sentence("the scope of one leaves out the other's block"),
}
