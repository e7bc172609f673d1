"""Questions people ask about matrix instructions, answered as data.

Plain frozen dataclasses with `to_dict()` (what `--json` prints) and, for notebooks, `_repr_html_` or `_repr_svg_`.
The command line prints the same answers. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# name -> module of this package that has it
_LAZY: dict[str, str] = {
    "Explanation": "explanation",
    "FormGroup": "listing",
    "MetadataWord": "sparse",
    "PatternReport": "sparse",
    "explain": "explanation",
    "find_forms": "search",
    "group": "listing",
    "metadata_word": "sparse",
    "metadata_words": "sparse",
    "pattern_report": "sparse",
}

__all__ = [
    "Explanation",
    "FormGroup",
    "MetadataWord",
    "PatternReport",
    "explain",
    "find_forms",
    "group",
    "metadata_word",
    "metadata_words",
    "pattern_report",
]

if TYPE_CHECKING:
    from mmulator.inspect.explanation import Explanation, explain
    from mmulator.inspect.listing import FormGroup, group
    from mmulator.inspect.search import find_forms
    from mmulator.inspect.sparse import MetadataWord, PatternReport, metadata_word, metadata_words, pattern_report


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"mmulator.inspect.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
