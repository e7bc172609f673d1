"""Sentences of findings about dependent launches. The driver adds which launch was before (host/driver/order.py)."""

from mmulator.base.rules.launches import DEPENDENT
from mmulator.sanitizer.diagnostics.findings.context import FindingContext, Sentences

_USES = (("reads", "writes"), ("writes", "reads"), ("writes", "writes"))


def early(context: FindingContext) -> str:
    mine, theirs = _USES[context.words[0]]
    return f"{context.name} {mine}, before griddepcontrol.wait, what the launch before it {theirs}"


SENTENCES: Sentences = {DEPENDENT: early}
