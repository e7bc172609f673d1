"""Arithmetic of a matrix instruction on each device, in numbers and in words, from matrix/numerics/profiles.py, and the known
devices: which chips share their arithmetic, which instructions they have, and how their bits are known.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from mmulator.base.errors import UnsupportedError
from mmulator.isa.chips import CHIPS, PRODUCTS, as_device
from mmulator.isa.form import Form, forms_of
from mmulator.isa.matrix import FAMILIES
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.isa.targets import DEVICES, TARGETS, Target
from mmulator.matrix.numerics import profiles
from mmulator.matrix.numerics.dot import MODES, NAN, SOFTWARE_PAIRS
from mmulator.matrix.numerics.profiles import GROUP, Profile, dot_key


@dataclass(frozen=True)
class Arithmetic:
    """Arithmetic of one device.

    device: `sm_90`.
    chip: products with it.
    method: of numerics.profiles.Profile.
    chunk: products that are added in one step (L).
    fraction: bits kept below the largest exponent (F).
    floor: the least such exponent. These three are None where the method has no such number.
    rounding: of the result.
    nan: bits of every NaN result; None where there is none, or where an operand's payload is kept.
    confidence: measured, published, as specified, or inferred.
    words: all of it in a sentence.
    note: peculiarities.
    """

    device: str
    chip: str
    method: str
    chunk: int | None
    fraction: int | None
    floor: int | None
    rounding: str
    nan: int | None
    confidence: str
    words: str
    note: str = ""


def runs_on(form: Form, device: str) -> bool:
    """Whether a device has the instruction, and its arithmetic is known. Raises UnsupportedError for an unknown device."""
    device = as_device(device)
    number = int(device[3:])
    if not any(form.requires.admits(Target(number, s)) for s in ("", "a", "f") if Target(number, s) in TARGETS):
        return False
    if not form.atype:
        return True
    try:
        profiles.profile_for(profiles.dot_key(form), device)
    except UnsupportedError:
        return False
    return True


def arithmetic(form: Form, device: str | None = None) -> tuple[Arithmetic, ...]:
    """The arithmetic of every device that has the instruction, or of one; empty for an instruction that computes nothing.
    Raises UnsupportedError for a device that is unknown or does not have it.
    """
    if device is not None:
        device = as_device(device)
        if not runs_on(form, device):
            have = ", ".join(d for d in DEVICES if runs_on(form, d)) or "none"
            raise UnsupportedError(f"{form} does not run on {device}", hint=f"devices that have it: {have}")
    if not form.atype:
        return ()
    return tuple(_of(form, d) for d in ([device] if device else DEVICES) if device or runs_on(form, d))


def _of(form: Form, device: str) -> Arithmetic:
    p = profiles.profile_for(profiles.dot_key(form), device)
    fused = p.method in ("fused", "halves", "groups")
    nan = NAN.get(str(form.dtype)) if p.method in ("fused", "halves", "groups", "software") else None
    return Arithmetic(
        device, CHIPS[device], p.method, p.chunk if fused else None, p.fraction if fused else None,
        p.floor if fused else None, _rounding(form, p), nan, p.confidence, _words(form, p), p.note,
    )  # fmt: skip


def _rounding(form: Form, p: Profile) -> str:
    """How a result is rounded, in a few words."""
    if p.method == "integer":
        return "clamped" if form.satfinite else "wraps"
    if p.method == "bits":
        return "wraps"
    if p.method == "fma":
        return MODES[form.rounding or "rn"]
    if p.method == "halves" or p.method == "software":
        return "nearest even"
    if p.narrow_d:
        return "f32 toward zero, then nearest even"
    if str(form.dtype) == "f16":
        return "nearest even"
    return "toward zero" if p.keep == 23 else f"toward zero, {p.keep} bits"


def _words(form: Form, p: Profile) -> str:
    """The arithmetic of one output element in a sentence or two. matrix/numerics/dot.py computes what this says."""
    products = form.k // 2 if form.sparse else form.k
    if p.method == "bits":
        return "Exact: the ones are counted and added to C modulo 2^32."
    if p.method == "integer":
        return "Exact sum of all products and C, " + ("clamped to the range of s32." if form.satfinite else "modulo 2^32.")
    if p.method == "fma":
        return f"A chain of {products} IEEE fused multiply-adds in ascending k, each rounded ({_rounding(form, p)})."
    if p.method == "software":
        if str(form.dtype) == "f32":
            return "No tensor core: a chain of 4 f32 fused multiply-adds in ascending k, then C is added, to nearest even."
        pairs = " and ".join("{" + ", ".join(map(str, pair)) + "}" for pair in SOFTWARE_PAIRS)
        return f"No tensor core: f32 fused multiply-adds over k in {pairs}, each added to C in f32, then rounded to f16."
    below = f"truncated toward zero {p.fraction} bits below the largest exponent (at least {p.floor})"
    if p.method == "groups":
        groups = products // GROUP
        return (
            f"Each group of {GROUP} products is summed exactly and scaled; the {groups} groups and C are {below} "
            f"and summed exactly; f32 {_rounding(form, p)}."
        )
    if p.method == "halves":
        return (
            f"Products with k mod 4 in {{0, 1}}, then those in {{2, 3}} and that sum, are {below} and summed exactly, "
            f"each rounded to {form.dtype}; then C is added by an ordinary addition, to nearest even."
        )
    step = min(p.chunk, products)
    start = "C is converted to f32. " if p.widen_c else ""
    start += "Products are multiplied by both scale factors. " if form.block_scale else ""
    if products > p.chunk:
        how = f"{products // p.chunk} chunks in ascending k: {step} products and C (or the last chunk's result) each"
    else:
        how = f"All {products} products and C at once"
    result = "f32 toward zero" if p.narrow_d else f"{form.dtype} {_rounding(form, p)}"
    end = " Last, D is rounded to f16, nearest even." if p.narrow_d else ""
    return f"{start}{how}, {below}, summed exactly, rounded once ({result}).{end}"


def spans(devices: Iterable[str]) -> str:
    """`sm_80 to sm_89, sm_120`: neighbours in the list of devices run together."""
    parts: list[list[int]] = []
    for n in (DEVICES.index(d) for d in devices):
        if parts and parts[-1][-1] == n - 1:
            parts[-1].append(n)
        else:
            parts.append([n])
    return ", ".join(DEVICES[p[0]] if len(p) == 1 else f"{DEVICES[p[0]]} to {DEVICES[p[-1]]}" for p in parts)


def by_devices(found: Iterable[Arithmetic]) -> list[tuple[str, Arithmetic]]:
    """(names of devices, the first of them) for devices that do the same with the same confidence."""
    groups: dict[Arithmetic, list[Arithmetic]] = {}
    for a in found:
        groups.setdefault(replace(a, device="", chip=""), []).append(a)
    return [(spans(a.device for a in members), members[0]) for members in groups.values()]


def numbers(a: Arithmetic) -> tuple[str, str, str, str, str, str]:
    """Cells of a table: L, F, floor, rounding, NaN, confidence; a dash where there is none."""
    chunk, fraction, floor = ("-" if n is None else str(n) for n in (a.chunk, a.fraction, a.floor))
    digits = 8 if a.nan is not None and a.nan > 0xFFFF else 4
    return chunk, fraction, floor, a.rounding, "-" if a.nan is None else f"0x{a.nan:0{digits}X}", a.confidence


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
