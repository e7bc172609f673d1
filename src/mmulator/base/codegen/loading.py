"""Loading of native functions on demand: each is a separate small piece of stored object code, linked by symbol.

A function that was never compiled is compiled quickly. When the process has run native code for as long as better code of its
functions takes to compile, this is compiled in the background, is stored, and takes the place of the quick code, whose addresses
stay. What a function calls comes before the function, so a stored function with better code calls no quick code.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING

from mmulator.base.codegen import named
from mmulator.base.codegen.engine import INNER, CompiledObject, afterwards, better_code, code_memory
from mmulator.base.codegen.linking import HERE, Linked
from mmulator.base.codegen.locks import Lock, remaining
from mmulator.base.codegen.named import says_all
from mmulator.base.errors import InternalError

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Native

_loaded: dict[str, int] = {}
_functions: dict[str, Native] = {}  # by name: one function has it
_names: dict[int, str] = {}  # of those that are loaded, by address
_asked: dict[str, named.NamedCode] = {}  # found, and not loaded yet
_memory: list[Linked] = []  # one, from the first function on
_lock, _linking = Lock(), Lock()
_quick: set[str] = set()  # names of loaded functions for which better code is wanted
_ran = [0.0]  # seconds of native code since better code was begun
_texts: dict[str, tuple[bytes, list[str] | None]] = {}  # of what was compiled here: as `named` keeps it, and its links
QUICK = True  # whether functions that were never compiled are compiled quickly
LONG = 0.01  # seconds of running for each quick function, from which on better code pays


def ensure(functions: Iterable[Native]) -> None:
    """Compile, or read from the cache, these functions and all functions that they call, and load them. Raises TimeUp."""
    wanted = [f for f in functions if _functions.get(f.name) is not f]
    if wanted:
        with _lock:
            _load(wanted)


def _load(wanted: list[Native]) -> None:
    found = _Found()
    try:
        for function in wanted:
            remaining()
            found.take(function)
        codes = {name: code if isinstance(code, bytes) else code.code() for name, code in found.codes.items()}
    except BaseException:
        found.give_up()
        raise
    for name, links in found.links.items():
        if links is not None:
            named.keep(name, codes[name], links, named.QUICK if name in found.quick else named.BEST)
            if name in found.texts:
                named.keep(name, found.texts[name], links, named.TEXT)
    _texts.update({name: (text, found.links[name]) for name, text in found.texts.items()})
    _enter(codes, found.quick)
    _functions.update(found.functions)


def _enter(codes: dict[str, bytes], quick: Collection[str] = ()) -> None:
    if codes:
        with _linking:
            if not _memory:
                _memory.append(code_memory())
            _memory[0].add(codes.values(), gated=quick)
        found = {name: _memory[0].address(name) for name in codes}
        _loaded.update(found)
        _names.update({at: name for name, at in found.items()})
        _quick.update(quick)
        _asked.clear()


def ran(seconds: float) -> None:
    """Record that native code ran for a number of seconds."""
    _ran[0] += seconds


def patience() -> float:
    """Seconds of running after which better code of the native functions pays."""
    return max(0.0, LONG * len(_quick) - _ran[0]) if _quick else float("inf")


def text_of(name: str) -> tuple[str, list[str] | None] | None:
    """(the text of better code, the functions to which it is linked: None if their names do not determine it), if it is kept."""
    data, links = _texts.get(name, (b"", None))
    if not data and (found := named.find(name, [named.TEXT])):
        data, links = found.code, [*found.links]
    return (zlib.decompress(data).decode(), links) if data else None


def improve() -> None:
    """Let LLVM's thread compile better code of the native functions when it is idle. It reads their texts, which were kept when
    their quick code was made: to write them again, Python would parse, in which one thread can disturb another.
    """
    wanted, _ran[0] = {*_quick}, 0.0
    _quick.clear()

    def visit(name: str) -> None:
        """Put off a function's better code, after that of the functions that it calls."""
        wanted.discard(name)
        if found := text_of(name):
            for link in wanted.intersection(found[1] or ()):
                visit(link)
            afterwards(partial(_better, name, *found))

    def work() -> bytes:
        while wanted:
            visit(min(wanted))
        return b""

    if wanted:
        afterwards(work)


def _better(name: str, text: str, links: list[str] | None) -> bytes:
    code = better_code(text)
    if links is not None:
        named.keep(name, code, links)
    if HERE:  # elsewhere LLVM links, and later processes have it
        _enter({name: code})
    return b""


def is_stored(name: str) -> bool:
    """Whether the code of a function of the package is loaded or stored, or linked to what may still be compiled."""
    return name in _loaded or _stored(name) is not None


def _stored(name: str) -> named.NamedCode | None:
    """The stored code of a function of the package, read once although several callers need it before it is loaded."""
    entry = _asked.get(name)
    if entry is None:
        entry = named.find(name, (named.BEST, named.QUICK) if QUICK else (named.BEST,))
        if entry is not None:
            _asked[name] = entry
    return entry


def ensure_named(names: Iterable[str]) -> bool:
    """Load functions of the package by their names alone. Returns False, and loads nothing, if the code of one is
    not stored.
    """
    with _lock:
        found = _Found()
        if not all(found.by_name(name) for name in names):
            return False
        _enter({name: code for name, code in found.codes.items() if isinstance(code, bytes)}, found.quick)
        return True


class _Found:
    """Functions that are not loaded, and all functions to which they are linked, as object code that is finished or being
    compiled.

    links: for each function the names of the functions that it calls; None if these names do not determine its code.
    quick: those for which better code can be compiled.
    texts: deflated, of those and of functions with a straight path (`straightened`).
    """

    def __init__(self) -> None:
        self.codes: dict[str, bytes | CompiledObject] = {}
        self.links: dict[str, list[str] | None] = {}
        self.functions: dict[str, Native] = {}
        self.quick: set[str] = set()
        self.texts: dict[str, bytes] = {}

    def take(self, function: Native) -> None:
        name = function.name
        known = self.functions.get(name) or _functions.get(name)
        if known is not None and not known.is_like(function):
            raise InternalError(f"{name} is the name of two native functions: they are linked by it")
        self.functions.setdefault(name, function)
        if known is not None or name in _loaded or name in self.codes or (says_all(function) and self.by_name(name)):
            return
        from mmulator.base.codegen.lang import parts
        from mmulator.base.codegen.values import module_text

        builders, calls = parts(function)
        linked = {f.name: f for f in calls if f.name != name}
        for callee in linked.values():
            self.take(callee)
        ours = says_all(function) and all(says_all(f) for f in linked.values())
        quick = function.quick or (QUICK and not function.inner)
        text = module_text(builders)
        made = self.codes[name] = CompiledObject(text, INNER if function.inner else 2, quick)
        if made.quick and not function.quick:
            self.quick.add(name)
        if name in self.quick or function.other:
            self.texts[name] = zlib.compress(text.encode(), 1)
        self.links[name] = [*linked] if ours else None

    def by_name(self, name: str) -> bool:
        """Whether the code of a function, and of all functions to which it is linked, is stored; its text is not
        needed then.
        """
        if name in _loaded or name in self.codes:
            return True
        entry = _stored(name)
        if entry is None or not all(self.by_name(link) for link in entry.links):
            return False
        self.codes[name] = entry.code
        if entry.quick:
            self.quick.add(name)
        return True

    def give_up(self) -> None:
        for code in self.codes.values():
            if isinstance(code, CompiledObject):
                code.give_up()


def address(function: Native) -> int:
    """Address of a native function, loading it first."""
    ensure([function])
    return _loaded[function.name]


def symbols(names: Iterable[str]) -> dict[str, int]:
    """Addresses of those of `names` that are loaded native functions."""
    return {n: _loaded[n] for n in names if n in _loaded}


def name_of_own(address: int) -> str | None:
    """The name of the package's own loaded function at an address."""
    name = _names.get(address)
    return name if name and (name not in _functions or says_all(_functions[name])) else None


# functions with a straight path --------------------------------------------------------------------------------------
def straightened(text: str, natives: Iterable[Native]) -> str:
    """A module's text in which native functions that have a straight path are defined, so that they are inlined. Those whose
    texts were not kept are called.
    """
    defined: dict[str, str] = {}
    declared: dict[str, None] = {}
    for function in natives:
        if function.other is not None and f"@{function.name}(" in text and (found := text_of(function.name)):
            heads, own, *inlined = found[0].split("\ndefine ")
            head, _, body = own.lstrip().partition(") ")
            definitions = [f"internal {head}) alwaysinline {body}", *inlined]
            defined |= {_named(definition): f"define {definition}" for definition in definitions}
            declared |= dict.fromkeys(heads.split("\n"))
    if not defined:
        return text
    lines = [line for line in text.split("\n") if not (line.startswith("declare ") and _named(line) in defined)]
    wanted = [line for line in declared if line and _named(line) not in defined and line not in lines]
    return "\n".join([*sorted(wanted), *lines, *defined.values()])


def _named(line: str) -> str:
    return line[line.index("@") + 1 : line.index("(")]
