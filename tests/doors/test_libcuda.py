"""CUDA's driver library as Python makes it: programs of C's style, PTX linked to PTX, cubins that know their PTX."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import numpy as np
import pytest

from mmulator.doors.libcuda.elf import MACHINES
from mmulator.doors.libcuda.images import elf_size, ptx_at, ptx_within, with_ptx
from mmulator.doors.libcuda.joining import join
from mmulator.errors import LaunchError
from mmulator.machine.module import Module
from tests.support.tours import outcome, tries

here = pytest.mark.skipif(
    platform.machine() not in MACHINES or sys.platform != "linux", reason="the library is made for Linux on x86-64"
)


@here
@pytest.mark.parametrize("what", tries("driver_tour.py"))
def test_program(what: str) -> None:
    told, _ = outcome("libcuda.loading", "driver_tour.py")
    wrong = told.get("", "") + told.get(what, "")
    assert not wrong, wrong


@here
@pytest.mark.parametrize("what", tries("hopper_tour.py"))
def test_program_of_hoppers(what: str) -> None:
    told, _ = outcome("libcuda.loading", "hopper_tour.py")
    wrong = told.get("", "") + told.get(what, "")
    assert not wrong, wrong


@here
def test_nothing_is_loaded_over_a_driver_that_is_there() -> None:
    code = (
        "from mmulator.doors.libcuda import loading, elf\n"
        "other = loading._open(elf.library(loading.SONAME, ['cuInit'], [], 'x86_64'))\n"
        "try: loading.install()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "UnsupportedError CUDA's own driver is loaded in this process already" in done.stdout


HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
CALLER = (
    HEAD
    + """
// calls: what the other text has { and keeps a name that both have
.extern .func (.param .b32 out) twice(.param .b32 in);
.extern .global .align 4 .u32 shared_count;
.global .align 4 .u32 own[2] = {10, 20};
.visible .entry k(.param .u64 x) {
    .reg .b32 %r<6>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    ld.global.u32 %r1, [own+4];
    { .param .b32 a; st.param.b32 [a], %r1; .param .b32 b; call (b), twice, (a); ld.param.b32 %r2, [b]; }
    ld.global.u32 %r3, [shared_count];
    add.u32 %r2, %r2, %r3;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""
)
CALLEE = (
    HEAD.replace("8.0", "8.3")
    + """
.visible .global .align 4 .u32 shared_count = 7;
.global .align 4 .u32 own = 1000;
.weak .func (.param .b32 out) unused() { .reg .b32 %r; mov.u32 %r, 1; st.param.b32 [out], %r; ret; }
.visible .func (.param .b32 out) twice(.param .b32 in) {
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [in];
    ld.global.u32 %r2, [own];
    mad.lo.u32 %r1, %r1, 2, %r2;
    st.param.b32 [out], %r1;
    ret;
}
"""
)


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
