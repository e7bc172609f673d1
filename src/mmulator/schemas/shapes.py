"""Shapes of JSON values, from which JSON Schemas are made."""

from __future__ import annotations

from typing import Any

from mmulator.schemas import VERSIONS

Shape = dict[str, Any]

TEXT: Shape = {"type": "string"}
WHOLE: Shape = {"type": "integer"}
FLAG: Shape = {"type": "boolean"}
NONE: Shape = {"type": "null"}
ANY: Shape = {}
NUMBER: Shape = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}  # JSON has no such numbers
_PLAIN = {"text": TEXT, "whole": WHOLE, "flag": FLAG, "number": NUMBER, "texts": {"type": "array", "items": TEXT},
          "wholes": {"type": "array", "items": WHOLE}, "any": ANY}  # fmt: skip
_OPTIONAL = "optional"


def record(*plain: str, **others: Shape) -> Shape:
    """An object. plain: `text: a b`, fields of one shape each. others: shapes of further fields."""
    shapes = {name: _PLAIN[kind] for line in plain for kind, _, names in [line.partition(": ")] for name in names.split()}
    shapes |= others
    needed = [name for name, shape in shapes.items() if _OPTIONAL not in shape]
    properties = {name: {key: value for key, value in shape.items() if key != _OPTIONAL} for name, shape in shapes.items()}
    return {"type": "object", "properties": properties, "required": needed}


def optional(shape: Shape) -> Shape:
    """The shape of a field that may be left out."""
    return {**shape, _OPTIONAL: True}


def many(shape: Shape) -> Shape:
    """A list."""
    return {"type": "array", "items": shape}


def by_name(shape: Shape) -> Shape:
    """An object whose fields have names that the data choose."""
    return {"type": "object", "additionalProperties": shape}


def either(*shapes: Shape) -> Shape:
    """One of several shapes."""
    return {"anyOf": [*shapes]}


def or_none(shape: Shape) -> Shape:
    """A shape, or null."""
    return either(shape, NONE)


def one_of(*texts: str) -> Shape:
    """One of several texts."""
    return {"enum": [*texts]}


def named(name: str) -> Shape:
    """A shape of documents.PARTS, which may be inside itself."""
    return {"$ref": f"#/$defs/{name}"}


def versioned(name: str, shape: Shape) -> Shape:
    """A document: an object with the field `schema`."""
    major = VERSIONS[name][0]
    schema = {"type": "string", "pattern": rf"^mmulator\.{name}/{major}\.[0-9]+$"}
    return {**shape, "properties": {"schema": schema, **shape["properties"]}, "required": ["schema", *shape["required"]]}
