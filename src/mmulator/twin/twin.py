"""The compiled twin of the exact model: whole tiles, bit for bit the same (tests compare them on every key).

`twin_for(key, device)` gives addresses of native functions and sizes of packed operands. C ABI, 64-bit integers:

    pack_a(raw, lda, m, k, out)          raw [m][lda], one container per element (1 byte up to 8 bits, 2, 4 or 8)
    pack_b(raw, ldb, n, k, out)          raw [n][ldb], k contiguous
    pack_b_rows(raw, ldb, n, k, out)     raw [k][ldb], n contiguous
    dot(a, b, c, ldc, d, ldd, m, n, k, flags [, index] [, scale_a, scale_b])

k counts dense elements and is a multiple of key.k; a sparse A has k/2 columns, and `index` is int32 [m][k/2], the dense
k of each element. Scale factors are bytes: scale_a [m][S], scale_b [S][n], S = k / key.k * key.scale_blocks. c and d
are row-major in the containers of key.ctype and key.dtype and may be the same memory; n need not be a multiple of
anything. D of an instruction is C of the next along k. No function allocates or calls back.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from mmulator.codegen.engine import Library
from mmulator.codegen.lang import Native, library_text
from mmulator.codegen.locks import Lock
from mmulator.lazy import cached_property
from mmulator.numerics.arrays import batch_shape, check_operands
from mmulator.numerics.formats import container, element_type
from mmulator.numerics.profiles import DotKey, profile_for
from mmulator.twin.batch import pointer, run_batch
from mmulator.twin.exact import dot_exact, exact_for, pack_a_exact, pack_b_exact
from mmulator.twin.fused import NEGATE_A, NEGATE_B, ZERO_C, dot_function
from mmulator.twin.groups import dot_groups, groups_for, pack_a_groups, pack_b_groups
from mmulator.twin.pack import pack_a_function, pack_b_function
from mmulator.twin.plan import plan_for
from mmulator.twin.software import dot_software, pack_a_software, pack_b_software, software_for

_P, _I = ctypes.c_void_p, ctypes.c_int64


@dataclass(frozen=True)
class Twin:
    """Native functions of one instruction's arithmetic on one device. `library` keeps the code alive."""

    key: DotKey
    device: str
    library: Library = field(repr=False)
    a_bytes: Callable[[int, int], int] = field(repr=False)  # (m, k) -> bytes of a packed A
    b_bytes: Callable[[int, int], int] = field(repr=False)  # (n, k)

    @cached_property
    def pack_a(self) -> int:
        return self.library.address("pack_a")

    @cached_property
    def pack_b(self) -> int:
        return self.library.address("pack_b")

    @cached_property
    def pack_b_rows(self) -> int:
        return self.library.address("pack_b_rows")

    @cached_property
    def dot(self) -> int:
        return self.library.address("dot")

    @cached_property
    def functions(self) -> Any:
        """pack_a, pack_b_rows and dot, in memory."""
        return (ctypes.c_uint64 * 3)(self.pack_a, self.pack_b_rows, self.dot)

    @staticmethod
    def flags(*, zero_c: bool = False, negate_a: bool = False, negate_b: bool = False) -> int:
        """zero_c: C is not read (scale-d = 0). negate_a, negate_b: imm-scale -1."""
        return ZERO_C * zero_c | NEGATE_A * negate_a | NEGATE_B * negate_b


def twin_for(key: DotKey, device: str) -> Twin:
    """The twin of a key on a device (isa.targets.DEVICES); compiled at first use, then from the cache on disk.

    Raises UnsupportedError as `profile_for` does.
    """
    twin = _twins.get((key, device))
    if twin is None:
        with _building:  # of several threads one compiles it
            twin = _twins.get((key, device)) or _twins.setdefault((key, device), _build(key, device))
    return twin


_twins: dict[tuple[DotKey, str], Twin] = {}
_building = Lock()


def _build(key: DotKey, device: str) -> Twin:
    p = profile_for(key, device)
    parts: Any
    pack_a: Callable[..., Native]
    pack_b: Callable[..., Native]
    dot: Callable[..., Native]
    match p.method:
        case "fused" | "halves":
            parts, pack_a, pack_b, dot = plan_for(key, p), pack_a_function, pack_b_function, dot_function
        case "groups":
            parts, pack_a, pack_b, dot = groups_for(key, p), pack_a_groups, pack_b_groups, dot_groups
        case "software":
            parts, pack_a, pack_b, dot = software_for(key, p), pack_a_software, pack_b_software, dot_software
        case _:
            parts, pack_a, pack_b, dot = exact_for(key, p), pack_a_exact, pack_b_exact, dot_exact
    functions = [
        pack_a(parts, "pack_a"),
        pack_b(parts, "pack_b", rows=False),
        pack_b(parts, "pack_b_rows", rows=True),
        dot(parts, "dot"),
    ]
    return Twin(key, device, Library(library_text(functions)), cache(parts.a_bytes), cache(parts.b_bytes))


def fast_matmul(
    key: DotKey,
    device: str,
    A: Any,
    B: Any,
    C: Any | None,
    *,
    imm_scale_a: int = 1,
    imm_scale_b: int = 1,
    indices: Any | None = None,
    scale_a: Any | None = None,
    scale_b: Any | None = None,
    threads: int | None = None,
) -> Any:
    """As `arrays.matmul` (same operands, same bits), by the compiled twin. threads: default all cores."""
    A, B = np.asarray(A), np.asarray(B)
    check_operands(key, A, B, indices, scale_a, scale_b)
    twin = twin_for(key, device)
    m, n, k = A.shape[-2], B.shape[-1], B.shape[-2]
    named = {"A": A, "B": B, "C": C, "indices": indices, "scale_a": scale_a, "scale_b": scale_b}
    batch = batch_shape({name: np.shape(x)[:-2] for name, x in named.items() if x is not None})
    D = np.empty((*batch, m, n), container(element_type(key.dtype)))
    workers = threads or CORES
    flags = twin.flags(zero_c=C is None, negate_a=imm_scale_a < 0, negate_b=imm_scale_b < 0)
    extras = ((indices, np.int32), (scale_a, np.uint8), (scale_b, np.uint8))
    given = [A, B, D if C is None else C, *(np.asarray(x, kind) for x, kind in extras if x is not None)]
    count = math.prod(batch)
    if count == 0 or m * n == 0:
        return D
    if m * n * k < 1 << (20 if count > 1 else 19):  # larger ones are worth all threads each
        run_batch(twin, [_spread(x, batch) for x in given], D, (m, n, k), flags, workers, pool)
        return D
    spread = [np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in given]
    for at in np.ndindex(*batch):
        a, b, c, *more = (np.ascontiguousarray(x[at]) for x in spread)
        _one(twin, a, b, c, D[at], (m, n, k), flags, more, workers)
    return D


CORES = os.cpu_count() or 1


def _spread(x: Any, batch: tuple[int, ...]) -> Any:
    """Contiguous: a matrix for each of the batch, or one where the operand has no batch of its own."""
    lead = x.shape[:-2]
    if lead != batch and math.prod(lead) != 1:
        x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
    return np.ascontiguousarray(x)


def _one(
    twin: Twin, a: Any, b: Any, c: Any, d: Any, shape: tuple[int, int, int], flags: int, more: list[Any], threads: int
) -> None:
    m, n, k = shape
    pa = np.empty(twin.a_bytes(m, k) + 64, np.uint8)
    pb = np.empty(twin.b_bytes(n, k) + 64, np.uint8)
    A, B = -(-pointer(pa) // 64) * 64, -(-pointer(pb) // 64) * 64
    pack = ctypes.CFUNCTYPE(None, _P, _I, _I, _I, _P)
    row = twin.a_bytes(1, k)

    # threads share out the rows of A and D, and the 64-column blocks of B
    parts = max(1, min(threads, m * n * k >> 18))
    rows = -(-m // parts // 16) * 16
    columns = -(-n // parts // 64) * 64

    def pack_part(t: int) -> None:
        i, j = t * rows, t * columns
        if i < m:
            pack(twin.pack_a)(pointer(a[i:]), a.shape[1], min(rows, m - i), k, A + i * row)
        if j < n:
            pack(twin.pack_b_rows)(pointer(b) + j * b.itemsize, n, min(columns, n - j), k, B + twin.b_bytes(j, k))

    def dot_part(t: int) -> None:
        i = t * rows
        if i < m:
            arguments = [A + i * row, B, pointer(c[i:]), n, pointer(d[i:]), n, min(rows, m - i), n, k, flags]
            types = [_P, _P, _P, _I, _P, _I, _I, _I, _I, _I]
            for x in more:  # index and scale_a have a line for each row; scale_b, the last, is common
                common = x is more[-1] and twin.key.scale_blocks > 0
                arguments.append(pointer(x if common else x[i:]))
                types.append(_P)
            ctypes.CFUNCTYPE(None, *types)(twin.dot)(*arguments)

    for work in (pack_part, dot_part):
        if parts == 1:
            work(0)
        else:
            list(pool(threads).map(work, range(parts)))


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="mmulator")


os.register_at_fork(after_in_child=pool.cache_clear)  # its threads do not exist there
