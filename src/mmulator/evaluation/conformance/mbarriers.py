"""Sequences of mbarrier operations from a seed, a kernel that runs them on any backend, and the results of each.

A block has a program: operations of some lanes of its warp, one after the other, at one mbarrier, all of them legal. Compared
    are
the results of the operations (of a state the upper half: a chip leaves the lower one undefined), and the mbarrier's word after
mbarrier.inval has brought it to memory, where a load finds it. (Before, a chip keeps it elsewhere.) Programs have random
lengths,
so the last word is compared after every kind of operation.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.evaluation.conformance.kernels import run_kernel
from mmulator.host.backend import Backend
from mmulator.matrix.numerics.mbarrier import MOST, PENDING, Mbarrier, pending_count
from mmulator.runtime.launch.arguments import Arguments
from mmulator.runtime.launch.shape import LaunchShape

Array = NDArray[Any]
LANES = 32
STEPS = 24  # of a program, at most

_ORDERS = (".shared", ".release.cta.shared::cta", ".release.cluster.shared::cta", ".relaxed.cta.shared::cta",
           ".relaxed.cluster.shared::cta")  # fmt: skip
_LOOKS = (".shared", ".acquire.cta.shared::cta", ".acquire.cluster.shared::cta", ".relaxed.cta.shared::cta",
          ".relaxed.cluster.shared::cta")  # fmt: skip
_BOTH = (".relaxed.cta.shared::cta", ".relaxed.cluster.shared::cta")


@dataclass(frozen=True)
class Operation:
    """An operation at an mbarrier.

    text: PTX statement with the names `at` (mbarrier in shared memory), `generic` (its generic address), `n` (a count), `s` (a
        state),
    `d` (the result), `p` (a predicate, stored as the result).
    does: name of the model's function.
    takes: what `n` or `s` is.
    """

    text: str
    does: str
    takes: str = ""


def _arrivals(name: str, does: str) -> Iterator[Operation]:
    for order in _ORDERS:
        yield Operation(f"mbarrier.{name}{order}.b64 d, [at];", does)
        yield Operation(f"mbarrier.{name}{order}.b64 d, [at], n;", does, "arrivals")
        yield Operation(f"mbarrier.{name}.expect_tx{order}.b64 d, [at], n;", does, "bytes")
    yield Operation(f"mbarrier.{name}.b64 d, [generic];", does)
    yield Operation(f"mbarrier.{name}.b64 d, [generic], n;", does, "arrivals")
    yield Operation(f"mbarrier.{name}.shared.b64 _, [at];", f"{does} silently")
    yield Operation(f"mbarrier.{name}.release.cluster.shared::cluster.b64 _, [at], n;", f"{does} silently", "arrivals")
    for space in (".shared.b64 d, [at]", ".release.cta.shared::cta.b64 d, [at]", ".b64 d, [generic]"):
        yield Operation(f"mbarrier.{name}.noComplete{space}, n;", f"{does} staying", "arrivals")


OPERATIONS: tuple[Operation, ...] = (
    *_arrivals("arrive", "arrive"),
    *_arrivals("arrive_drop", "drop"),
    *(Operation(f"mbarrier.expect_tx{q}.b64 [at], n;", "expect", "bytes") for q in _BOTH),
    *(Operation(f"mbarrier.complete_tx{q}.b64 [at], n;", "complete", "bytes") for q in _BOTH),
    *(Operation(f"mbarrier.test_wait{q}.b64 p, [at], s;", "look", "state") for q in _LOOKS),
    *(Operation(f"mbarrier.test_wait.parity{q}.b64 p, [at], n;", "look", "parity") for q in _LOOKS),
    *(Operation(f"mbarrier.try_wait{q}.b64 p, [at], s, 1000;", "look", "state") for q in _LOOKS),
    *(Operation(f"mbarrier.try_wait.parity{q}.b64 p, [at], n, 1000;", "look", "parity") for q in _LOOKS),
    Operation("mbarrier.pending_count.b64 r, s; cvt.u64.u32 d, r;", "count", "state"),
)  # fmt: skip


@dataclass(frozen=True)
class MbarrierStep:
    """An operation of the lanes in `mask`. source: 1 + number of the step whose results are their states, or 0."""

    operation: int
    mask: int
    value: int
    source: int = 0


@dataclass(frozen=True)
class MbarrierProgram:
    """A program and its results.

    count: of mbarrier.init.
    results: of each step, by lane.
    word: the mbarrier's word at the end.
    """

    count: int
    steps: tuple[MbarrierStep, ...]
    results: tuple[dict[int, int], ...]
    word: int


# programs -----------------------------------------------------------------------------------------------------------
_COUNTS = (1, 1, 2, 3, 4, 32, 33, 64, 1000, 65535, 1 << 19, MOST - 1, MOST)


def program(chance: random.Random, lanes: float = 0.2, gpu: bool = True) -> MbarrierProgram:
    """A random program with its results.

    lanes: how many of its operations are executed by several lanes.
    gpu: only operations that no GPU refuses.
    """
    count = chance.choice(_COUNTS)
    b = Mbarrier.init(count)
    steps: list[MbarrierStep] = []
    results: list[dict[int, int]] = []
    heard: dict[int, int] = {}  # steps of this phase and the last whose states may be asked about: in which phase they were
    phase = 0
    for number in range(chance.randint(1, STEPS)):
        step = _step(chance, b, [n for n, p in heard.items() if p >= phase - 1], lanes, gpu)
        if step is None:
            break
        result, after = apply(OPERATIONS[step.operation], step, b, results)
        if after.phase != b.phase:
            phase += 1
        does = OPERATIONS[step.operation].does
        if does in ("arrive", "drop"):
            heard[number] = phase - (after.phase != b.phase)
        b = after
        steps.append(step)
        results.append(result)
    return MbarrierProgram(count, tuple(steps), tuple(results), b.encode())


def _step(chance: random.Random, b: Mbarrier, states: list[int], several: float, gpu: bool) -> MbarrierStep | None:
    for _ in range(200):
        number = chance.randrange(len(OPERATIONS))
        o = OPERATIONS[number]
        mask = chance.getrandbits(LANES) or 1 if chance.random() < several else 1 << chance.randrange(LANES)
        lanes, value, source = mask.bit_count(), 0, 0
        if o.takes == "state":
            if not states:
                continue
            source, mask = 1 + chance.choice(states), 0  # of the lanes that have one
        elif o.takes == "parity":
            value = chance.getrandbits(1)
        elif o.takes == "arrivals":
            value = chance.choice((1, 1, 2, 3, max(1, b.pending // lanes), chance.randint(1, max(1, b.pending))))
        elif o.takes == "bytes":
            value = chance.choice((0, 1, 16, 128, 4096, abs(b.bytes) // lanes, chance.randrange(MOST)))
        arrivals = lanes * (value if o.takes == "arrivals" else 1) if o.does.split()[0] in ("arrive", "drop") else 0
        bytes = lanes * value if o.takes == "bytes" else 0
        signed = bytes if o.does == "complete" else -bytes
        step = MbarrierStep(number, mask, value, source)
        if b.legal(arrivals, signed) and _safe(o, step, b, arrivals, signed, gpu):
            return step
    return None


def _safe(o: Operation, step: MbarrierStep, b: Mbarrier, arrivals: int, bytes: int, gpu: bool) -> bool:
    """Whether the specification allows the step, and no GPU traps on it.

    bytes: bytes that the step brings; negative: bytes that it expects.
    """
    if o.does.startswith("drop") and arrivals >= b.expected:
        return False
    if o.does.endswith("staying") and arrivals == b.pending:
        return False
    if not gpu:
        return True
    if b.pending == 0 and bytes:  # to the phase's end, not beyond
        return 0 < bytes <= b.bytes or 0 < -bytes <= -b.bytes or (bytes < 0 < b.bytes)
    return not step.mask & (step.mask - 1) or _safe_together(o, b, arrivals, bytes)


def _safe_together(o: Operation, b: Mbarrier, arrivals: int, bytes: int) -> bool:
    """Whether lanes may act at an mbarrier with one instruction: what was seen to work on a GPU, which traps on some of the
    rest.
    """
    if b.pending == 0 or arrivals == b.pending:
        return False
    match o.does:
        case "arrive" | "arrive silently":
            return b.bytes >= 0
        case "drop":
            return b.bytes == 0 == bytes
        case "arrive staying":
            return b.bytes == 0
        case "expect":
            return b.bytes >= 0
        case "complete":
            return b.bytes <= 0
    return o.does in ("look", "count")


def apply(o: Operation, step: MbarrierStep, b: Mbarrier, earlier: list[dict[int, int]]) -> tuple[dict[int, int], Mbarrier]:
    """(results by lane, the mbarrier afterwards). Lanes that arrive with one instruction hear what the first of them found."""
    states = earlier[step.source - 1] if step.source else {}
    lanes = sorted(states) if step.source else [n for n in range(LANES) if step.mask >> n & 1]
    does, _, how = o.does.partition(" ")
    out: dict[int, int] = {}
    state = b.state
    for rank, lane in enumerate(lanes):
        if does in ("arrive", "drop"):
            n = step.value if o.takes == "arrivals" else 1
            found = b.state
            state = state if (state ^ found) >> 63 == 0 else found
            out[lane] = state if how != "silently" else 0
            if how == "staying":
                out[lane] = state + (rank * n << PENDING) | step.mask
            b = b.change(n, -step.value if o.takes == "bytes" else 0, n if does == "drop" else 0)
        elif does in ("expect", "complete"):
            b = b.change(0, step.value if does == "complete" else -step.value)
            out[lane] = 0
        elif does == "look":
            out[lane] = int(b.over(states[lane] >> 63 if step.source else step.value))
        else:
            out[lane] = pending_count(states[lane])
    return out, b


def programs(seed: int, count: int, lanes: float = 0.2, gpu: bool = True) -> list[MbarrierProgram]:
    chance = random.Random(f"mbarriers {seed}")
    return [program(chance, lanes, gpu) for _ in range(count)]


# the kernel ---------------------------------------------------------------------------------------------------------
def kernel(target: str = "sm_90a", operations: tuple[Operation, ...] = OPERATIONS, most: int = STEPS) -> str:
    """PTX of a kernel. Parameters: counts (u32 a block), steps (4 x u32, `most` a block), number of steps, results (u64, 32 for
    each
    step), words.
    """
    cases = "\n".join(f"W{n}: {o.text} {_keep(o)} bra DONE;" for n, o in enumerate(operations))
    labels = ", ".join(f"W{n}" for n in range(len(operations)))
    return f""".version 8.6
.target {target}
.address_size 64
.visible .entry sequences(.param .u64 counts, .param .u64 steps, .param .u64 lengths, .param .u64 results, .param .u64 words)
{{
.reg .b32 t, i, n, r, at, op, mask, from, block, length, bit; .reg .b64 generic, d, s, q, out; .reg .pred p, go, mine;
.shared .align 8 .b64 barrier;
mov.u32 t, %tid.x; mov.u32 block, %ctaid.x; mov.u32 at, barrier; cvt.u64.u32 generic, at; cvta.shared.u64 generic, generic;
ld.param.u64 q, [counts]; mad.wide.u32 q, block, 4, q; ld.global.u32 n, [q];
setp.ne.u32 p, t, 0;
@p bra MADE;
mbarrier.init.shared.b64 [at], n;
MADE: bar.sync 0;
ld.param.u64 q, [lengths]; mad.wide.u32 q, block, 4, q; ld.global.u32 length, [q];
mov.u32 i, 0;
STEP: setp.ge.u32 go, i, length;
@go bra END;
mad.lo.u32 r, block, {most}, i;
ld.param.u64 q, [steps]; mad.wide.u32 q, r, 16, q; ld.global.v4.u32 {{op, mask, n, from}}, [q];
ld.param.u64 out, [results]; mad.wide.u32 out, r, 256, out; mad.wide.u32 out, t, 8, out;
mov.u64 s, 0; mov.u64 d, 0;
setp.eq.u32 go, from, 0;
@go bra NONE;
sub.u32 r, i, from; add.u32 r, r, 1; mul.wide.u32 q, r, 256; sub.u64 q, out, q; ld.volatile.global.u64 s, [q];
NONE: shr.u32 bit, mask, t; and.b32 bit, bit, 1; setp.ne.u32 mine, bit, 0;
@!mine bra OTHERS;
chosen: .branchtargets {labels};
brx.idx op, chosen;
{cases}
DONE: st.volatile.global.u64 [out], d;
OTHERS: bar.warp.sync 0xffffffff; bar.sync 0;
add.u32 i, i, 1; bra STEP;
END: setp.ne.u32 p, t, 0;
@p ret;
mbarrier.inval.shared.b64 [at];
membar.cta;
ld.volatile.shared.u64 d, [at];
ld.param.u64 q, [words]; mad.wide.u32 q, block, 8, q; st.global.u64 [q], d;
ret;
}}
"""


def _keep(o: Operation) -> str:
    return "selp.u64 d, 1, 0, p;" if o.does == "look" else ""


def run(backend: Backend, module: Any, found: list[MbarrierProgram], most: int = STEPS) -> tuple[Array, Array]:
    """(results [program, step, lane], words) on a backend."""
    counts = np.array([p.count for p in found], np.uint32)
    lengths = np.array([len(p.steps) for p in found], np.uint32)
    steps = np.zeros((len(found), most, 4), np.uint32)
    for number, p in enumerate(found):
        for n, s in enumerate(p.steps):
            steps[number, n] = s.operation, sum(1 << lane for lane in p.results[n]), s.value, s.source
    results, words = np.zeros((len(found), most, LANES), np.uint64), np.zeros(len(found), np.uint64)
    given = Arguments.of_arrays([counts, steps, lengths, results, words])
    run_kernel(backend, module, "sequences", LaunchShape((len(found), 1, 1), (LANES, 1, 1)), given, [results, words])
    return results, words


def expected(found: list[MbarrierProgram]) -> tuple[Array, Array]:
    """The results that the model gives."""
    results = np.zeros((len(found), STEPS, LANES), np.uint64)
    for number, p in enumerate(found):
        for n, lanes in enumerate(p.results):
            for lane, value in lanes.items():
                results[number, n, lane] = value
    return results, np.array([p.word for p in found], np.uint64)


def differences(found: list[MbarrierProgram], results: Array, words: Array) -> tuple[int, int, str]:
    """(values compared, those that differ, the first of them in words)."""
    want, last = expected(found)
    undefined = np.zeros_like(results)  # a chip leaves the lower half of a state as the register had it
    for number, p in enumerate(found):
        for n, s in enumerate(p.steps):
            if OPERATIONS[s.operation].does in ("arrive", "drop"):
                undefined[number, n] = 0xFFFFFFFF
    results = results & ~undefined
    wrong = int((results != want).sum() + (words != last).sum())
    compared = sum(len(lanes) for p in found for lanes in p.results) + len(found)
    if not wrong:
        return compared, 0, ""
    for number, p in enumerate(found):
        for n, lanes in enumerate(p.results):
            for lane in lanes:
                if results[number, n, lane] != want[number, n, lane]:
                    said = f"got {int(results[number, n, lane]):#018x}, want {int(want[number, n, lane]):#018x}"
                    return compared, wrong, f"{told(p, n)}: lane {lane} {said}"
        if words[number] != last[number]:
            said = f"word {int(words[number]):#018x}, want {int(last[number]):#018x}"
            return compared, wrong, f"{told(p, len(p.steps) - 1)}: {said}"
    return compared, wrong, "a lane that does not act has a result"


def told(p: MbarrierProgram, last: int) -> str:
    done = [OPERATIONS[s.operation].text.split(";")[0] + (f" ({s.value})" if s.value else "") for s in p.steps[: last + 1]]
    return f"init {p.count}, " + ", ".join(done[-4:])
