"""Fat binaries: those of nvcc in every packing and for several targets, hand-written ones, and damaged ones."""

import ctypes
import os
import random
import struct
import time
from pathlib import Path

import pytest
import zstandard

from mmulator.base.codegen.locks import TimeUp, time_limit
from mmulator.doors.libcuda.abi import Refused
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.images import ptx_at
from mmulator.errors import MmulatorError, UnsupportedError
from mmulator.host.module import Module
from mmulator.ptx.toolkit import fatbin
from mmulator.ptx.toolkit.binaries import holds, ptx_in
from mmulator.ptx.toolkit.fatbin import unlz4, unzstd
from tests.support.nvcc import compiled, nvcc

SOURCE = """
template <typename T, int N> __global__ void gemm(T *p) { p[threadIdx.x] = T(N); }
template __global__ void gemm<float, 128>(float *);
__global__ void other(int *p) { *p = 3; }
"""
ARCHITECTURES = ("80", "90a", "100a", "100f")
EVERY = [f"-gencode=arch=compute_{n},code=[compute_{n},sm_{n}]" for n in ARCHITECTURES]
LZ4, ZSTD, OF_CHIP, OF_FAMILY = 0x2000, 0x8000, 0x100000, 0x200000


def made(folder: Path, *flags: str, source: str = SOURCE) -> bytes:
    (folder / "k.cu").write_text(source)
    nvcc("-fatbin", *flags, "k.cu", "-o", "k.fatbin", cwd=folder, check=True)
    return (folder / "k.fatbin").read_bytes()


def entry(data: bytes, number: int = 90, flags: int = 0, unpacked: int = 0, kind: int = 1, header: int = 64) -> bytes:
    padded = data + bytes(-len(data) % 8)
    packed = len(data) if flags & (LZ4 | ZSTD) else 0
    head = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, header, len(padded), packed, 64, 0, 9, number, 0, 0, flags, 0, unpacked)
    return head + bytes(header - len(head)) + padded


def fat(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def text(data: bytes, device: str) -> str | None:
    found = fatbin.chosen(fatbin.entries(fatbin.reader(data)), device)
    return found and found.text()


def bare(ptx: str) -> list[str]:
    """The lines without comments and white space, which nvcc leaves out of fat binaries."""
    return [line for said in ptx.split("\n") if (line := " ".join(said.partition("//")[0].split()))]


# what nvcc makes -----------------------------------------------------------------------------------------------------
@compiled
@pytest.mark.parametrize("mode", ["none", "speed", "size", "balance", "default"])
def test_every_packing_of_nvcc(mode: str, tmp_path: Path) -> None:
    data = made(tmp_path, f"--compress-mode={mode}", "-gencode=arch=compute_90a,code=[compute_90a,sm_90a]")
    nvcc("-ptx", "-arch=sm_90a", "k.cu", cwd=tmp_path, check=True)
    assert bare(str(text(data, "sm_90"))) == bare((tmp_path / "k.ptx").read_text())
    cubins = [e for e in fatbin.entries(fatbin.reader(data)) if e.kind == "machine code"]
    assert [str(c.target) for c in cubins] == ["sm_90a"] and cubins[0].data().startswith(b"\x7fELF")
    held = ctypes.create_string_buffer(data, len(data))
    assert ptx_at(ctypes.addressof(held)) == (text(data, "sm_90"), b"")


@compiled
def test_the_target_is_chosen_as_the_driver_does(tmp_path: Path) -> None:
    data = made(tmp_path, *EVERY)
    for device, target in {80: "80", 86: "80", 90: "90a", 100: "100a", 103: "100f", 120: "80"}.items():
        assert f".target sm_{target}\n" in str(text(data, f"sm_{device}")), device
    assert text(data, "sm_75") is None


@compiled
def test_what_has_no_ptx_says_what_it_has(tmp_path: Path) -> None:
    flags = "-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_80,code=lto_80"
    held = ctypes.create_string_buffer(made(tmp_path, *flags))
    with pytest.raises(Refused) as caught:
        ptx_at(ctypes.addressof(held))
    assert caught.value.code == Code.NO_BINARY_FOR_GPU
    told = str(caught.value.why)
    assert "has no PTX that runs on sm_90, but machine code for sm_90a and LTO-IR for sm_80" in told
    assert "hint: compile with -gencode arch=compute_90a,code=[compute_90a,sm_90a]" in told


# in memory -----------------------------------------------------------------------------------------------------------
PTX = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry {}() {{ ret; }}\n"


def wrapped(at: int, version: int = 1, linked: int = 0) -> bytes:
    return struct.pack("<IIQQ", 0x466243B1, version, at, linked)


def test_a_wrapper_and_what_was_linked() -> None:
    parts = [fat(entry(PTX.format(name).encode())) for name in ("one", "two")]
    parts.append(fat(entry(b"\x7fELF", kind=2)))
    held = [ctypes.create_string_buffer(part, len(part)) for part in parts]
    at = [ctypes.addressof(h) for h in held]
    array = (ctypes.c_uint64 * 3)(*at[:2], 0)
    plain = ctypes.create_string_buffer(wrapped(at[0]))
    linked = ctypes.create_string_buffer(wrapped(at[2], 2, ctypes.addressof(array)))
    assert ptx_at(ctypes.addressof(plain))[0] == PTX.format("one")
    both = ptx_at(ctypes.addressof(linked))[0]
    assert ".entry one" in both and ".entry two" in both
    array[1] = 8  # no memory
    with pytest.raises(Refused) as caught:
        ptx_at(ctypes.addressof(linked))
    assert caught.value.code == Code.INVALID_IMAGE


LAUNCHES = PTX.format("own").replace("{ ret; }", "{ call f; ret; }").replace(".visible", ".extern .func f();\n.visible")


def test_the_device_runtime_is_left_out() -> None:
    """What is linked with libcudadevrt has its fat binary too, which is for no chip below sm_121. Kernels that do not call it
    run; those that do are named."""
    first = fat(entry(b"\x7fELF", kind=2))
    runtime = b".visible .func __nv_static_8__1234_22_cuda_device_runtime_cu_5678__x() { ret; }"
    own = LAUNCHES.replace("f()", "__cudaCDP2LaunchDeviceV2()").replace("call f", "call __cudaCDP2LaunchDeviceV2")
    for number, device in ((121, "sm_90"), (90, "sm_90")):
        parts = [first, fat(entry(own.encode())), fat(entry(PTX.format("plain").encode())), fat(entry(runtime, number))]
        held = [ctypes.create_string_buffer(part, len(part)) for part in parts]
        array = (ctypes.c_uint64 * 4)(*(ctypes.addressof(h) for h in held[1:]), 0)
        image = ctypes.create_string_buffer(wrapped(ctypes.addressof(held[0]), 2, ctypes.addressof(array)))
        for linked in (ptx_at(ctypes.addressof(image))[0], ptx_in(b"".join(parts), "a.out", device)):
            module = Module.load(linked)
            module["plain"].launch(1, 1, [])
            with pytest.raises(UnsupportedError, match=r"call __cudaCDP2LaunchDeviceV2 cannot .* launch kernels .*libcudadevrt"):
                module["own"].launch(1, 1, [])


# damaged -------------------------------------------------------------------------------------------------------------
GOOD = PTX.format("k").encode() * 20
PACKED = zstandard.compress(GOOD)
WHOLE = fat(entry(GOOD[:200], 80), entry(PACKED, 90, ZSTD | OF_CHIP, len(GOOD), header=80), entry(b"\x7fELF" * 9, 90, kind=2))


@pytest.mark.parametrize(
    ("data", "said"),
    {
        "": (b"", "ends in its header"),
        "magic": (b"\0" + WHOLE[1:], "its header is 00 ed 55 ba"),
        "truncated": (WHOLE[:200], "entry 2, at byte 280, ends"),
        "in a header": (WHOLE[:40], "entry 1, at byte 16, ends in its header"),
        "all": (struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 60) + WHOLE[16:], "entry 4, at byte"),
        "content": (fat(entry(b"abc")[:8] + b"\xff" * 8 + entry(b"abc")[16:]), "of content, of 72 that are left"),
        "header": (fat(b"\1\0\1\1\0\0\0\0" + entry(b"abc")[8:]), "a header of 0 bytes"),
        "claims": (fat(entry(PACKED, 90, ZSTD, 1 << 62)), f"has {1 << 62} bytes"),
        "claims a little": (fat(entry(PACKED, 90, ZSTD, 1 << 27)), "bytes are announced"),
        "less": (fat(entry(PACKED, 90, ZSTD, 7)), "7 bytes are announced, and more come"),
        "frame": (fat(entry(b"\x28\xb5\x2f\xfd" + b"\xff" * 60, 90, ZSTD, 99)), "zstd frame is damaged"),
        "huge frame": (fat(entry(bytes.fromhex("28b52ffdc0") + b"\xff" * 60, 90, ZSTD, 99)), "zstd frame is damaged"),
        "no frame": (fat(entry(b"", 90, ZSTD, 99)), "99 bytes are announced, and 0 bytes"),
        "block": (fat(entry(b"\x10a\5\0", 90, LZ4, 99)), "block of LZ4 is damaged"),
        "half a block": (fat(entry(b"\xf0", 90, LZ4, 99)), "block of LZ4 is damaged"),
    }.items(),
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_damage(data: str, said: tuple[bytes, str]) -> None:
    with pytest.raises(MmulatorError, match=said[1]):
        text(said[0], "sm_90")


def test_any_bytes_are_text_or_one_error() -> None:
    random.seed(7)
    for _ in range(int(os.environ.get("FUZZ_CASES", "3000"))):
        data = bytearray(WHOLE)
        for _ in range(random.choice((1, 1, 2, 8))):
            at = random.choice((random.randrange(len(data)), random.randrange(160)))
            data[at] = random.choice((0, 255, random.randrange(256)))
        data = data[: random.choice((len(data), random.randrange(len(data) + 1)))]
        try:
            found = text(bytes(data), "sm_90")
        except MmulatorError:
            continue
        assert found is None or len(found) <= 1 << 20


def test_files_with_strange_ptx() -> None:
    old = b"..." + fat(entry(b".version 4.0\n.target sm_24a\n", 24, OF_CHIP)) + b"..."
    assert holds(old) and not holds(b"ELF" * 99)
    with pytest.raises(UnsupportedError, match="no PTX that runs on sm_90, but PTX for sm_24a"):
        ptx_in(old, "old")
    parts = [fat(entry(text.encode())) for text in (".version x\n.target\nvoid", PTX.format("k").replace("90", "100"), PTX)]
    assert ".target sm_100\n" in ptx_in(b"".join(parts), "odd", "sm_90")


def test_lz4_by_hand() -> None:
    assert unlz4(b"\x10a\1\0\x00", 5) == b"aaaaa"
    assert unlz4(b"\x30abc\3\0\x50defgh", 12) == b"abcabcadefgh"  # 4 bytes from 3 before: what is repeated begins in itself
    assert unlz4(b"\x1fa\1\0\xff\x0a\0", 1 + 4 + 15 + 255 + 10) == b"a" * 285
    assert unlz4(b"\xf0\5" + b"x" * 20, 20) == b"x" * 20 and unlz4(b"", 0) == b""
    for wrong in (b"\x10a\0\0\0", b"\x10a\2\0\0", b"\x10a\1", b"\x20a", b"\x1fa\1\0\xff"):
        with pytest.raises(MmulatorError):
            unlz4(wrong, 5)


def test_lz4_and_zstd_agree_on_random_sequences() -> None:
    random.seed(8)
    for _ in range(200):
        out, packed = b"", b""
        for _ in range(random.randrange(1, 8)):
            words, back = random.randbytes(random.choice((1, 14, 15, 300))), 0
            out += words
            back = random.randrange(1, min(len(out), 65535) + 1)
            count = random.choice((4, 18, 19, 20, 400))
            packed += lengths(len(words), count - 4) + words + back.to_bytes(2, "little") + tail(count - 4)
            for _ in range(count):
                out += out[-back : len(out) - back + 1]
        packed += lengths(5, 0) + b"final"
        out += b"final"
        assert unlz4(packed, len(out)) == out == unzstd(zstandard.compress(out), len(out))


def lengths(words: int, count: int) -> bytes:
    return bytes([min(words, 15) << 4 | min(count, 15)]) + tail(words)


def tail(count: int) -> bytes:
    return b"" if count < 15 else b"\xff" * ((count - 15) // 255) + bytes([(count - 15) % 255])


@pytest.mark.parametrize("way", ["zstd", "lz4"])
def test_unpacking_takes_time_in_proportion_and_keeps_to_its_limit(way: str) -> None:
    """Much out of little: four times as many bytes take four times as long, not sixteen times; a time limit ends it."""

    def packed(size: int) -> bytes:
        if way == "zstd":
            return zstandard.ZstdCompressor(level=3).compress(bytes(size))
        count = size - 1 - 4 - 15  # of the repetition of one byte, beyond what its token says
        return b"\x1f\0\1\0" + b"\xff" * (count // 255) + bytes([count % 255]) + b"\0"

    def seconds(size: int) -> float:
        given = packed(size)
        began = time.process_time()
        assert unpack(given, size) == bytes(size)
        return time.process_time() - began

    unpack = unzstd if way == "zstd" else unlz4
    small = min(seconds(32 << 20) for _ in range(3))
    assert min(seconds(128 << 20) for _ in range(3)) < 8 * small + 0.02
    with pytest.raises(TimeUp), time_limit(1e-9):
        unpack(packed(32 << 20), 32 << 20)


def test_a_text_that_is_too_long_is_not_unpacked() -> None:
    long = fatbin.LARGEST + 1
    with pytest.raises(MmulatorError, match=f"has {long} bytes, and at most {fatbin.LARGEST} are unpacked"):
        text(fat(entry(b"\0" * 8, flags=ZSTD, unpacked=long)), "sm_90")
