"""mbarriers and clusters. Numbers from 400 on."""

from __future__ import annotations

from mmulator.rules.rule import Rule, Severity

INIT_IN_USE = Rule(
    400, "mbarrier-init-in-use", Severity.ERROR, "an mbarrier is initialised while it is one",
    "PTX ISA 9.1, Parallel Synchronization and Communication Instructions: mbarrier.init",
    "mbarrier.init on a valid mbarrier object is undefined. An object is valid from its mbarrier.init to its mbarrier.inval.",
    "invalidate it with mbarrier.inval first, or initialise it once, by one thread",
)  # fmt: skip

RULES: tuple[Rule, ...] = (INIT_IN_USE,)
