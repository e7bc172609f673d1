"""The sanitizer as an instrument: each hook calls the functions of all topics that use it, one after another."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.codegen.lang import Hook, Instrument, Native, call
from mmulator.codegen.values import Builder
from mmulator.native.hooks import events
from mmulator.native.hooks import operands as hooks_operands
from mmulator.sanitizer.checks import (
    accumulators,
    ends,
    execution,
    lanes,
    mbarriers,
    operands,
    proxies,
    screens,
    skips,
    unwritten,
    values,
    values_products,
    waits,
)
from mmulator.sanitizer.order import orders
from mmulator.sanitizer.shadow import races

# Topics in the order in which they are told about an event: hooks, by name, to functions. Happens-before is updated first,
# because accesses are checked against it.
TOPICS: tuple[Mapping[str, Native], ...] = tuple(
    topic.HOOKS
    for topic in (
        orders,
        races,
        lanes,
        proxies,
        accumulators,
        mbarriers,
        ends,
        operands,
        execution,
        screens,
        skips,
        values,
        values_products,
        unwritten,
        waits,
    )
)


class Chain(Native):
    """A function with the parameters of a hook that calls several functions with them."""

    def __init__(self, hook: Hook, functions: list[Native]) -> None:
        self.function, self.name, self.functions = functions[0].function, f"sanitize_{hook.name}", functions
        self.attributes, self.inline = "", False

    def build(self) -> tuple[Builder, list[Native]]:
        builder = Builder(self.name, self.returns, self.params, attributes=self.attributes)
        with builder:
            for function in self.functions:
                call(builder, function, builder.params)
            builder.ret(None)
        return builder, self.functions


HOOK_FILES = (events, hooks_operands)


def _hook(name: str) -> Hook:
    return next(getattr(file, name) for file in HOOK_FILES if hasattr(file, name))


def _chained() -> dict[str, Native]:
    names = dict.fromkeys(name for topic in TOPICS for name in topic)
    heard = {name: [topic[name] for topic in TOPICS if name in topic] for name in names}
    return {n: f[0] if len(f) == 1 else Chain(_hook(n), f) for n, f in heard.items()}


SANITIZE = Instrument("sanitize", _chained())
