"""The sanitizer as an instrument: each hook calls the functions of all topics that use it, one after another."""

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
    tensor_columns,
    tensor_memory,
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
        tensor_memory,
        tensor_columns,
    )
)


SANITIZE = Instrument("sanitize", chained("sanitize", TOPICS), waits=True)
