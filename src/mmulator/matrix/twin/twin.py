"""The compiled twin of the exact model: whole tiles with the model's bits (tests compare them for every key).

`twin_for(key, device)` gives addresses of native functions and sizes of packed operands. C ABI, 64-bit integers:

    pack_a(raw, lda, m, k, out)          raw [m][lda], one container per element (1 byte up to 8 bits, 2, 4 or 8)
    pack_b(raw, ldb, n, k, out)          raw [n][ldb], k contiguous
    pack_b_rows(raw, ldb, n, k, out)     raw [k][ldb], n contiguous
    dot(a, b, c, ldc, d, ldd, m, n, k, flags [, index] [, scale_a, scale_b])
    dot_steps(count, as, bs, c, ldc, d, ldd, m, n, flags)    with separate packed A and B for each instruction along k

k counts dense elements and is a multiple of key.k; a sparse A has k/2 columns, and `index` is int32 [m][k/2], the dense
k of each element. Scale factors are bytes: scale_a [m][S], scale_b [S][n], S = k / key.k * key.scale_blocks. c and d
are row-major in the containers of key.ctype and key.dtype and may be the same memory; n is arbitrary. D of an instruction is C
of the next along k. No function allocates or calls back. matrices.py calls them.
"""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.locks import Lock
from mmulator.base.lazy import cached_property
from mmulator.isa.form import Form
from mmulator.matrix.numerics.profiles import DotKey, dot_key, profile_for
from mmulator.matrix.twin.exact import dot_exact, exact_for, pack_a_exact, pack_b_exact
from mmulator.matrix.twin.fused import NEGATE_A, NEGATE_B, ZERO_C, core_function, dot_function, steps_function
from mmulator.matrix.twin.groups import dot_groups, groups_for, pack_a_groups, pack_b_groups
from mmulator.matrix.twin.pack import pack_a_function, pack_b_function
from mmulator.matrix.twin.plan import plan_for
from mmulator.matrix.twin.software import dot_software, pack_a_software, pack_b_software, software_for


@dataclass(frozen=True)
class Twin:
    """Native functions of one instruction's arithmetic on one device. A function is compiled when a caller reads its address."""

    key: DotKey
    device: str
    natives: Mapping[str, Native] = field(repr=False)
    a_bytes: Callable[[int, int], int] = field(repr=False)  # (m, k) -> bytes of a packed A
    b_bytes: Callable[[int, int], int] = field(repr=False)  # (n, k)

    @property
    def steps(self) -> bool:
        """Whether there is a dot_steps."""
        return "dot_steps" in self.natives

    def _address(self, name: str) -> int:
        return address(self.natives[name]) if name in self.natives else 0

    @cached_property
    def pack_a(self) -> int:
        return self._address("pack_a")

    @cached_property
    def pack_b(self) -> int:
        return self._address("pack_b")

    @cached_property
    def pack_b_rows(self) -> int:
        return self._address("pack_b_rows")

    @cached_property
    def dot(self) -> int:
        return self._address("dot")

    @cached_property
    def fused_core(self) -> int:
        """Address of `core` of a fused dot product (fused.py), for a caller that sets the rounding mode toward zero and back:
        parameters of `dot` and CORE_POINTERS more; 0 for other arithmetic.
        """
        return self._address("core")

    @cached_property
    def dot_steps(self) -> int:
        """Address of dot_steps; 0 if there is none."""
        return self._address("dot_steps")

    @cached_property
    def functions(self) -> Any:
        """Addresses of pack_a, pack_b_rows and dot, in memory."""
        return (ctypes.c_uint64 * 3)(self.pack_a, self.pack_b_rows, self.dot)

    @staticmethod
    def flags(*, zero_c: bool = False, negate_a: bool = False, negate_b: bool = False) -> int:
        """Flags for the native functions. zero_c: C is not read (scale-d = 0). negate_a, negate_b: imm-scale -1."""
        return ZERO_C * zero_c | NEGATE_A * negate_a | NEGATE_B * negate_b


def twin_for(key: DotKey, device: str) -> Twin:
    """The twin of a key on a device (isa.targets.DEVICES).

    Raises UnsupportedError like `profile_for`.
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

    of_a, of_b, name = parts.of_a, parts.of_b, f"twin_dot_{parts.of_dot.symbol}"
    natives = {
        "pack_a": pack_a(of_a, f"twin_pack_a_{of_a.symbol}"),
        "pack_b": pack_b(of_b, f"twin_pack_b_{of_b.symbol}", rows=False),
        "pack_b_rows": pack_b(of_b, f"twin_pack_b_rows_{of_b.symbol}", rows=True),
        "dot": dot(parts.of_dot, name),
    }
    if dot is dot_function:
        natives["core"] = core_function(parts, name)
        if not (parts.sparse or parts.scaled):
            natives["dot_steps"] = steps_function(parts, f"{name}_steps", name)
    return Twin(key, device, natives, cache(parts.a_bytes), cache(parts.b_bytes))


def twin_of(form: Form, device: str) -> Twin:
    """The twin of a matrix form."""
    return twin_for(dot_key(form), device)
