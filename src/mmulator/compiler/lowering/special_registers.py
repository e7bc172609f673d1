"""Special registers (PTX ISA 9.1, Special Registers) as values of 32 lanes, or one value for all lanes."""

from collections.abc import Callable
from typing import TypeAlias

from mmulator.base.codegen.ops import cast_ptr, iota
from mmulator.base.codegen.types import u32, u64
from mmulator.base.codegen.values import Value, constant
from mmulator.base.errors import InternalError, must_be
from mmulator.compiler.emit.block import BlockEmitter
from mmulator.compiler.emit.emitter import Emitter
from mmulator.isa.special_registers import SPECIAL_REGISTERS
from mmulator.ptx.program.addresses import SHARED_BASE
from mmulator.runtime.native.state import Cluster, Cta

U32 = u32.vec(32)
Read: TypeAlias = "Callable[[BlockEmitter], Value]"


def _cta(e: BlockEmitter) -> Value:
    return cast_ptr(Cta, e.warp("cta"))


def _launch(e: BlockEmitter, field: str) -> Value:
    return _cta(e).field("launch").field(field)


def _lane() -> Value:
    return iota(U32)


def _thread(axis: str) -> Read:
    return lambda e: e.warp(f"tid_{axis}")


def _size(field: str, axis: int) -> Read:
    return lambda e: _launch(e, field)[axis]


def _place(axis: int) -> Read:
    return lambda e: _cta(e).field("ctaid")[axis]


def _clusters(field: str, axis: int) -> Read:
    """A number of clusters, computed from a number of CTAs."""
    return lambda e: (_place(axis) if field == "ctaid" else _size(field, axis))(e) // _launch(e, "cluster")[axis]


def _in_cluster(axis: int) -> Read:
    """Position of a CTA in its cluster: its position in the grid modulo the cluster's size, since clusters begin at the grid's
    origin.
    """
    return lambda e: _place(axis)(e) % _launch(e, "cluster")[axis]


_VECTORS = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
_AXES = {"x": 0, "y": 1, "z": 2}
# One SM after the other; a CTA runs on the SM of its number, as far as anyone can tell.
_SMS = 132

_TABLE: dict[str, Read] = {
    # the fourth component of the vectors is 0 on an H100
    **{f"{name}.w": (lambda e: constant(e.b, u32, 0)) for name in _VECTORS},
    **{f"tid.{a}": _thread(a) for a in _AXES},
    **{f"ntid.{a}": _size("ntid", n) for a, n in _AXES.items()},
    **{f"nctaid.{a}": _size("nctaid", n) for a, n in _AXES.items()},
    **{f"ctaid.{a}": _place(n) for a, n in _AXES.items()},
    "laneid": lambda e: _lane(),
    "warpid": lambda e: e.warp("index"),
    "nwarpid": lambda e: constant(e.b, u32, 64),
    "smid": lambda e: _cta(e).field("linear") % _SMS,
    "nsmid": lambda e: constant(e.b, u32, _SMS),
    "gridid": lambda e: constant(e.b, u64, 1),
    "lanemask_eq": lambda e: constant(e.b, U32, 1) << _lane(),
    "lanemask_lt": lambda e: (constant(e.b, U32, 1) << _lane()) - 1,
    "lanemask_le": lambda e: ((constant(e.b, U32, 1) << _lane()) << 1) - 1,
    "lanemask_ge": lambda e: ~((constant(e.b, U32, 1) << _lane()) - 1),
    "lanemask_gt": lambda e: ~(((constant(e.b, U32, 1) << _lane()) << 1) - 1),
    "clock": lambda e: u32(_cycles(e)),
    "clock_hi": lambda e: u32(_cycles(e) >> 32),
    "clock64": lambda e: _cycles(e),
    "globaltimer": lambda e: _cycles(e),
    "globaltimer_lo": lambda e: u32(_cycles(e)),
    "globaltimer_hi": lambda e: u32(_cycles(e) >> 32),
    "dynamic_smem_size": lambda e: _launch(e, "dynamic_shared"),
    # as an H200 reads them: in units of 128 bytes; with what the system has, below the kernel's
    "total_smem_size": lambda e: (_launch(e, "shared_bytes") + 127) // 128 * 128,
    "aggr_smem_size": lambda e: _launch(e, "shared_bytes") + SHARED_BASE,
    # the reserved part of shared memory, as an NVIDIA H200 reads it
    "reserved_smem_offset_begin": lambda e: constant(e.b, u32, 0),
    "reserved_smem_offset_end": lambda e: constant(e.b, u32, 0x120),
    "reserved_smem_offset_0": lambda e: constant(e.b, u32, 0),
    "reserved_smem_offset_1": lambda e: _reserved(must_be(e, Emitter)),
    "reserved_smem_offset_cap": lambda e: constant(e.b, u32, 0x400),
    # a CTA outside of any cluster is a cluster of one
    **{f"cluster_ctaid.{a}": _in_cluster(n) for a, n in _AXES.items()},
    **{f"cluster_nctaid.{a}": _size("cluster", n) for a, n in _AXES.items()},
    **{f"clusterid.{a}": _clusters("ctaid", n) for a, n in _AXES.items()},
    **{f"nclusterid.{a}": _clusters("nctaid", n) for a, n in _AXES.items()},
    "is_explicit_cluster": lambda e: _launch(e, "explicit"),
    "current_graph_exec": lambda e: constant(e.b, u64, 0),
    "cluster_ctarank": lambda e: _cta(e).field("rank"),
    "cluster_nctarank": lambda e: cast_ptr(Cluster, _cta(e).field("cluster")).field("cta_count"),
    **{f"pm{n}": (lambda e: constant(e.b, u32, 0)) for n in range(8)},
    **{f"pm{n}_64": (lambda e: constant(e.b, u64, 0)) for n in range(8)},
    **{f"envreg{n}": (lambda e: constant(e.b, u32, 0)) for n in range(32)},
    "envreg1": lambda e: u32(_launch(e, "workspace") >> 32),
    "envreg2": lambda e: u32(_launch(e, "workspace")),
}


def _reserved(e: Emitter) -> Value:
    """Where cooperative groups of several warps have their barriers: kernels that ask have memory there. 0 as an H200 reads it
    outside of clusters.
    """
    e.kernel.reserved = True
    return u32(_cta(e).field("shared_base") - SHARED_BASE)


def _cycles(e: BlockEmitter) -> Value:
    return e.b.call("llvm.readcyclecounter", u64, [])


def prove() -> None:
    """Check that exactly the special registers of isa/special_registers.py have a value here. Raises InternalError."""
    wanted = {n for n, info in SPECIAL_REGISTERS.items() if not info.vector}
    if wanted != _TABLE.keys():
        raise InternalError(
            f"{sorted(wanted ^ _TABLE.keys())}: in isa/special_registers.py or in the file of that name in compiler/lowering/"
        )


def special_register(e: BlockEmitter, name: str) -> Value:
    """Value of %name: in 32 lanes, or one value for all lanes."""
    return (_TABLE.get(name) or _TABLE[name + ".x"])(e)
