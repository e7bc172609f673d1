"""Instructions that change tensor maps in a kernel: tensormap.replace (Data Movement and Conversion Instructions, PTX ISA 9.1),
and tensormap.cp_fenceproxy (Parallel Synchronization and Communication Instructions).
"""

from mmulator.isa.effects import ACTS, MemoryEffect, Together
from mmulator.isa.pieces import MOVES, SYNC, addr, imm, maybe, one, row, src, type_
from mmulator.isa.row import OperandSpec, Requirement, Row

_SPACE = maybe("space", "global", "shared::cta")
_B1024 = one("object", "b1024")
_ORD = imm("ord", 0, 4)
_REPLACES = ACTS.but(memory=MemoryEffect.WRITE, counted_as="memory")


def _replace(fields: tuple[str, ...], type: str, *operands: OperandSpec, sm: int = 90, ptx: tuple[int, int] = (8, 3)) -> Row:
    return row(
        "tensormap.replace", (one("mode", "tile"), one("field", *fields), _SPACE, _B1024, type_(type)), (addr(), *operands),
        f"{MOVES}: tensormap.replace", ptx, sm, specific=True, effects=_REPLACES,
    )  # fmt: skip


# Elements of 4 and 6 bits, rows of 96 bytes
_PACKED_TYPES = tuple((n, Requirement((8, 7), 100, "af")) for n in (13, 14, 15))
_SWIZZLE_96 = ((4, Requirement((8, 8), 103, "a", (103,))),)


def _chosen(*values: int) -> OperandSpec:
    return imm("new_val", values=values)


ROWS: tuple[Row, ...] = (
    _replace(("global_address",), "b64", src("new_val", "b64")),
    _replace(("rank",), "b32", src("new_val", "b32")),
    _replace(("box_dim", "global_dim", "element_stride"), "b32", _ORD, src("new_val", "u32")),
    _replace(("global_stride",), "b64", _ORD, src("new_val", "b64")),
    _replace(("elemtype",), "b32", _chosen(*range(13)).but(later=_PACKED_TYPES)),
    _replace(("interleave_layout",), "b32", _chosen(0, 1, 2)),
    _replace(("swizzle_mode",), "b32", _chosen(*range(4)).but(later=_SWIZZLE_96)),
    _replace(("fill_mode",), "b32", _chosen(0, 1)),
    _replace(("swizzle_atomicity",), "b32", _chosen(*range(4)), sm=100, ptx=(8, 6)),
    row("tensormap.cp_fenceproxy",
        (one("dst", "global"), one("src", "shared::cta"), one("proxy", "tensormap::generic"), one("sem", "release"),
         one("scope", "cta", "cluster", "gpu", "sys"), one("sync"), one("aligned")),
        (addr("dstMem", space="dst"), addr("srcMem", space="src"), imm("size", values=(128,))),
        f"{SYNC}: tensormap.cp_fenceproxy", (8, 3), 90,
        effects=ACTS.but(memory=MemoryEffect.COPY, together=Together.WARP, counted_as="memory")),
)  # fmt: skip
