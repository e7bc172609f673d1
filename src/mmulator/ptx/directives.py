"""Directives between a function's parameters and its body: a table of their arguments and requirements, the checks, and what
they mean for clusters.

Performance-Tuning Directives, Cluster Dimension Directives, Miscellaneous Directives (PTX ISA 9.1). Where ptxas accepts more
than the specification, this file does too: of a directive that is written twice, the last one holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mmulator.base.classes import dataclass
from mmulator.base.errors import InvalidInstructionError, similar
from mmulator.ptx.symbols import Declared

if TYPE_CHECKING:
    from mmulator.ptx.tree import Function, ParsedModule

_TUNING, _CLUSTERS = "Performance-Tuning Directives", "Cluster Dimension Directives"


@dataclass(frozen=True)
class _Directive:
    """A row of the table of directives.

    section: title of its section in the specification.
    least, most: number of arguments.
    positive: whether no argument may be 0.
    owner: "entry" or "func", the functions that may have it; "" for both.
    excludes: directives that must not appear beside it.
    includes: directives that must appear beside it.
    ptx, sm: the least PTX version and target.
    """

    section: str
    least: int = 0
    most: int = 0
    positive: bool = False
    owner: str = "entry"
    excludes: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    ptx: tuple[int, int] = (1, 0)
    sm: int = 0


_HOPPER: dict[str, Any] = {"ptx": (7, 8), "sm": 90}
DIRECTIVES: Mapping[str, _Directive] = {
    "maxnreg": _Directive(_TUNING, 1, 1, positive=True),
    "maxntid": _Directive(_TUNING, 1, 3, excludes=("reqntid",)),
    "reqntid": _Directive(_TUNING, 1, 3, excludes=("maxntid",)),
    "minnctapersm": _Directive(_TUNING, 1, 1),
    "noreturn": _Directive(_TUNING, owner="func", ptx=(6, 4), sm=30),
    "abi_preserve": _Directive(_TUNING, 1, 1, owner="func", ptx=(9, 0), sm=80),
    "abi_preserve_control": _Directive(_TUNING, 1, 1, owner="func", ptx=(9, 0), sm=80),
    "reqnctapercluster": _Directive(_CLUSTERS, 1, 3, excludes=("maxclusterrank",), **_HOPPER),
    "explicitcluster": _Directive(_CLUSTERS, **_HOPPER),
    "maxclusterrank": _Directive(_CLUSTERS, 1, 1, excludes=("reqnctapercluster",), **_HOPPER),
    "blocksareclusters": _Directive("Miscellaneous Directives", includes=("reqntid", "reqnctapercluster"), ptx=(9, 0), sm=90),
    "pragma": _Directive("Performance-Tuning Directives", 0, 64, owner=""),
}


@dataclass(frozen=True)
class Clusters:
    """Clusters as a kernel's directives require them.

    shape: number of blocks in x, y, z (.reqnctapercluster); None leaves the shape to the launch.
    explicit: whether the launch or the kernel must give a shape (.explicitcluster).
    most: greatest number of blocks in a cluster (.maxclusterrank); None for no bound.
    blocks: whether the launch's grid counts clusters instead of blocks (.blocksareclusters).
    """

    shape: tuple[int, int, int] | None
    explicit: bool
    most: int | None
    blocks: bool


def clusters(function: Declared) -> Clusters:
    """The requirements of a verified kernel for its clusters."""
    found = function.directives
    shape = [int(n) for n in found.get("reqnctapercluster", ())]
    x, y, z = (*shape, 1, 1, 1)[:3]
    most = found.get("maxclusterrank")
    return Clusters(
        (x, y, z) if shape else None, "explicitcluster" in found, int(most[0]) if most else None, "blocksareclusters" in found
    )


def check_directives(module: ParsedModule, function: Function) -> Iterator[InvalidInstructionError]:
    """Errors in the directives of a function."""
    for name, values in function.directives.items():
        directive = DIRECTIVES.get(name)
        if directive is None:
            close = similar(name, DIRECTIVES)
            hint = f"did you mean {' or '.join('.' + n for n in close)}?" if close else None
            yield _error(f"there is no directive .{name}", function, "Directives", hint)
        else:
            for message in _wrong(name, directive, values, function, module):
                yield _error(message, function, f"{directive.section}: .{name}")


def _wrong(
    name: str, directive: _Directive, values: tuple[int | str, ...], function: Function, module: ParsedModule
) -> Iterator[str]:
    owner = "entry" if function.is_entry else "func"
    if directive.owner not in ("", owner):
        yield f".{name} stands at .{directive.owner}; {function.name} is an .{owner}"
    if not directive.least <= len(values) <= directive.most:
        many = str(directive.least) if directive.least == directive.most else f"{directive.least} to {directive.most}"
        yield f".{name} takes {many} argument{'s' * (directive.most != 1)}; there are {len(values)}"
    elif directive.positive and 0 in values:
        yield f".{name} is 0; it must be positive"
    if module.version < directive.ptx or module.target.number < directive.sm:
        version, here = "{}.{}".format(*directive.ptx), "{}.{}".format(*module.version)
        yield f".{name} needs PTX {version} and .target sm_{directive.sm} or higher; this module says {here} and {module.target}"
    for other in directive.excludes:
        if other in function.directives and name < other:  # one error for the pair
            yield f".{name} and .{other} cannot stand together"
    for other in directive.includes:
        if other not in function.directives:
            yield f".{name} needs .{other}"
    if name == "noreturn" and function.returns:
        yield f".noreturn stands at {function.name}, which returns a value"


def _error(message: str, function: Function, section: str, hint: str | None = None) -> InvalidInstructionError:
    return InvalidInstructionError(message, span=function.span, rule=f"{section} (PTX ISA 9.1)", hint=hint)
