"""Where the document and ptxas disagree, and what is done here: the table of docs/reference/legality.md.

Every case has a statement that shows it; tests/isa/test_legality.py holds them against the tables, and against an installed
ptxas where there is one.
"""

import re
from dataclasses import dataclass

from mmulator.isa.targets import Target
from mmulator.isa.types import TYPES
from tests.support.ptxas.verdicts import Statement

D4, A4, B2 = "{%f32_1, %f32_2, %f32_3, %f32_4}", "{%b32_5, %b32_6, %b32_7, %b32_8}", "{%b32_9, %b32_10}"


@dataclass(frozen=True)
class Difference:
    """One case. document: what the specification says. ptxas: what it does, in which versions. example: a statement for
    `target` and `ptx_version` that shows it. accepted: the verdict of ptxas. followed: whether ours is the same. judge:
    releases of ptxas that do so."""

    document: str
    ptxas: str
    example: str
    target: str = "sm_90a"
    version: tuple[int, int] = (8, 8)
    accepted: bool = True
    followed: bool = True
    judge: str = "12.9, 13.0, 13.5"

    @property
    def statement(self) -> Statement:
        mnemonic, _, operands = self.example.partition(" ")
        return Statement(mnemonic, (operands,) if operands else (), Target.parse(self.target), self.version)


_SP = "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " + f"{D4}, {B2}, {B2}, {D4}"
_MMA = f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {D4}, "
_MXF4 = (
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 "
    f"{D4}, {A4}, {B2}, {D4}, %b32_1, "
)
_MX = {"target": "sm_120a"}

FOLLOWED: tuple[Difference, ...] = (
    # names
    Difference(
        "qualifiers stand in the order of the syntax block",
        "any order; only those of one kind (types, layouts) are told apart by it",
        f"mma.row.col.m16n8k16.aligned.f32.f16.sync.f16.f32 {D4}, {A4}, {B2}, {D4}",
    ),
    Difference(
        "`.sync` and `.satfinite` stand once", "may be repeated",
        f"mma.sync.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {D4}, {A4}, {B2}, {D4}",
    ),
    Difference("`.aligned` is mandatory for wgmma", "may be left out", "wgmma.fence.sync"),
    Difference(
        "`.aligned` is mandatory for wmma", "before PTX 6.3 it is implied, and may not be written",
        "wmma.load.c.sync.aligned.row.m16n16k16.f32 {%f32_1, %f32_2, %f32_3, %f32_4, %f32_5, %f32_6, %f32_7, %f32_8}, [%b64_1]",
        "sm_70", (6, 1), accepted=False, judge="12.9",
    ),
    Difference(
        "`.kind` needs sm_120a, or sm_120f", "`.kind::f8f6f4` with FP8 on every `a` and `f` target from sm_100 on",
        f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32 {D4}, {A4}, {B2}, {D4}", "sm_100a",
    ),
    Difference(
        "FP8 with `.f16` accumulators, and m16n8k16 with FP8, need sm_120", "sm_89, from PTX 8.7 on",
        f"mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 {B2}, {A4}, {B2}, {B2}", "sm_89",
    ),
    Difference(
        "m8n8k32 and m8n8k128 have `.s32` accumulators", "`wmma.load.c` and `wmma.store.d` move `.f32` ones, too",
        "wmma.load.c.sync.aligned.row.m8n8k32.f32 {%f32_1, %f32_2}, [%b64_1]",
    ),
    # operands
    Difference(
        "registers of the type of the elements (`.f16x2`, `.f32`)", "`.b32` and `.b64` registers for all; for many "
        "operands any register of the size",
        f"mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {B2}, {{%u32_1}}, {{%b32_3}}, {{%s32_1, %s32_2}}",
    ),
    Difference(
        "the elements of a vector have one type", "a `.b32` register goes with any of its size, `.u32` with `.s32`: "
        "the vector is one of bits", f"{_MMA}{{%u32_1, %s32_1, %b32_1, %b32_2}}, {{%f16x2_1, %b32_1}}, {D4}",
    ),
    Difference(
        "`.f16`, `.f32` and `.f64` go with registers of that type, or bits", "integer registers of the size as well, in vectors "
        "(`ld`, `st`, `atom`, `red`, `tex`), where no floating-point register is: the bits",
        "ld.global.v4.f32 {%u32_1, %s32_1, %b32_1, %u32_2}, [%b64_1]",
    ),
    Difference(
        "fragments are registers", "constants may be elements of sources", f"{_MMA}{{%b32_1, 0, %b32_2, 0}}, {B2}, {D4}",
    ),
    Difference("fragments are registers", "`_` may be an element of a result, where another is none",
               f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f32_1, _, _, _}}, {A4}, {B2}, {D4}"),
    Difference("the metadata and the scales are `.b32` registers",
               "also `{r}` and 0f3F800000 where the type is not looked at", f"{_SP}, 0f3f800000, 0"),
    Difference("the selector of m16n8k32 is 0 or 1", "0 to 3 for `.f16` with `.f32` accumulators",
               f"mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {D4}, {A4}, {A4}, {D4}, %b32_1, 3"),
    Difference("other selectors are undefined behaviour", "rejected", f"{_SP}, %b32_1, 4", accepted=False),
    Difference("byte-id and thread-id are `.u16`", "thread-id is any integer register if byte-id is a constant",
               f"{_MXF4}{{0, %b64_1}}, %b32_1, {{0, 0}}", **_MX),
    Difference("an address has 64 bits in generic and `.global`", "32-bit registers pass for wmma, ldmatrix, stmatrix",
               "ldmatrix.sync.aligned.m8n8.x1.b16 {%b32_1}, [%u32_1]"),
    Difference("an address in `.shared` has 32 or 64 bits", "16 and 8 bits pass for ldmatrix and stmatrix",
               "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%b32_1}, [%b16_1]"),
)  # fmt: skip

REFUSED: tuple[Difference, ...] = (
    Difference(
        "wgmma, ldmatrix, stmatrix and movmatrix have no `.row` or `.col`", "a surplus one is overlooked",
        "ldmatrix.sync.aligned.m8n8.x1.row.b16 {%b32_1}, [%b64_1]", followed=False,
    ),
    Difference(
        "as many types as the syntax block says",
        "a surplus `.bf16`, `.tf32`, `.s4`, `.u4`, `.b1` or `.pred` is overlooked here and there",
        f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32.u4 {D4}, {A4}, {B2}, {D4}", followed=False,
    ),
    Difference(
        "a predicate is no 32-bit register", "where the type is not looked at it passes; compiling it mostly ends with an "
        "internal error", "ldmatrix.sync.aligned.m8n8.x1.b16 {%pred_1}, [%b64_1]", followed=False,
    ),
    Difference(
        "`.and` and `.xor` belong to `.b1`", "with 4-bit integers a surplus one is overlooked from sm_90 on",
        f"mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32.and {{%s32_1, %s32_2, %s32_3, %s32_4}}, {B2}, {{%b32_1}}, "
        "{%s32_1, %s32_2, %s32_3, %s32_4}", "sm_100f", followed=False,
    ),
    Difference(
        "`.kind::mxf8f6f4`, `.kind::mxf4` and `.kind::mxf4nvf4` have `.block_scale`", "with FP8, they pass without",
        f"mma.sync.aligned.m16n8k32.row.col.kind::mxf4.f32.e4m3.e4m3.f32 {D4}, {A4}, {B2}, {D4}", followed=False, **_MX,
    ),
    Difference(
        "wmma.mma with `.f64` has m8n8k4", "other shapes pass, though there is no load for them",
        "wmma.mma.sync.aligned.row.col.m16n16k8.f64.f64.f64.f64 " + ", ".join(
            "{" + ", ".join(f"%f64_{i + n}" for i in range(count)) + "}" for n, count in ((1, 8), (20, 4), (30, 4), (40, 8))
        ), followed=False,
    ),
    Difference(
        "a constant element has the size of the others", "after a constant, `.f64` vectors take registers of any size",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%f64_1, %f64_2}, {%f64_3}, {%f64_4}, {1.0, %b32_1}", followed=False,
    ),
    Difference(
        "`.satfinite` of floating-point wmma.mma is deprecated in PTX 6.4, gone in 6.5",
        "accepted up to PTX 6.4 (no compiler of today writes it)",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16.satfinite "
        "{%f16x2_1, %f16x2_2, %f16x2_3, %f16x2_4}, "
        + ", ".join("{" + ", ".join(f"%f16x2_{n + i}" for i in range(8)) + "}" for n in (10, 20))
        + ", {%f16x2_1, %f16x2_2, %f16x2_3, %f16x2_4}",
        "sm_75",
        (6, 4),
        followed=False,
    ),
    Difference(
        "wmma.load has a type", "ptxas 12 takes `.f16` for granted",
        "wmma.load.a.sync.aligned.row.m16n16k16 {%b32_1, %b32_2, %b32_3, %b32_4, %b32_5, %b32_6, %b32_7, %b32_8}, [%b64_1]",
        "sm_70", followed=False, judge="12.9",
    ),
    Difference(
        "accumulators are `.f16`, `.f32` or `.s32`", "ptxas 12 moves `.u32` as well",
        "wmma.load.c.sync.aligned.row.m16n16k16.u32 {%b32_1, %b32_2, %b32_3, %b32_4, %b32_5, %b32_6, %b32_7, %b32_8}, [%b64_1]",
        "sm_70", followed=False, judge="12.9",
    ),
)  # fmt: skip

_OVERLOOKED = frozenset(("bf16", "tf32", "s4", "u4", "b1", "pred"))


def refused(s: Statement) -> bool:
    """Whether a statement that ptxas takes is one of those that are refused here, as the table says."""
    words, operands = s.mnemonic.split("."), " ".join(s.operands)
    predicates = re.findall(r"\{[^{}]*%pred|!?%pred", operands)
    if predicates and (words[0] != "wgmma" or len(predicates) > 1 or predicates[0].startswith("{")):
        return True
    if words[0] == "wgmma" and len(s.operands) > 3 and "%pred" in s.operands[3] and "sp" in words:
        return True
    if (words[0] == "wgmma" or words[0].endswith("matrix")) and {"row", "col"} & {*words}:
        return True
    types = [w for w in words if w in TYPES]
    want = 1 if {"load", "store"} & {*words} or words[0].endswith("matrix") else 3 if words[0] == "wgmma" else 4
    if len(types) > want + ("block_scale" in words) and _OVERLOOKED & {*types}:
        return True
    if "kind::mx" in s.mnemonic and "block_scale" not in words:
        return True
    if s.mnemonic.startswith("wmma.mma") and "f64" in words and "m8n8k4" not in words:
        return True
    if words[:2] == ["wmma", "mma"] and "satfinite" in words and len(types) == 2 and s.ptx < (6, 5):
        return True
    if words[:2] in (["wmma", "load"], ["wmma", "store"]) and (not types or "u32" in types):
        return True
    if {"and", "xor"} & {*words} and "popc" not in words:
        return True
    if "f64" in words and re.search(r"\{[-\d][\w.]*, (.*, )?%\w\w*[1-3][26]?_", operands):
        return True
    return re.search(r"\{(0d|0f|\d+\.)\w*, %[a-z]16_", operands) is not None
