"""Special Registers (PTX ISA 9.1): predefined, read-only."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpecialRegisterInfo:
    """A special register.

    types: types with which mov may read it; the specified type is the first.
    ptx, sm: the least PTX version and target.
    vector: whether it has the components .x, .y and .z; the name alone then denotes all four components as a vector.
    """

    types: tuple[str, ...]
    ptx: tuple[int, int] = (1, 0)
    sm: int = 0
    vector: bool = False


_INDEX = ("u32", "u16")


def _registers() -> dict[str, SpecialRegisterInfo]:
    u32 = SpecialRegisterInfo(("u32",))
    table = dict.fromkeys(("laneid", "warpid", "nwarpid", "smid", "nsmid", "clock"), u32)
    table |= {f"lanemask_{c}": SpecialRegisterInfo(("u32",), (2, 0), 20) for c in ("eq", "le", "lt", "ge", "gt")}
    table |= {f"envreg{i}": SpecialRegisterInfo(("u32",), (2, 1)) for i in range(32)}
    table |= {f"pm{i}": SpecialRegisterInfo(("u32",), (1, 3)) for i in range(8)}
    table |= {f"pm{i}_64": SpecialRegisterInfo(("u64",), (4, 0), 50) for i in range(8)}
    table["clock_hi"] = SpecialRegisterInfo(("u32",), (5, 0), 20)
    table["clock64"] = SpecialRegisterInfo(("u64",), (2, 0), 20)
    table["gridid"] = SpecialRegisterInfo(("u64", "u32", "u16"), (3, 0))
    table["globaltimer"] = SpecialRegisterInfo(("u64",), (3, 1), 30)
    table["globaltimer_lo"] = table["globaltimer_hi"] = SpecialRegisterInfo(("u32",), (3, 1), 30)
    table["reserved_smem_offset_begin"] = table["reserved_smem_offset_end"] = SpecialRegisterInfo(("b32",), (7, 6), 80)
    table["reserved_smem_offset_cap"] = SpecialRegisterInfo(("b32",), (7, 6), 80)
    table["reserved_smem_offset_0"] = table["reserved_smem_offset_1"] = SpecialRegisterInfo(("b32",), (7, 6), 80)
    table["total_smem_size"] = SpecialRegisterInfo(("u32",), (4, 1), 20)
    table["dynamic_smem_size"] = SpecialRegisterInfo(("u32",), (4, 1), 20)
    table["aggr_smem_size"] = SpecialRegisterInfo(("u32",), (8, 1), 90)
    table["current_graph_exec"] = SpecialRegisterInfo(("u64",), (8, 0), 50)
    table["is_explicit_cluster"] = SpecialRegisterInfo(("pred",), (7, 8), 90)
    table["cluster_ctarank"] = table["cluster_nctarank"] = SpecialRegisterInfo(("u32",), (7, 8), 90)
    for name in ("tid", "ntid", "ctaid", "nctaid"):
        table |= {f"{name}.{c}": SpecialRegisterInfo(_INDEX) for c in "xyzw"}
        table[name] = SpecialRegisterInfo(_INDEX, vector=True)
    for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"):
        table |= {f"{name}.{c}": SpecialRegisterInfo(("u32",), (7, 8), 90) for c in "xyzw"}
        table[name] = SpecialRegisterInfo(("u32",), (7, 8), 90, vector=True)
    return table


SPECIAL_REGISTERS: Mapping[str, SpecialRegisterInfo] = _registers()
