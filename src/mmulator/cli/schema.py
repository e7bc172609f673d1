"""`mmulator schema`: the JSON Schemas of the documents that commands and functions write."""

from __future__ import annotations

from typing import Annotated

from mmulator.cli.parser import Option, Positional


def schema(
    name: Annotated[str | None, Positional("Of a document: judge, report.", "NAME")] = None,
    json: Annotated[bool, Option("Print the names as JSON.")] = False,
) -> None:
    """The JSON Schema of a document, or without a name which documents there are.

    Every JSON document says its schema and version in the field `schema`: mmulator.judge/2.0.

    Examples:
        mmulator schema
        mmulator schema judge > judge.json
    """
    from difflib import get_close_matches

    from mmulator.base.errors import MmulatorError
    from mmulator.base.schemas import VERSIONS, named
    from mmulator.cli.output import print_json

    if name is None:
        names = [named(one) for one in VERSIONS]
        if json:
            print_json("schemas", {"ok": True, "schemas": names})
        else:
            print("\n".join(names))
        return
    from json import dumps

    from mmulator.base.schemas.documents import schema_of

    wanted = name.removeprefix("mmulator.").partition("/")[0]
    if wanted not in VERSIONS:
        near = get_close_matches(wanted, VERSIONS, 2)
        hint = f"did you mean {' or '.join(near)}?" if near else "mmulator schema lists all names"
        raise MmulatorError(f"no document has the name {name}", hint=hint)
    print(dumps(schema_of(wanted), indent=1))
