"""torch's allocator once the device cuda exists, in machine code, since torch asks from all threads.

Each block starts at a multiple of 512 bytes, as CUDA's allocator gives them, and unused bytes lie behind it, so that a kernel
that runs over the end of one tensor does not reach the next. Results of operators are CPU tensors first (dispatch.py) and change
their device, so the CPU's tensors have such blocks too. A block of cuda is counted while it lives, and linked into a list, by
which the driver finds the blocks whose addresses libraries of C++ give to kernels. Large blocks are kept when they are freed
(block_cache.py).
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import torch

from mmulator.base.codegen.engine import Library
from mmulator.base.errors import UnsupportedError
from mmulator.doors.torch import block_cache, hooks
from mmulator.runtime.launch.regions import Region, room_behind

ALIGN = 512
LEAST_GAP, MOST_GAP = 512, 4096  # bytes behind a block: as many as it has, within these
LARGE = 1 << 20  # bytes from which on torch's statistics call an allocation large
PINNED = 1 << 14  # blocks of pinned memory at a time
_PAGE, _HUGE_PAGES = 1 << 12, 14  # MADV_HUGEPAGE: new blocks that are large are mapped 2 MiB at a time where the system can

# Counters for all, large and small blocks: number, bytes rounded up, bytes as asked for.
POOLS = ("all", "large_pool", "small_pool")
KINDS = ("count", "rounded", "requested")
SERIES = ("current", "peak", "allocated", "freed")
counters = (ctypes.c_int64 * (len(POOLS) * len(KINDS) * len(SERIES)))()
pinned = (ctypes.c_uint64 * (PINNED + 1))()  # addresses, then how many places were ever used

_pinned_allocator = ctypes.c_uint64()
_blocks = (ctypes.c_uint64 * 2)()

_TEXT = """
@mm_torch_counters = external global i64
@mm_torch_pinned = external global i64
@mm_torch_original = external global i8
@mm_torch_pinned_allocator = external global i64
@mm_torch_blocks = external global [2 x i64]
declare void @mm_torch_original_allocate(ptr sret({{ptr, ptr, ptr, i16}}), ptr, i64)
declare i32 @mm_torch_posix_memalign(ptr, i64, i64)
declare i64 @mm_torch_malloc_usable_size(ptr)
declare void @mm_torch_free(ptr)
declare i32 @mm_torch_madvise(i64, i64, i32)

; What torch asks of a device that has nothing to do: yes, no, and the only stream.
define i64 @one() {{
  ret i64 1
}}

define i64 @zero() {{
  ret i64 0
}}

define {{i64, i64}} @stream() {{
  ret {{i64, i64}} {{i64 1, i64 0}}
}}

define i64 @pinned_allocator() {{
  %address = load i64, ptr @mm_torch_pinned_allocator
  ret i64 %address
}}

define i64 @size_of(ptr %block) {{
  %usable = call i64 @mm_torch_malloc_usable_size(ptr %block)
  %end = getelementptr i8, ptr %block, i64 %usable
  %place = getelementptr i8, ptr %end, i64 -8
  %size = load i64, ptr %place, align 1
  ret i64 %size
}}

define void @allocate_for(ptr sret({{ptr, ptr, ptr, i16}}) %out, ptr %self, i64 %size, ptr %deleter) {{
  %is_none = icmp eq i64 %size, 0
  br i1 %is_none, label %refuse, label %try
try:
  %room = alloca ptr
  %less = icmp ult i64 %size, {most}
  %gap0 = select i1 %less, i64 %size, i64 {most}
  %few = icmp ult i64 %gap0, {least}
  %gap = select i1 %few, i64 {least}, i64 %gap0
  %whole = add i64 %size, %gap
  %kept = call ptr @take_spare(i64 %whole)
  store ptr %kept, ptr %room
  %is_kept = icmp ne ptr %kept, null
  br i1 %is_kept, label %done, label %make
make:
  %failed = call i32 @mm_torch_posix_memalign(ptr %room, i64 {align}, i64 %whole)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %made, label %again
again:
  call void @free_spare()
  %failed_again = call i32 @mm_torch_posix_memalign(ptr %room, i64 {align}, i64 %whole)
  %good_now = icmp eq i32 %failed_again, 0
  br i1 %good_now, label %made, label %refuse
made:
  %is_large = icmp uge i64 %whole, {spare}
  br i1 %is_large, label %advise, label %done
advise:
  %new = load i64, ptr %room
  %last = add i64 %new, %whole
  %up = add i64 %new, {page_rest}
  %from = and i64 %up, {page_mask}
  %to = and i64 %last, {page_mask}
  %length = sub i64 %to, %from
  %told = call i32 @mm_torch_madvise(i64 %from, i64 %length, i32 {huge_pages})
  br label %done
done:
  %block = load ptr, ptr %room
  %usable = call i64 @mm_torch_malloc_usable_size(ptr %block)
  %end = getelementptr i8, ptr %block, i64 %usable
  %place = getelementptr i8, ptr %end, i64 -8
  store i64 %size, ptr %place, align 1
  store ptr %block, ptr %out
  %context = getelementptr i8, ptr %out, i64 {context}
  store ptr %block, ptr %context
  %how = getelementptr i8, ptr %out, i64 {deleter}
  store ptr %deleter, ptr %how
  %device = getelementptr i8, ptr %out, i64 24
  store i16 {cpu}, ptr %device
  ret void
refuse:
  call void @mm_torch_original_allocate(ptr sret({{ptr, ptr, ptr, i16}}) %out, ptr @mm_torch_original, i64 %size)
  ret void
}}

define void @allocate(ptr sret({{ptr, ptr, ptr, i16}}) %out, ptr %self, i64 %size) {{
  call void @allocate_for(ptr sret({{ptr, ptr, ptr, i16}}) %out, ptr %self, i64 %size, ptr @free_plain)
  ret void
}}

define void @free_plain(ptr %block) {{
  call void @let_go(ptr %block)
  ret void
}}

define ptr @deleter_of(ptr %self) {{
  ret ptr @free_plain
}}

define void @allocate_pinned(ptr sret({{ptr, ptr, ptr, i16}}) %out, ptr %self, i64 %size) {{
start:
  call void @allocate_for(ptr sret({{ptr, ptr, ptr, i16}}) %out, ptr %self, i64 %size, ptr @free_pinned)
  %block = load i64, ptr %out
  br label %look
look:
  %n = phi i64 [0, %start], [%next, %look]
  %place = getelementptr i64, ptr @mm_torch_pinned, i64 %n
  %tried = cmpxchg ptr %place, i64 0, i64 %block seq_cst seq_cst
  %won = extractvalue {{i64, i1}} %tried, 1
  %next = add i64 %n, 1
  %full = icmp eq i64 %next, {pinned}
  %over = or i1 %won, %full
  br i1 %over, label %done, label %look
done:
  %count = getelementptr i64, ptr @mm_torch_pinned, i64 {pinned}
  %old = atomicrmw umax ptr %count, i64 %next seq_cst
  ret void
}}

define i64 @find_pinned(i64 %address) {{
start:
  %place = getelementptr i64, ptr @mm_torch_pinned, i64 {pinned}
  %count = load atomic i64, ptr %place seq_cst, align 8
  br label %look
look:
  %n = phi i64 [0, %start], [%next, %go]
  %over = icmp uge i64 %n, %count
  br i1 %over, label %none, label %go
go:
  %at = getelementptr i64, ptr @mm_torch_pinned, i64 %n
  %value = load atomic i64, ptr %at seq_cst, align 8
  %is = icmp eq i64 %value, %address
  %next = add i64 %n, 1
  br i1 %is, label %found, label %look
found:
  ret i64 %n
none:
  ret i64 -1
}}

define zeroext i8 @is_pinned(ptr %self, i64 %address) {{
  %n = call i64 @find_pinned(i64 %address)
  %is = icmp sge i64 %n, 0
  %some = icmp ne i64 %address, 0
  %both = and i1 %is, %some
  %result = zext i1 %both to i8
  ret i8 %result
}}

define void @free_pinned(ptr %block) {{
  %address = ptrtoint ptr %block to i64
  %n = call i64 @find_pinned(i64 %address)
  %is = icmp sge i64 %n, 0
  br i1 %is, label %forget, label %go
forget:
  %at = getelementptr i64, ptr @mm_torch_pinned, i64 %n
  store atomic i64 0, ptr %at seq_cst, align 8
  br label %go
go:
  call void @let_go(ptr %block)
  ret void
}}

define void @count(i64 %size, i64 %sign) {{
  %up = add i64 %size, {round}
  %rounded = and i64 %up, {mask}
  %large = icmp uge i64 %size, {large}
  %pool = select i1 %large, i64 1, i64 2
  call void @count_pool(i64 0, i64 %size, i64 %rounded, i64 %sign)
  call void @count_pool(i64 %pool, i64 %size, i64 %rounded, i64 %sign)
  ret void
}}

define void @count_pool(i64 %pool, i64 %size, i64 %rounded, i64 %sign) {{
  %at = mul i64 %pool, {stride}
  %series = getelementptr i64, ptr @mm_torch_counters, i64 %at
  call void @count_one(ptr %series, i64 1, i64 %sign)
  %second = getelementptr i64, ptr %series, i64 4
  call void @count_one(ptr %second, i64 %rounded, i64 %sign)
  %third = getelementptr i64, ptr %series, i64 8
  call void @count_one(ptr %third, i64 %size, i64 %sign)
  ret void
}}

define void @count_one(ptr %series, i64 %amount, i64 %sign) {{
  %change = mul i64 %amount, %sign
  %old = atomicrmw add ptr %series, i64 %change seq_cst
  %now = add i64 %old, %change
  %peak = getelementptr i64, ptr %series, i64 1
  %most = atomicrmw max ptr %peak, i64 %now seq_cst
  %more = icmp sgt i64 %sign, 0
  %which = select i1 %more, i64 2, i64 3
  %total = getelementptr i64, ptr %series, i64 %which
  %before = atomicrmw add ptr %total, i64 %amount seq_cst
  ret void
}}

; The list of blocks of cuda: a lock and the first block, then in each block, in front of its size, the blocks before and behind.
define ptr @links_of(ptr %block) {{
  %usable = call i64 @mm_torch_malloc_usable_size(ptr %block)
  %end = getelementptr i8, ptr %block, i64 %usable
  %links = getelementptr i8, ptr %end, i64 -24
  ret ptr %links
}}

define void @lock() {{
start:
  br label %try
try:
  %old = atomicrmw xchg ptr @mm_torch_blocks, i64 1 acquire
  %mine = icmp eq i64 %old, 0
  br i1 %mine, label %done, label %try
done:
  ret void
}}

define void @link(ptr %block) {{
  %links = call ptr @links_of(ptr %block)
  %behind = getelementptr i8, ptr %links, i64 8
  %first = getelementptr i64, ptr @mm_torch_blocks, i64 1
  call void @lock()
  %next = load ptr, ptr %first
  store ptr null, ptr %links, align 1
  store ptr %next, ptr %behind, align 1
  store ptr %block, ptr %first
  %is_last = icmp eq ptr %next, null
  br i1 %is_last, label %done, label %tell
tell:
  %its = call ptr @links_of(ptr %next)
  store ptr %block, ptr %its, align 1
  br label %done
done:
  store atomic i64 0, ptr @mm_torch_blocks release, align 8
  ret void
}}

define void @unlink(ptr %block) {{
  %links = call ptr @links_of(ptr %block)
  %behind = getelementptr i8, ptr %links, i64 8
  %first = getelementptr i64, ptr @mm_torch_blocks, i64 1
  call void @lock()
  %before = load ptr, ptr %links, align 1
  %next = load ptr, ptr %behind, align 1
  %is_first = icmp eq ptr %before, null
  br i1 %is_first, label %head, label %middle
head:
  store ptr %next, ptr %first
  br label %then
middle:
  %its = call ptr @links_of(ptr %before)
  %its_behind = getelementptr i8, ptr %its, i64 8
  store ptr %next, ptr %its_behind, align 1
  br label %then
then:
  %is_last = icmp eq ptr %next, null
  br i1 %is_last, label %done, label %tell
tell:
  %of_next = call ptr @links_of(ptr %next)
  store ptr %before, ptr %of_next, align 1
  br label %done
done:
  store atomic i64 0, ptr @mm_torch_blocks release, align 8
  ret void
}}

; Addresses and sizes of the blocks of cuda, as far as there is room; returns their number.
define i64 @blocks(i64 %out, i64 %room) {{
start:
  call void @lock()
  %first = getelementptr i64, ptr @mm_torch_blocks, i64 1
  %head = load ptr, ptr %first
  br label %look
look:
  %block = phi ptr [%head, %start], [%next, %go]
  %n = phi i64 [0, %start], [%more, %go]
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %some
some:
  %fits = icmp ult i64 %n, %room
  br i1 %fits, label %write, label %go
write:
  %offset = mul i64 %n, 16
  %at = add i64 %out, %offset
  %place = inttoptr i64 %at to ptr
  %address = ptrtoint ptr %block to i64
  store i64 %address, ptr %place
  %second = getelementptr i64, ptr %place, i64 1
  %size = call i64 @size_of(ptr %block)
  store i64 %size, ptr %second
  br label %go
go:
  %more = add i64 %n, 1
  %links = call ptr @links_of(ptr %block)
  %behind = getelementptr i8, ptr %links, i64 8
  %next = load ptr, ptr %behind, align 1
  br label %look
done:
  store atomic i64 0, ptr @mm_torch_blocks release, align 8
  ret i64 %n
}}

define void @free_of_cuda(ptr %block) {{
  call void @unlink(ptr %block)
  %size = call i64 @size_of(ptr %block)
  call void @count(i64 %size, i64 -1)
  call void @let_go(ptr %block)
  ret void
}}

; A tensor and its storage say that they are of cuda. The storage's block, if it is one of ours, is counted.
define void @take(i64 %tensor, i64 %storage) {{
  %is_none = icmp eq i64 %tensor, 0
  br i1 %is_none, label %block, label %flip
flip:
  %keys_at = add i64 %tensor, {keys}
  %keys = inttoptr i64 %keys_at to ptr
  %old = load i64, ptr %keys
  %new = xor i64 %old, {flip}
  store i64 %new, ptr %keys
  %device_at = add i64 %tensor, {device}
  %device = inttoptr i64 %device_at to ptr
  store i16 1, ptr %device
  br label %block
block:
  %of_at = add i64 %storage, {storage}
  %of = inttoptr i64 %of_at to ptr
  store i16 1, ptr %of
  %how_at = add i64 %storage, {storage_deleter}
  %how = inttoptr i64 %how_at to ptr
  %deleter = load ptr, ptr %how
  %ours = icmp eq ptr %deleter, @free_plain
  br i1 %ours, label %counted, label %done
counted:
  store ptr @free_of_cuda, ptr %how
  %data_at = add i64 %storage, {storage_data}
  %data = inttoptr i64 %data_at to ptr
  %memory = load ptr, ptr %data
  %size = call i64 @size_of(ptr %memory)
  call void @count(i64 %size, i64 1)
  call void @link(ptr %memory)
  br label %done
done:
  ret void
}}

define void @fill(i64 %address, i64 %size, i64 %pattern) {{
start:
  %base = inttoptr i64 %address to ptr
  %words = lshr i64 %size, 3
  br label %look
look:
  %n = phi i64 [0, %start], [%next, %go]
  %over = icmp uge i64 %n, %words
  br i1 %over, label %rest, label %go
go:
  %at = getelementptr i64, ptr %base, i64 %n
  store i64 %pattern, ptr %at, align 1
  %next = add i64 %n, 1
  br label %look
rest:
  %first = shl i64 %words, 3
  br label %byte
byte:
  %b = phi i64 [%first, %rest], [%later, %one]
  %value = phi i64 [%pattern, %rest], [%shifted, %one]
  %end = icmp uge i64 %b, %size
  br i1 %end, label %done, label %one
one:
  %place = getelementptr i8, ptr %base, i64 %b
  %low = trunc i64 %value to i8
  store i8 %low, ptr %place
  %shifted = lshr i64 %value, 8
  %later = add i64 %b, 1
  br label %byte
done:
  ret void
}}
"""


class Allocator:
    """The machine code, and the two C++ objects that torch takes for its allocators of plain and of pinned memory.

    keys, device, flip, storage: objects.TensorFields. Raises UnsupportedError where torch's own allocator looks otherwise.
    """

    def __init__(self, keys: int, device: int, flip: int, storage: int) -> None:
        core = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        libc = ctypes.CDLL(None)
        get, put = core["_ZN3c1015GetCPUAllocatorEv"], core["_ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh"]
        get.restype, put.argtypes, put.restype = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_uint8), None
        original = get()
        own = hooks.Table(original, ("c10/core/Allocator.h", "Allocator"))
        context, deleter = _order(storage)
        text = _TEXT.format(
            most=MOST_GAP, least=LEAST_GAP, align=ALIGN, context=context, deleter=deleter, cpu=-256, pinned=PINNED,
            round=ALIGN - 1, mask=-ALIGN, large=LARGE, stride=len(KINDS) * len(SERIES), keys=keys, device=device,
            flip=flip, storage=storage, storage_data=storage - 24, storage_deleter=storage - 24 + deleter,
            spare=block_cache.LEAST, page_rest=_PAGE - 1, page_mask=-_PAGE, huge_pages=_HUGE_PAGES,
        )  # fmt: skip
        functions = ("posix_memalign", "malloc_usable_size", "free", "madvise")
        symbols = {f"mm_torch_{f}": ctypes.cast(libc[f], ctypes.c_void_p).value or 0 for f in functions}
        symbols |= {"mm_torch_original": original, "mm_torch_original_allocate": own["allocate"]}
        symbols |= {"mm_torch_counters": ctypes.addressof(counters), "mm_torch_pinned": ctypes.addressof(pinned)}
        symbols["mm_torch_pinned_allocator"] = ctypes.addressof(_pinned_allocator)
        symbols |= {"mm_torch_blocks": ctypes.addressof(_blocks), "mm_torch_spare": ctypes.addressof(block_cache.kept)}
        code = Library(text + block_cache.TEXT, 2, symbols, unwound=True)  # c10::Error passes through
        for kept in (code, counters, pinned, _pinned_allocator, _blocks, block_cache.kept, self):  # torch frees after Python
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
        i64 = ctypes.c_int64
        self.take = code.function("take", None, i64, i64)
        self.fill = code.function("fill", None, i64, i64, ctypes.c_uint64)
        self.free_spare = code.function("free_spare", None)
        self._list, self._room = code.function("blocks", i64, i64, i64), np.zeros((64, 2), np.uint64)
        self._found: tuple[bytes, list[Region]] = b"", []
        self.answers = {n: code.address(n) for n in ("one", "zero", "stream", "is_pinned", "pinned_allocator")}
        plain, locked = (
            own.another({"allocate": code.address(allocate), "raw_deleter": code.address("deleter_of")})
            for allocate in ("allocate", "allocate_pinned")
        )
        _pinned_allocator.value = locked
        put(plain, 255)


    def blocks(self) -> list[Region]:
        """The blocks of cuda that there are now."""
        while (number := self._list(self._room.ctypes.data, len(self._room))) > len(self._room):
            self._room = np.zeros((2 * number, 2), np.uint64)
        words = self._room[:number].tobytes()
        if words != self._found[0]:
            found = [Region(at, size, "a tensor of cuda", True, room_behind(size)) for at, size in self._room[:number].tolist()]
            self._found = words, found
        return self._found[1]


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _order(storage: int) -> tuple[int, int]:
    """Positions, among the four words of a `DataPtr`, of a block's owner and of the function that frees it."""
    own = torch.zeros(3)
    words = [_word(own.untyped_storage()._cdata + storage - 24 + 8 * n) for n in range(3)]
    if words[0] != own.data_ptr() or words[0] not in words[1:]:
        raise UnsupportedError(f"the memory of a tensor of torch {torch.__version__} is described in an unknown way")
    return (8, 16) if words[1] == words[0] else (16, 8)
