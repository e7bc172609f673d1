"""JSON documents beside their schemas."""

from functools import cache
from typing import Any

import jsonschema

from mmulator.base.schemas.documents import schema_of


def strict(shape: Any) -> Any:
    """A schema that allows no further fields: a field that nobody declared is noticed."""
    if isinstance(shape, list):
        return [strict(one) for one in shape]
    if not isinstance(shape, dict):
        return shape
    closed = {"additionalProperties": False} if "properties" in shape and shape.get("type") == "object" else {}
    return {key: strict(value) for key, value in shape.items()} | closed


@cache
def _validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(strict(schema_of(name)))


def checked(data: Any) -> str:
    """The name of a document's schema, by which it is checked."""
    name: str = data["schema"].removeprefix("mmulator.").partition("/")[0]
    found = jsonschema.exceptions.best_match(_validator(name).iter_errors(data))
    assert found is None, f"{name}, {found.json_path}: {found.message[:300]}"
    return name
