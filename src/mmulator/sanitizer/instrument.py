"""The sanitizer as an instrument: for each hook the functions of all topics that listen there, one after the other."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.codegen.chains import chained
from mmulator.codegen.lang import Instrument, Native
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

# Topics in the order in which they hear of an event: hooks, by their names, to functions. Who knew what comes first where an
# access is judged by it.
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


SANITIZE = Instrument("sanitize", chained("sanitize", TOPICS))
