"""Machine code of x86-64 for the functions of a shared library (elf.py). Places are distances from the begin of the library."""

import struct

MACHINE, ADDRESS_OF_SYMBOL = 62, 1  # EM_X86_64, R_X86_64_64
PAGE = 4096
TRIPLE, CPU = "x86_64-unknown-linux-gnu", "x86-64"


def stub(at: int, number: int, slot: int, otherwise: int) -> bytes:
    """A function: jump to what the slot has; while it is empty, to `otherwise` with the number of the slot in %eax."""
    code = b"\x4c\x8b\x1d" + _to(slot, at + 7)  # mov slot(%rip), %r11
    code += b"\x4d\x85\xdb\x74\x03\x41\xff\xe3"  # test %r11, %r11; jz +3; jmp *%r11
    return code + numbered(at + len(code), number, otherwise)


def numbered(at: int, number: int, to: int) -> bytes:
    """Jump with a number in %eax."""
    return b"\xb8" + struct.pack("<I", number) + b"\xe9" + _to(to, at + 10)  # mov $number, %eax; jmp


def returns(number: int) -> bytes:
    return b"\xb8" + struct.pack("<I", number) + b"\xc3"  # mov $number, %eax; ret


def returns_place(at: int, place: int) -> bytes:
    return b"\x48\x8d\x05" + _to(place, at + 7) + b"\xc3"  # lea place(%rip), %rax; ret


def start(at: int, table: int, door: int, function: int) -> bytes:
    """Keep the arguments, call `boot`, and jump to what the slot %eax has then."""
    code = b"\x57\x56\x52\x51\x41\x50\x41\x51\x50"  # push rdi, rsi, rdx, rcx, r8, r9, rax
    code += b"\x48\x8d\x3d" + _to(door, at + len(code) + 7)  # lea door(%rip), %rdi
    code += b"\xe8" + _to(function, at + len(code) + 5)  # call boot
    code += b"\x58\x41\x59\x41\x58\x59\x5a\x5e\x5f"  # pop
    code += b"\x4c\x8d\x1d" + _to(table, at + len(code) + 7)  # lea table(%rip), %r11
    return code + b"\x89\xc0\x41\xff\x24\xc3"  # mov %eax, %eax; jmp *(%r11,%rax,8)


def keep(at: int, count: int, log: int, room: int, first: int, full: int) -> bytes:
    """Write a call into the log: last the number of the function, from 1 behind `first` slots. A full log goes to `full`."""
    code = b"\x41\xba\x01\0\0\0"  # mov $1, %r10d
    code += b"\xf0\x4c\x0f\xc1\x15" + _to(count, at + len(code) + 9)  # lock xadd %r10, count(%rip)
    code += b"\x49\x81\xfa" + struct.pack("<I", room)  # cmp $room, %r10
    code += b"\x0f\x83" + _to(full, at + len(code) + 6)  # jae full
    code += b"\x49\xc1\xe2\x06"  # shl $6, %r10
    code += b"\x4c\x8d\x1d" + _to(log, at + len(code) + 7)  # lea log(%rip), %r11
    code += b"\x4d\x01\xd3"  # add %r10, %r11
    code += b"\x49\x89\x7b\x08\x49\x89\x73\x10\x49\x89\x53\x18\x49\x89\x4b\x20"  # mov %rdi, 8(%r11); rsi, 16; rdx, 24; rcx, 32
    code += b"\x4d\x89\x43\x28\x4d\x89\x4b\x30"  # mov %r8, 40(%r11); r9, 48
    code += b"\x2d" + struct.pack("<i", first - 1)  # sub $(first - 1), %eax
    return code + b"\x49\x89\x03\x48\x89\xf8\xc3"  # mov %rax, (%r11); mov %rdi, %rax; ret


def note(at: int, count: int, ring: int) -> bytes:
    """The code that notes a call: function %eax, arguments %rdi and %rsi. The number is written last: then the entry is whole."""
    code = b"\xb9\x01\0\0\0"  # mov $1, %ecx
    code += b"\xf0\x48\x0f\xc1\x0d" + _to(count, at + len(code) + 9)  # lock xadd %rcx, count(%rip)
    code += b"\x0f\xb7\xc9"  # movzwl %cx, %ecx
    code += b"\x48\xc1\xe1\x05"  # shl $5, %rcx
    code += b"\x48\x8d\x15" + _to(ring, at + len(code) + 7)  # lea ring(%rip), %rdx
    code += b"\x48\x01\xca"  # add %rcx, %rdx
    code += b"\x48\x89\x7a\x08\x48\x89\x72\x10"  # mov %rdi, 8(%rdx); mov %rsi, 16(%rdx)
    code += b"\x48\x89\x02"  # mov %rax, (%rdx)
    return code + b"\x31\xc0\xc3"  # xor %eax, %eax; ret


def _to(place: int, behind: int) -> bytes:
    """The distance of an address from the end of an instruction."""
    return struct.pack("<i", place - behind)
