"""Object code linked here: what LLVM's own linker makes of it, and nothing that is not understood."""

import ctypes
import gc
from pathlib import Path

import pytest

from mmulator.base.codegen import cpus, engine
from mmulator.base.codegen.linking import HERE, Linked, flattened
from mmulator.errors import InternalError
from tests.support.places import DATA

pytestmark = pytest.mark.skipif(not HERE, reason="object code of another kind")

# a table of constants, a jump table, a call of another piece and of C's library, a symbol of its own name in each piece
FIRST, SECOND = ((DATA / "linked" / f"{name}.ll").read_text() for name in ("first", "second"))
OUTSIDE = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(lambda n: (n << 1) & 0xFFFFFFFF)


def answers(memory: Linked, codes: list[bytes]) -> list[int]:
    memory.add(codes, {"outside": ctypes.cast(OUTSIDE, ctypes.c_void_p).value or 0})
    first = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(memory.address("first"))
    return [first(n) for n in range(1, 9)]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_code_is_linked_as_llvm_links_it(level: int) -> None:
    codes = [engine.compile_object(text, level)[0] for text in (FIRST, SECOND)]
    found = answers(Linked(), codes)
    assert found == answers(Linked(), codes[::-1]) == answers(engine._LinkedByLlvm(level), codes)
    assert found[0] == (35 * 2 * 3 + 3) ^ 0x0101010101010101 and len(set(found)) == 8


@pytest.mark.parametrize("level", [0, 1, 2])
def test_flattened_code_is_linked_as_llvm_links_it(level: int) -> None:
    codes = [engine.compile_object(text, level)[0] for text in (FIRST, SECOND)]
    flat = [flattened(code) for code in codes]
    on_x86 = engine.architecture() == cpus.X86
    assert all((f[:4] == b"flat" and len(f) < len(code)) if on_x86 else f == code for f, code in zip(flat, codes))
    found = answers(Linked(), codes)
    assert found == answers(Linked(), flat) == answers(Linked(), [flat[1], codes[0]]) == answers(Linked(), [codes[1], flat[0]])
    memory = Linked()
    memory.add(flat[1:])
    assert memory.address("second") % 16 == 0 and memory.find("same") == 0
    assert answers(memory, flat[:1]) == found
    assert flattened(b"no code") == b"no code"
    with pytest.raises(InternalError, match="calls outside, which nobody has"):
        Linked().add(flat)


def test_code_behind_a_gate_is_replaced_where_it_is_called() -> None:
    """Its address stays, for Python and for code that was linked to it."""

    def inner(number: int) -> bytes:
        return engine.compile_object(f"define i64 @inner() {{ ret i64 {number} }}")[0]

    outer = engine.compile_object("declare i64 @inner()\ndefine i64 @outer() { %n = call i64 @inner()\n ret i64 %n }")[0]
    memory = Linked()
    memory.add([inner(1), outer], gated=["inner"])
    functions = [ctypes.CFUNCTYPE(ctypes.c_uint64)(memory.address(name)) for name in ("inner", "outer")]
    assert [f() for f in functions] == [1, 1]
    memory.add([inner(2)])
    assert [f() for f in functions] == [2, 2]
    assert ctypes.cast(functions[0], ctypes.c_void_p).value == memory.address("inner")


def test_pieces_come_one_after_the_other_and_all_go() -> None:
    memory = Linked()
    memory.add([engine.compile_object(SECOND)[0]])
    assert memory.address("second") % 16 == 0 and memory.find("first") == 0
    found = answers(memory, [engine.compile_object(FIRST)[0]])
    assert found[1] == ((((-9 << 1) & 0xFFFFFFFF) * 3 + 5) & (1 << 64) - 1) ^ 0x0101010101010101
    place = f"{memory.address('first') & -4096:x}-"
    with Path("/proc/self/maps").open() as maps:
        assert [line.split()[1] for line in maps if line.startswith(place)] in ([], ["r-xp"])  # joined to its neighbour, or alone
    del memory
    gc.collect()
    with Path("/proc/self/maps").open() as maps:
        assert not [line for line in maps if line.startswith(place)]


def test_what_is_not_understood_is_no_code() -> None:
    code = engine.compile_object(FIRST)[0]
    with pytest.raises(InternalError, match="calls outside, which nobody has"):
        Linked().add([code, engine.compile_object(SECOND)[0]])
    with pytest.raises(InternalError, match="no function third"):
        Linked().address("third")
    with pytest.raises(InternalError, match="with variables"):
        Linked().add([engine.compile_object("@v = global i64 5\ndefine i64 @f() { %r = load i64, ptr @v\n ret i64 %r }")[0]])
    tls = "@v = thread_local global i64 zeroinitializer\ndefine ptr @f() { ret ptr @v }"
    with pytest.raises(InternalError, match=r"variables|relocation of kind"):
        Linked().add([engine.compile_object(tls)[0]])


def test_the_machine_is_the_one_that_llvm_finds() -> None:
    binding = engine._binding()
    own = [binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(), str(binding.llvm_version_info)]
    assert cpus.machine() and engine._host() == engine._host.__wrapped__() == own
