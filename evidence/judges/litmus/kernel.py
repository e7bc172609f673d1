"""A litmus test as a kernel of PTX: many instances of it in one launch.

A thread of the test is lane 0 of a warp of its own, or a lane of one warp. Locations are words of global or of shared memory. A
thread pauses before each instruction, for as long as the launch's `pause` and a hash of its place say.
"""

from __future__ import annotations

from dataclasses import dataclass

from evidence.judges.litmus.program import Op, OutOfReach, Test

STRIDE = 4  # words from one location to the next
ENDED = "ended"  # a register of each thread; what it leaves says that the thread has ended
HEAD = """.version 8.3
.target sm_90
.address_size 64
.visible .entry litmus(.param .u64 memory, .param .u64 registers, .param .u32 chance, .param .u32 pause) {
"""
# Counts down from a number that is a hash of `%hash` and one more for each instruction, masked with `%pause`.
PAUSE = """    mad.lo.u32 %hash, %hash, 1664525, 1013904223;
    shr.u32 %left, %hash, 16;
    and.b32 %left, %left, %pause;
wait_{n}:
    setp.eq.u32 %p, %left, 0;
    @%p bra go_{n};
    sub.u32 %left, %left, 1;
    bra wait_{n};
go_{n}:
"""


@dataclass(frozen=True)
class Way:
    """How the threads of a test lie. lanes: those of one CTA are lanes of a warp. space: of the locations."""

    lanes: bool = False
    space: str = "global"

    def __str__(self) -> str:
        return f"{'lanes' if self.lanes else 'warps'}, {self.space}"


@dataclass(frozen=True)
class Kernel:
    """ptx: entry litmus(memory, registers, chance, pause). block: threads of a CTA; ctas: CTAs of an instance.
    names: of the registers that each instance leaves, one word each."""

    ptx: str
    block: int
    ctas: int
    names: tuple[str, ...]


def ways(test: Test) -> list[Way]:
    """Ways to lay a test out."""
    several = len({t.cta for t in test.threads}) < len(test.threads)
    bars = any(op.kind in ("sync", "arrive") for t in test.threads for op in t.ops)
    one = len({t.cta for t in test.threads}) == 1
    found = [Way()]
    if several and not bars:
        found.append(Way(lanes=True))
    if one:
        found.append(Way(space="shared"))
    return found


def suffix(op: Op) -> str:
    if op.sem in ("weak", "volatile"):
        return f".{op.sem}"
    return f".{op.sem}.{op.scope}"


def kernel(test: Test, way: Way, pauses: bool = True) -> Kernel:
    """A test as a kernel. pauses: whether threads pause before each instruction, and leave each register at once."""
    places = {name: n * STRIDE * 4 for n, name in enumerate(test.places)}
    ctas = sorted({t.cta for t in test.threads})
    members = {cta: [n for n, t in enumerate(test.threads) if t.cta == cta] for cta in ctas}
    most = max(map(len, members.values()))
    block = 32 if way.lanes else 32 * most
    names = tuple(sorted({
        f"P{n}:{op.register}" for n, t in enumerate(test.threads) for op in t.ops if op.register
    } | {f"P{n}:{r}" for n, t in enumerate(test.threads) for r in (*t.registers, ENDED)}))  # fmt: skip
    space = way.space
    body = [HEAD]
    if space == "shared":
        body.append(f"    .shared .align 16 .b8 cells[{max(1, len(places)) * STRIDE * 4}];\n")
    body.append(
        "    .reg .b32 %t, %b, %i, %c, %w, %lane, %hash, %left, %pause, %cell, %v, %one, %two;\n"
        "    .reg .b64 %memory, %out, %d;\n    .reg .pred %p;\n"
    )
    body += [f"    .reg .b32 %{name.replace(':', '_')};\n" for name in names]
    body.append(f"""    mov.u32 %t, %tid.x;
    mov.u32 %b, %ctaid.x;
    ld.param.u64 %memory, [memory];
    ld.param.u64 %out, [registers];
    ld.param.u32 %hash, [chance];
    ld.param.u32 %pause, [pause];
    div.u32 %i, %b, {len(ctas)};
    rem.u32 %c, %b, {len(ctas)};
    {'mov.u32 %w, %t' if way.lanes else 'shr.u32 %w, %t, 5'};
    and.b32 %lane, %t, 31;
    mad.lo.u32 %hash, %i, 2654435761, %hash;
    mad.lo.u32 %hash, %w, 40503, %hash;
    mad.lo.u32 %hash, %c, 69069, %hash;
    mul.wide.u32 %d, %i, {4 * max(1, len(names))};
    add.u64 %out, %out, %d;
    mul.wide.u32 %d, %i, {4 * STRIDE * max(1, len(places))};
    add.u64 %memory, %memory, %d;
""")
    if space == "shared":
        body.append("    mov.u32 %cell, cells;\n    setp.ne.u32 %p, %t, 0;\n    @%p bra begun;\n")
        body += [f"    st.shared.u32 [%cell+{places[name]}], {value};\n" for name, value in test.places.items()]
        body.append("begun:\n    bar.sync 15;\n")
    if not way.lanes:
        body.append("    setp.ne.u32 %p, %lane, 0;\n    @%p bra done;\n")
    body.append("    mad.lo.u32 %v, %c, 1000, %w;\n")
    for row, cta in enumerate(ctas):
        for place, n in enumerate(members[cta]):
            body.append(f"    setp.eq.u32 %p, %v, {1000 * row + place};\n    @%p bra thread_{n};\n")
    body.append("    bra done;\n")

    def left(name: str) -> str:
        return f"    st.global.u32 [%out+{4 * names.index(name)}], %{name.replace(':', '_')};\n"

    counter = 0
    for n, thread in enumerate(test.threads):
        body.append(f"thread_{n}:\n")
        own = [name for name in names if name.startswith(f"P{n}:")]
        body += [f"    mov.u32 %P{n}_{name.split(':')[1]}, {thread.registers.get(name.split(':')[1], 0)};\n" for name in own]
        for op in thread.ops:
            if pauses and op.kind in ("ld", "st", "atom", "sync", "arrive", "fence"):
                body.append(PAUSE.format(n=counter))
                counter += 1
            body.append(_text(op, n, places, space, len(members[thread.cta])))
            if op.register and pauses:  # at once: a thread that waits for ever leaves what it had
                body.append(left(f"P{n}:{op.register}"))
        body.append(f"    mov.u32 %P{n}_{ENDED}, 1;\n")
        body += map(left, own)
        body.append("    bra done;\n")
    body.append("done:\n    ret;\n}\n")
    return Kernel("".join(body), block, len(ctas), names)


def _text(op: Op, thread: int, places: dict[str, int], space: str, warps: int) -> str:
    def word(value: int | str) -> str:
        return str(value) if isinstance(value, int) else f"%P{thread}_{value}"

    base = "%cell" if space == "shared" else "%memory"
    where = f"[{base}+{places[op.place]}]" if op.place else ""
    target = f"%P{thread}_{op.register}"
    dots = suffix(op)
    if op.kind == "ld":
        return f"    ld{dots}.{space}.u32 {target}, {where};\n"
    if op.kind == "st":
        return f"    st{dots}.{space}.u32 {where}, {word(op.operands[0])};\n"
    if op.kind == "atom":
        if not op.register and op.sem not in ("relaxed", "release"):
            raise OutOfReach(f"red.{op.sem}: PTX has none")
        operation = {"sub": "add"}.get(op.operation, op.operation)
        if operation not in ("add", "exch", "cas"):
            raise OutOfReach(f"atom.{operation}")
        values = [word(-v if op.operation == "sub" and isinstance(v, int) else v) for v in op.operands]
        kind = "u32" if operation == "add" else "b32"
        if not op.register:
            return f"    red{dots}.{space}.{operation}.{kind} {where}, {values[0]};\n"
        return f"    atom{dots}.{space}.{operation}.{kind} {target}, {where}, {', '.join(values)};\n"
    if op.kind == "fence":
        return f"    fence.{op.sem}.{op.scope};\n"
    if op.kind in ("sync", "arrive"):
        number, *count = op.operands
        text = ""
        threads = f", {32 * (count[0] if count else warps)}" if count or op.kind == "arrive" else ""  # type: ignore[operator]
        return text + f"    barrier.{op.kind} {word(number)}{threads};\n"
    if op.kind == "branch":
        compared = f"    setp.{op.operation}.u32 %p, {word(op.operands[0])}, {word(op.operands[1])};\n"
        return f"{compared}    @%p bra P{thread}_{op.label};\n"
    if op.kind == "jump":
        return f"    bra P{thread}_{op.label};\n"
    if op.kind == "label":
        return f"P{thread}_{op.label}:\n"
    if op.kind == "move":
        return f"    mov.u32 {target}, {word(op.operands[0])};\n"
    return f"    {op.operation}.u32 {target}, {word(op.operands[0])}, {word(op.operands[1])};\n"
