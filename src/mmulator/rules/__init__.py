"""The rules that programs must obey and that nothing else checks: a file for each topic. `sanitize=` reports breaches of them,
and `mmulator explain` prints their texts.

These files hold data only. Code that finds breaches is in sanitizer/ (while a kernel runs) and in program/static/ (in its
text).
"""

from mmulator.rules import accumulators, execution, mbarriers, operands, proxies, races, tensor_memory, text, values, waits
from mmulator.rules.rule import Rule, Severity

_TOPICS = (accumulators, proxies, races, mbarriers, operands, execution, values, waits, text, tensor_memory)
TOPICS: dict[str, tuple[Rule, ...]] = {topic.__name__.rpartition(".")[2]: topic.RULES for topic in _TOPICS}
RULES: dict[str, Rule] = {r.name: r for topic in _TOPICS for r in topic.RULES}
BY_NUMBER: dict[int, Rule] = {r.number: r for r in RULES.values()}

if len(RULES) != sum(len(topic.RULES) for topic in _TOPICS) or len(BY_NUMBER) != len(RULES):
    raise ValueError("two rules have one name, or one number")

__all__ = ["BY_NUMBER", "RULES", "TOPICS", "Rule", "Severity"]
