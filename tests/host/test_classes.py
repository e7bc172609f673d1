"""The package's `dataclass` (classes.py) makes what Python's makes."""

import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field, replace
from typing import Any, ClassVar

import pytest

from mmulator.base import classes

OPTIONS: list[dict[str, bool]] = [
    {}, {"frozen": True}, {"eq": False}, {"frozen": True, "eq": False}, {"repr": False}, {"frozen": True, "repr": False},
]  # fmt: skip


def both(make: Any, options: dict[str, bool]) -> tuple[Any, Any]:
    """A class as Python makes it, and as the package does."""
    return dataclasses.dataclass(**options)(make()), classes.dataclass(**options)(make())


def many() -> type:
    class Many:
        """A class."""

        shared: ClassVar[int] = 5
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=lambda: [7])
        hidden: int = field(default=3, repr=False, compare=False)
        made: dict[str, int] = field(default_factory=dict, init=False)

        def twice(self) -> int:
            return 2 * self.a

    return Many


def one() -> type:
    class One:
        """A class."""

        a: Any

        def __repr__(self) -> str:
            return f"<{self.a}>"

    return One


def none() -> type:
    class Empty:
        """A class."""

    return Empty


def prepared() -> type:
    class Prepared:
        """A class."""

        a: int
        b: int = 1

        def __post_init__(self) -> None:
            object.__setattr__(self, "sum", self.a + self.b)

    return Prepared


ARGUMENTS: dict[Any, list[tuple[Any, ...]]] = {
    many: [(1,), (1, "x"), (1, "x", [3]), (1, "x", [3], 9), (2,)], one: [(1,), ("x",), ((),)], none: [()],
    prepared: [(1,), (1, 2)],
}  # fmt: skip


def outcome(function: Any, *arguments: Any, **named: Any) -> Any:
    """What a function returns, or its error."""
    try:
        return function(*arguments, **named)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(o) or "plain")
@pytest.mark.parametrize("make", ARGUMENTS, ids=lambda m: m.__name__)
def test_both_make_the_same(make: Any, options: dict[str, bool]) -> None:
    python, ours = both(make, options)
    assert len(dataclasses.fields(ours)) == len(dataclasses.fields(python)) and python.__match_args__ == ours.__match_args__
    assert str(python.__dataclass_params__) == str(ours.__dataclass_params__)
    pairs = [(python(*given), ours(*given)) for given in ARGUMENTS[make]]
    for a, b in pairs:
        assert vars(a) == vars(b) and dataclasses.asdict(a) == dataclasses.asdict(b)
        assert (repr(a) == repr(b)) == (" object at " not in repr(b)) and (" object at " in repr(a)) == (" object at " in repr(b))
        if options.get("eq", True):
            assert outcome(hash, a) == outcome(hash, b)
            assert outcome(hash, replace(a)) == outcome(hash, replace(b))
        for c, d in pairs:
            assert (a == c) == (b == d) and (a != c) == (b != d)
        assert a != b and b != 1
    for a, b in pairs:
        for name in ("a", "other"):
            assert outcome(setattr, a, name, 4) == outcome(setattr, b, name, 4)
            assert outcome(delattr, a, name) == outcome(delattr, b, name)
        assert vars(a) == vars(b)
    wrong: list[tuple[tuple[int, ...], dict[str, int]]] = [((1,) * 9, {}), ((), {"strange": 1})]
    for given, named in wrong:
        assert outcome(python, *given, **named)[0] is outcome(ours, *given, **named)[0] is TypeError


def test_a_class_below_a_frozen_one_is_as_below_pythons() -> None:
    for base in both(prepared, {"frozen": True}):

        class Below(base):  # type: ignore[misc, valid-type]
            pass

        below = Below(1)
        below.other = 3
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
            below.a = 3
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'a'"):
            del below.a
        del below.other
        with pytest.raises(TypeError, match="frozen"):
            dataclasses.dataclass(type("Other", (base,), {}))


@classes.dataclass(frozen=True)
class Kept:
    """A class that pickle finds."""

    a: int
    b: Any = None


def test_instances_are_copied_and_shown() -> None:
    kept = Kept(1, [2])
    assert pickle.loads(pickle.dumps(kept)) == kept
    kept.b.append(kept)
    assert repr(kept) == "Kept(a=1, b=[2, ...])"


