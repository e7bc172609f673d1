"""The rules that programs must obey and that nothing else checks: a file for each topic. `sanitize=` reports breaches of them,
and `mmulator explain` prints their texts.

These files hold data only: all rules in them are known to everybody, in the order in which they stand. Code that finds breaches
is in sanitizer/checks/ (while a kernel runs) and in ptx/program/static.py (in its text). A message with words that depend on more
than the names of two instructions is in sanitizer/diagnostics/findings/.
"""

from mmulator.base.rules import (
    accumulators,
    execution,
    launches,
    mbarriers,
    operands,
    proxies,
    races,
    tensor_memory,
    text,
    values,
    waits,
)
from mmulator.base.rules.rule import Rule, Severity

_TOPICS = (accumulators, proxies, races, mbarriers, operands, execution, values, waits, text, tensor_memory, launches)
TOPICS: dict[str, tuple[Rule, ...]] = {
    topic.__name__.rpartition(".")[2]: tuple(r for r in vars(topic).values() if isinstance(r, Rule)) for topic in _TOPICS
}
RULES: dict[str, Rule] = {r.name: r for rules in TOPICS.values() for r in rules}
BY_NUMBER: dict[int, Rule] = {r.number: r for r in RULES.values()}

if len(RULES) != sum(map(len, TOPICS.values())) or len(BY_NUMBER) != len(RULES):
    raise ValueError("two rules have one name, or one number")

__all__ = ["BY_NUMBER", "RULES", "TOPICS", "Rule", "Severity"]
