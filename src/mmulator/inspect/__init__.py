"""Answers, as data, to questions about matrix instructions.

Plain frozen dataclasses with `to_dict()` (what `--json` prints) and, for notebooks, `_repr_html_` or `_repr_svg_`.
The command line prints the same answers. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# name -> module of this package that has it
_LAZY: dict[str, str] = {
    "BankConflicts": "descriptors.banks",
    "CuteAnswer": "descriptors.from_cute",
    "CuteLayout": "descriptors.cute_layout",
    "DescriptorAnswer": "descriptors.answer",
    "DescriptorFields": "descriptors.answer",
    "Device": "chips",
    "Explanation": "explanation.answer",
    "Diagnostic": "descriptors.checks",
    "FormGroup": "listing",
    "Layout": "layouts.answer",
    "MetadataWord": "sparse",
    "OffsetMeaning": "descriptors.answer",
    "PatternReport": "sparse",
    "TensorBox": "tensormaps.box",
    "TensorMapFields": "tensormaps.fields",
    "Tile": "descriptors.tile",
    "WarpAccess": "descriptors.banks",
    "address_accesses": "descriptors.banks",
    "bank_conflicts": "descriptors.banks",
    "check_copy": "tensormaps.checks",
    "describe_descriptor": "descriptors.describe",
    "descriptor_fields": "descriptors.describe",
    "descriptor_from_cute": "descriptors.from_cute",
    "explain": "explanation.explain",
    "find_forms": "search",
    "group": "listing",
    "layout": "layouts.layout",
    "make_tile": "descriptors.describe",
    "metadata_word": "sparse",
    "metadata_words": "sparse",
    "parse_copy": "tensormaps.copy",
    "pattern_report": "sparse",
    "tensor_box": "tensormaps.box",
    "tensor_map_fields": "tensormaps.fields",
    "tile_to_shape": "descriptors.cute_layout",
}

__all__ = [
    "BankConflicts",
    "CuteAnswer",
    "CuteLayout",
    "DescriptorAnswer",
    "DescriptorFields",
    "Device",
    "Diagnostic",
    "Explanation",
    "FormGroup",
    "Layout",
    "MetadataWord",
    "OffsetMeaning",
    "PatternReport",
    "TensorBox",
    "TensorMapFields",
    "Tile",
    "WarpAccess",
    "address_accesses",
    "bank_conflicts",
    "check_copy",
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
    "parse_copy",
    "pattern_report",
    "tensor_box",
    "tensor_map_fields",
    "tile_to_shape",
]

if TYPE_CHECKING:
    from mmulator.inspect.chips import Device
    from mmulator.inspect.descriptors.answer import DescriptorAnswer, DescriptorFields, OffsetMeaning
    from mmulator.inspect.descriptors.banks import BankConflicts, WarpAccess, address_accesses, bank_conflicts
    from mmulator.inspect.descriptors.checks import Diagnostic
    from mmulator.inspect.descriptors.cute_layout import CuteLayout, tile_to_shape
    from mmulator.inspect.descriptors.describe import describe_descriptor, descriptor_fields, make_tile
    from mmulator.inspect.descriptors.from_cute import CuteAnswer, descriptor_from_cute
    from mmulator.inspect.descriptors.tile import Tile
    from mmulator.inspect.explanation.answer import Explanation
    from mmulator.inspect.explanation.explain import explain
    from mmulator.inspect.layouts.answer import Layout
    from mmulator.inspect.layouts.layout import layout
    from mmulator.inspect.listing import FormGroup, group
    from mmulator.inspect.search import find_forms
    from mmulator.inspect.sparse import MetadataWord, PatternReport, metadata_word, metadata_words, pattern_report
    from mmulator.inspect.tensormaps.box import TensorBox, tensor_box
    from mmulator.inspect.tensormaps.checks import check_copy
    from mmulator.inspect.tensormaps.copy import parse_copy
    from mmulator.inspect.tensormaps.fields import TensorMapFields, tensor_map_fields


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"mmulator.inspect.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
