"""Native functions are read from their source without a tokenizer; what is read is what inspect reads."""

import ast
import gc
import inspect
import textwrap

import pytest

from mmulator.base.codegen.lang import Native, _tree, native
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.types import CodeError, i64, u32
from mmulator.compiler.kernel import meanings
from mmulator.errors import InternalError, MmulatorError


def test_the_source_of_every_native_function_is_whole() -> None:
    meanings()
    gc.unfreeze()  # other tests' imports may have been set aside
    natives = {f.function.__code__: f for f in gc.get_objects() if type(f) is Native}  # others are made by tables, not read
    gc.freeze()  # each look at all of a process's objects costs a third of a second (conftest.py)
    assert len(natives) > 40
    for f in natives.values():
        (whole,) = ast.parse(textwrap.dedent(inspect.getsource(f.function))).body
        assert ast.dump(whole) == ast.dump(_tree(f.function.__code__.co_filename, f.function.__code__)), f.name


def test_code_that_does_not_fit_names_the_line_once_and_is_no_mistake_of_a_user() -> None:
    @native
    def wrong(n: i64) -> i64:
        if n > 0:
            n = u32(n)
        return n

    with pytest.raises(CodeError, match=r"^wrong, line 4: n is i64, not u32 in `n = u32\(n\)`$") as caught:
        wrong.build()
    assert isinstance(caught.value, InternalError) and not isinstance(caught.value, MmulatorError)


def test_two_native_functions_cannot_have_one_name() -> None:
    """They are linked by it: the second would be the first."""

    def plus(n: int, name: str) -> Native:
        def function(x: i64) -> i64:
            return x + n

        return Native(function, name)

    assert address(plus(1, "test_plus")) == address(plus(1, "test_plus"))
    with pytest.raises(InternalError, match="test_plus is the name of two"):
        address(plus(2, "test_plus"))

    @native(name="test_plus")
    def other(x: i64) -> i64:
        return x

    with pytest.raises(InternalError, match="test_plus is the name of two"):
        address(other)
