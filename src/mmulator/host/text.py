"""A module's text, verified: what a launch must know of it at once, its tree when somebody asks.

Of a text that was verified before, by these files of the package, the store has the outline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from mmulator.base.codegen.locks import Lock, TimeUp, no_collection, no_fork, time_limit
from mmulator.base.codegen.sources import fingerprint
from mmulator.base.codegen.store import digest_of, store
from mmulator.base.errors import LaunchError, LimitReached
from mmulator.base.source import Source
from mmulator.ptx.program.outline import Outline, as_data, of_data

if TYPE_CHECKING:
    from mmulator.ptx.tree import ParsedModule as Tree


@contextmanager
def loading_within(seconds: float | None, name: str) -> Iterator[None]:
    """Within, a text is read, parsed and verified in so many seconds. Raises LimitReached, or LaunchError for a limit that is
    none."""
    if seconds is not None and not seconds > 0:
        raise LaunchError(f"a time limit of {seconds} s: it must be more than 0")
    try:
        with time_limit(seconds):
            yield
    except TimeUp:
        raise LimitReached(
            f"{name} was not read and verified within {seconds:g} s; nothing was loaded", hint="allow more time"
        ) from None


class Text:
    """A verified module. known: its source is all of it, and no tree that somebody made."""

    def __init__(self, source: Source, outline: Outline, tree: Tree | None = None, known: bool = True) -> None:
        self.source, self.outline, self.known = source, outline, known
        self._tree, self._lock = tree, Lock()

    @classmethod
    def load(cls, source: Source) -> Text:
        """Raises what is wrong with it first."""
        kept, key = store(), _key(source)
        outline = _outline(kept.read(key) if kept and key else None, source)
        if outline is not None:
            return cls(source, outline)
        text = cls.of(verified(source))
        text.known = True
        if kept and key:
            kept.write(key, json.dumps(as_data(text.outline)).encode())
        return text

    @classmethod
    def of(cls, tree: Tree) -> Text:
        """The text of a verified tree."""
        return cls(tree.source, _reader()[2](tree), tree, known=False)

    @property
    def tree(self) -> Tree:
        with self._lock:
            if self._tree is None:
                self._tree = verified(self.source)
            return self._tree

    def forget_tree(self) -> None:
        """Let go of a tree that can be made again. Each has tens of thousands of objects, and Python looks through all that are
        alive when it searches for garbage.
        """
        if self.known:
            self._tree = None


def _key(source: Source) -> str:
    own = fingerprint()
    return own and digest_of(f"outline\0{own}\0{source.text}".encode(errors="surrogatepass")).hexdigest()


def _outline(data: bytes | None, source: Source) -> Outline | None:
    try:
        return None if data is None else of_data(json.loads(data), source)
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


@cache
def _reader() -> tuple[Any, Any, Any]:
    """The functions that read texts, imported at the first: a forked child cannot wait for an import. Later texts do not wait
    for LLVM, which works under that lock, too.
    """
    with no_fork:
        from mmulator.ptx.parser import parse_module
        from mmulator.ptx.program.calls import outline_of
        from mmulator.ptx.verify import verify
    return parse_module, verify, outline_of


def verified(source: Source) -> Tree:
    """The tree of a text. Raises what is wrong with it first."""
    parse_module, verify, _ = _reader()
    with no_collection():
        tree = parse_module(source)
        errors = verify(tree)
    if errors:
        raise errors[0]
    return tree
