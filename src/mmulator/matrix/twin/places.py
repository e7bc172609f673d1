"""The tables of one form's product: the place of every piece of A, B, C and D in the registers, or in a plain matrix."""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.codegen.lang import Native
from mmulator.base.lazy import cached_property
from mmulator.isa.form import Form
from mmulator.matrix.layouts import element_of, fragment, scales, sparse
from mmulator.matrix.layouts.operands import BY_REGISTER, operand_places, register_elements
from mmulator.matrix.numerics.profiles import DotKey, dot_key
from mmulator.matrix.twin.lines import coarse
from mmulator.matrix.twin.product import IndexTable, Piece, ProductTable, mma_function
from mmulator.matrix.twin.twin import Twin, twin_for

Index = NDArray[np.int64]


def pieces(form: Form, name: str, places: Index) -> tuple[Piece, Index]:
    """Places [copies, lines, elements] combined into the largest pieces that are adjacent both in registers and in the matrix's
    lines.
    """
    f = fragment(form, name)
    if f.width < f.bits:
        return (f.bits, f.shift, f.width), places
    size, found = coarse(places, f.bits, 128 if f.bits >= 8 else 0)
    return (size, 0, 0), found


def plain_pieces(form: Form, name: str) -> tuple[Piece, Index]:
    """Operand `a` [M, K] or `b` [N, K] as rows of containers, in contiguous pieces of sixteen bytes."""
    element = element_of(form, name)
    lines, k = (form.m, form.k // 2 if form.sparse else form.k) if name == "a" else (form.n, form.k)
    return (128, 0, 0), np.arange(lines * k * max(8, element.bits) // 128).reshape(1, 1, -1)


def commutes(form: Form) -> bool:
    """Whether the transposed product, B' A', has the same sums."""
    return not (form.sparse or form.block_scale) and str(form.atype) != "f64"


def key_of(form: Form, swap: bool) -> DotKey:
    """The arithmetic of a form's product, or of the transposed product."""
    key = dot_key(form)
    return replace(key, atype=key.btype, btype=key.atype) if swap else key


def transposes(form: Form) -> bool:
    """Whether the product is computed as the transposed one: the twin's vectors run along n."""
    return commutes(form) and form.m > form.n


@dataclass(eq=False)
class Product:
    """A product from registers to registers, ready to be called: `function` with the address of `table`.

    For a transposed product the first operand of the function is B, and the second is A. scratch: bytes of scratch memory for a
    call.
    """

    form: Form
    twin: Twin
    transposed: bool
    sizes: tuple[Piece, Piece, Piece]
    table: NDArray[Any] = field(default_factory=lambda: np.zeros(1, ProductTable.numpy_dtype()))
    scratch: int = 0
    keep: list[Any] = field(default_factory=list)
    entry: Any = None  # of its batches, at the first use

    @cached_property
    def result(self) -> tuple[int, int]:
        """(lanes, registers) of d."""
        d = fragment(self.form, "d")
        return d.lanes, d.registers

    @cached_property
    def word(self) -> np.dtype[Any]:
        return np.dtype(f"<u{fragment(self.form, 'd').register_bits // 8}")

    @cached_property
    def macs(self) -> int:
        return self.form.m * self.form.n * self.form.k

    @cached_property
    def function(self) -> Native:
        d = fragment(self.form, "d").bits
        return mma_function(*self.sizes, d, self.form.sparse, self.form.block_scale)

    def store(self, name: str, values: Any) -> None:
        """Add a table to the product: int32 values at a fixed address."""
        array = np.ascontiguousarray(values, np.int32)
        self.keep.append(array)
        self.table[name] = array.ctypes.data


@lru_cache(maxsize=4096)
def product_for(
    form: Form, device: str, selector: int = 0, order: str = BY_REGISTER, plain: frozenset[str] = frozenset(),
    flags: int = 0,
) -> Product:  # fmt: skip
    """The product of a form on a device.

    form, device: the instruction and the device.
    selector: of the metadata.
    order: order of the registers in memory.
    plain: operands (`a`, `b`) that are given as rows of a matrix instead of registers.
    flags: flags of the twin, for A and B as they are given.

    Raises UnsupportedError if the device lacks the instruction, OperandError for a selector that it does not have.
    """
    swap = transposes(form)
    twin = twin_for(key_of(form, swap), device)

    def operand(name: str, rows_are_n: bool) -> tuple[Piece, Index]:
        if name in plain:
            return plain_pieces(form, name)
        return pieces(form, name, operand_places(form, name, rows_are_n, order))

    maps = {"a": operand("a", False), "b": operand("b", True), "c": operand("d" if form.lanes > 32 else "c", swap)}
    order_of = ("b", "a", "c") if swap else ("a", "b", "c")
    first, second, third = (maps[n][0] for n in order_of)
    product = Product(form, twin, swap, (first, second, third))
    table = product.table
    m, n = (form.n, form.m) if swap else (form.m, form.n)
    table["pack_a"], table["pack_b"], table["dot"] = twin.pack_a, twin.pack_b, twin.dot
    table["m"], table["n"], table["k"] = m, n, form.k
    table["ka"] = form.k // 2 if form.sparse else form.k
    table["a_row"] = twin.a_bytes(1, form.k)
    negate_a, negate_b = twin.flags(negate_a=True), twin.flags(negate_b=True)
    if swap:
        flags = flags & ~(negate_a | negate_b) | (negate_b if flags & negate_a else 0) | (negate_a if flags & negate_b else 0)
    table["flags"] = flags
    copies = fragment(form, "d").copies
    table["copies"] = copies
    for slot, name in zip("abc", order_of):
        product.store(f"{slot}_map", maps[name][1])
        table[f"{slot}_pieces"] = maps[name][1].size // copies
    d_map = register_elements(form, "d", swap, order)
    product.store("d_map", d_map)
    table["d_places"] = len(d_map)
    if form.sparse:
        table["places"] = index_table(product.keep, form, selector)
    if form.block_scale:
        _scale_tables(product)
    size = max(form.m * form.k, form.n * form.k, form.m * form.n) * 8
    rooms = {
        "raw": size, "result": form.m * form.n * 8 * copies,
        "packed_a": twin.a_bytes(m, form.k), "packed_b": twin.b_bytes(n, form.k),
        "index": form.m * form.k * 2, "own": 2 * n * form.k * 8 if form.sparse else 0,
        "scale_a": form.m * form.scale_vec, "scale_b": form.n * form.scale_vec,
    }  # fmt: skip
    for name, room in rooms.items():
        table[name] = product.scratch
        product.scratch += -(-room // 64) * 64
    return product


def index_table(keep: list[Any], form: Form, selector: int) -> int:
    """Address of the IndexTable of a sparse form: for each element of A the bits of metadata that give its column."""
    g = sparse.granularity(form)
    lane, bit = (x[..., None] + np.zeros(g.kept, int) for x in sparse.places(form, selector))
    chunk = np.arange(lane.shape[1])[None, :, None] * g.chunk
    kept = np.arange(g.kept)
    tf32 = g.chunk == 2
    columns = {
        "lane": lane,
        "shift": bit + (0 * kept if tf32 else 2 * (kept // g.group)),
        "base": chunk + (0 * kept if tf32 else kept % g.group) + 0 * lane,
    }
    table = np.zeros(1, IndexTable.numpy_dtype())
    table["count"] = lane.size
    for name, values in columns.items():
        array = np.ascontiguousarray(values, np.int32)
        keep.append(array)
        table[name] = array.ctypes.data
    table["drop"], table["group"] = int(tf32), 1 if tf32 else g.group
    keep.append(table)
    return int(table.ctypes.data)


def _scale_tables(product: Product) -> None:
    """Add tables with the places of the bytes of scale-a-data and scale-b-data, in the order of scale_a [m][S] and scale_b
    [S][n].
    """
    product.table["scales"] = product.form.scale_vec
    for name, values in scale_maps(product.form).items():
        product.store(name, values)


def scale_maps(form: Form) -> dict[str, Index]:
    """The bytes of scale-a-data and scale-b-data that are factors for selectors 0, in the order of scale_a [m][S] and scale_b
    [S][n].
    """
    maps = {}
    for side in "ab":
        lane, byte = scales.places(form, side, 0, 0)
        at = 4 * lane[:, None] + byte
        maps[f"scale_{side}_map"] = at if side == "a" else at.T
    return maps


def scale_step(form: Form, side: str) -> int:
    """Bytes between the scale factors that consecutive thread ids select."""
    return 4 * int(scales.places(form, side, 0, 1)[0][0] - scales.places(form, side, 0, 0)[0][0])
