"""Statements on tcgen05: any modifiers of an instruction together, with the operands that they ask for, and others."""

import random
from collections.abc import Callable, Iterator

from mmulator.isa.targets import TARGETS, Target
from tests.support.ptxas.verdicts import Statement

Version = tuple[int, int]
_GROUPS = ("cta_group::1", "cta_group::2")
_SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
_COPIED = ("128x256b", "4x256b", "128x128b", "64x128b", "32x128b")
_KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4", "ti16")
_VECTORS = ("scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32")
_USES = ("fill", "use", "lastuse", "discard")
_NUMBERS = tuple(f"x{1 << n}" for n in range(9))


class _Chance(random.Random):
    def maybe(self, *words: str, odds: float = 0.5) -> str:
        return self.choice(words) if self.random() < odds else ""

    def registers(self, count: int) -> str:
        bank, first = self.choice(("b32", "b32", "u32", "s32", "f32")), self.randrange(8)
        return "{" + ", ".join(f"%{bank}_{first + n}" for n in range(max(count, 1))) + "}"

    def place(self) -> str:
        return f"[%b32_{self.randrange(8)}{self.choice(('', '+4'))}]"

    def descriptor(self) -> str:
        return f"%b64_{self.randrange(8)}"


Made = tuple[list[str], list[str]]


def _moves(chance: _Chance) -> Made:
    """ld, st and ld.red, most with as many registers as shape and repetition ask for."""
    which = chance.choice(("ld", "st", "ld.red"))
    shape = chance.choice(_SHAPES if which != "ld.red" else ("32x32b", "16x32bx2", "16x64b"))
    number = chance.choice(_NUMBERS)
    words = [which, "sync", "aligned", shape, number]
    if which == "ld.red":
        words += [chance.choice(("min", "max", "add")), chance.maybe("abs"), chance.maybe("NaN")]
        words += [chance.maybe("pack::16b", odds=0.1), chance.choice(("f32", "f32", "u32", "s32", "b32"))]
    else:
        words += [chance.maybe("pack::16b", "unpack::16b"), "b32"]
    count = int(number[1:]) * {"16x128b": 2, "16x256b": 4}.get(shape, 1)
    count = min(count, 150) if chance.random() < 0.9 else chance.choice((1, 2, 3, 4, 8, 64))
    split = [str(chance.choice((0, 1, 16, 64)))] if (shape == "16x32bx2") == (chance.random() < 0.9) else []
    place, values = chance.place(), chance.registers(count)
    if which == "st":
        return words, [place, *split, values]
    result = [f"%{chance.choice(('b32', 'f32', 'u32'))}_1"] if which == "ld.red" else []
    return words, [values, *result, place, *split]


def _multiplies(chance: _Chance) -> Made:
    kind, group, ws, sparse = chance.choice(_KINDS), chance.choice(_GROUPS), chance.random() < 0.3, chance.random() < 0.4
    scaled = kind.startswith("mx") != (chance.random() < 0.05)
    ashift = chance.maybe("ashift", odds=0.2)
    buffers = ("b0", "b1", "b2", "b3") if ws != (chance.random() < 0.1) else ("a",)
    collector = f"collector::{chance.choice((*buffers, *buffers, 'b'))}::{chance.choice(_USES)}" if chance.random() < 0.4 else ""
    kept = f"collector::b::{chance.choice(_USES)}" if chance.random() < 0.2 else ""
    words = ["mma", "ws" * ws, "sp" * sparse, group, f"kind::{kind}", "block_scale" * scaled]
    words += [chance.maybe(*_VECTORS, odds=0.7 if scaled else 0.03), ashift, collector, kept]
    a = chance.place() if ashift or chance.random() < 0.4 else chance.descriptor()
    operands = [chance.place(), a, chance.descriptor()]
    operands += [chance.place()] if sparse != (chance.random() < 0.05) else []
    operands += [f"%{chance.choice(('b32', 'u32', 's32'))}_2"]
    if scaled:
        operands += [chance.place(), chance.place()]
    if chance.random() < (0.05 if scaled or ws else 0.4):
        operands.append(chance.registers(chance.choice((4, 8, 4 * int(group[-1])))))
    operands.append(chance.choice(("%pred_1", "!%pred_2", "1", "0")))
    if chance.random() < 0.3:
        operands.append(chance.choice((chance.descriptor(), "7")) if ws else chance.choice(("0", "15", "16", "-1", "%b32_3")))
    return words, operands


def _copies(chance: _Chance) -> Made:
    warps = chance.maybe("warpx2::02_13", "warpx2::01_23", "warpx4")
    formats = chance.choice(([], [], ["b8x16", "b6x16_p32"], ["b8x16", "b4x16_p64"], ["b8x16"], ["b6x16_p32"]))
    return ["cp", chance.choice(_GROUPS), chance.choice(_COPIED), warps, *formats], [chance.place(), chance.descriptor()]


def _others(chance: _Chance) -> Made:
    group, exclusive = chance.choice((*_GROUPS, *_GROUPS, "")), chance.maybe("exclusive", odds=0.3)
    columns = chance.choice(("32", "64", "512", "96", "33", "16", "0", "1024", "%b32_1", "%u32_2", "%b64_1", "%f32_1"))
    to = chance.choice(("[%b64_1]", "[%b32_1]", "[smem]", "[smem+8]"))
    together = ["sync" if chance.random() < 0.95 else "", "aligned" if chance.random() < 0.95 else ""]
    space = chance.maybe("shared::cta", "shared::cluster", "shared", odds=0.6)
    match chance.randrange(7):
        case 0:
            return ["alloc", exclusive, group, *together, space, "b32"], [to, columns]
        case 1:
            given = chance.choice(("%b32_1", "5", "[%b32_1]", "%u32_1"))
            return ["dealloc", exclusive, group, *together, "b32"], [given, columns]
        case 2:
            return ["relinquish_alloc_permit", exclusive * (chance.random() < 0.2), group, *together], []
        case 3:
            return ["shift", group, chance.maybe("down", odds=0.9)], [chance.place()]
        case 4:
            return [chance.choice(("wait::ld", "wait::st")), *together], []
        case 5:
            return [chance.choice(("fence::before_thread_sync", "fence::after_thread_sync")), group * (chance.random() < 0.2)], []
    many = chance.maybe("multicast::cluster", "multicast::cluster::16b", "multicast::cluster::32b")
    mask = [chance.choice(("%b16_1", "%u16_1", "3", "65536", "%b32_1"))] if bool(many) == (chance.random() < 0.95) else []
    return ["commit", group, chance.maybe("mbarrier::arrive::one", odds=0.95), space, many, "b64"], [to, *mask]


_WAYS: tuple[Callable[[_Chance], Made], ...] = (_moves, _moves, _multiplies, _multiplies, _multiplies, _copies, _others, _others)


def statements(targets: list[Target], versions: list[Version], count: int, seed: int) -> Iterator[Statement]:
    """Statements of tcgen05, a third of them legal, most for targets that have tensor memory."""
    chance = _Chance(seed)
    able = [t for t in targets if t.suffix and 100 <= t.number < 120]
    for _ in range(count):
        words, operands = chance.choice(_WAYS)(chance)
        target = chance.choice(able if chance.random() < 0.95 else targets)
        ptx = chance.choice([v for v in versions if v >= max(TARGETS[target], (8, 6))])
        what = next((w for w in words if w.startswith("kind")), words[0])
        yield Statement(".".join(("tcgen05", *filter(None, words))), tuple(operands), target, ptx, what)
