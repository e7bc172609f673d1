"""Keeps the fields of new versions of JSON documents: python -m tools.pages.schemas

Fields of a version that was kept before are not changed: tests/laws/test_schemas.py compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmulator.base.schemas import VERSIONS, named
from mmulator.base.schemas.documents import DOCUMENTS, PARTS

ROOT = Path(__file__).parents[2]
FILE = "tests/data/schemas.json"


def fields(name: str) -> list[str]:
    """The fields of a document as lines: path, whether it must be there, type."""
    parts = {} if "$ref" not in json.dumps(DOCUMENTS[name]) else PARTS
    told = [*_walk(DOCUMENTS[name], ""), *(line for part, shape in parts.items() for line in _walk(shape, f"{part}:"))]
    return sorted(set(told))


def _walk(shape: dict[str, Any], path: str) -> Iterator[str]:
    if path and "schema" in shape.get("properties", {}):
        yield f"{path} = {shape['properties']['schema']['pattern']}"  # a document, which has fields and versions of its own
        return
    for name, inner in shape.get("properties", {}).items():
        if name == "schema":
            continue
        needed = "" if name in shape["required"] else "?"
        yield f"{path}.{name}{needed}: {inner.get('type') or inner.get('enum') or inner.get('$ref') or 'any'}"
        yield from _walk(inner, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(shape.get(key), dict):
            yield from _walk(shape[key], path + mark)
    for inner in shape.get("anyOf", ()):
        yield from _walk(inner, f"{path}|{inner.get('type') or inner.get('$ref') or 'any'}")


def main() -> None:
    path = ROOT / FILE
    kept: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}
    kept |= {named(name): fields(name) for name in VERSIONS if named(name) not in kept}
    path.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
