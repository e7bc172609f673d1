"""What a cubin says of its kernels, and that a damaged one says nothing."""

import random
import struct

from mmulator.host.driver.cubin import CubinResources, resources

NAMES = b"\0.symtab\0.strtab\0.text.k\0.nv.info\0.nv.info.k\0"
INFO = (
    struct.pack("<BBHII", 4, 0x2F, 8, 1, 40) + struct.pack("<BBHII", 4, 0x11, 8, 1, 16) + struct.pack("<BBHII", 4, 0x12, 8, 1, 48)
)
CONTENTS = {  # name, link, info, bytes
    0: (b"", 0, 0, b""), 1: (b".symtab", 2, 0, bytes(24) + struct.pack("<I20x", 1)), 2: (b".strtab", 0, 0, b"\0k\0"),
    3: (b".text.k", 1, 40 << 24, b"code"), 4: (b".nv.info", 1, 0, struct.pack("<BBH", 3, 0x1B, 255) + INFO),
    5: (b".nv.info.k", 1, 0, struct.pack("<BBH3I", 4, 0x05, 12, 64, 2, 1)), 6: (b".strtab", 0, 0, NAMES),
}  # fmt: skip


def cubin() -> bytes:
    data, rows = bytearray(64), b""
    for name, link, info, held in CONTENTS.values():
        rows += struct.pack("<IIQQQQIIQQ", NAMES.index(name), 1, 0, 0, len(data), len(held), link, info, 1, 0)
        data += held
    data[:4] = b"\x7fELF"
    struct.pack_into("<Q", data, 40, len(data))
    struct.pack_into("<3H", data, 58, 64, len(CONTENTS), 6)
    return bytes(data) + rows


def test_resources_of_a_kernel() -> None:
    assert resources(cubin()) == {"k": CubinResources(registers=40, frame=16, stack=48, threads=128)}


def test_a_damaged_file_says_nothing() -> None:
    chance, whole = random.Random(1), cubin()
    assert resources(b"not ELF") == resources(whole[:100]) == {}
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        assert isinstance(resources(bytes(data[: chance.randint(1, len(data))])), dict)
