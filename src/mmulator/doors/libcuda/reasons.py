"""Errors of other libraries with the reason that this driver had: instances of both error classes."""

import re
from typing import Any

from mmulator.doors.libcuda.abi import taken
from mmulator.doors.library import leaving
from mmulator.errors import MmulatorError

_CODE = re.compile(r"(CUDA_ERROR_\w+): ")
_made: dict[tuple[type, type], type] = {}


def with_reason(error: Exception, why: BaseException | None) -> Exception:
    """The library's error, or one that is also the MmulatorError behind it and reads as both. Raises KeyboardInterrupt if that
    was
    the reason.
    """
    if isinstance(why, KeyboardInterrupt):
        raise why
    if not isinstance(why, MmulatorError):
        return error
    leaving.read()  # an exception: a program that goes on has caught it
    kinds = (type(error), type(why))
    if kinds not in _made:
        _made[kinds] = type(type(why).__name__, kinds, {"__str__": _both, "__init__": _nothing})
    found: Exception = _made[kinds].__new__(_made[kinds], *error.args)
    found.args = error.args
    found.__dict__.update(why.__dict__)
    found.__dict__.update(error.__dict__)
    code = _CODE.match(str(error))  # CUDA adds to some codes that the process is lost, which it is not here
    found.__dict__["library_error"] = code[1] if code else str(error)
    return found


def _both(self: Any) -> str:
    return f"{self.library_error}\n{MmulatorError.__str__(self)}"


def _nothing(self: Any, *args: Any, **kwargs: Any) -> None:
    """An __init__ that does nothing: the instance is complete."""


def telling_class(kind: type[Exception]) -> type[Exception]:
    """A subclass of a library's error class, whose instances say the reason of the last failed call."""

    class ErrorWithReason(kind):  # type: ignore[misc, valid-type]
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            why = taken() if cls is ErrorWithReason else None
            plain = super().__new__(cls, *args, **kwargs)
            if why is None:
                return plain
            plain.__init__(*args, **kwargs)
            return with_reason(plain, why)

    ErrorWithReason.__name__, ErrorWithReason.__qualname__, ErrorWithReason.__module__ = (
        kind.__name__,
        kind.__qualname__,
        kind.__module__,
    )
    return ErrorWithReason
