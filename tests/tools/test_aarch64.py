"""Code for aarch64, made and read here; and run, where qemu and arm64 packages are there (docs/reference/platforms.md)."""

import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from mmulator.base.codegen import linking
from tests.codegen.test_linking import FIRST
from tests.support.places import ROOT
from tests.support.ptx_text import kernel

# What the other cores see must be ordered by instructions: dmb ish before a store that others wait for, dmb ishld behind a load
# of what others have stored. Calls and barriers of the kernel's own code, in their order.
ORDERS = {
    "acquire": ("ld.acquire.gpu.global.u32 %r1, [%rd0]; st.global.u32 [%rd0+4], %r1;", ["load", "dmb ishld", "store"]),
    "relaxed": ("ld.relaxed.gpu.global.u32 %r1, [%rd0]; st.global.u32 [%rd0+4], %r1;", ["load", "dmb ishld", "store"]),
    "volatile": ("ld.volatile.global.u32 %r1, [%rd0]; st.global.u32 [%rd0+4], %r1;", ["load", "dmb ishld", "store"]),
    "generic": ("ld.acquire.sys.u32 %r1, [%rd0]; st.global.u32 [%rd0+4], %r1;", ["load", "dmb ishld", "store"]),
    "release": ("st.global.u32 [%rd0], 1; st.release.gpu.global.u32 [%rd0+4], 1;", ["store", "dmb ish", "store"]),
    "flag": ("st.global.u32 [%rd0], 1; st.volatile.global.u32 [%rd0+4], 1;", ["store", "dmb ish", "store"]),
    "weak": ("ld.global.u32 %r1, [%rd0]; st.global.u32 [%rd0+4], %r1;", ["load", "store"]),
    "shared": ("mov.u32 %r2, 0; st.volatile.shared.u32 [%r2+1024], 1;", ["store"]),
    "barrier": ("st.global.u32 [%rd0], 1; bar.sync 0; st.global.u32 [%rd0+4], 1;", ["store", "dmb ish", "barrier", "store"]),
    "fence": ("st.global.u32 [%rd0], 1; fence.acq_rel.gpu; st.global.u32 [%rd0+4], 1;", ["store", "dmb ish", "store"]),
    "membar": ("st.global.u32 [%rd0], 1; membar.gl; st.global.u32 [%rd0+4], 1;", ["store", "dmb ish", "store"]),
}
_SEEN = re.compile(r"^\s+(?:bl\s+(load|store|barrier)\w*|(dmb)\s+(\w+))$", re.M)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("aarch64")
    for name, (body, _) in ORDERS.items():
        (folder / f"{name}.ptx").write_text(kernel(body))
    (folder / "first.ll").write_text(FIRST)
    environment = {**os.environ, "MMULATOR_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "tests.tools.for_aarch64", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", ORDERS)
def test_what_other_cores_see_is_ordered(made: Path, name: str) -> None:
    text = (made / f"{name}.s").read_text()
    assert [found[1] or f"{found[2]} {found[3]}" for found in _SEEN.finditer(text)] == ORDERS[name][1], text


def test_every_reference_leads_to_its_symbol(made: Path) -> None:
    """References as the processor reads them: an address in four moves, a page and a place in it, a distance."""
    piece, image, base = linking._ObjectFile((made / "first.o").read_bytes()), bytearray(), 0x7F12_3456_7000
    piece.place(image)
    known = {"second": base + 0x10_0000, "outside": 0x5555_1234_5678, "memset": 0x7FFF_0000_1000}
    piece.link(image, base, known)

    def word(at: int) -> int:
        return int(struct.unpack_from("<I", image, at)[0])

    def leads(at: int) -> int:
        """Where a branch leads, through an island if there is one."""
        to = at + ((word(at) & 0x3FFFFFF ^ 0x2000000) - 0x2000000) * 4
        if 0 <= to < len(image) and word(to) == linking._TO_X16:
            assert word(to + 4) == linking._BY_X16
            return int(struct.unpack_from("<Q", image, to + 8)[0])
        return base + to

    seen, moved = set(), dict[int, int]()
    for at, kind, number, addend in piece.references():
        name, _, section, value = piece.symbols[number]
        to = known.get(name) or base + piece.at[section] + value
        seen.add(kind)
        if kind in linking._CALLS:
            assert leads(at) == to
        elif kind == 260:
            assert base + at + struct.unpack_from("<q", image, at)[0] == to + addend
        elif 263 <= kind <= 269:
            assert word(at) >> 21 & 3 == (kind - 263) // 2  # which quarter the instruction sets
            moved[number] = moved.get(number, 0) | (word(at) >> 5 & 0xFFFF) << 16 * (word(at) >> 21 & 3)
        elif kind == 275:
            pages = (word(at) >> 5 & 0x7FFFF) << 2 | word(at) >> 29 & 3
            assert (base + at & -4096) + ((pages ^ 1 << 20) - (1 << 20) << 12) == to + addend & -4096
        else:
            assert (word(at) >> 10 & 0xFFF) << {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}[kind] == to + addend & 0xFFF
    assert all(to == base + piece.at[piece.symbols[n][2]] + piece.symbols[n][3] for n, to in moved.items())
    assert seen & linking._CALLS and (moved or 275 in seen)


def in_qemu() -> list[str]:
    """The command that runs a program of aarch64: MMULATOR_QEMU, with the root it is told of; [] where there is none."""
    command = os.environ.get("MMULATOR_QEMU", "").split()
    return command if command and shutil.which(command[0]) else []


@pytest.mark.full
@pytest.mark.skipif(not in_qemu(), reason="MMULATOR_QEMU names no command that runs Python on aarch64")
def test_the_hopper_gemm_has_its_bits_on_aarch64() -> None:
    command = [*in_qemu(), "-m", "mmulator", "run", "examples/hopper_gemm/launch.toml"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=3000)
    assert done.returncode == 0 and done.stdout.splitlines()[-1].endswith("bit-identical"), done.stdout + done.stderr
