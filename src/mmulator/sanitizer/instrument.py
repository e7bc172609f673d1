"""The sanitizer as an instrument: each hook calls the functions of all topics that use it, one after another."""

from collections.abc import Mapping

from mmulator.base.codegen.chains import chained
from mmulator.base.codegen.lang import Instrument, Native
from mmulator.sanitizer.checks import (
    accumulators,
    ends,
    execution,
    mbarriers,
    operands,
    phases,
    proxies,
    tensor_memory,
    tensor_state,
    unwritten,
    values,
    values_products,
    waits,
)
from mmulator.sanitizer.order import orders
from mmulator.sanitizer.shadow import races

# Hooks, by name, to functions, in the order in which they are told about an event. Happens-before is updated first, because
# accesses are checked against it; before that, what a thread must have known already.
TOPICS: tuple[Mapping[str, Native], ...] = (
    phases.EARLY_HOOKS, orders.HOOKS, phases.HOOKS, races.HOOKS, races.LANE_HOOKS, proxies.HOOKS, accumulators.HOOKS,
    mbarriers.HOOKS, ends.HOOKS, operands.HOOKS, execution.HOOKS, operands.SCREEN_HOOKS, execution.BARRIER_HOOKS, values.HOOKS,
    values_products.HOOKS, unwritten.HOOKS, waits.HOOKS, tensor_memory.HOOKS, tensor_state.HOOKS,
)  # fmt: skip


SANITIZE = Instrument("sanitize", chained("sanitize", TOPICS), waits=True)
