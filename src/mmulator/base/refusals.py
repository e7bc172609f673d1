"""Work that this process was asked for and that was refused: a register of reasons, and whether the program knows of them.

An `UnsupportedError` enters its reason when it is made. In Python it is an exception, so a program that goes on has caught it.
In C a call returns a code, which a program may pass over: work that a call refused (a launch, a copy) is open until the program
asks for the error (`read`).
"""

from dataclasses import dataclass, field
from typing import Any

REFUSED = 4  # exit code of a program that ends with 0 and does not know of all that was refused
GATHERED = "MMULATOR_FINDINGS"  # names the file of a process that waits for this one (host/driver/findings.py)
_MOST, _TOLD = 256, 3  # reasons that are kept; reasons in a line
_OTHERS = "other reasons"


@dataclass
class RefusedWork:
    """A reason.

    launches: that were not run for it.
    calls: other work.
    open: how much of both the program does not know of.
    code: of the last of it.
    """

    why: str
    launches: int = 0
    calls: int = 0
    open: int = 0
    code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON. An exception counts as one call."""
        calls = self.calls or int(not self.launches)
        return {"why": self.why, "launches": self.launches, "calls": calls, "handled": not self.open}


@dataclass
class Register:
    """The refusals of a process by their reasons.

    ran: launches that were run.
    sticky: the code of a refused launch, which calls of the runtime return until the program has read it.
    doubt: why the last call was refused that prepares work.
    """

    refused: dict[str, RefusedWork] = field(default_factory=dict)
    ran: int = 0
    sticky: int = 0
    doubt: str = ""

    def enter(self, why: str) -> RefusedWork:
        """The entry of a reason."""
        if why not in self.refused:
            why = why if len(self.refused) < _MOST else _OTHERS
        return self.refused.setdefault(why, RefusedWork(why))

    def work(self, why: str, code: int, launch: bool) -> RefusedWork:
        """Count work that was not done, and whose code the program may pass over."""
        found = self.enter(why)
        found.launches, found.calls = found.launches + launch, found.calls + (not launch)
        found.open, found.code = found.open + 1, code
        self.sticky = code if launch else self.sticky
        return found

    def read(self, code: int | None = None) -> list[RefusedWork]:
        """The program has read an error: the open refusals of this code, or all, which it knows of from now on."""
        found = [r for r in self.refused.values() if r.open and code in (None, r.code)]
        for refusal in found:
            refusal.open = 0
        if code in (None, self.sticky):
            self.sticky, self.doubt = 0, ""
        return found

    def line(self) -> str:
        """`1 of 3 launches was not run: why`; "" where the program knows of all that was refused."""
        rows = [r for r in self.refused.values() if r.open]
        launches, calls = sum(r.launches for r in rows), sum(r.calls for r in rows)
        were = "was" if launches == 1 else "were"
        heads = [f"{launches:,} of {number(launches + self.ran, 'launch', 'es')} {were} not run"] if launches else []
        heads += [f"{number(calls, 'call')} {'was' if calls == 1 else 'were'} refused"] if calls else []
        more = [f"{len(rows) - _TOLD} more reasons"] * (len(rows) > _TOLD)
        return f"{' and '.join(heads)}: {'; '.join([*(r.why for r in rows[:_TOLD]), *more])}" if rows else ""

    def clear(self) -> None:
        self.refused.clear()
        self.ran = self.sticky = 0
        self.doubt = ""


def number(count: int, word: str, plural: str = "s") -> str:
    """A count with its word: `1 launch`, `2 launches`."""
    return f"{count:,} {word}{plural * (count != 1)}"


register = Register()
