"""PTX module text -> typed tree -> verified.

text.py, lexer.py, cursor.py                         bytes to text, to tokens, and a place in them
parser.py, declarations.py, body.py, selectors.py    tokens to tree.py's `ParsedModule`; debug.py: .loc and .file
verify.py      every instruction exists, and its operands fit: check.py (all of one), operands.py (one by one), fits.py (types of
               registers), fragments.py (of matrix instructions), calls.py
resources.py   what a kernel needs
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmulator.ptx.parser import parse_module

__all__ = ["parse_module"]


def __getattr__(name: str) -> Any:
    """The parser knows all rows; who launches a kernel that was compiled before needs none of them."""
    if name != "parse_module":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mmulator.ptx.parser import parse_module

    return parse_module
