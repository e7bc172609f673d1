"""`mmulator cache`: where compiled code is kept, how much of it, and how to remove it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mmulator.base.errors import MmulatorError
from mmulator.cli.output import print_json
from mmulator.cli.parser import Group, Json

if TYPE_CHECKING:
    from mmulator.base.codegen.store import Store


def show(json: Json = False) -> None:
    """Where compiled code is kept, and how much of it.

    The folder is $MMULATOR_CACHE, or $XDG_CACHE_HOME/mmulator, or ~/.cache/mmulator. It may be removed at any time;
    `mmulator cache clear` does so.
    """
    from mmulator.base.codegen.store import open_store

    store, place = open_store()
    entries, size = store.size() if store else (0, 0)
    if json:
        path = str(place.path) if place.path else None
        data = {"folder": path, "used": store is not None, "reason": place.reason, "entries": entries, "bytes": size}
        print_json("cache", {"ok": True, **data})
        return
    print(f"folder   {place.path}")
    if store is None:
        print(f"not used: {place.reason}; everything is compiled anew")
    else:
        print(f"entries  {entries}\nbytes    {size} ({_mebibytes(size)})")


def clear(json: Json = False) -> None:
    """Remove the compiled code that mmulator keeps, and nothing else that lies there."""
    store = _store()
    removed, size = store.clear()
    if json:
        print_json("cache-clear", {"ok": True, "folder": str(store.path), "removed": removed, "bytes": size})
    else:
        print(f"removed {removed} files, {size} bytes ({_mebibytes(size)}), from {store.path}")


def _store() -> Store:
    from mmulator.base.codegen.store import open_store

    store, place = open_store()
    if store is None:
        raise MmulatorError(f"the code cache {place.path or Path()} is not used: {place.reason}")
    return store


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


cache = Group("Where compiled code is kept, and how much of it.", {"clear": clear}, alone=show)
