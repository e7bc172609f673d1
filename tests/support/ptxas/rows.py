"""Statements on rows that are no matrix instructions: legal ones with operands that fit, and mutants of them."""

import random
from collections.abc import Iterator
from dataclasses import replace

from mmulator.isa import (
    barrier,
    bulk,
    cluster,
    copies,
    fence,
    grid,
    mbarrier,
    memory,
    misc,
    multimem,
    tcgen05,
    tensor,
    tensormap,
    warp,
)
from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec, Row
from mmulator.isa.targets import Target
from mmulator.ptx.fits import fits
from tests.support import row_forms
from tests.support.ptxas.mutants import ROW_WAYS, World, mutant
from tests.support.ptxas.verdicts import BANKS, Statement

Version = tuple[int, int]
_NAMED = ("elect.sync", "setmaxnreg", "prefetch", "ld.proxy::readonly")
_CHAPTERS = (mbarrier, bulk, tensor, tensormap, cluster, multimem, grid, fence, barrier, copies, tcgen05)
ROWS: tuple[Row, ...] = (
    *(row for chapter in _CHAPTERS for row in chapter.ROWS),
    *(row for chapter in (memory, misc, warp) for row in chapter.ROWS if row.name in _NAMED),
)
_PLACES = {
    "": ("gvar", "smem", "lvar"), "global": ("gvar",), "shared": ("smem",), "const": ("cvar",), "param": ("pvar",),
    "local": ("lvar",),
}  # fmt: skip


def _address(spec: OperandSpec, chance: random.Random) -> str:
    space = spec.space.partition("::")[0]
    if space == "tensor":
        return f"%{chance.choice(spec.types)}_{chance.randrange(8)}" + chance.choice(("", "", "+16"))
    if chance.random() < 0.4:
        place = chance.choice(_PLACES[spec.home or space])
        return place + chance.choice(("", "", "+32"))
    banks = ("b64", "b64", "u64", "s64", *(("b32", "u32", "s32") if space == "shared" else ()))
    return f"%{chance.choice(banks)}_{chance.randrange(8)}" + chance.choice(("", "", "+16"))


def _register(type: str, chance: random.Random, wider: bool = False) -> str:
    if type == "b128":
        return f"%b128_{chance.randrange(8)}"
    return f"%{chance.choice([b for b in BANKS if fits(b, type, wider)])}_{chance.randrange(8)}"


def _constant(spec: OperandSpec, chance: random.Random) -> str:
    if spec.values:
        return str(chance.choice((spec.values[0], spec.values[-1], chance.choice(spec.values))))
    if "f" in spec.type:
        return "1.0"
    return str(chance.randrange(spec.lo or 0, min(16 if spec.hi is None else spec.hi, 255) + 1))


def _value(spec: OperandSpec, chance: random.Random) -> str:
    packed = "x" in spec.type or spec.type in ("f16", "bf16")  # these have no constants
    return _register(spec.type, chance) if packed or chance.random() < 0.6 else _constant(spec, chance)


def operand(spec: OperandSpec, chance: random.Random) -> str:
    """A legal operand."""
    match spec.kind:
        case "addr":
            return f"[{_address(spec, chance)}]"
        case "tensor":
            base = _address(spec, chance).partition("+")[0]
            return f"[{base}, {{{', '.join(_value(spec, chance) for _ in range(spec.count))}}}]"
        case "vector":
            return "{" + ", ".join(_value(spec, chance) for _ in range(spec.count)) + "}"
        case "pred":
            return chance.choice(("%pred_1", "%pred_2", "!%pred_1", "1"))
        case "imm":
            return _constant(spec, chance)
        case "sink":
            return "_"
        case "pair":
            return f"{chance.choice(('%b32_1', '_'))}|%pred_1"
        case "symbol":
            return chance.choice(("smem", "smem+8", _register(spec.type, chance)))
    if spec.count > 1 or spec.kind == "registers":  # all of one type
        bank = _register(spec.type, chance).rpartition("_")[0]
        return "{" + ", ".join(f"{bank}_{i}" for i in range(spec.count)) + "}"
    if spec.kind in ("dst", "reg"):
        return "_" if spec.sink and chance.random() < 0.2 else _register(spec.type, chance, spec.wider)
    return _value(spec, chance)


def _operands(form: Form, target: Target, ptx: Version, chance: random.Random) -> tuple[str, ...]:
    specs = [o for o in chance.choice(form.signatures) if not o.optional or (chance.random() < 0.5 and _has(o, target, ptx))]
    return tuple(operand(o, chance) for o in specs)


def _has(spec: OperandSpec, target: Target, ptx: Version) -> bool:
    return ptx >= spec.since.ptx and spec.since.admits(target)


def legal(
    targets: list[Target], newest: Version, chance: random.Random, most: int = 40, since: Version = (1, 0)
) -> Iterator[Statement]:
    """Some forms of every row, on targets that have them, in the first version or the newest. since: of those that this version
    or a later one brought."""
    for row in ROWS:
        for words, form in row_forms.forms(row, most):
            able = [t for t in targets if form.requires.admits(t) and form.requires.first_ptx(t) <= newest]
            if form.requires.ptx < since:
                continue
            if able:
                target = chance.choice(able)
                ptx = chance.choice((form.requires.first_ptx(target), newest))
                mnemonic = ".".join((row.opcode, *words))
                yield Statement(mnemonic, _operands(form, target, ptx, chance), target, ptx)


def mutants(originals: list[Statement], count: int, world: World) -> Iterator[Statement]:
    chance = world.chance
    for _ in range(count):
        s = chance.choice(originals)
        later = [v for v in world.versions if v >= s.ptx]
        if chance.random() < 0.3:
            s = replace(s, ptx=chance.choice(later))
        made = mutant(s, world, ROW_WAYS)
        if made.text.count("{") == made.text.count("}"):  # others would take the next statements with them
            yield made
