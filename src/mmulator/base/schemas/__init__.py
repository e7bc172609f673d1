"""JSON documents that commands and functions write: their names and versions. documents.py has what they hold."""

from typing import Any

# name: major and minor number. A new field raises the minor number; a field that goes, or holds something else, the major one.
VERSIONS: dict[str, tuple[int, int]] = dict.fromkeys((
    "report", "findings", "why", "cause", "profile", "judge", "mutate", "reduce",  # a launch, and what is known of it
    "same", "same-configs", "compare-builds",  # two launches
    "run", "exec", "check", "profiles", "conformance", "library", "debug",  # commands that run kernels or read them
    "list", "devices", "explain", "topic", "rules", "rule", "compare",  # instructions
    "layout", "layout-element", "layout-cute", "descriptor", "instruction-descriptor",
    "tensormap", "tensormap-check", "tensormap-box",
    "sparse-check", "sparse-file", "sparse-lanes", "sparse-word",
    "explore", "explore-export", "doctor", "cache", "cache-clear", "schemas", "error",
), (1, 0)) | {"cause": (1, 2), "why": (1, 1), "exec": (2, 2), "same": (1, 1)} | dict.fromkeys(
    ("findings", "check", "compare-builds"), (2, 0)
) | dict.fromkeys(("report", "judge", "error", "run"), (2, 1))


def named(name: str) -> str:
    """The value of the field `schema`: `mmulator.judge/2.0`."""
    return f"mmulator.{name}/{'.'.join(map(str, VERSIONS[name]))}"


def document(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """A document: its schema, and its fields. name: of the schema."""
    return {"schema": named(name), **{key: value for key, value in data.items() if key != "schema"}}
