"""Sentences about accesses that nothing orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mmulator.machine.launch.findings.context import Context
from mmulator.machine.sanitizer.judgement import AGAIN
from mmulator.rules import races as rules


def _other(c: Context) -> str:
    return c.other.mnemonic if c.other is not None else "another access"


def _does(flags: int) -> str:
    return "changes" if flags & 4 else "writes" if flags & 2 else "reads"


def _race(c: Context) -> str:
    """`st.shared.f32 writes bytes that ld.shared.f32 reads, and nothing orders the two`"""
    word = c.words[0]
    now, before = word >> 32 & 0x7FFFFFFF, word & 0xFFFFFFFF
    return f"{c.instruction.mnemonic} {_does(now)} bytes that {_other(c)} {_does(before)}, and {{}}"


def _sentence(missing: str) -> Callable[[Context], str]:
    return lambda c: _race(c).format(missing)


def _of_block(c: Context) -> str:
    """Named as such where the write was the later one in this run, and not the first there."""
    said = _race(c).format("no barrier lies between")
    return f"buffer overwritten while it may still be read: {said}" if c.words[0] >> AGAIN else said


def _of_copy(said: str) -> Callable[[Context], str]:
    """Of an access and a cp.async, either of which may be where it was found."""

    def sentence(c: Context) -> str:
        access, copy = c.instruction.mnemonic, _other(c)
        if access.startswith("cp.async") and not copy.startswith("cp.async"):
            access, copy = copy, access
        return said.format(access, copy)

    return sentence


SENTENCES: Mapping[int, Callable[[Context], str | tuple[str, str]]] = {
    rules.WRITE_WRITE.number: _sentence("no barrier lies between"),
    rules.READ_WRITE.number: _of_block,
    rules.IN_WARP.number: _sentence("no bar.warp.sync lies between"),
    rules.BETWEEN_BLOCKS.number: _sentence("nothing orders the two blocks"),
    rules.IN_CLUSTER.number: _sentence("nothing orders the two blocks of the cluster"),
    rules.COPY_READ.number: _of_copy("{} reads bytes that {} may not have copied yet"),
    rules.COPY_OVERWRITTEN.number: _of_copy("{} writes bytes that {} may copy to later"),
    rules.COPY_SOURCE.number: _of_copy("{} writes bytes that {} may copy from later"),
    rules.HALF_STRONG.number: _sentence("nothing orders the two, of which one is weak"),
    rules.REPLICATED_READ.number: _sentence("no barrier lies between"),
    rules.SCOPE.number: _sentence("the scope of one leaves out the other's block"),
}
