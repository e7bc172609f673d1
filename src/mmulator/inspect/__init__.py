"""Questions people ask about matrix instructions, answered as data.

Plain frozen dataclasses with `to_dict()` (what `--json` prints) and, for notebooks, `_repr_html_` or `_repr_svg_`.
The command line prints the same answers. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# name -> module that has it, of this package where there is no dot
_LAZY: dict[str, str] = {
    "BankConflicts": "banks",
    "CuteAnswer": "from_cute",
    "CuteLayout": "cute_layout",
    "DescriptorAnswer": "descriptor",
    "DescriptorFields": "descriptor",
    "Explanation": "explanation",
    "Finding": "descriptor_checks",
    "FormGroup": "listing",
    "Layout": "layouts",
    "MetadataWord": "sparse",
    "OffsetMeaning": "descriptor",
    "PatternReport": "sparse",
    "Tile": "tile",
    "WarpAccess": "banks",
    "address_accesses": "banks",
    "bank_conflicts": "banks",
    "describe_descriptor": "descriptor",
    "descriptor_fields": "descriptor",
    "descriptor_from_cute": "from_cute",
    "explain": "explanation",
    "find_forms": "mmulator.syntax.search",
    "group": "listing",
    "layout": "layouts",
    "make_tile": "descriptor",
    "metadata_word": "sparse",
    "metadata_words": "sparse",
    "pattern_report": "sparse",
    "tile_to_shape": "cute_layout",
}

__all__ = [
    "BankConflicts",
    "CuteAnswer",
    "CuteLayout",
    "DescriptorAnswer",
    "DescriptorFields",
    "Explanation",
    "Finding",
    "FormGroup",
    "Layout",
    "MetadataWord",
    "OffsetMeaning",
    "PatternReport",
    "Tile",
    "WarpAccess",
    "address_accesses",
    "bank_conflicts",
    "describe_descriptor",
    "descriptor_fields",
    "descriptor_from_cute",
    "explain",
    "find_forms",
    "group",
    "layout",
    "make_tile",
    "metadata_word",
    "metadata_words",
    "pattern_report",
    "tile_to_shape",
]

if TYPE_CHECKING:
    from mmulator.inspect.banks import BankConflicts, WarpAccess, address_accesses, bank_conflicts
    from mmulator.inspect.cute_layout import CuteLayout, tile_to_shape
    from mmulator.inspect.descriptor import (
        DescriptorAnswer,
        DescriptorFields,
        OffsetMeaning,
        describe_descriptor,
        descriptor_fields,
        make_tile,
    )
    from mmulator.inspect.descriptor_checks import Finding
    from mmulator.inspect.explanation import Explanation, explain
    from mmulator.inspect.from_cute import CuteAnswer, descriptor_from_cute
    from mmulator.inspect.layouts import Layout, layout
    from mmulator.inspect.listing import FormGroup, group
    from mmulator.inspect.sparse import MetadataWord, PatternReport, metadata_word, metadata_words, pattern_report
    from mmulator.inspect.tile import Tile
    from mmulator.syntax.search import find_forms


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    place = _LAZY[name] if "." in _LAZY[name] else f"mmulator.inspect.{_LAZY[name]}"
    value = getattr(import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
