"""Dataclasses that are made in a fifth of the time: a start makes dozens, and Python compiles six functions for each.

`dataclass` makes what Python's own makes. But only `__init__` is compiled; the other functions are shared by all classes.

`node` is for classes of which a text has thousands of objects. They are frozen for type checkers alone: an object that refuses
assignments is made in four times the time, since it must be filled through `object.__setattr__`.
"""

from dataclasses import MISSING, FrozenInstanceError, fields
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "node"]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import dataclass as node
else:
    from dataclasses import dataclass as made_by_python

    def node(*, frozen, slots, eq=True):
        """The decorator of a class with slots, with the methods of a frozen dataclass except those that refuse assignments."""

        def make(cls):
            own, made = {*vars(cls)}, made_by_python(_worded(cls), init=False, repr=False, eq=False, slots=slots)
            said = made.__dataclass_params__
            said.init, said.repr, said.eq, said.frozen = True, True, eq, frozen
            functions = {"__init__": _init(made, False, slots), "__repr__": _repr, **(_equality(made, frozen) if eq else {})}
            for name, function in functions.items():
                if name not in own:
                    setattr(made, name, function)
            return made

        return make

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True):
        """The decorator of a class without slots, with simple fields, and without dataclasses among its bases."""
        if cls is None:
            return partial(dataclass, frozen=frozen, eq=eq, repr=repr)
        own, made = {*vars(cls)}, made_by_python(_worded(cls), init=False, repr=False, eq=False)
        said = made.__dataclass_params__
        said.init, said.repr, said.eq, said.frozen = True, repr, eq, frozen
        functions = {"__init__": _init(made, frozen, False)}
        if repr:
            functions["__repr__"] = _repr
        if eq:
            functions |= _equality(made, frozen)
        if frozen:
            functions |= _protection(made)
        for name, function in functions.items():
            if name not in own:
                setattr(made, name, function)
        return made


def _worded(cls: Any) -> Any:
    """A class with a docstring: of one without, dataclasses parses the signature, in whichever thread imports the class."""
    cls.__doc__ = cls.__doc__ or cls.__name__
    return cls


def _init(cls: Any, frozen: bool, slots: bool) -> Any:
    given: dict[str, Any] = {"_absent": object()}  # what the text names; that stands for an absent argument
    parameters, body = ["self"], ["_own = self.__dict__" if frozen else "pass"]  # a third of the time of `object.__setattr__`
    for f in fields(cls):
        value, default = f.name, ""
        if f.default_factory is not MISSING:
            given[f"_{f.name}"], default = f.default_factory, "=_absent"
            value = f"_{f.name}() if {f.name} is _absent else {f.name}" if f.init else f"_{f.name}()"
        elif f.default is not MISSING:
            given[f"_{f.name}"], default = f.default, f"=_{f.name}"
        if f.init:
            parameters.append(f.name + default)
        elif f.default is not MISSING:
            value = f"_{f.name}"
        if f.init or f.default_factory is not MISSING or (slots and f.default is not MISSING):
            body.append(f"_own[{f.name!r}] = {value}" if frozen else f"self.{f.name} = {value}")
    body += ["self.__post_init__()"] * hasattr(cls, "__post_init__")
    text = "\n  ".join([f"def make({', '.join(given)}):\n def __init__({', '.join(parameters)}):", *body])
    made: dict[str, Any] = {"__name__": cls.__module__}
    exec(f"{text}\n return __init__", made)
    return made["make"](**given)


@recursive_repr()
def _repr(self: Any) -> str:
    told = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({told})"


def _equality(cls: Any, frozen: bool) -> dict[str, Any]:
    names = [f.name for f in fields(cls) if f.compare]
    content: Any = attrgetter(*names) if len(names) > 1 else lambda self: tuple(getattr(self, name) for name in names)

    def equal(self: Any, other: Any) -> Any:
        return content(self) == content(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": equal, "__hash__": (lambda self: hash(content(self))) if frozen else None}


def _protection(cls: Any) -> dict[str, Any]:
    def check(self: Any, name: str, what: str) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot {what} field {name!r}")

    def change(self: Any, name: str, value: Any) -> None:
        check(self, name, "assign to")
        object.__setattr__(self, name, value)

    def delete(self: Any, name: str) -> None:
        check(self, name, "delete")
        object.__delattr__(self, name)

    return {"__setattr__": change, "__delattr__": delete}
