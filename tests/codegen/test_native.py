"""Native functions are read from their source without a tokenizer; what is read is what inspect reads."""

from __future__ import annotations

import ast
import gc
import inspect
import textwrap

from mmulator.codegen.lang import Native
from mmulator.machine.meaning import load_all


def test_the_source_of_every_native_function_is_whole() -> None:
    load_all()
    natives = [f for f in gc.get_objects() if type(f) is Native]  # others are made by tables, not read from a source
    assert len(natives) > 40
    for f in natives:
        (whole,) = ast.parse(textwrap.dedent(inspect.getsource(f.function))).body
        assert ast.dump(whole) == ast.dump(f.tree), f.name
