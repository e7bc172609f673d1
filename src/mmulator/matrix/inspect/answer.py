"""The base class of answers: they are data, and show themselves through a view that they do not know.

Views, the functions that draw, stand above the answers in `views/`. Here is only where each is, so that none is loaded before
an answer is shown.
"""

from importlib import import_module
from typing import Any

# type of answer -> form in which it is shown -> module and function of `views/`
VIEWS: dict[str, dict[str, str]] = {
    "BankConflicts": {"html": "html.bank_conflicts"},
    "CuteAnswer": {"html": "html.cute_answer"},
    "DescriptorAnswer": {"html": "html.descriptor", "svg": "chunks.draw_tile"},
    "DescriptorFields": {"html": "html.descriptor_fields"},
    "Explanation": {"html": "html.explanation"},
    "FormGroups": {"html": "html.form_groups"},
    "InstructionFields": {"html": "html.instruction_fields"},
    "Layout": {"html": "html.picture", "svg": "layout.draw"},
    "MetadataWord": {"html": "html.metadata_word"},
    "PatternReport": {"html": "html.pattern_report"},
    "TensorBox": {"html": "html.tensor_box", "svg": "chunks.draw_box"},
    "TensorMapFields": {"html": "html.tensor_map_fields"},
}


class Answer:
    """An answer, shown by the function that VIEWS names for its type."""

    __slots__ = ()

    def show(self, form: str, *how: Any) -> str:
        """The answer as `html` or `svg`. how: further arguments of the view."""
        module, _, function = VIEWS[type(self).__name__][form].partition(".")
        text: str = getattr(import_module(f"mmulator.matrix.inspect.views.{module}"), function)(self, *how)
        return text

    def _repr_html_(self) -> str:
        return self.show("html")


def png(picture: str, scale: float = 2) -> bytes:
    """A picture as PNG. Raises UnsupportedError without the extra `draw`."""
    data: bytes = import_module("mmulator.matrix.inspect.views.svg").to_png(picture, scale)
    return data
