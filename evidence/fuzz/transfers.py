"""Random tensor maps, addresses, sizes and mbarriers for everything that copies behind a kernel's back: copies of tensors, bulk
copies and reductions, st.async, mbarriers, clusters, tensormap.replace. Each process may die, and has pages that trap around
every buffer of a launch.

    python -m evidence.fuzz.transfers --modules 2000 --launches 50000 --seed 1
    python -m evidence.fuzz.transfers --seed 1 --case 4711      # one module again: its text, and what becomes of its launches

A module is a few statements on registers; it is launched LAUNCHES times, each with other maps, numbers, grid, cluster and seed,
one module in four with the sanitizer. Options and output are those of driver.py.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evidence.fuzz import driver
from mmulator.matrix.layouts.tensormap import fields
from mmulator.ptx.program.addresses import FIRST_GLOBAL_SLOT, RANK_SHIFT, SHARED_BASE, SLOT_SHIFT
from mmulator.runtime.launch.arena import EDGES as PAGES
from mmulator.runtime.launch.arena import GUARD
from tests.support.tensor_map_fields import at_edges, at_random, bases, legal, put

LAUNCHES = 25  # of a module
SANITIZED = 4  # one module in so many
TIME = 1.0  # seconds of a launch, and ...
LATE = 20.0  # ... those after which it has not kept to them, on a busy machine
BATCH = 8  # modules
HANG = 120.0  # seconds of a module: of the first, which makes the object code of the sanitizer, too
SIZE, BESIDE = 65536, 128  # bytes of the tensor, and of what lies around it
WORD = (1 << 64) - 1

# Statements ----------------------------------------------------------------------------------------------------------
# $s a shared address, $g a global one, $b an mbarrier's, $z a number of bytes, $d and $r any numbers, $q a map, $c coordinates
# ($c5: five), $h offsets, $m the mask of a multicast, $n the rank that the module is about; <a|b> one of these.
_FULL = "mbarrier::complete_tx::bytes"
OF_TILES: tuple[tuple[int, str], ...] = (
    (8, f"cp.async.bulk.tensor.$nd.shared::<cluster|cta>.global.tile.{_FULL} [$s], [$q, $c], [$b];"),
    (3, f"cp.async.bulk.tensor.$nd.shared::cluster.global.tile.{_FULL}.multicast::cluster [$s], [$q, $c], [$b], $m;"),
    (6, "cp.async.bulk.tensor.$nd.global.shared::cta.tile.bulk_group [$q, $c], [$s];"),
    (4, "cp.reduce.async.bulk.tensor.$nd.global.shared::cta.<add|min|max|inc|dec|and|or|xor>.tile.bulk_group [$q, $c], [$s];"),
    (1, "cp.async.bulk.prefetch.tensor.$nd.L2.global.tile [$q, $c];"),
)
OF_COLUMNS: tuple[tuple[int, str], ...] = (
    (8, f"cp.async.bulk.tensor.$nd.shared::cluster.global.im2col.{_FULL}<|.multicast::cluster> [$s], [$q, $c], [$b], $h<|, $m>;"),
    (8, f"cp.async.bulk.tensor.$nd.shared::cluster.global.im2col.{_FULL} [$s], [$q, $c], [$b], $h;"),
    (6, "cp.async.bulk.tensor.$nd.global.shared::cta.im2col_no_offs.bulk_group [$q, $c], [$s];"),
    (4, "cp.reduce.async.bulk.tensor.$nd.global.shared::cta.<add|min|max|and|or|xor>.im2col_no_offs.bulk_group [$q, $c], [$s];"),
)
STATEMENTS: tuple[tuple[int, str], ...] = (
    *((1, f"tensormap.replace.tile.{field}.<global|shared::cta>.b1024.{kind} [$q], {number}<$d|$r>;".replace(
        "<$d|$r>", "$d" if kind == "b64" else "$r"))
      for field, kind, number in (("global_address", "b64", ""), ("rank", "b32", ""), ("box_dim", "b32", "<0|1|4>, "),
                                  ("global_dim", "b32", "<0|1|4>, "), ("global_stride", "b64", "<0|1|3>, "),
                                  ("element_stride", "b32", "<0|1|4>, "))),
    (1, "tensormap.replace.tile.<elemtype|interleave_layout|swizzle_mode|fill_mode>.global.b1024.b32 [$q], <0|1>;"),
    (1, "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%q1], [%qs], 128;"),
    (1, "fence.proxy.tensormap::generic.acquire.gpu [%q1], 128;"),
    (3, f"cp.async.bulk.shared::<cluster|cta>.global.{_FULL} [$s], [$g], $z, [$b];"),
    (2, f"cp.async.bulk.shared::cluster.global.{_FULL}.multicast::cluster [$s], [$g], $z, [$b], $m;"),
    (2, f"cp.async.bulk.shared::cluster.shared::cta.{_FULL} [$s], [$s], $z, [$b];"),
    (3, "cp.async.bulk.global.shared::cta.bulk_group [$g], [$s], $z;"),
    (2, "cp.reduce.async.bulk.global.shared::cta.bulk_group."
        "<add.u32|min.s64|max.u64|xor.b64|add.f32|add.f64|add.noftz.f16|inc.u32> [$g], [$s], $z;"),
    (2, f"cp.reduce.async.bulk.shared::cluster.shared::cta.{_FULL}.<add.u32|and.b32|inc.u32|add.u64> [$s], [$s], $z, [$b];"),
    (1, "cp.async.bulk.prefetch.L2.global [$g], $z;"),
    (2, "cp.async.bulk.commit_group;"),
    (2, "cp.async.bulk.wait_group<|.read> <0|1|2>;"),
    (2, f"st.async.shared::cluster.{_FULL}.<b64 [$s], $d|v4.b32 [$s], {{%r1, %r2, %r3, %r4}}>, [$b];"),
    (2, f"red.async.relaxed.cluster.shared::cluster.{_FULL}.add.u32 [$s], $r, [$b];"),
    (1, "mbarrier.init.shared.b64 [$b], <$r|1|7|32>;"),
    (1, "mbarrier.inval.shared.b64 [$b];"),
    (2, "mbarrier.arrive.expect_tx.shared.b64 _, [$b], $z;"),
    (1, "mbarrier.<arrive|arrive_drop>.shared.b64 %d0, [$b];"),
    (1, "mbarrier.arrive.shared.b64 %d0, [$b], $r;"),
    (1, "mbarrier.arrive.noComplete.shared.b64 %d0, [$b], <1|2|5>;"),
    (1, "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [$b], <1|2|5>;"),
    (1, "mbarrier.<expect_tx|complete_tx>.relaxed.cluster.shared::cluster.b64 [$b], $z;"),
    (1, "mbarrier.test_wait.shared.b64 %p1, [$b], %d0;"),
    (1, "mbarrier.try_wait.parity.shared.b64 %p1, [$b], <0|1>;"),
    (1, "cp.async.mbarrier.arrive<|.noinc>.shared.b64 [$b];"),
    (1, "cp.async.ca.shared.global [$s], [$g], 16, $z;"),
    (1, "mapa.shared::cluster.u32 $s, $s, $r;"),
    (1, "mapa.u64 $g, $g, $r;"),
    (1, "<ld.shared::cluster.v4.u32 {%r1, %r2, %r3, %r4}, [$s]|st.shared::cluster.v2.u64 [$s], {%d1, %d2}>;"),
    (1, "<atom.shared::cluster.add.u32 %r5, [$s], $r|ld.v2.u64 {%d1, %d2}, [$g]|st.v4.u32 [$g], {%r1, %r2, %r3, %r4}>;"),
    (1, "barrier.cluster.arrive;"),
    (2, "barrier.cluster.arrive; barrier.cluster.wait;"),
    (1, "fence.proxy.async;"),
    (1, "bar.sync 0;"),
    (1, "exit;"),
)  # fmt: skip
TILES_OF_SM_100: tuple[tuple[int, str], ...] = (
    (3, f"cp.async.bulk.tensor.$nd.shared::cluster.global.tile.{_FULL}.cta_group::<1|2> [$s], [$q, $c], [$b];"),
    (3, f"cp.async.bulk.tensor.$nd.shared::cluster.global.tile.{_FULL}.multicast::cluster.cta_group::<1|2> "
        "[$s], [$q, $c], [$b], $m;"),
)  # fmt: skip
ROWS_OF_SM_100: tuple[tuple[int, str], ...] = (
    (8, f"cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.{_FULL} [$s], [$q, $c5], [$b];"),
    (8, "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [$q, $c5], [$s];"),
)
COLUMNS_OF_SM_100: tuple[tuple[int, str], ...] = (
    (12, f"cp.async.bulk.tensor.$nd.shared::cluster.global.im2col::w<|::128>.{_FULL} [$s], [$q, $c], [$b], $h2;"),
)
OF_SM_100: tuple[tuple[int, str], ...] = (
    (1, "st.bulk.weak.shared::cta [$s], $d, 0;"),
    (2, f"clusterlaunchcontrol.try_cancel.async.shared::cta.{_FULL}<|.multicast::cluster::all>.b128 [$s], [$b];"),
)
# Banks of registers: type, how many, where their values begin among those of the launch
BANKS = {"d": ("b64", 8, 0), "g": ("b64", 6, 8), "r": ("b32", 8, 16), "s": ("b32", 8, 24), "b": ("b32", 4, 32),
         "z": ("b32", 6, 36), "c": ("b32", 5, 42), "h": ("b16", 4, 48)}  # fmt: skip
VALUES = 52
OF_THIS_BLOCK = {"s": 7, "b": 3}  # so many of a bank are addresses of this block, the others as they are
FRAME = """.version 8.8
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 window[];
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 tensor, .param .u64 values, .param .u64 maps)
{{
.shared .align 1024 .b8 fixed[2048];
{banks}
.reg .b64 %v, %q<3>; .reg .b32 %qs, %t, %base; .reg .pred %p<4>;
ld.param.u64 %v, [values]; mov.b64 %q0, map; cvta.param.u64 %q0, %q0; ld.param.u64 %q1, [maps]; add.u64 %q2, %q1, 128;
mov.u32 %qs, fixed; mov.u32 %t, %tid.x; setp.eq.u32 %p2, %t, 0; and.b32 %t, %t, 3; setp.eq.u32 %p3, %t, 0; setp.ne.u32 %p1, 0, 0;
and.b32 %base, %qs, 0xFF000000; add.u32 %qs, %qs, 128;
{loads}
{body}
ret;
}}
"""
BEGIN = ("@%p2 mbarrier.init.shared.b64 [%b0], 1; @%p2 mbarrier.init.shared.b64 [%b1], 2; fence.proxy.async; bar.sync 0; "
         "barrier.cluster.arrive; barrier.cluster.wait;")  # fmt: skip
END = ("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;", "barrier.cluster.arrive; barrier.cluster.wait;",
       "W: mbarrier.try_wait.parity.shared.b64 %p1, [%b0], 0; @!%p1 bra W;")  # fmt: skip
_ALONE = re.compile(r"aligned|barrier\.cluster|\$s, \$s, \$r|^bar\.")  # what all threads do


def _filled(rng: random.Random, text: str, rank: int) -> str:
    """A statement with registers in the place of names."""

    def register(found: re.Match[str]) -> str:
        bank, given = found[1], found[2]
        if bank in "ch":
            count = int(given) if given else rank if bank == "c" else rank - 2
            return "{" + ", ".join(f"%{bank}{n}" for n in range(count)) + "}"
        return "%h3" if bank == "m" else f"%q{rng.randrange(3)}" if bank == "q" else f"%{bank}{rng.randrange(BANKS[bank][1])}"

    chosen = re.sub(r"<([^<>]*)>", lambda found: rng.choice(found[1].split("|")), text).replace("$n", str(rank))
    if "shared::cta.b1024" in chosen:
        chosen = chosen.replace("[$q]", "[%qs]")
    return re.sub(r"\$([a-z])(\d?)", register, chosen)


def kind(rng: random.Random) -> tuple[bool, int, bool]:
    """The kind of a module: whether it is for sm_100a, and the rank and mode (im2col) of the maps that it uses."""
    newer = rng.random() < 0.4
    rank = rng.choice((1, 2, 2, 3, 4, 5))
    return newer, rank, rank >= 3 and rng.random() < 0.5


def text(rng: random.Random) -> str:
    """A module of up to eight statements, most of them of one thread."""
    newer, rank, im2col = kind(rng)
    choice = STATEMENTS + (OF_COLUMNS if im2col else OF_TILES)
    if newer:
        choice += OF_SM_100 + (COLUMNS_OF_SM_100 if im2col else TILES_OF_SM_100 + ROWS_OF_SM_100 * (rank == 2))
    weights, statements = zip(*choice, strict=True)
    body = []
    if rng.random() < 0.9:
        body.append(BEGIN)
    if rng.random() < 0.6:
        body.append("@%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%b0], %z0;")
    for one in rng.choices(statements, weights, k=rng.randrange(1, 7)):
        guard = "" if _ALONE.search(one) else rng.choice(("@%p2 ", "@%p2 ", "@%p2 ", "@%p2 ", "@%p3 ", ""))
        body.append(guard + _filled(rng, one, rank))
    body += [one for one in END if rng.random() < 0.4]
    lines = "\n".join(body)
    used = set(re.findall(r"%[a-z]\d", lines))
    loads = []
    for bank, (type, count, first) in BANKS.items():
        for n in range(count):
            if f"%{bank}{n}" in used:
                loads.append(f"ld.global.{type} %{bank}{n}, [%v+{8 * (first + n)}];")
                if n < OF_THIS_BLOCK.get(bank, 0):
                    loads.append(f"or.b32 %{bank}{n}, %{bank}{n}, %base;")
    banks = " ".join(f".reg .{type} %{bank}<{count}>;" for bank, (type, count, _) in BANKS.items())
    return FRAME.format(target="sm_100a" if newer else "sm_90a", banks=banks, loads="\n".join(loads), body=lines)


# Numbers of a launch ---------------------------------------------------------------------------------------------------
EDGES = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 64, 127, 128, 255, 256, 1024, 4096, 65535, 65536, (1 << 20) - 1, 1 << 20,
         0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFF, 1 << 32, 1 << 36, 1 << 40, WORD)  # fmt: skip
STEPS = (-1, -16, 8, 64, 0x7FFFFFFF, -0x80000000)
NO_RANKS = (0, 0, 1, 2, 7, 16, 31, 32, 33, 255)


@dataclass(frozen=True)
class Numbers:
    """The numbers that a launch is given. wild: how likely a number is one that a program has by mistake."""

    rng: random.Random
    wild: float

    def map(self, rank: int, im2col: bool, tensor: int) -> list[int]:
        """A map for an instruction, of a tensor that begins near an address."""
        rng = self.rng
        if rng.random() < 0.1 * self.wild:
            return at_random(rng)
        words = [*rng.choice(legal(rank, im2col) if rng.random() > 0.1 * self.wild else [w for _, _, w in bases()])]
        if rng.random() < self.wild:
            put(words, fields.SWIZZLE, rng.randrange(8))
        if im2col:
            put(words, fields.PIXELS, rng.choice((0, 7, 31, 127, 1023)))
            words[14] = rng.choice((0, 0, self.one((0,), [rng.getrandbits(32)])))
        else:
            for field in fields.BOX_DIM[1:]:
                put(words, field, rng.choice((0, 1, 3, 7)))
        for field in fields.ELEMENT_STRIDE:
            put(words, field, rng.choice((0, 0, 0, 1, 7)))
        if rng.random() < self.wild:
            words = at_edges(rng, words, rng.choice((1, 1, 2, 3)))
        away = (0, 0, 0, 16, 64, 4096) if rng.random() > self.wild else (-16, SIZE - 64, SIZE, 1 << SLOT_SHIFT, 1 << 40)
        if rng.random() > 0.1 * self.wild:
            fields.GLOBAL_ADDRESS.put(words, tensor + rng.choice(away))
        if rng.random() < 0.3 * self.wild:
            words[rng.randrange(16)] ^= 1 << rng.randrange(32)
        return words

    def shared(self) -> int:
        """An address of the shared window: in the window of the launch, mostly at a line, or anywhere near its ends."""
        rng = self.rng
        if rng.random() > self.wild:
            return SHARED_BASE + 2048 + rng.choice((128, 1024)) * rng.randrange(4)
        ends = (0, 16, SHARED_BASE, SHARED_BASE + rng.randrange(70000), 233472, (1 << RANK_SHIFT) - 1, rng.getrandbits(24))
        return rng.choice(NO_RANKS) << RANK_SHIFT | rng.choice(ends)

    def memory(self, tensor: int) -> int:
        """An address of global memory: of the tensor, mostly at a granule, or of anything else."""
        rng = self.rng
        if rng.random() > self.wild:
            return tensor + 16 * rng.randrange(1024)
        return (tensor + rng.choice((*EDGES, -1, -16, SIZE - 16, SIZE, SIZE - rng.randrange(300)))) & WORD

    def any(self) -> int:
        return self.rng.choice(EDGES)

    def one(self, tame: Sequence[int], wild: Sequence[int] = EDGES) -> int:
        return self.rng.choice(wild if self.rng.random() < self.wild else tame)

    def values(self, tensor: int) -> list[int]:
        """Values of all registers, in the order of BANKS."""
        return [
            value & WORD
            for value in (
                *(self.any() if self.rng.random() < 0.7 else self.memory(tensor) for _ in range(8)),
                *(self.memory(tensor) for _ in range(6)), 0, 0,
                *(self.any() for _ in range(8)),
                *(self.shared() for _ in range(8)),
                *(self.one([SHARED_BASE + 8 * (n & 1)], [self.shared()]) for n in range(4)),
                *(self.one((16, 64, 512, 1024, 4096)) for _ in range(6)),
                self.one((0, 0, 0, 16, 32), STEPS), *(self.one((0, 1, 2), STEPS) for _ in range(4)), 0,
                *(self.one((0, 0, 1, 3), (15, 511, 0x7FFF, 0xFFFF)) for _ in range(3)),
                self.one((1, 1, 3), (0, 2, 5, 0xFF, 0xFFFF, 0x8000)),
            )
        ]  # fmt: skip


# A case ----------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    """rank, im2col: of the maps."""

    seed: int
    number: int
    text: str
    rank: int
    im2col: bool


def case(seed: int, number: int) -> Case:
    _, rank, im2col = kind(random.Random(f"{seed}.{number}"))
    return Case(seed, number, text(random.Random(f"{seed}.{number}")), rank, im2col)


CLUSTERS = ((None, 2), (None, 3), (1, 2), (2, 4), (4, 4), (8, 8), ((2, 2, 1), (2, 2, 1)))  # and grids
TENSOR = FIRST_GLOBAL_SLOT << SLOT_SHIFT  # the address of the first array


def outcomes(one: Case) -> Iterator[str]:
    """The outcomes of a module and its launches. Raises what is not of the family, and what a launch must not do."""
    import numpy as np

    from mmulator.errors import ExecutionFault, LaunchError, MmulatorError, UnsupportedError
    from mmulator.host.module import Module

    try:
        kernel = Module.load(one.text)["k"]
    except MmulatorError as error:
        str(error)
        yield "refused"
        return
    yield "loaded"
    sanitize = one.number % SANITIZED == 0
    for launch in range(LAUNCHES):
        rng = random.Random(f"{one.seed}.{one.number}.{launch}")
        numbers = Numbers(rng, rng.choice((0, 0, 0.02, 0.1, 0.3, 1)))
        map, *more = (np.array(numbers.map(one.rank, one.im2col, TENSOR), np.uint32) for _ in range(3))
        values = np.array(numbers.values(TENSOR), np.uint64)
        memory = np.full(SIZE + 2 * BESIDE, 0xA5, np.uint8)
        cluster, grid = rng.choice(CLUSTERS)
        block, shared = rng.choice((1, 32, 33, 64)), rng.choice((0, 4096, 16384, 65536, 65536))
        options = {"seed": rng.randrange(4), "threads": rng.choice((1, 2)), "cluster": cluster, "sanitize": sanitize}
        args = [map.tobytes(), memory[BESIDE:-BESIDE], values, np.concatenate(more)]
        began = time.monotonic()
        try:
            kernel.launch(grid, block, args, shared, timeout=TIME, **options)
            yield from ("launched", "finished")
        except ExecutionFault as error:
            yield from ("launched", "time limit" if "did not finish" in str(error) else "fault")
        except (LaunchError, UnsupportedError) as error:
            str(error)
            yield "not launched"
        took = time.monotonic() - began
        if took > LATE:
            raise AssertionError(f"launch {launch} took {took:.1f} s, and its time limit is {TIME} s")
        if not (memory[:BESIDE] == 0xA5).all() or not (memory[-BESIDE:] == 0xA5).all():
            raise AssertionError(f"launch {launch} has written beside the tensor")


FUZZ = driver.Fuzz(
    "evidence.fuzz.transfers", case, lambda one: one.text, lambda one: f"module {one.number} of seed {one.seed}", outcomes,
    lambda number: {GUARD: PAGES[number % len(PAGES)]}, BATCH, HANG,
)  # fmt: skip

if __name__ == "__main__":
    driver.main(FUZZ, __doc__, launches=1_000, modules=100)
