"""Random tcgen05 instructions with random descriptors, addresses in tensor memory and allocations, in CTAs, pairs and clusters.
Each process may die, and has pages that trap around every buffer of a launch.

    python -m evidence.fuzz.tensor --modules 2000 --launches 20000 --seed 1
    python -m evidence.fuzz.tensor --seed 1 --case 4711      # one module again: its text, and what becomes of its launches

A module allocates, executes a few instructions, commits, waits and deallocates, as a program does. It is launched LAUNCHES
times with other numbers; in more than half of the launches all of them are such as a program means, so that it finishes. One
launch in four is repeated under the sanitizer and with a profile: the same outcome and the same bytes are left. Options and
output are those of driver.py.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from evidence.fuzz import driver
from mmulator.errors import OperandError
from mmulator.isa.form import Form
from mmulator.isa.targets import PTX_VERSIONS, Target
from mmulator.isa.tcgen05 import ROWS
from mmulator.matrix.layouts.instruction_descriptor import Variant, encode
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.runtime.launch.arena import EDGES as PAGES
from mmulator.runtime.launch.arena import GUARD
from tests.support import row_forms, tensor_cases

LAUNCHES = 8  # of a module
AGAIN = 4  # one launch in so many runs in all MODES
TIME = 2.0  # seconds of a launch
LATE = 40.0  # processor seconds after which it has not kept to them
BATCH = 4  # modules
HANG = 240.0  # seconds of a module: of the first, which makes the object code of the sanitizer, too
COLUMNS = 256  # that a module allocates
WINDOW = 128 << 10  # bytes of shared memory
BESIDE = 128  # bytes around the array that is stored to
THREADS = 128
NAMED = ("finished", "time limit", "not launched")  # ends; any other is the text of a fault
MODES: tuple[dict[str, Any], ...] = ({}, {"sanitize": True}, {"profile": True})
WEIGHTS = {"mma": 8, "ld": 6, "st": 5, "cp": 4, "commit": 2, "shift": 1, "alloc": 1, "dealloc": 0, "relinquish_alloc_permit": 0}
FRAME = """.version {version}
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 window[];
.visible .entry k(.param .u64 values, .param .u64 out)
{{
.shared .align 8 .b64 bars[2]; .shared .b32 cells[2];
.reg .b64 %v, %o, %s<8>; .reg .b32 %t, %w, %n, %base, %quarter, %x<8>, %y<4>, %i<8>, %b<3>, %c<2>, %red, %r<128>; .reg .b16 %h;
.reg .pred %p, %q, %first, %lead;
ld.param.u64 %v, [values]; ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; shr.u32 %w, %t, 5;
mad.wide.u32 %o, %t, 4, %o; mov.u32 %b0, bars; add.u32 %b1, %b0, 8; mov.u32 %c0, cells; add.u32 %c1, %c0, 4;
setp.eq.u32 %first, %w, 0; setp.eq.u32 %lead, %t, 0; mov.u32 %n, %cluster_ctarank; and.b32 %n, %n, {group} - 1;
setp.eq.and.u32 %lead, %n, 0, %lead; setp.eq.u32 %p, %t, 0;
@%p mbarrier.init.shared.b64 [%b0], 100000; @%p mbarrier.init.shared.b64 [%b1], 1;
@!%first bra ALLOCATED;
tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%c0], {columns};
ALLOCATED: fence.proxy.async; fence.mbarrier_init.release.cluster;
tcgen05.fence::before_thread_sync; {meet} tcgen05.fence::after_thread_sync;
ld.shared.u32 %base, [%c0]; shl.b32 %quarter, %w, 21; add.u32 %quarter, %quarter, %base;
{loads}
{body}
tcgen05.wait::st.sync.aligned; tcgen05.wait::ld.sync.aligned; tcgen05.fence::before_thread_sync; {meet}
@%lead tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster.b64 [%b1];
@!%lead bra DONE;
WAIT: mbarrier.try_wait.parity.shared.b64 %p, [%b1], 0; @!%p bra WAIT;
DONE: tcgen05.fence::before_thread_sync; {meet} tcgen05.fence::after_thread_sync;
@!%first bra OVER;
{relinquish}tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %base, {columns};
OVER: st.global.u32 [%o], %r0;
ret;
}}
"""
# Registers whose values a launch gives: bank, type, how many. s: descriptors of matrices; x: addresses in tensor memory of D, A,
# metadata, scale factors and what is copied; y: columns of ld and st; i: instruction descriptors; b2: an mbarrier
VALUES = (("s", "u64", 8), ("x", "u32", 8), ("y", "u32", 4), ("i", "u32", 8), ("b2", "u32", 1), ("h", "u16", 1))
D_AT, A_AT, METADATA, SCALE_A, SCALE_B, COPIED = range(6)  # of x
PLACES = (0, 128, 160, 176, 192, 208)  # their columns; a product has 128 at most


@cache
def _forms(target: str, group: int) -> dict[str, list[Form]]:
    """The forms of a target, by the part of their names that WEIGHTS has."""
    found: dict[str, list[Form]] = {}
    for row in ROWS:
        for _, form in row_forms.forms(row, 60):
            other = f"cta_group::{3 - group}"
            if form.status.runs and form.requires.admits(Target.parse(target)) and other not in form.mnemonic:
                found.setdefault(form.mnemonic.split(".")[1], []).append(form)
    return found


@dataclass(frozen=True)
class Case:
    """forms: those of the instruction descriptors, by number."""

    seed: int
    number: int
    group: int
    text: str
    forms: tuple[Form, ...]


def case(seed: int, number: int) -> Case:
    rng = random.Random(f"{seed}.{number}")
    group, target = rng.choice((1, 1, 2)), rng.choice(("sm_100a", "sm_100a", "sm_103a"))
    known = _forms(target, group)
    names = [name for name in WEIGHTS if name in known]
    forms: list[Form] = []
    body: list[str] = []
    for at, name in enumerate(rng.choices(names, [WEIGHTS[n] for n in names], k=rng.randrange(1, 7))):
        form = rng.choice(known[name])
        if name == "alloc":
            body.append(
                f"@!%first bra N{at}; {form.mnemonic} [%c1], 64; ld.shared.u32 %n, [%c1]; "
                f"tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %n, 64; N{at}:"
            )
            continue
        if name == "mma":
            forms.append(form)
        shown = [_operand(rng, spec, form, len(forms) - 1) for spec in form.operands if not spec.optional or rng.random() < 0.4]
        alone = "" if "aligned" in form.mnemonic else "@%lead "
        if rng.random() < 0.03:
            alone = rng.choice(("", "@%first ", "@%q "))
        body.append(f"{alone}{form.mnemonic} {', '.join(shown)};")
        if name in ("ld", "st") and rng.random() < 0.7:
            body.append(f"tcgen05.wait::{name}.sync.aligned;")
        if rng.random() < 0.1:
            body.append(rng.choice(("bar.sync 0;", "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;")))
    lines = "\n".join(body)
    loads, first = [], 0
    for bank, type, count in VALUES:
        for n in range(count):
            register = f"%{bank}{n}" if count > 1 else f"%{bank}"
            if re.search(rf"{register}\b", lines):
                loads.append(f"ld.global.{type} {register}, [%v+{8 * first}];")
                if bank in "xy":
                    loads.append(f"add.u32 {register}, {register}, {'%base' if bank == 'x' else '%quarter'};")
            first += 1
    meet = "barrier.cluster.arrive; barrier.cluster.wait;" if group == 2 else "bar.sync 0;"
    relinquish = f"tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned; " if rng.random() < 0.5 else ""
    version = "{}.{}".format(*PTX_VERSIONS[-1])
    text = FRAME.format(
        version=version, target=target, group=group, columns=COLUMNS, meet=meet, loads="\n".join(loads), body=lines,
        relinquish=relinquish,
    )  # fmt: skip
    return Case(seed, number, group, text, tuple(forms))


def _operand(rng: random.Random, spec: Any, form: Form, product: int) -> str:
    """An operand of a form. product: the number of its instruction descriptor."""
    match spec.name:
        case "r":
            return "{" + ", ".join(f"%r{n}" for n in range(spec.count)) + "}"
        case "redval":
            return "%red"
        case "taddr":
            return f"[%y{rng.randrange(4)}]" if ".ld" in form.mnemonic or ".st" in form.mnemonic else f"[%x{COPIED}]"
        case "mbar":
            return rng.choice(("[%b0]", "[%b0]", "[%b2]"))
        case "ctaMask":
            return "%h"
        case "d":
            return f"[%x{D_AT}]"
        case "a":
            return f"[%x{A_AT}]"
        case "sp-meta":
            return f"[%x{METADATA}]"
        case "scale-a" | "scale-b":
            return f"[%x{SCALE_A if spec.name == 'scale-a' else SCALE_B}]"
        case "idesc":
            return f"%i{product}"
        case "enable-input-d":
            return rng.choice(("%lead", "%q"))
        case "immHalfSplitoff":
            return str(rng.choice((0, 16, 64, 128)))
        case "disable-output-lane":
            return "{" + ", ".join(f"%r{n}" for n in range(spec.count)) + "}"
        case "zero-column-mask":
            return "%s7"
        case "a-desc" if rng.random() < 0.3:
            return f"[%x{A_AT}]"
        case "a-desc" | "b-desc" | "s-desc":
            return f"%s{rng.randrange(4)}"
        case _:
            return str(rng.choice((0, 1, 2, 15)))  # scale-input-d


# Numbers of a launch ---------------------------------------------------------------------------------------------------
ADDRESSES = (1, 31, 255, 256, 480, 511, 512, 0xFFFF, 0x10000, 0x1F0000, 0x200000, 0x600000, 0x7F01FF, 0x800000, 0xFFFFFFFF)


def values(rng: random.Random, wild: float, one: Case) -> list[int]:
    """Values of all registers, in the order of VALUES. wild: how likely a number is one that a program has by mistake."""

    def tame() -> bool:
        return rng.random() >= wild

    start = (SHARED_BASE & 0x3FFFF) + 1024
    def matrix() -> int:
        if not tame():
            word = rng.getrandbits(64)
            return rng.choice((word, word & ~(7 << 46) | 1 << 46))
        first = start + rng.choice((0, 1024, 4096)) >> 4
        return first | rng.choice((1, 8, 16)) << 16 | rng.choice((8, 16, 64)) << 32 | 1 << 46 | rng.choice((0, 0, 2, 4, 6)) << 61

    columns = [
        at if tame() else rng.choice((*ADDRESSES, rng.randrange(512), rng.randrange(128) << 16 | at))
        for at in (*PLACES, *PLACES[:2])
    ]
    moved = [rng.choice((0, 32, 64)) if tame() else rng.choice(ADDRESSES) for _ in range(4)]
    words = [_word(rng, form) if tame() else rng.getrandbits(32) for form in one.forms]
    words += [0] * (8 - len(words))
    barrier = SHARED_BASE if tame() else rng.choice((0, 8, 1 << RANK_SHIFT, SHARED_BASE + 4, rng.getrandbits(32)))
    zeros, mask = (0, 1) if tame() else (rng.getrandbits(64), rng.getrandbits(16))
    return [*(matrix() for _ in range(7)), zeros, *columns, *moved, *words, barrier, mask]


def _word(rng: random.Random, form: Form) -> int:
    """An instruction descriptor that a form takes, and whose product has 128 columns at most."""
    variant = Variant.of_form(form)
    given = {"kind": variant.kind, "pair": variant.pair, "ws": variant.ws, "sparse": variant.sparse}
    draws = np.random.default_rng(rng.getrandbits(32))
    while True:
        d = tensor_cases.draw(draws, **given)
        with suppress(OperandError):
            if d.n <= 128:
                variant.decode(encode(d))
                return encode(d)


# A case ----------------------------------------------------------------------------------------------------------------
SHAPES = {1: ((1, None), (2, 2), (2, None), (4, 4)), 2: ((2, 2), (4, 2), (4, 4))}  # grid, cluster


def outcomes(one: Case) -> Iterator[str]:
    """The outcomes of a module and its launches. Raises what is not of the family, and what a launch must not do."""
    from mmulator.errors import MmulatorError
    from mmulator.host.module import Module

    try:
        kernel = Module.load(one.text)["k"]
    except MmulatorError as error:
        str(error)
        yield "refused"
        return
    yield "loaded"
    for launch in range(LAUNCHES):
        rng = random.Random(f"{one.seed}.{one.number}.{launch}")
        given = np.array(values(rng, rng.choice((0, 0, 0, 0, 0.02, 0.2)), one), np.uint64)
        grid, cluster = rng.choice(SHAPES[one.group])
        block = THREADS if rng.random() < 0.95 else rng.choice((1, 32, 33, 256))
        shared = WINDOW if rng.random() < 0.95 else 4096
        again = launch % AGAIN == 0
        threads = 1 if again else rng.choice((1, 2))  # which block fails first is chance with two
        options = {"seed": rng.randrange(4), "threads": threads, "cluster": cluster, "timeout": TIME}
        ends: list[tuple[str, bytes]] = []
        for mode in MODES if again else MODES[:1]:
            ends.append(_ended(kernel, grid, block, given, shared, {**options, **mode}))
            end = ends[-1][0] if ends[-1][0] in NAMED else "fault"
            yield from (end,) if end == "not launched" else ("launched", end)
        ran = [end for end in ends if end[0] not in NAMED[1:]]
        if len({end for end, _ in ran}) > 1 or (ran and ran[0][0] == "finished" and len({left for _, left in ran}) > 1):
            raise AssertionError(f"launch {launch} depends on the mode: " + "; ".join(end for end, _ in ends))


def _ended(kernel: Any, grid: int, block: int, given: Any, shared: int, options: dict[str, Any]) -> tuple[str, bytes]:
    """How a launch ended, and the bytes that it left. Raises AssertionError for a late end, and bytes beside the array."""
    from mmulator.errors import ExecutionFault, MmulatorError

    memory = np.full(256 * 4 + 2 * BESIDE, 0xA5, np.uint8)
    began = time.process_time()
    try:
        kernel.launch(grid, block, [given.copy(), memory[BESIDE:-BESIDE]], shared, **options)
        end = "finished"
    except ExecutionFault as error:
        end = "time limit" if "did not finish" in str(error) else str(error).splitlines()[0]
    except MmulatorError as error:
        str(error)
        end = "not launched"
    took = time.process_time() - began
    if took > LATE:
        raise AssertionError(f"a launch took {took:.1f} s, and its time limit is {TIME} s")
    if not (memory[:BESIDE] == 0xA5).all() or not (memory[-BESIDE:] == 0xA5).all():
        raise AssertionError("a launch has written beside the array")
    return end, memory.tobytes()


FUZZ = driver.Fuzz(
    "evidence.fuzz.tensor", case, lambda one: one.text, lambda one: f"module {one.number} of seed {one.seed}", outcomes,
    lambda number: {GUARD: PAGES[number % len(PAGES)]}, BATCH, HANG,
)  # fmt: skip

if __name__ == "__main__":
    driver.main(FUZZ, __doc__, launches=1_000, modules=100)
