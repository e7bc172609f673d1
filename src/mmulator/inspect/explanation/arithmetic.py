"""Arithmetic of a matrix instruction on each device, in numbers and in words, from numerics/profiles.py."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mmulator.errors import UnsupportedError
from mmulator.isa.chips import CHIPS, as_device
from mmulator.isa.form import Form
from mmulator.isa.targets import DEVICES, TARGETS, Target
from mmulator.numerics import profiles
from mmulator.numerics.dot import MODES, NAN, SOFTWARE_PAIRS
from mmulator.numerics.profiles import GROUP, Profile


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
    """The arithmetic of one output element in a sentence or two. numerics/dot.py computes what this says."""
    products = form.k // 2 if form.sparse else form.k
    if p.method == "bits":
        return "Exact: the ones are counted and added to C modulo 2^32."
    if p.method == "integer":
        return "Exact sum of all products and C, " + (
            "clamped to the range of s32." if form.satfinite else "modulo 2^32."
        )
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
