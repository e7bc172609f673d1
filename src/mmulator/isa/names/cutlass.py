"""CUTLASS's names of instructions, translated to words of a query.

`SM80_16x8x16_F32F16F16F32_TN`, `SM90_64x128x16_F32BF16BF16_SS`, `SM90::GMMA::MMA_64x128x16_F32F16F16_SS`,
`SM75_U32x4_LDSM_N`.
"""

import re

_TYPE = re.compile(r"TF32|BF16|E4M3|E5M2|E2M1|E2M3|E3M2|[FSU]\d+")
_MMA = re.compile(
    r"SM(?P<sm>\d+)(?:::GMMA(?P<sparse>::SPARSE)?::G?MMA)?_(?P<shape>\d+x\d+x\d+)_(?P<types>[A-Z0-9]+?)"
    r"_(?P<how>TN|NT|NN|TT|[SR]S(?:_TN)?)(?:_(?P<bit>XOR|AND)POPC)?(?:<.*>)?",
    re.IGNORECASE,
)
_MOVE = re.compile(r"SM\d+_U(?P<bits>32|16)x(?P<count>\d)_(?P<what>LDSM|STSM)_[NT]", re.IGNORECASE)


def atom_words(text: str) -> str:
    """A text with the names of CUTLASS's atoms replaced by words: `mma 16x8x16 f32 f16 f16 f32 row col`."""
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
