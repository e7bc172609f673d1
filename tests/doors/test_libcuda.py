"""CUDA's driver library as Python makes it: programs of C's style, PTX linked to PTX, cubins that know their PTX."""

import ctypes
import mmap
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mmulator.doors.libcuda import caller
from mmulator.doors.libcuda.abi import Refused, code_of, get, put, text
from mmulator.doors.libcuda.codes import FAULTS, Code
from mmulator.doors.libcuda.images import ptx_at
from mmulator.doors.libcuda.tensormaps import _as_called
from mmulator.doors.library.machines import HERE
from mmulator.errors import ExecutionFault, LaunchError, LimitReached
from mmulator.host.module import Module
from mmulator.matrix.layouts.tensormap import Encoded
from mmulator.matrix.layouts.tensormap.rules import refusals
from mmulator.matrix.layouts.tensormap.types import BY_DRIVER
from mmulator.ptx.toolkit.cubin import elf_size, ptx_within, with_ptx
from mmulator.ptx.toolkit.joining import join
from mmulator.runtime.native.state import FaultKind
from tests.support.ptx_text import stored
from tests.support.tours import trying

here = pytest.mark.skipif(HERE is None, reason="the library is made for Linux on x86-64 and aarch64")


test_program = here(trying("libcuda.loading", "driver_tour.py"))
test_program_of_hoppers = here(trying("libcuda.loading", "hopper_tour.py"))
test_threads = here(trying("libcuda.loading", "threads_tour.py"))


@here
def test_nothing_is_loaded_over_a_driver_that_is_there() -> None:
    code = (
        "from mmulator.doors.libcuda import loading\n"
        "from mmulator.doors.library.elf import STATE, Exports, library\n"
        "data = library(Exports(loading.SONAME, ['cuInit']), loading.HERE).replace(STATE.encode(), b'x' * len(STATE))\n"
        "other = loading._open(data)\n"
        "try: loading.install()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "UnsupportedError CUDA's own driver is loaded in this process already" in done.stdout


def test_every_fault_has_a_code() -> None:
    kinds = {kind.name for kind in FaultKind} - {"NONE"} | {"DEADLOCK", "LIVELOCK", "TIMEOUT"}
    assert kinds == FAULTS.keys()
    assert code_of(LimitReached("", fault="STACK_OVERFLOW")) == 700 and code_of(LimitReached("")) == 702
    assert code_of(ExecutionFault("", fault="ASSERTION")) == 710 and code_of(ExecutionFault("")) == 719


@here
def test_destructors_of_libraries_come_behind_python() -> None:
    code = (
        "from mmulator.doors.libcuda import loading\n"
        "loading.install()\n"
        "loading._shut()\n"
        "library = loading._loaded[0].library\n"
        "print(library.cuCtxPushCurrent_v2(0), library.cuMemFree_v2(0), library.cuCtxDetach(0), library.cuInit(0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 0 0 4\n"


CALLER, CALLEE = stored("caller"), stored("callee")


@pytest.mark.parametrize("texts", [(CALLER, CALLEE), (CALLEE, CALLER)])
def test_texts_are_linked(texts: tuple[str, str]) -> None:
    x = np.zeros(1, np.uint32)
    joined = join(texts)
    assert joined.startswith(".version 8.3\n")
    Module.load(joined)["k"].launch(1, 1, [x])
    assert x[0] == 2 * 20 + 1000 + 7


def test_two_definitions_are_an_error() -> None:
    with pytest.raises(LaunchError, match="two of the linked modules define shared_count"):
        join([CALLEE, CALLEE])


def test_a_cubin_knows_its_ptx() -> None:
    cubin = bytearray(128)
    cubin[:4] = b"\x7fELF"
    cubin[40:48] = (64).to_bytes(8, "little")  # sections
    cubin[58:62] = (64).to_bytes(2, "little") + (1).to_bytes(2, "little")
    assert elf_size(bytes(cubin)) == 128
    both = with_ptx(bytes(cubin), CALLER)
    held = ctypes.create_string_buffer(both)
    assert ptx_within(both) == CALLER and ptx_at(ctypes.addressof(held)) == (CALLER, bytes(cubin))
    assert ptx_within(bytes(cubin)) is None


def held_at_the_end(data: bytes) -> tuple[int, mmap.mmap]:
    """The address of bytes behind which the next page may not be read; and what holds them."""
    page = mmap.PAGESIZE
    pages = -(-len(data) // page) * page
    memory = mmap.mmap(-1, pages + page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(base + pages), ctypes.c_size_t(page), 0)
    memory[pages - len(data) : pages] = data
    return base + pages - len(data), memory


def refused(call: Callable[[], object]) -> Code:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.code


@here
def test_images_end_where_their_memory_ends() -> None:
    """Whatever the header says of a cubin, and wherever a text is cut off: a code, and no signal."""
    head = b"\x7fELF" + bytes(28) + struct.pack("<QQ", 0, 64) + bytes(6) + struct.pack("<HHHH", 0, 0, 64, 1) + bytes(66)
    assert elf_size(head) == len(head) == 128
    for image in (head, head + b"\nMMU", with_ptx(head, CALLER).rstrip(b"\0"), head[:60], b"\x7fE", CALLER.encode(), b"not PTX"):
        address, _memory = held_at_the_end(image)
        wanted = Code.NO_BINARY_FOR_GPU if image[:4] == b"\x7fELF" and 100 < len(image) < 200 else Code.INVALID_VALUE
        assert refused(lambda at=address: ptx_at(at)) == wanted, image[:20]
    for place in range(40, 64):  # every byte of where the tables are
        damaged = bytearray(head)
        damaged[place] = 0xFF
        address, _memory = held_at_the_end(bytes(damaged))
        assert refused(lambda at=address: ptx_at(at)) == Code.NO_BINARY_FOR_GPU
    address, _memory = held_at_the_end(CALLER.encode() + b"\0")
    assert ptx_at(address) == (CALLER, b"")


@here
def test_memory_that_is_not_there_is_an_answer() -> None:
    address, _memory = held_at_the_end(b"name\0")
    assert caller.read(address, 100) == b"name\0" and text(address) == "name"
    for wild in (8, 1 << 46, (1 << 64) - 8, address + 5):
        assert caller.read(wild, 8) == b"" and caller.string(wild) is None and not caller.write(wild, b"x")
        assert refused(lambda at=wild: put(at, 1)) == refused(lambda at=wild: get(at)) == refused(lambda at=wild: text(at))
    long = b"x" * 300_000 + b"\0"
    address, _memory = held_at_the_end(long)
    assert caller.string(address) == long[:-1] and caller.write(address, b"y") and get(address, 1) == ord("y")
    put(address, 0x0102, 2)
    assert get(address, 2) == 0x0102


def test_tensor_maps_are_refused_with_the_index_of_the_caller() -> None:
    of = {"sizes": ("globalDim", 0), "strides": ("globalStrides", -1), "element_strides": ("elementStrides", 1 << 20),
          "box": ("boxDim", 0)}  # fmt: skip
    legal = Encoded(BY_DRIVER[7], (16,) * 4, (64, 1024, 16384), (1,) * 4, box=(4,) * 4)
    assert not list(refusals(legal))
    for field, (name, wrong) in of.items():
        given = getattr(legal, field)
        for n in range(len(given)):
            m = replace(legal, **{field: (*given[:n], wrong, *given[n + 1 :])})
            assert f"{name}[{n}]" in [_as_called(refusal.parameter, m) for refusal in refusals(m)]
