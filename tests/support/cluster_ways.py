"""Every way into the shared memory of a cluster, as a block of a rank above 0 goes it: the statements of memory_ways.py, each
by a register that is known to be the same for all lanes, and by one that is not.

    walk = ClusterWalk()
    walk.outcome(number, way, place, "sanitized")     # the fault's words, or the results and the memory of both blocks

A way is how the addresses of the lanes lie (WAYS), a place where the first of them is (PLACES), and an instrument what looks on.
"""

from collections.abc import Iterator

import numpy as np

from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from mmulator.program.addresses import RANK_SHIFT, SHARED_BASE, SLOT_SHARED, SLOT_SHIFT
from tests.support.memory_ways import PATTERN, TARGET, WINDOW, Statement, statements

RANK, LANES, RESULT = 1, 32, 16  # who goes; threads of a block; bytes of a result of each lane
# (by a register that is known to be the same for all lanes, steps from lane to lane modulo 32, lanes)
WAYS = {"uniform": (True, 0, 32), "one": (False, 0, 32), "row": (False, 1, 32), "apart": (False, 13, 32), "lane": (False, 0, 1)}
PLACES = {"own": (RANK, 0), "other": (0, 0), "none": (5, 0), "behind": (RANK, WINDOW)}  # rank, and bytes from its first on
MANY = ("mbarrier", "wmma")  # whose second word says what they do
INSTRUMENTS = ("plain", "sanitized", "watched")


def chosen() -> list[Statement]:
    """One statement of each operation, space and kind of address, with 4 bytes rather than others."""
    found: dict[tuple[object, ...], Statement] = {}
    for s in statements():
        words = s.text.split()[0].split(".")
        reaches = s.space in ("", "shared", "to-shared") and s.access not in ("none", "aligned", "edit") and s.size <= WINDOW
        if not reaches or "inval" in words:  # an mbarrier ends once
            continue
        which = {"async", "bulk", "mbarrier", *(words[1:2] if words[0] in MANY else ())}
        said = [w for w in words if w in which or w.startswith(("shared", "v"))]
        key = (words[0], *said, s.access, s.space)
        if key not in found or (s.size == 4 and found[key].size != 4):
            found[key] = s
    return list(found.values())


def _named(text: str, names: dict[str, str]) -> str:
    for name, meant in names.items():
        text = text.replace(name, meant)
    return text


def _cases(chosen: list[Statement]) -> Iterator[str]:
    for number, s in enumerate(chosen):
        for way, register in enumerate(("%rd0", "%rd12")):
            names = {"{0}": register, "{n}": f"{number}_{way}"}
            if s.after.startswith("cp.async"):
                names["%rd9"] = "%rd13"  # lanes that lie in a row read a row
            text, before, after = (_named(t, names) for t in (s.text, s.before, s.after))
            stores, at = "", 0
            for name, bits in s.results[: RESULT // 8]:
                stores += f" st.global.b{bits} [%rd2+{at}], {name};"
                at += bits // 8
            yield f"W{2 * number + way}: {before}\n{text} {after}{stores} bra END;"


def kernel(chosen: list[Statement]) -> str:
    """out: of both blocks, results of 32 lanes and the memory afterwards. source: what copies read from, or write to."""
    registers = [f".reg .b{b} %{x}{b}_<16>;" for b in (16, 32, 64, 128) for x in "ds"]
    set_up = [f"mov.b{b} %s{b}_{n}, 0x{f'{PATTERN:02x}' * (b // 8)};" for b in (16, 32, 64) for n in range(16)]
    set_up += [f"mov.b128 %s128_{n}, {{%s64_0, %s64_0}};" for n in range(2)]
    meet = "barrier.cluster.arrive; barrier.cluster.wait;"
    size = LANES * RESULT + WINDOW
    cases = "\n".join(_cases(chosen))
    return f"""
.version 9.5
.target {TARGET}
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 source, .param .u64 address, .param .u32 number, .param .u32 step,
                  .param .u32 turn, .param .u32 lanes) .reqnctapercluster 2
{{
  .reg .b64 %rd<16>; .reg .b32 %i, %n, %t, %u, %l; .reg .pred %p; {" ".join(registers)}
  .shared .align 128 .b8 cells[{WINDOW}];
  ld.param.u64 %rd0, [address]; ld.param.u64 %rd2, [out]; ld.param.u64 %rd9, [source]; ld.param.u32 %n, [number];
  ld.param.u32 %u, [turn]; ld.param.u32 %l, [lanes]; mov.u64 %rd8, cells; {" ".join(set_up)}
  mov.u32 %t, %tid.x; mov.u32 %i, %cluster_ctarank; mad.wide.u32 %rd2, %i, {size}, %rd2; mov.u64 %rd7, %rd2;
  shl.b32 %t, %t, 5; cvt.u64.u32 %rd3, %t; add.u64 %rd5, %rd8, %rd3;
  shl.b32 %i, %i, 7; add.u32 %t, %t, %i; mov.u32 %i, 0;
FILL: mad.lo.u32 %s32_15, %t, 37, 11; st.shared.u8 [%rd5], %s32_15; add.u32 %t, %t, 1; add.u64 %rd5, %rd5, 1;
  add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 32; @%p bra FILL; mov.b32 %s32_15, %s32_0;
  mov.u32 %t, %tid.x; mad.wide.u32 %rd2, %t, {RESULT}, %rd2; mul.lo.u32 %u, %u, %t; and.b32 %u, %u, 31;
  ld.param.u32 %i, [step]; mul.wide.u32 %rd12, %u, %i; add.u64 %rd12, %rd0, %rd12; mad.wide.u32 %rd13, %t, 16, %rd9; {meet}
  mov.u32 %i, %cluster_ctarank; setp.ne.u32 %p, %i, {RANK}; @%p bra END; setp.ge.u32 %p, %t, %l; @%p bra END;
ways: .branchtargets {", ".join(f"W{n}" for n in range(2 * len(chosen)))};
  brx.idx %n, ways;
{cases}
END: {meet} mov.u32 %t, %tid.x; shl.b32 %t, %t, 5; cvt.u64.u32 %rd3, %t; mov.u32 %i, 0;
  add.u64 %rd4, %rd7, %rd3; add.u64 %rd5, %rd8, %rd3;
DUMP: ld.shared.u64 %rd6, [%rd5]; st.global.u64 [%rd4+{LANES * RESULT}], %rd6; add.u64 %rd4, %rd4, 8; add.u64 %rd5, %rd5, 8;
  add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 4; @%p bra DUMP;
  ret;
}}
"""


def held(rank: int) -> np.ndarray:
    """The bytes of a block's shared memory before a statement runs."""
    return ((np.arange(WINDOW) + 128 * rank) * 37 + 11 & 0xFF).astype(np.uint8)


class ClusterWalk:
    """A kernel of all statements. One launch of it is one statement in the block of rank 1 of a cluster of two."""

    def __init__(self) -> None:
        self.statements = chosen()
        self.kernel = Module.load(kernel(self.statements), name="ways.ptx")["k"]

    def ways(self, number: int) -> list[str]:
        """Those in which lanes do not disturb each other: what has an mbarrier of its own, or clears many bytes, goes alone."""
        s = self.statements[number]
        if s.lanes == 32 and (s.text.startswith("wmma") or s.size * LANES > WINDOW):
            return ["uniform", "one"]
        alone = s.lanes == 1 and ((s.before and not s.words) or s.size * LANES > WINDOW or "bulk" in s.text)
        return ["lane1", "lane"] if alone else list(WAYS)[: 5 - (s.lanes == 32)]

    def lanes(self, number: int, way: str) -> list[int]:
        """The place of each lane that takes part, from the first on, in bytes."""
        _, turn, count = WAYS["lane" if way == "lane1" else way]
        return [lane * turn % LANES * self.statements[number].size for lane in range(count)]

    def outcome(self, number: int, way: str, place: str, instrument: str) -> str | tuple[np.ndarray, np.ndarray]:
        """The fault's words, or results of the lanes and [rank, byte] of the memory."""
        s = self.statements[number]
        uniform, turn, count = (True, 0, 1) if way == "lane1" else WAYS[way]
        rank, offset = PLACES[place]
        address = rank << RANK_SHIFT | SHARED_BASE + offset
        if s.space != "shared":
            address |= SLOT_SHARED << SLOT_SHIFT
        out = np.zeros((2, LANES * RESULT + WINDOW), np.uint8)
        args = [out, np.full(LANES * 16, PATTERN, np.uint8), address, 2 * number + (not uniform), s.size, turn, count]
        try:
            watch = [(0, (0, 0))] if instrument == "watched" else ()
            self.kernel.launch(2, LANES, args, timeout=600, threads=1, watch=watch, sanitize=instrument == "sanitized")
        except ExecutionFault as error:
            return error.message.partition(" (")[0]
        return out[RANK, : LANES * RESULT], out[:, LANES * RESULT :]
