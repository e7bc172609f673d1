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


class LibraryProducts(ProcessRecord):
    """The products of a process.

    kinds: for each kind ("f32 nn mm") the products whose order of sums in the library is known, and those whose is not.
    first: the line of the program with the first whose order is not known.
    operators: calls of operators of torch whose bits are not known, by operator and type; and why they are not.
    """

    def clear(self) -> None:
        self.kinds: dict[str, list[int]] = {}
        self.first = ""
        self.operators: dict[tuple[str, str], int] = {}

    def operator(self, name: str, why: str) -> None:
        """Count a call of an operator that is no product, and whose bits on a GPU are not known."""
        with self:
            self.operators[name, why] = self.operators.get((name, why), 0) + 1

    def count(self, kind: str, known: bool, place: Callable[[], str | None] | None = None) -> None:
        """Count a product. place: says where the program asked for it; without it, where C++ did."""
        with self:
            self.kinds.setdefault(kind, [0, 0])[not known] += 1
            if not known and not self.first:
                self.first = (place or caller())() or "a place that is not known"

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without what is counted of all kinds together."""
        rows = [{"kind": kind, "known": known, "not_known": rest} for kind, (known, rest) in sorted(self.kinds.items())]
        others = [{"operator": name, "why": why, "calls": calls} for (name, why), calls in sorted(self.operators.items())]
        return {"kinds": rows, "first": self.first, "operators": others}

    def finish(self) -> None:
        if not (self.kinds or self.operators):
            return
        found = merged([self.as_dict()])
        if (file := gathering()) is not None:
            file.products(self.as_dict())
        if found["not_known"]:
            say(f"mmulator: {told(found)}")


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


def told(found: dict[str, Any]) -> str:
    """`3 products: 1 in the library's order, 2 not known (first at train.py:3: a @ b), ...`."""
    rest = sorted((row for row in found["kinds"] if row["not_known"]), key=lambda row: -row["not_known"])
    most = [f"{row['not_known']:,} {row['kind']}" for row in rest[:_TOLD]]
    most += [f"{number(len(rest) - _TOLD, 'more kind')}"] * (len(rest) > _TOLD)
    also = f"; nor those of {', '.join(one['operator'] for one in found['operators'][:_TOLD])}" if found["operators"] else ""
    return (
        f"{number(found['products'], 'product')}: {found['known']:,} in the library's order, {found['not_known']:,} not known "
        f"(first at {found['first']}), whose last bits may differ from a GPU's: {', '.join(most)}{also}"
    )


@cache
def products() -> LibraryProducts:
    """One a process."""
    return LibraryProducts()
