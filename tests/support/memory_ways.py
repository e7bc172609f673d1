"""Every way into memory: a statement for each row of the instruction tables that takes an address, and what it may do.

The statements come from the tables, so a new row with an address is walked too; one whose effect is not known here is named
by `unknown`. All statements of a module are one kernel that takes the number of the statement and an address:

    walk = Walk(statements())
    walk.launch(number, address)      # the arrays in `walk` afterwards; raises ExecutionFault
    walk.allowed(number, address)     # what the specification says, from the windows alone
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.form import Form, forms_of
from mmulator.isa.matrix import MATRIX_ROWS
from mmulator.isa.row import OperandSpec, Row
from mmulator.isa.table import ROWS
from mmulator.isa.targets import Target
from mmulator.isa.types import type_bits
from mmulator.matrix.layouts.operands import fragment, row_bytes
from mmulator.matrix.numerics.mbarrier import Mbarrier
from mmulator.ptx.program.addresses import SHARED_BASE, SLOT_CONST, SLOT_LOCAL, SLOT_PARAM, SLOT_SHARED
from mmulator.ptx.tree import Instruction
from tests.support.tracing import Event, traced

WINDOW = 1024  # bytes of every window
TARGET = "sm_100a"
# What an instruction does with the bytes at its address. `none`: any address will do. `first`: one byte must
# be there, which nobody reads.
ACCESS = {"ld": "read", "ldu": "read", "st": "write", "atom": "both", "red": "both", "prefetch": "none", "prefetchu": "none",
          "createpolicy": "none", "fence": "none", "applypriority": "first", "discard": "drop", "cp": "copy",
          "ldmatrix": "read", "stmatrix": "write", "wmma.load": "read", "wmma.store": "write", "tensormap": "edit",
          "clusterlaunchcontrol": "clear", "mbarrier": "word"}  # fmt: skip
ARRIVALS = 1000  # of the mbarriers that are made for those who need some
READS = ("read", "both", "edit", "copy-read", "combine-read")
WRITES = ("write", "both", "drop", "edit", "clear", "make", "copy-write")
PATTERN = 0xA5  # every byte that a statement writes


@dataclass(frozen=True)
class Statement:
    """name: of its row. text: with `{0}` for the register that holds the address. space: "" for generic. size: bytes of the
    access, of each of `lanes`. align: of its address. results: registers that hold what was read, and bits of each.
    before, after: what it takes, with `{n}` for a number of its own. to: the window in which what a copy
    reads arrives. later: observers hear of the access when it is issued. words: `before` makes all
    words of shared memory mbarriers."""

    name: str
    text: str
    access: str
    space: str
    size: int
    align: int
    results: tuple[tuple[str, int], ...] = ()
    lanes: int = 1
    before: str = ""
    after: str = ""
    to: str = "shared"
    later: bool = False
    words: bool = False


def rows() -> list[Row]:
    """Rows of scalar instructions that take an address and run; tests/native/test_tensor_memory.py tries those of tcgen05."""
    every = (row for group in ROWS.values() for row in group if row.signatures is None and row.opcode != "tcgen05")
    return [r for r in every if r.status.runs and any(o.kind == "addr" for o in r.operands)]


def unknown() -> list[str]:
    """Rows with an address whose effect is not written down in ACCESS."""
    names = {r.opcode for r in rows()} | {_matrix_name(r.opcode, r.op) for r in MATRIX_ROWS if _takes_address(r)}
    return sorted(names - ACCESS.keys())


def _matrix_name(family: str, op: str) -> str:
    return family if op == family else f"{family}.{op.partition('.')[0]}"


def _takes_address(row: Row) -> bool:
    form = next(forms_of(row))
    return any(o.kind == "address" for signature in form.signatures for o in signature)


def statements(every: bool = False) -> list[Statement]:
    """every: all types and vectors; else a few sizes."""
    return [s for r in rows() for s in _of_row(r, every)] + list(_matrix_statements())


def _of_row(row: Row, every: bool) -> Iterator[Statement]:
    groups = {g.name: g for g in row.slots if not g.optional or g.name in ("space", "vec")}
    choices = {name: ([""] if g.optional else []) + list(g.choices) for name, g in groups.items()}
    if "space" in choices:
        choices["space"] = [s for s in choices["space"] if s != "param::func"]  # of functions: local memory
    for name in choices.keys() & {"type"}:
        sizes = {type_bits(t): t for t in reversed(choices[name]) if not t.startswith("f")}
        choices[name] = list(sizes.values()) or choices[name]
    seen = set()
    for words in itertools.product(*choices.values()):
        taken = {n: w for n, w in zip(choices, words) if w}
        if row.rule is not None and row.rule(taken) is not None:
            continue
        bits = type_bits(taken["type"]) * int(taken.get("vec", "v1")[1:]) if "type" in taken else 0
        key = (taken.get("space"), bits, taken.get("op"))
        if not every and (key in seen or taken.get("op", "") != _operation(row) or _dull(row, taken)):
            continue
        seen.add(key)
        yield from _written(row, taken)


def _operation(row: Row) -> str:
    """One operation of a row."""
    return next((g.choices[-1] for g in row.slots if g.name == "op"), "")


def _dull(row: Row, taken: dict[str, str]) -> bool:
    """Aliases of a space, most vectors, and red, which is atom without a result, behave as others do."""
    bits = type_bits(taken.get("type", "b32"))
    if taken.get("space", "").startswith(("shared::", "param::")):
        return bits != 32 or "vec" in taken or taken.get("op", "exch") != "exch"
    if row.name == "red" and "vec" not in taken:
        return bits != 32
    return "vec" in taken and (taken["vec"], type_bits(taken["type"])) not in (("v4", 32), ("v8", 32), ("v8", 16), ("v2", 64))


def _written(row: Row, taken: dict[str, str]) -> Iterator[Statement]:
    words = [row.name, *(taken[g.name] for g in row.slots if g.name in taken)]
    access = "word" if ".mbarrier" in row.name else "first" if "valid" in taken else ACCESS[row.opcode]
    if row.name in OF_BULK:
        yield from OF_BULK[row.name](row, taken)
        return
    if access == "copy":
        to, source = "%rd8", "%rd9"  # addresses that are all right
        size = 16
        for space, operands in (("global", f"[{to}], [{{0}}], {size}"), ("shared", f"[{{0}}], [{source}], {size}")):
            kind = "read" if space == "global" else "write"
            text = f"{'.'.join(words)} {operands};"
            yield Statement(f"{row.name} ({space} operand)", text, "copy-" + kind, space, size, size,
                            after="cp.async.wait_all;", later=True)
        return
    operands, results = [], []
    for o in row.operands:
        if o.when or o.optional or o.between:
            continue
        operands.append(_operand(o, taken, results))
    size = 128 if access == "drop" else 1 if access == "first" else _bytes(taken)
    space = taken.get("space", "").partition("::")[0]
    if access in ("first", "drop"):
        space = "global"
    mnemonic = ".".join(words)
    if access == "word":
        text = f"{mnemonic} {', '.join(operands)};"
        done = {MemoryEffect.READ: "read", MemoryEffect.WRITE: "make"}.get(row.effects.memory, "both")
        made = row.name != "mbarrier.init"
        before = _MADE if made else ""
        yield Statement(mnemonic, text, done, space or "to-shared", size, size, before=before, words=made)
        return
    yield Statement(mnemonic, f"{mnemonic} {', '.join(operands)};", access, space, size, size, tuple(results))


def _bytes(taken: dict[str, str]) -> int:
    return max(type_bits(taken["type"]), 8) // 8 * int(taken.get("vec", "v1")[1:]) if "type" in taken else 1


def _operand(o: OperandSpec, taken: dict[str, str], results: list[tuple[str, int]]) -> str:
    if o.kind == "addr":
        return "[{0}]"
    if o.kind == "sink":
        return "_"
    if o.type == "pred":
        return "%p"
    if o.name in ("count", "txCount") and o.access == "r":
        return "16"
    if o.kind == "imm":
        return str(o.values[0] if o.values else o.lo)
    type_name = taken.get(o.type, o.type)
    bits = max(type_bits(type_name), 16)
    count = int(taken[o.per][1:]) if o.per in taken else 1
    prefix = f"%d{bits}_" if o.access == "w" else f"%s{bits}_"
    names = [f"{prefix}{n}" for n in range(count)]
    if o.access == "w":
        results += [(n, max(type_bits(type_name), 8)) for n in names]
    return names[0] if o.per not in taken else "{" + ", ".join(names) + "}"


# bulk copies --------------------------------------------------------------------------------------------------------
# Through an mbarrier in the middle of the block's memory, which has its old bytes again when all is over
_BARRIER = "%rd8+512"
_ARM = f"""ld.shared.u64 %rd10, [{_BARRIER}]; mbarrier.init.shared.b64 [{_BARRIER}], 1;
  mbarrier.arrive.expect_tx.shared.b64 _, [{_BARRIER}], 16; """
_AWAIT = f"V{{n}}: mbarrier.try_wait.parity.shared.b64 %p, [{_BARRIER}], 0; @!%p bra V{{n}}; st.shared.u64 [{_BARRIER}], %rd10;"
_GROUP = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
_PLACES = {"shared": "%rd8", "global": "%rd9"}  # addresses that are all right


def _words(row: Row, taken: dict[str, str]) -> str:
    return ".".join((row.name, *(taken[g.name] for g in row.slots if g.name in taken)))


def _of_copies(row: Row, taken: dict[str, str]) -> Iterator[Statement]:
    """Both addresses of a copy or reduction. Into the shared memory of other blocks takes a cluster (chapters/test_bulk.py)."""
    to, source = (taken[slot].partition("::")[0] for slot in ("dst", "src"))
    if to == source:
        return
    words = _words(row, taken)
    before, rest, after = (_ARM, f", 16, [{_BARRIER}]", _AWAIT) if to == "shared" else ("", ", 16", _GROUP)
    written, read = ("both", "combine-read") if "reduce" in row.name else ("copy-write", "copy-read")
    yield Statement(f"{words} (destination)", f"{words} [{{0}}], [{_PLACES[source]}]{rest};", written, to, 16, 16,
                    before=before, after=after)  # fmt: skip
    yield Statement(f"{words} (source)", f"{words} [{_PLACES[to]}], [{{0}}]{rest};", read, source, 16, 16,
                    before=before, after=after, to=to)  # fmt: skip


def _of_prefetch(row: Row, taken: dict[str, str]) -> Iterator[Statement]:
    yield Statement(row.name, "cp.async.bulk.prefetch.L2.global [{0}], 16;", "aligned", "global", 16, 16)


def _of_clear(row: Row, taken: dict[str, str]) -> Iterator[Statement]:
    space = taken.get("space", "")
    name = "st.bulk.weak" + (f".{space}" if space else "")
    yield Statement(name, f"{name} [{{0}}], 24, 0;", "clear", space.partition("::")[0] or "to-shared", 24, 8)


def _of_replace(row: Row, taken: dict[str, str]) -> Iterator[Statement]:
    """One field stands for all: what becomes of the bytes is for chapters/test_tensormap.py."""
    if taken["field"] == "rank":
        words = _words(row, taken)
        yield Statement(words, f"{words} [{{0}}], %s32_0;", "edit", taken.get("space", "").partition("::")[0], 128, 64)


def _of_publishing(row: Row, taken: dict[str, str]) -> Iterator[Statement]:
    words = _words(row, taken)
    yield Statement(f"{row.name} (destination)", f"{words} [{{0}}], [%rd8], 128;", "copy-write", "global", 128, 128, lanes=32)
    yield Statement(f"{row.name} (source)", f"{words} [%rd9], [{{0}}], 128;", "copy-read", "shared", 128, 128, lanes=32,
                    to="global")  # fmt: skip


def _of_cancel(row: Row, taken: dict[str, str]) -> Iterator[Statement]:
    """By generic addresses. No cluster is left: the response is zeros."""
    if "space" not in taken and "multicast" not in taken:
        words = _words(row, taken)
        yield Statement(words, f"{words} [{{0}}], [%rd11+512];", "clear", "to-shared", 16, 16,
                        before=_ARM + "cvta.shared.u64 %rd11, %rd8; ", after=_AWAIT)  # fmt: skip


def _of_tensors(row: Row, taken: dict[str, str]) -> Iterator[Statement]:
    """Which bytes they touch, a tensor map says: chapters/test_tensor.py takes boxes to the edges of their windows."""
    yield from ()


def _of_words(row: Row, taken: dict[str, str]) -> Iterator[Statement]:
    """st.async and red.async."""
    words, bits = _words(row, taken), type_bits(taken["type"])
    size = bits // 8 * int(taken.get("vec", "v1")[1:])
    values = [f"%s{bits}_{n}" for n in range(size * 8 // bits)]
    value = "{" + ", ".join(values) + "}" if len(values) > 1 else values[0]
    access = "write" if row.opcode == "st" else "both"
    if "completion" not in taken:
        yield Statement(words, f"{words} [{{0}}], {value};", access, "global", size, size)
        return
    arm = _ARM.replace(", 16;", f", {size};")
    space = "shared" if "space" in taken else "to-shared"
    barrier = _BARRIER if space == "shared" else "%rd11+512"
    if space != "shared":
        arm += "cvta.shared.u64 %rd11, %rd8; "
    yield Statement(words, f"{words} [{{0}}], {value}, [{barrier}];", access, space, size, size, before=arm, after=_AWAIT)


OF_BULK = {
    "clusterlaunchcontrol.try_cancel.async": _of_cancel,
    "st.async": _of_words, "red.async": _of_words,
    "cp.async.bulk": _of_copies, "cp.reduce.async.bulk": _of_copies, "cp.async.bulk.prefetch": _of_prefetch, "st.bulk": _of_clear,
    "cp.async.bulk.tensor": _of_tensors, "cp.reduce.async.bulk.tensor": _of_tensors,
    "tensormap.replace": _of_replace, "tensormap.cp_fenceproxy": _of_publishing,
}  # fmt: skip


# matrix instructions ------------------------------------------------------------------------------------------------
def _matrix_statements() -> Iterator[Statement]:
    """The first form of every operation, space and size of elements."""
    seen = set()
    for row in MATRIX_ROWS:
        if not _takes_address(row) or not row.requires.admits(Target.parse(TARGET)):
            continue
        for form in forms_of(row):
            space = form.space.partition("::")[0]
            element = form.type.bits if form.type else form.src_fmt
            key = (row.opcode, row.op.partition(".")[0], space, element, form.m if row.opcode != "wmma" else 0)
            if key not in seen and form.layout != "col":
                seen.add(key)
                yield _matrix_statement(form, space)


def _matrix_statement(form: Form, space: str) -> Statement:
    access = ACCESS[_matrix_name(form.family, form.op)]
    size = align = row_bytes(form)
    if form.family == "wmma":
        f = fragment(form, "r")
        size, align = f.rows * f.columns * f.bits // 8, 32
    spec = next(o for o in form.operands if o.kind == "registers")
    bits = 64 if form.type and form.type.name == "f64" else 32
    registers = "{" + ", ".join(f"%{'d' if access == 'read' else 's'}{bits}_{n}" for n in range(spec.count)) + "}"
    operands = [registers, "[{0}]"] if access == "read" else ["[{0}]", registers]
    only = "shared" if form.family != "wmma" and not space else ""
    # ldmatrix and stmatrix by a generic address are for shared memory alone
    return Statement(form.mnemonic, f"{form.mnemonic} {', '.join(operands)};", access, space or (only and "to-shared"),
                     size, align, lanes=32)  # fmt: skip


# the kernel ---------------------------------------------------------------------------------------------------------
_FILL = """
  mov.u32 %i, 0;
FILL: mul.wide.u32 %rd3, %i, 8; add.u64 %rd4, %rd1, %rd3; ld.global.u64 %rd5, [%rd4];
  mov.u64 %rd6, cells; add.u64 %rd6, %rd6, %rd3; st.shared.u64 [%rd6], %rd5;
  mov.u64 %rd6, own; add.u64 %rd6, %rd6, %rd3; st.local.u64 [%rd6], %rd5;
  add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 128; @%p bra FILL;
  bar.sync 0;
"""
_MADE = (
    "mov.u32 %i, 0; M{n}: mul.wide.u32 %rd3, %i, 8; mov.u64 %rd6, cells; add.u64 %rd6, %rd6, %rd3; mbarrier.init.shared.b64 "
    f"[%rd6], {ARRIVALS}; "
    "add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 128; @%p bra M{n};"
)
_DUMP = """
END: bar.sync 0; mov.u32 %i, %tid.x; setp.ne.u32 %p, %i, 0; @%p ret;
DUMP: mul.wide.u32 %rd3, %i, 8; add.u64 %rd4, %rd2, %rd3;
  mov.u64 %rd6, cells; add.u64 %rd6, %rd6, %rd3; ld.shared.u64 %rd5, [%rd6]; st.global.u64 [%rd4+64], %rd5;
  mov.u64 %rd6, own; add.u64 %rd6, %rd6, %rd3; ld.local.u64 %rd5, [%rd6]; st.global.u64 [%rd4+1088], %rd5;
  add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 128; @%p bra DUMP;
  ret;
"""


def kernel(chosen: Sequence[Statement]) -> str:
    registers = [f".reg .b{b} %{x}{b}_<16>;" for b in (16, 32, 64, 128) for x in "ds"]
    set_up = [f"mov.b{b} %s{b}_{n}, 0x{PATTERN:02x}{f'{PATTERN:02x}' * (b // 8 - 1)};" for b in (16, 32, 64) for n in range(16)]
    set_up += [f"mov.b128 %s128_{n}, {{%s64_0, %s64_0}};" for n in range(2)]
    cases = []
    for number, s in enumerate(chosen):
        stores = []
        at = 0
        for name, bits in s.results:
            stores.append(f"st.global.b{bits} [%rd2+{at}], {name};")
            at += bits // 8
        text, before, after = (t.replace("{0}", "%rd0").replace("{n}", str(number)) for t in (s.text, s.before, s.after))
        cases.append(f"W{number}: {before}\nX{number}: {text} {after} {' '.join(stores)} bra END;")
    lines = "\n".join(cases)
    return f"""
.version 9.5
.target {TARGET}
.address_size 64
.const .align 16 .b8 constant[{WINDOW}] = {{{', '.join(map(str, pattern().tolist()))}}};
.visible .entry k(.param .u64 memory, .param .u64 out, .param .u64 address, .param .u32 number,
                  .param .align 16 .b8 blob[{WINDOW}])
{{
  .reg .b64 %rd<16>; .reg .b32 %i, %n; .reg .pred %p; {' '.join(registers)}
  .shared .align 16 .b8 cells[{WINDOW}]; .local .align 16 .b8 own[{WINDOW}];
  ld.param.u64 %rd1, [memory]; ld.param.u64 %rd2, [out]; ld.param.u64 %rd0, [address]; ld.param.u32 %n, [number];
  mov.u64 %rd8, cells; mov.u64 %rd9, %rd1; {' '.join(set_up)}
{_FILL}
ways: .branchtargets {', '.join(f'W{n}' for n in range(len(chosen)))};
  brx.idx %n, ways;
{lines}
{_DUMP}
}}
"""


def pattern() -> np.ndarray:
    """The bytes of every window before a statement runs."""
    return (np.arange(WINDOW) * 37 + 11 & 0xFF).astype(np.uint8)


BLOB = 32  # offset of the parameter `blob`


class Walk:
    """One kernel of statements and its windows. memory, out: the arrays, filled anew by each launch."""

    def __init__(self, chosen: Sequence[Statement]) -> None:
        self.statements = list(chosen)
        self.text = kernel(chosen)
        labels = [re.match(r"X(\d+):", line) for line in self.text.split("\n")]
        self.lines = {int(label[1]): line for line, label in enumerate(labels, 1) if label}  # of statements
        self.kernel = Module.load(self.text, name="ways.ptx")["k"]
        self.memory, self.out = np.zeros(WINDOW, np.uint8), np.zeros(64 + 2 * WINDOW, np.uint8)
        first = self.kernel.module.image.next_slot << 32
        self.local_bytes = self.kernel.compile().local_bytes
        # generic address, bytes and whether it may be written
        self.windows = {
            "global": (first, WINDOW, True), "shared": (SLOT_SHARED << 32 | SHARED_BASE, WINDOW, True),
            "local": (SLOT_LOCAL << 32, self.local_bytes, True), "const": (SLOT_CONST << 32, WINDOW, False),
            "param": (SLOT_PARAM << 32, BLOB + WINDOW, False), "out": (first + (2 << 32), self.out.nbytes, True),
        }  # fmt: skip

    def launch(self, number: int, address: int) -> None:
        self.memory[:], self.out[:] = pattern(), 0
        args = [self.memory, self.out, address & (1 << 64) - 1, number, pattern()]
        self.kernel.launch(1, self.statements[number].lanes, args, timeout=600, threads=1)

    def trace(self, number: int, address: int) -> list[Event]:
        """What an observer sees of a launch."""
        self.memory[:], self.out[:] = pattern(), 0
        return traced(self.kernel, 1, self.statements[number].lanes, [self.memory, self.out, address, number, pattern()])

    def is_statement(self, number: int, ins: Instruction | None) -> bool:
        """Whether an instruction of the kernel is that of a statement."""
        return ins is not None and ins.span.line == self.lines[number] and ins.mnemonic == self.statements[number].text.split()[0]

    def base(self, space: str) -> int:
        """The first address of a window, as its own space counts; of a generic space that of global memory."""
        start = self.windows[space if space in self.windows else "shared" if space == "to-shared" else "global"][0]
        return start if space in ("", "global", "to-shared") else start & 0xFFFFFFFF

    def place(self, s: Statement, address: int) -> tuple[str, int] | None:
        """(window, offset) that an access would reach, if all its bytes are there."""
        address &= (1 << 64) - 1
        reachable = {"": tuple(self.windows), "global": ("global", "out", "const", "param"), "to-shared": ("shared",)}
        for name in reachable.get(s.space, (s.space,)):
            start, size, _ = self.windows[name]
            offset = address - (start if s.space in reachable else start & 0xFFFFFFFF)
            if 0 <= offset <= size - s.size:
                return name, offset
        return None

    def allowed(self, number: int, address: int) -> bool | None:
        """Whether an access is right; None where the specification wants more alignment than hardware checks."""
        s = self.statements[number]
        if s.access == "none":
            return True
        if s.access == "aligned":
            return address % s.align == 0
        found = self.place(s, address)
        if found is None or (s.access in WRITES and not self.windows[found[0]][2]):
            return False
        if s.name.startswith("wmma") and address % s.align:
            return None
        return address % s.align == 0

    def problem(self, number: int, address: int) -> str | None:
        """What is wrong with a launch: a fault that should not be, or none that should, or bytes."""
        s = self.statements[number]
        where = f"{s.name} at {address & (1 << 64) - 1:#x}"
        try:
            self.launch(number, address)
        except ExecutionFault as error:
            if self.allowed(number, address):
                return f"{where}: {error.message}"
            return None if s.access == "write" and s.lanes > 1 else self._changed(s, None, where)
        if self.allowed(number, address) is False:
            return f"{where}: no fault"
        return self._changed(s, self.place(s, address), where)

    def _changed(self, s: Statement, found: tuple[str, int] | None, where: str) -> str | None:
        """A difference from what the statement does to the bytes that it accesses, and to those alone."""
        name, offset = found or ("", 0)
        before = pattern()
        content = {"param": np.concatenate([np.zeros(BLOB, np.uint8), before]), "out": np.zeros_like(self.out)}.get(name, before)
        read = content[offset : offset + s.size]
        held = {"global": self.memory, "shared": self.out[64 : 64 + WINDOW], "local": self.out[64 + WINDOW :]}
        if found is None and s.access != "none":  # the dump did not run
            held = {"global": self.memory}
        for window, bytes_ in held.items():
            fresh = np.frombuffer(Mbarrier.init(ARRIVALS).encode().to_bytes(8, "little") * (WINDOW // 8), np.uint8)
            start = fresh if s.words and window == "shared" else before
            wanted, inside = start.copy(), slice(offset, offset + s.size) if window == name else slice(0, 0)
            match s.access:
                case "write":
                    wanted[inside] = PATTERN
                case "both" | "edit" | "make":  # what comes of it is not looked at here
                    wanted[inside] = bytes_[inside]
                case "combine-read" if window == s.to:
                    wanted[: s.size] = bytes_[: s.size]
                case "clear":
                    wanted[inside] = 0
                case "copy-write":
                    wanted[inside] = before[: inside.stop - inside.start]
                case "copy-read" if window == s.to:  # the pointers among the parameters are not known here
                    wanted[: s.size] = bytes_[: s.size] if name == "param" and offset < BLOB else read
            if (bytes_ != wanted).any():
                return f"{where}: byte {int(np.flatnonzero(bytes_ != wanted)[0])} of {window} memory changed"
        known = found and name != "out" and len(read) == s.size and not (name == "param" and offset < BLOB)
        if s.results and s.access in ("read", "both") and known and (self.out[: s.size] != read).any():
            return f"{where}: wrong bytes were read"
        return None

    def edges(self, number: int) -> list[int]:
        """Addresses at the edges of the statement's window; for one statement of a kind and space also other windows' and
        addresses far away."""
        s = self.statements[number]
        kind = s.name.partition(".")[0], s.space
        alike = next(n for n, x in enumerate(self.statements) if (x.name.partition(".")[0], x.space) == kind)
        start, size = self.base(s.space), next(
            w[1] for n, w in self.windows.items() if n == (s.space if s.space in self.windows else "global")
        )
        last = start + (size - s.size) // s.align * s.align
        inside = [start, start + s.align, last]
        outside = [start - 1, start - s.align, last + 1, last + s.align, start + size + (1 << 20)]
        wrapped = [start + (1 << 32), last - (1 << 32), start + (1 << 63), start + s.align // 2 if s.align > 1 else 0]
        others = [w[0] for w in self.windows.values()] + [0, s.align, 8 << 32, 15 << 32, (1 << 64) - s.align, 0x123456789ABCD000]
        far = (*wrapped, *others) if number == alike else wrapped[:2]
        return sorted({a & (1 << 64) - 1 for a in (*inside, *outside, *far)})
