"""The known devices: which chips share their arithmetic, which instructions they have, and how their bits are known."""

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from mmulator.inspect.explanation.arithmetic import runs_on
from mmulator.isa.chips import PRODUCTS
from mmulator.isa.form import forms_of
from mmulator.isa.matrix import FAMILIES
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.isa.targets import DEVICES
from mmulator.numerics import profiles
from mmulator.numerics.profiles import dot_key

# An instruction for each kind of arithmetic.
KINDS = {
    "f16": "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
    "bf16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "tf32": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "FP8": "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "mx": "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
    "sp": "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "wgmma": "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3",
    "int": "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32",
    "f64": "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
}
LETTERS = {"measured": "M", "published": "P", "as specified": "S", "inferred": "I"}


@dataclass(frozen=True)
class Device:
    """A device as `device=` takes it: the record itself, its `sm`, or one of its chips.

    name: its best known chip.
    sm: `sm_90`.
    chips: products with its arithmetic.
    families: of the matrix instructions that it has.
    evidence: for each kind of arithmetic (`KINDS`), how its bits are known: "measured" on such a chip, "published" models, "as
    specified", "inferred" from a sibling.
    """

    name: str
    sm: str
    chips: tuple[str, ...]
    families: tuple[str, ...]
    evidence: dict[str, str]

    def __str__(self) -> str:
        return f"{self.sm} ({', '.join(self.chips)})"

    def __hash__(self) -> int:
        return hash(self.sm)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@cache
def devices() -> tuple[Device, ...]:
    """All known devices, oldest first."""
    return tuple(Device(PRODUCTS[d][0], d, PRODUCTS[d], _families(d), _evidence(d)) for d in DEVICES)


def _families(device: str) -> tuple[str, ...]:
    return tuple(name for name, rows in FAMILIES.items() if any(runs_on(f, device) for row in rows for f in forms_of(row)))


def _evidence(device: str) -> dict[str, str]:
    forms = {kind: form for kind, name in KINDS.items() if runs_on(form := parse_mnemonic(name), device)}
    return {kind: profiles.profile_for(dot_key(form), device).confidence for kind, form in forms.items()}
