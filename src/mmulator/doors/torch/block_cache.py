"""Large blocks of torch's memory that were freed, kept for who asks next, as CUDA's allocator keeps them: the system takes longer
to map and clear the pages of a new block than an operator takes to write its result there.

Machine code, as the rest of the allocator (allocator.py). Where there are too many, those that were kept for longest are freed.
"""

from __future__ import annotations

import ctypes

PLACES = 32  # a power of two
LEAST, MOST = 1 << 22, 1 << 28  # bytes of a block that is kept; of all

kept = (ctypes.c_uint64 * (3 + 2 * PLACES))()  # a lock, the place of the oldest, bytes of all; then address and size of each

TEXT = f"""
@mm_torch_spare = external global [3 x i64]

define void @lock_spare() {{
start:
  br label %try
try:
  %old = atomicrmw xchg ptr @mm_torch_spare, i64 1 acquire
  %mine = icmp eq i64 %old, 0
  br i1 %mine, label %done, label %try
done:
  ret void
}}

; Replaces what is kept at a place. Returns the block that was kept there.
define ptr @exchange_spare(i64 %n, ptr %block, i64 %size) {{
  %twice = shl i64 %n, 1
  %word = add i64 %twice, 3
  %at = getelementptr i64, ptr @mm_torch_spare, i64 %word
  %size_at = getelementptr i64, ptr %at, i64 1
  %all_at = getelementptr i64, ptr @mm_torch_spare, i64 2
  %old = load ptr, ptr %at
  %old_size = load i64, ptr %size_at
  %all = load i64, ptr %all_at
  %more = add i64 %all, %size
  %now = sub i64 %more, %old_size
  store ptr %block, ptr %at
  store i64 %size, ptr %size_at
  store i64 %now, ptr %all_at
  ret ptr %old
}}

; A kept block with room for so many bytes, and at most an eighth more; null if there is none.
define ptr @take_spare(i64 %whole) {{
start:
  %is_large = icmp uge i64 %whole, {LEAST}
  br i1 %is_large, label %search, label %none
search:
  %part = lshr i64 %whole, 3
  %most = add i64 %whole, %part
  call void @lock_spare()
  br label %look
look:
  %n = phi i64 [0, %search], [%next, %look]
  %twice = shl i64 %n, 1
  %word = add i64 %twice, 4
  %size_at = getelementptr i64, ptr @mm_torch_spare, i64 %word
  %size = load i64, ptr %size_at
  %enough = icmp uge i64 %size, %whole
  %near = icmp ule i64 %size, %most
  %fits = and i1 %enough, %near
  %next = add i64 %n, 1
  %last = icmp eq i64 %next, {PLACES}
  %over = or i1 %fits, %last
  br i1 %over, label %found, label %look
found:
  br i1 %fits, label %take, label %nothing
take:
  %block = call ptr @exchange_spare(i64 %n, ptr null, i64 0)
  store atomic i64 0, ptr @mm_torch_spare release, align 8
  ret ptr %block
nothing:
  store atomic i64 0, ptr @mm_torch_spare release, align 8
  br label %none
none:
  ret ptr null
}}

; Keeps a block if it is large, and frees those that have been kept for longest where there are too many.
define void @let_go(ptr %block) {{
start:
  %size = call i64 @mm_torch_malloc_usable_size(ptr %block)
  %enough = icmp uge i64 %size, {LEAST}
  %not_all = icmp ule i64 %size, {MOST}
  %keeps = and i1 %enough, %not_all
  br i1 %keeps, label %look, label %free
free:
  call void @mm_torch_free(ptr %block)
  ret void
look:
  call void @lock_spare()
  %oldest_at = getelementptr i64, ptr @mm_torch_spare, i64 1
  %n = load i64, ptr %oldest_at
  %old = call ptr @exchange_spare(i64 %n, ptr %block, i64 %size)
  %all_at = getelementptr i64, ptr @mm_torch_spare, i64 2
  %all = load i64, ptr %all_at
  %fits = icmp ule i64 %all, {MOST}
  br i1 %fits, label %kept, label %undo
undo:
  %same = call ptr @exchange_spare(i64 %n, ptr null, i64 0)
  br label %kept
kept:
  %next = add i64 %n, 1
  %place = and i64 %next, {PLACES - 1}
  store i64 %place, ptr %oldest_at
  store atomic i64 0, ptr @mm_torch_spare release, align 8
  call void @mm_torch_free(ptr %old)
  br i1 %fits, label %done, label %look
done:
  ret void
}}

define void @free_spare() {{
start:
  br label %look
look:
  %n = phi i64 [0, %start], [%next, %look]
  call void @lock_spare()
  %block = call ptr @exchange_spare(i64 %n, ptr null, i64 0)
  store atomic i64 0, ptr @mm_torch_spare release, align 8
  call void @mm_torch_free(ptr %block)
  %next = add i64 %n, 1
  %last = icmp eq i64 %next, {PLACES}
  br i1 %last, label %done, label %look
done:
  ret void
}}
"""
