"""A device's arithmetic as data: for each instruction, how products are fused, truncated and rounded.

The specification leaves accumulation order, intermediate precision and rounding of floating-point matrix instructions
unspecified (Warp Level Matrix Multiply-Accumulate Instructions; Asynchronous Warpgroup Level Matrix Instructions,
PTX ISA 9.1); the table has the behaviour of chips. `dot.py` defines the numbers, `confidence` their origin:

measured      on an NVIDIA H200, register by register, no mismatch, and F one bit off fails
published     arXiv 2511.10909 and 2512.07004; most also re-checked against published hardware vectors of
              V100, A100, A2, L40S, Ada, H100, H200 and B200. tcgen05: mmasim 2.1.1 (PyPI), whose floors for f16 results are
              those measured here, and the B200 programs of sf-tensor/tcgen05 (46 paths of 1,000,000 cases each, by its
              authors), which alone have sparse and integer products
as specified  the specification defines the result (integers, bits, IEEE f64)
inferred      not observed on that device: carried over from a related device, as `note` explains
"""

from collections.abc import Iterable
from dataclasses import fields, replace
from functools import cache, lru_cache
from typing import Literal

from mmulator.base.classes import dataclass
from mmulator.base.errors import UnsupportedError
from mmulator.isa.form import Form
from mmulator.isa.targets import DEVICES

Family = Literal["wmma", "mma", "wgmma", "tcgen05"]
Confidence = Literal["measured", "published", "as specified", "inferred"]
Method = Literal["fused", "halves", "groups", "software", "fma", "integer", "bits"]


@dataclass(frozen=True)
class DotKey:
    """The properties of an instruction that decide its arithmetic.

    family, atype, btype, ctype, dtype: family, and types as PTX names (an ElementType may stand for its name).
    k: dense elements along k of one instruction.
    sparse: whether A is sparse.
    satfinite: whether integers saturate.
    rounding: rounding mode of f64.
    bit_op: "xor" or "and", for b1.
    kind: None, "f8f6f4", "mxf8f6f4", "mxf4" or "mxf4nvf4"; "f16", "tf32" and "i8" are None, since the types say as much.
    scale_vec: "1X", "2X" or "4X": factors of a row for 32 bytes of A; half as many more at k = 96.
    stype: "ue8m0" or "ue4m3".
    """

    family: str
    atype: str
    btype: str
    ctype: str
    dtype: str
    k: int
    sparse: bool = False
    satfinite: bool = False
    rounding: str = "rn"
    bit_op: str | None = None
    kind: str | None = None
    scale_vec: str | None = None
    stype: str | None = None

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name not in ("k", "sparse", "satfinite") and value is not None:
                object.__setattr__(self, f.name, str(value))
        if self.kind in ("f16", "tf32", "i8"):
            object.__setattr__(self, "kind", None)

    @property
    def products(self) -> int:
        """Products of one output element in one instruction: k, or k/2 when sparse."""
        return self.k // 2 if self.sparse else self.k

    @property
    def scale_blocks(self) -> int:
        """Scale factors of one row of A (column of B) in one instruction; 0 without block scaling."""
        return int(self.scale_vec[0]) * self.products // (32 if self.kind == "mxf8f6f4" else 64) if self.scale_vec else 0


@lru_cache(maxsize=1024)
def dot_key(form: Form) -> DotKey:
    """The key of a form's arithmetic."""
    ctype = form.ctype or form.dtype
    return DotKey(
        form.family, str(form.atype), str(form.btype), str(ctype), str(form.dtype), form.k,
        sparse=form.sparse,
        satfinite=form.satfinite,
        rounding=form.rounding or "rn",
        bit_op=form.bit_op or None,
        kind=form.kind or None,
        scale_vec=f"{form.scale_vec}X" if form.block_scale else None,
        stype=str(form.stype) if form.stype else None,
    )  # fmt: skip


@dataclass(frozen=True)
class Profile:
    """Arithmetic of one instruction on one device.

    method: how products are summed, see below.
    confidence: origin of this row, see the head of this file.
    chunk: products of a chunk.
    fraction: bits below the largest exponent at which terms are truncated.
    floor: least exponent to which terms are aligned.
    keep: mantissa bits of an f32 result.
    widen_c: whether C is converted to f32 first (normalising subnormals).
    narrow_d: whether the f32 result is converted to f16.
    note: further explanation.

    Methods: "fused": chunks of `chunk` products and C, truncated, summed exactly, rounded once; "halves": two fused chunks over
        k mod 4 in {0,1} and {2,3}, the first from zero, then an ordinary addition of C; operands are converted to f16 first;
        "groups": fused, of exactly summed and scaled groups of 16; "software": f32 FMAs without a tensor core; "fma": a chain
        of IEEE FMAs; "integer", "bits": exact.
    """

    method: Method
    confidence: Confidence
    chunk: int = 0
    fraction: int = 0
    floor: int = 0
    keep: int = 23
    widen_c: bool = False
    narrow_d: bool = False
    note: str = ""


@dataclass(frozen=True)
class ProfileRow:
    """A row of the table: Profile's numbers for devices, families and types of A and B, with floors for f32 and f16 results.

    k: only for instructions with so many elements along k; 0: for any.
    """

    devices: tuple[str, ...]
    families: tuple[str, ...]
    types: tuple[str, ...]
    chunk: int
    fraction: int
    floor_f32: int
    floor_f16: int | None
    confidence: Confidence
    keep: int = 23
    method: Method = "fused"
    kinds: tuple[str | None, ...] = (None,)
    k: int = 0
    note: str = ""

    def matches(self, device: str, key: DotKey) -> bool:
        return (
            device in self.devices
            and key.family in self.families
            and key.atype in self.types
            and key.btype in self.types
            and key.kind in self.kinds
            and self.k in (0, key.k)
            and (self.method != "groups" or key.products == self.chunk)
            and (key.dtype == "f32" or (key.dtype == "f16" and self.floor_f16 is not None))
        )


_HALF = ("f16", "bf16")
_FP8 = ("e4m3", "e5m2")
_NARROW = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
_MXF4 = ("mxf4", "mxf4nvf4")
_WARP = ("mma", "wmma")
_VOLTA, _AMPERE = ("sm_70", "sm_72"), ("sm_80", "sm_86", "sm_87", "sm_89")
_HOPPER, _DATACENTER, _CONSUMER = ("sm_90",), ("sm_100", "sm_103"), ("sm_120", "sm_121")
_BLACKWELL = (*_DATACENTER, *_CONSUMER)
_TF32_WMMA = "m16n16k8 runs as two chunks of 4 (two HMMA.1684 a tile, whatever the target of ptxas 13.0)"
_SOFTWARE = "m8n8k4 is not native from sm_80 on: ptxas (13.0, every target) writes shuffles and f32 FMAs"
_LOWERED = "FP8 mma.sync is not native: converted to f16, two f16 instructions, then C is added"
_K96 = "k = 96: six groups in one sum, observed nowhere"

_TCGEN05 = (
    ProfileRow(("sm_100",), ("tcgen05",), _HALF, 16, 25, -133, -21, "published"),
    ProfileRow(("sm_100",), ("tcgen05",), ("tf32",), 8, 25, -133, None, "published"),
    ProfileRow(("sm_100",), ("tcgen05",), _NARROW, 32, 25, -133, -21, "published", kinds=(None, "f8f6f4")),
    ProfileRow(("sm_100",), ("tcgen05",), _NARROW, 32, 25, -133, None, "published", kinds=("mxf8f6f4",)),
    ProfileRow(("sm_100",), ("tcgen05",), ("e2m1",), 64, 35, -139, None, "published", method="groups", kinds=_MXF4),
)
_ROWS: tuple[ProfileRow, ...] = (
    # devices, families, types, L, F, floor f32, floor f16
    ProfileRow(_VOLTA, _WARP, ("f16",), 4, 23, -131, -19, "published"),
    ProfileRow(("sm_75",), ("mma",), ("f16",), 4, 23, -131, -19, "published", k=4, note="m8n8k4 as on sm_70"),
    ProfileRow(("sm_75",), _WARP, ("f16",), 8, 24, -132, -20, "published"),
    ProfileRow(_AMPERE, _WARP, _HALF, 8, 24, -132, -20, "published"),
    ProfileRow(_AMPERE, _WARP, ("tf32",), 4, 24, -132, None, "published"),
    ProfileRow(("sm_89",), ("mma",), _FP8, 16, 13, -132, -20, "published", keep=13),
    ProfileRow(_HOPPER, _WARP, _HALF, 16, 25, -133, -21, "measured"),
    ProfileRow(_HOPPER, ("mma",), ("tf32",), 8, 25, -133, None, "measured"),
    ProfileRow(_HOPPER, ("wmma",), ("tf32",), 4, 25, -133, None, "measured", note=_TF32_WMMA),
    ProfileRow(_HOPPER, ("mma",), _FP8, 16, 25, -133, -21, "measured", method="halves", note=_LOWERED),
    ProfileRow(_HOPPER, ("wgmma",), _HALF, 16, 25, -133, -21, "measured"),
    ProfileRow(_HOPPER, ("wgmma",), ("tf32",), 8, 25, -133, None, "measured"),
    # No f16 sum of FP8 products comes near this floor: their last bit is 2**-32 and F = 13 reaches to 2**-34.
    ProfileRow(_HOPPER, ("wgmma",), _FP8, 32, 13, -133, -21, "measured", keep=13),
    ProfileRow(_BLACKWELL, _WARP, _HALF, 16, 25, -133, -21, "published"),
    ProfileRow(_BLACKWELL, ("mma",), ("tf32",), 8, 25, -133, None, "published"),
    ProfileRow(_BLACKWELL, ("wmma",), ("tf32",), 4, 25, -133, None, "inferred", note=_TF32_WMMA),
    ProfileRow(_DATACENTER, ("mma",), _FP8, 16, 25, -133, -21, "published", method="halves", note=_LOWERED),
    *_TCGEN05,
    *(replace(row, devices=("sm_103",), confidence="inferred", note="as on sm_100") for row in _TCGEN05),
    ProfileRow(("sm_103",), ("tcgen05",), ("e2m1",), 96, 35, -139, None, "inferred", method="groups", kinds=_MXF4, note=_K96),
    ProfileRow(_CONSUMER, ("mma",), ("e4m3", "e5m2", "e2m1"), 32, 25, -133, -21, "published", kinds=(None, "f8f6f4")),
    ProfileRow(_CONSUMER, ("mma",), _NARROW, 32, 25, -133, -21, "inferred", kinds=("f8f6f4",), note="6-bit types as FP8"),
    ProfileRow(_CONSUMER, ("mma",), ("e4m3", "e5m2", "e2m1"), 32, 25, -133, None, "published", kinds=("mxf8f6f4",)),
    ProfileRow(_CONSUMER, ("mma",), _NARROW, 32, 25, -133, None, "inferred", kinds=("mxf8f6f4",), note="6-bit types as FP8"),
    ProfileRow(_CONSUMER, ("mma",), ("e2m1",), 64, 35, -139, None, "published", method="groups", kinds=_MXF4),
)
# Nobody has published sums of a Thor; a Rubin is at nobody's hand.
_AS_SM_100 = (
    replace(row, devices=("sm_107", "sm_110"), confidence="inferred", note=f"as on sm_100{'; ' * bool(row.note)}{row.note}")
    for row in _ROWS if "sm_100" in row.devices
)  # fmt: skip
ROWS: tuple[ProfileRow, ...] = (*_ROWS, *_AS_SM_100)
GROUP = 16  # products that "groups" sums before scaling

# First device whose tensor cores (or their lowering) take a type, and the last, if any.
_EXACT: dict[str, tuple[int, int]] = {
    "s8": (72, 121), "u8": (72, 121), "s4": (75, 121), "u4": (75, 121), "b1": (75, 121), "f64": (80, 121),
    "f32": (70, 121),  # no instruction of matrices: FFMA of one element after the other
}  # fmt: skip


@cache
def profile_for(key: DotKey, device: str) -> Profile:
    """The arithmetic of an instruction on a device (a name of isa.targets.DEVICES).

    Raises UnsupportedError if the device has no such instruction, or its arithmetic is not known.
    """
    if device not in DEVICES:
        raise UnsupportedError(f"unknown device {device!r}", hint=f"known devices: {', '.join(DEVICES)}")
    if key.atype in _EXACT:
        return _exact(key, device)
    row = next((r for r in ROWS if r.matches(device, key)), None)
    if row is None:
        raise UnsupportedError(f"{_say(key)} has no known arithmetic on {device}", hint=_elsewhere(key))
    narrow_d = key.ctype == "f32" and key.dtype == "f16"
    floor = row.floor_f16 if key.dtype == "f16" and not narrow_d else row.floor_f32
    confidence, note = row.confidence, row.note
    if key.family == "mma" and key.k == 4 and key.atype == "f16" and int(device[3:]) >= 80:
        return Profile("software", "measured" if device in _HOPPER else "inferred", note=_SOFTWARE)
    if key.sparse and device not in _HOPPER and key.family != "tcgen05":
        confidence = "inferred"
        note = _join(note, "sparse: selected products fused as on sm_90, not observed on this device")
    elif key.ctype != key.dtype and device not in _HOPPER:
        confidence, note = "inferred", _join(note, "C and D of two types as on sm_90, not observed on this device")
    return Profile(
        method=row.method,
        confidence=confidence,
        chunk=row.chunk,
        fraction=row.fraction,
        floor=row.floor_f32 if floor is None else floor,
        keep=row.keep,
        widen_c=key.ctype == "f16" and key.dtype == "f32",
        narrow_d=narrow_d,
        note=note,
    )


def _has_exact(key: DotKey, device: str) -> bool:
    """Whether a device has an instruction on integers, bits or f64."""
    first, last = _EXACT[key.atype]
    only = {"wgmma": _HOPPER, "tcgen05": ("sm_100", "sm_110")}.get(key.family, (device,))
    return first <= int(device[3:]) <= last and device in only and (key.family != "tcgen05" or key.atype in ("s8", "u8"))


def _exact(key: DotKey, device: str) -> Profile:
    if not _has_exact(key, device):
        raise UnsupportedError(f"{_say(key)} does not run on {device}", hint=_elsewhere(key))
    confidence: Confidence = "measured" if device in _HOPPER else "as specified"
    if key.family == "tcgen05":
        confidence = "published" if device == "sm_100" else "inferred"
    methods: dict[str, Method] = {"f64": "fma", "f32": "fma", "b1": "bits"}
    method: Method = methods.get(key.atype, "integer")
    return Profile(method, confidence, note="products in ascending k" if method == "fma" else "")


def _elsewhere(key: DotKey) -> str:
    if key.atype in _EXACT:
        found: Iterable[str] = (d for d in DEVICES if _has_exact(key, d))
    else:
        found = (d for d in DEVICES if any(r.matches(d, key) for r in ROWS))
    names = ", ".join(found)
    return f"devices with this arithmetic: {names}" if names else "no device of the tables has it"


def _say(key: DotKey) -> str:
    kind = f".kind::{key.kind}" if key.kind else ""
    sp = ".sp" if key.sparse else ""
    return f"{key.family}{sp}{kind} .{key.dtype}.{key.atype}.{key.btype}.{key.ctype} with k {key.k}"


def _join(*notes: str) -> str:
    return "; ".join(n for n in notes if n)
