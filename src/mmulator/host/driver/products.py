"""Products of NVIDIA's libraries that a program asked for: how many have the library's bits, by kind, and where the first is that
may have others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from mmulator.base.refusals import number
from mmulator.host.driver.findings import caller, gathering
from mmulator.host.driver.inquiries import ProcessRecord, say

_TOLD = 3  # kinds in a line
_NOWHERE = "a place that is not known"


class LibraryProducts(ProcessRecord):
    """The products of a process.

    kinds: for each kind ("f32 nn mm") the products whose order of sums in the library is known, and those whose is not.
    first: the line of the program with the first whose order is not known.
    operators: calls of operators of torch that add up in an order that is not known, by operator and type, and why it is not.
    first_sum: the line of the first of them.
    """

    def clear(self) -> None:
        self.kinds: dict[str, list[int]] = {}
        self.first = self.first_sum = ""
        self.operators: dict[tuple[str, str], int] = {}

    def operator(self, name: str, why: str, place: Callable[[], str | None]) -> None:
        """Count a call of an operator that is no product, and whose bits on a GPU are not known. place: as count has it."""
        with self:
            self.operators[name, why] = self.operators.get((name, why), 0) + 1
            self.first_sum = self.first_sum or place() or _NOWHERE

    def count(self, kind: str, known: bool, place: Callable[[], str | None] | None = None) -> None:
        """Count a product. place: says where the program asked for it; without it, where C++ did."""
        with self:
            self.kinds.setdefault(kind, [0, 0])[not known] += 1
            if not known and not self.first:
                self.first = (place or caller())() or _NOWHERE

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without what is counted of all kinds together."""
        rows = [{"kind": kind, "known": known, "not_known": rest} for kind, (known, rest) in sorted(self.kinds.items())]
        others = [{"operator": name, "why": why, "calls": calls} for (name, why), calls in sorted(self.operators.items())]
        return {"kinds": rows, "first": self.first or self.first_sum, "operators": others}

    def finish(self) -> None:
        if not (self.kinds or self.operators):
            return
        found = merged([self.as_dict()])
        if (file := gathering()) is not None:
            file.products(self.as_dict())
        if found["not_known"] or found["operators"]:
            say(f"mmulator: {told(found, self.first_sum)}")


def merged(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The products of several processes as one: their number, how many are in the library's order, and the kinds."""
    kinds, first, others = dict[str, list[int]](), "", dict[tuple[str, str], int]()
    for row in rows:
        for one in row["operators"]:
            others[one["operator"], one["why"]] = others.get((one["operator"], one["why"]), 0) + one["calls"]
        first = first or row["first"]
        for kind in row["kinds"]:
            counts = kinds.setdefault(kind["kind"], [0, 0])
            counts[0], counts[1] = counts[0] + kind["known"], counts[1] + kind["not_known"]
    known, rest = (sum(counts[n] for counts in kinds.values()) for n in (0, 1))
    of = [{"kind": kind, "known": k, "not_known": n} for kind, (k, n) in sorted(kinds.items())]
    calls = [{"operator": name, "why": why, "calls": count} for (name, why), count in sorted(others.items())]
    return {"products": known + rest, "known": known, "not_known": rest, "first": first, "kinds": of, "operators": calls}


def _most(kinds: Iterable[tuple[int, str]]) -> str:
    """`4 f32 nn mm, 1 f32 mv, 2 more kinds`."""
    rows = sorted(kinds, key=lambda row: -row[0])
    more = [number(len(rows) - _TOLD, "more kind")] * (len(rows) > _TOLD)
    return ", ".join((*(f"{count:,} {kind}" for count, kind in rows[:_TOLD]), *more))


def told(found: dict[str, Any], first_sum: str) -> str:
    """`3 products: 1 in the library's order, 2 not known (first at train.py:3: a @ b), ...; 2 sums in an order that ...`."""
    made, others = [], found["operators"]
    if found["not_known"]:
        kinds = _most((row["not_known"], row["kind"]) for row in found["kinds"] if row["not_known"])
        made.append(
            f"{number(found['products'], 'product')}: {found['known']:,} in the library's order, {found['not_known']:,} not "
            f"known (first at {found['first']}), whose last bits may differ from a GPU's: {kinds}"
        )
    if others:
        count, kinds = sum(one["calls"] for one in others), _most((one["calls"], one["operator"]) for one in others)
        made.append(f"{number(count, 'sum')} in an order that is not known (first at {first_sum}): {kinds}")
    return "; ".join(made)


@cache
def products() -> LibraryProducts:
    """One a process."""
    return LibraryProducts()
