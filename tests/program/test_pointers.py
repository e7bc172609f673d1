"""Law: the address of a function is its module's: a pointer that one kernel stores, another kernel of the module calls."""

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import ExecutionFault
from mmulator.ptx.program.calls import reached
from tests.support.ptx_text import stored

# Objects with a table of virtual functions: `make` writes the pointer to a table, `use` calls the table's first function, `end`
# the second. `rest` calls what runs nowhere. `deep` calls itself through a pointer that is in memory.
TEXT = stored("virtual_functions")


@pytest.fixture(scope="module")
def module() -> mm.Module:
    return mm.Module.load(TEXT)


def made(module: mm.Module, threads: int) -> np.ndarray:
    objects = np.zeros(threads, np.uint64)
    module["make"].launch(1, threads, [objects])
    return objects


@pytest.mark.parametrize("sanitize", [False, True])
def test_virtual_functions_across_kernels(module: mm.Module, sanitize: bool) -> None:
    objects, out = made(module, 60), np.zeros(60, np.uint64)
    report = module["use"].launch(1, 60, [objects, out], sanitize=sanitize)
    assert not report.findings
    t = np.arange(60)
    deep = t * (t + 1) // 2
    assert (np.where(t % 3 == 2, deep, t * (1 + 2 * (t % 3))) == out).all()


def test_recursion_through_a_pointer_ends(module: mm.Module) -> None:
    objects, out = made(module, 96), np.zeros(96, np.uint64)
    with pytest.raises(ExecutionFault, match="stack overflow in a call"):
        module["use"].launch(1, 96, [objects, out], threads=1)


def test_a_kernel_without_calls_through_pointers_compiles_no_other_function(module: mm.Module) -> None:
    tree = module.tree
    graphs = {f.name: reached(tree, f) for f in tree.entries}
    assert [*graphs["make"].functions] == ["make"]
    assert {*graphs["use"].functions} == {"use", "once", "thrice", "deep"}
    assert {*graphs["end"].functions} == {"end", "zero"}  # rest cannot be run
    assert {*graphs["call"].functions} == {"call", "once", "thrice"}


def pointer(module: mm.Module, name: str, index: int = 0) -> int:
    return int(np.frombuffer(module.variables[name].tobytes(), np.uint64)[index])


def test_a_pointer_goes_by_the_host_to_another_kernel(module: mm.Module) -> None:
    for name, expected in ("first", 5), ("second", 15):
        out, function = np.zeros(1, np.uint64), pointer(module, name)
        assert function % 2 == 0  # C++ marks pointers to virtual functions by bit 0
        module["call"].launch(1, 1, [function, out])
        assert out[0] == expected


def message(module: mm.Module, function: int) -> str:
    with pytest.raises(ExecutionFault) as caught:
        module["call"].launch(1, 1, [function, np.zeros(1, np.uint64)])
    return f"{caught.value.message}; {caught.value.hint}"


def test_what_is_no_function_of_the_module_is_refused(module: mm.Module) -> None:
    other = mm.Module.load(TEXT.replace("itself", "myself").replace("thrice", "twice"))
    function = pointer(module, "first")
    for wrong in (1, function + 1, function + 8, function + 1600, pointer(other, "second")):
        said = message(module, wrong)
        assert said.startswith("call of an address that is no function, in block (0, 0, 0), thread (0, 0, 0); ")
        assert said.endswith(f"0x{wrong:x} was not taken from a function of this module")
    assert message(module, 0).endswith("the pointer is null")


def test_a_function_that_does_not_fit_is_named(module: mm.Module) -> None:
    assert message(module, pointer(module, "first", 1)).startswith("call of zero through a pointer, which some does not allow")
    assert message(module, pointer(module, "itself")).startswith("call of deep through a pointer, which some does not allow")
    objects = made(module, 2)
    with pytest.raises(ExecutionFault, match="call of rest through a pointer: call free cannot be run"):
        module["end"].launch(1, 1, [objects[1:]])
    module["end"].launch(1, 1, [objects])
    assert objects[0] == 0
