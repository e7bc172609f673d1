"""Names that CUTLASS and people have for instructions and chips, as words of a query.

`SM80_16x8x16_F32F16F16F32_TN`, `SM90_64x128x16_F32BF16BF16_SS`, `SM90::GMMA::MMA_64x128x16_F32F16F16_SS`,
`SM75_U32x4_LDSM_N`; `hopper`, `H100`, `RTX 4090`.
"""

from __future__ import annotations

import re

_TYPE = re.compile(r"TF32|BF16|E4M3|E5M2|E2M1|E2M3|E3M2|[FSU]\d+")
_MMA = re.compile(
    r"SM(?P<sm>\d+)(?:::GMMA(?P<sparse>::SPARSE)?::G?MMA)?_(?P<shape>\d+x\d+x\d+)_(?P<types>[A-Z0-9]+?)"
    r"_(?P<how>TN|NT|NN|TT|[SR]S(?:_TN)?)(?:_(?P<bit>XOR|AND)POPC)?(?:<.*>)?",
    re.IGNORECASE,
)
_MOVE = re.compile(r"SM\d+_U(?P<bits>32|16)x(?P<count>\d)_(?P<what>LDSM|STSM)_[NT]", re.IGNORECASE)
_ARCHITECTURES = {"volta": "sm_70", "turing": "sm_75", "ampere": "sm_80", "ada": "sm_89", "hopper": "sm_90"}
_CHIPS = {
    "sm_70": "v100", "sm_72": "xavier", "sm_75": "t4", "sm_80": "a100 a30", "sm_86": "a2 a10 a16 a40", "sm_87": "orin",
    "sm_89": "l4 l40 l40s", "sm_90": "h100 h200 h20 h800 gh200", "sm_100": "b200 gb200", "sm_103": "b300 gb300",
    "sm_121": "gb10",
}  # fmt: skip
_SERIES = {"20": "sm_75", "30": "sm_86", "40": "sm_89", "50": "sm_120"}  # RTX
_BY_CHIP = {name: device for device, names in _CHIPS.items() for name in names.split()}
DEVICE_WORDS = (*_ARCHITECTURES, *(name for name in _BY_CHIP if len(name) > 3))  # short ones are like anything


def device_of(text: str) -> str | None:
    """The device that a chip or an architecture is, as `sm_90`; None for another text."""
    name = text.strip().lower().replace(" ", "").replace("-", "")
    series = re.fullmatch(r"(?:geforce)?rtx(20|30|40|50)(?:\d0)?(?:ti|super|d)*", name)
    return _SERIES[series[1]] if series else _ARCHITECTURES.get(name) or _BY_CHIP.get(name)


def atom_words(text: str) -> str:
    """A text with the names of CUTLASS's atoms as words: `mma 16x8x16 f32 f16 f16 f32 row col`."""
    return _MOVE.sub(_move, _MMA.sub(_multiply, text))


def _multiply(found: re.Match[str]) -> str:
    types = ["b1" if t == "U1" else t.lower() for t in _TYPE.findall(found["types"].upper())]
    how = found["how"].upper()
    if how[1] == "S":
        return " ".join(("wgmma", "sparse" if found["sparse"] else "dense", found["shape"], *types))
    layout = ("row" if how[0] == "T" else "col", "col" if how[1] == "N" else "row")  # BLAS's letters
    return " ".join(("mma", "dense", found["shape"], *types, *layout, (found["bit"] or "").lower()))


def _move(found: re.Match[str]) -> str:
    family = {"LDSM": "ldmatrix", "STSM": "stmatrix"}[found["what"].upper()]
    count = int(found["count"])
    return f"{family} m8n8 x{count}" if found["bits"] == "32" else f"{family} m8n8 x{count // 2} trans"
