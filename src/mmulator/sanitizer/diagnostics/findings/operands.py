"""Sentences about operands of matrix instructions."""

from functools import lru_cache

from mmulator.base.errors import MmulatorError, must_be
from mmulator.base.rules import Rule
from mmulator.base.rules import operands as rules
from mmulator.base.rules.execution import DIVERGED
from mmulator.base.rules.tensor_memory import OPERAND_DIFFERS
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.form import Form
from mmulator.matrix.layouts.sparse import metadata
from mmulator.ptx.program.fragments import Misuse, WrongFragment, fragments_of
from mmulator.ptx.tree import Immediate, Instruction
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.resident import ResidentCta
from mmulator.runtime.native.hooks.operands import OPERAND_NAMES, UniformOperand
from mmulator.runtime.native.state import WGMMA, FaultKind
from mmulator.sanitizer.checks.operands import RESERVED as RESERVED_BITS
from mmulator.sanitizer.checks.proxy_operands import OF_STORE, SHIFTED
from mmulator.sanitizer.diagnostics.findings.context import FindingContext, Said, Sentences, location

_NUMBERS = {UniformOperand[name] for name in ("STRIDE", "BYTE_ID_A", "THREAD_ID_A", "BYTE_ID_B", "THREAD_ID_B")}


def _value(operand: int, value: int) -> str:
    return str(value - (value >> 31 << 32)) if operand in _NUMBERS else f"0x{value:x}"


def _differs(c: FindingContext) -> Said:
    operand, first, other, lane = c.words
    others = int(c.entry["lanes"])
    one = (others & -others).bit_length() - 1
    name = OPERAND_NAMES[operand]
    return (
        f"{name} of {c.name} differs among the lanes of a warp: {_value(operand, first)} in lane {lane}, "
        f"{_value(operand, other)} in lane {one}",
        f"operand {name}",
    )


def _range(c: FindingContext) -> Said:
    operand, value, allowed, _ = c.words
    name = OPERAND_NAMES[operand]
    known = ", ".join(str(n) for n in range(64) if allowed >> n & 1)
    return f"{name} of {c.name} is {value}: it must be one of {known}", f"operand {name}"


def _metadata(c: FindingContext) -> Said:
    nibble, lane, place, _ = c.words
    ins = c.instruction
    form = ins.form
    selector = next(o for o in ins.operands[4:] if isinstance(o, Immediate)).value
    where, bits = metadata.places(form, selector)
    found = [(int(r), int(k)) for r, k in zip(*((where % 32 == lane) & (bits == 4 * place)).nonzero())]
    warp = int(c.entry["warp"]) % 4
    row, chunk = next((rk for rk in found if form.m < 64 or rk[0] // 16 == warp), found[0])
    defined = ", ".join(f"0b{n:04b}" for n in metadata.allowed(form)) + " are defined"
    if c.rule is rules.UNLISTED:
        defined = "of FP8 the specification lists those with rising numbers alone"
    return (
        f"metadata 0b{nibble:04b} of {ins.mnemonic}: it {metadata.meaning(nibble, form)}; {defined}",
        f"{metadata.where((row, chunk), form)}: bits {4 * place} to {4 * place + 3} of lane {lane}",
    )


def _source_size(c: FindingContext) -> Said:
    size, most = c.words[0] & 0xFFFFFFFF, next(o.value for o in c.instruction.operands if isinstance(o, Immediate))
    signed = f" ({size - (1 << 32)} as a signed number)" if size >> 31 else ""
    return f"src-size of {c.name} is {size}{signed}, more than its cp-size of {most}", "operand src-size"


def _large(c: FindingContext) -> Said:
    spec = next(s for s in c.instruction.form.operands if s.kind == "src" and s.defined)
    value = c.words[0] & 0xFFFFFFFF
    return f"{spec.name} of {c.name} is {value}, more than {len(spec.defined) - 1}", f"operand {spec.name}"


def _row(c: FindingContext) -> Said:
    first, last = (n(lane for lane in range(32) if int(c.entry["lanes"]) >> lane & 1) for n in (min, max))
    who = f"lanes {first} to {last}" if first != last else f"lane {first}"
    return f"{c.name} on sm_75: the addresses of {who}, which it does not use, are invalid", _where(c)


def _parts(c: FindingContext) -> tuple[int, int, int, int]:
    at, stride, default, sizes = c.words
    return at, stride - (stride >> 63 << 64), default, sizes & 0xFFFFFFFF


def _address(c: FindingContext) -> Said:
    at, _, _, aligned = _parts(c)
    name = c.name
    return f"p of {name} lies {at % aligned} bytes after a multiple of {aligned}, the size of the fragment", _where(c)


def _stride(c: FindingContext) -> Said:
    _, stride, _, aligned = _parts(c)
    size = f"{stride} elements, {stride * (c.words[3] >> 32) / 8:g} bytes"
    return (f"stride of {c.name} is {size}: rows must begin at multiples of {aligned} bytes, the fragment's size", _where(c))


def _short(c: FindingContext) -> Said:
    _, stride, default, _ = _parts(c)
    return f"stride of {c.name} is {stride}, less than the {default} elements of a row", _where(c)


def _space(c: FindingContext) -> Said:
    return f"{c.name} by a generic address that is neither global nor shared memory", _where(c)


def _where(c: FindingContext) -> str:
    from mmulator.sanitizer.diagnostics.faults.describe import describe_address

    return describe_address(c.grid, c.words[0])


_OPERANDS = {"a": "A", "b": "B", "c": "C", "d": "the stored fragment"}


def _fragment(c: FindingContext) -> Said:
    ins, number = c.instruction, c.words[0]
    if not number:
        return f"{ins.mnemonic} on an element of a fragment in some lanes, or with another number in each", ""
    every = (fragments_of(f).wrong.get(ins, ()) for f in c.grid.kernel.program.functions.values())
    wrong = next(w for w in every if w)[number - 1]
    return _misuse(ins, wrong), f"register {wrong.slot} of {_OPERANDS[wrong.name]}, which {place_of(wrong.held.origin)} made"


def place_of(ins: Instruction) -> str:
    return f"{ins.mnemonic} ({location(ins)})"


def _misuse(ins: Instruction, wrong: WrongFragment) -> str:
    held, wanted, name = wrong.held.kind, wrong.wanted, _OPERANDS[wrong.name]
    match wrong.misuse:
        case Misuse.CONVERTED:
            return f"{name} of {ins.mnemonic} is an accumulator that was converted from .{held.type} to .{wanted.type}"
        case Misuse.REORDERED:
            elements = " and ".join(str(p.element) for p in wrong.held.parts)
            many = "s" * (len(wrong.held.parts) > 1)
            return f"{name} of {ins.mnemonic} has element{many} {elements} of the fragment in register {wrong.slot}"
        case Misuse.UNEVEN:
            return f"{name} of {ins.mnemonic} is a fragment of which some registers were changed in another way than the others"
    return f"{name} of {ins.mnemonic} is a fragment of {held}, used as one of {wanted}"


def _rows(c: FindingContext) -> Said:
    _, stride, _, aligned = _parts(c)
    size = f"{stride * (c.words[3] >> 32) / 8:g} bytes"
    return f"rows of {c.name} are {size} apart, no multiple of {aligned}, the size of the fragment", _where(c)


def _base(c: FindingContext) -> Said:
    operand, start, wanted, _ = c.words
    name = OPERAND_NAMES[operand]
    return (
        f"{name} of {c.name} has base offset {start >> 32}, and a pattern that begins at its start address "
        f"0x{start & 0xFFFFFFFF:x} has {wanted}",
        f"operand {name}",
    )


_SWIZZLES = ("", "no swizzle", "the 32-byte swizzle", "the 64-byte swizzle", "the 128-byte swizzle")


def _pattern(code: int) -> str:
    return _SWIZZLES[code] if code < len(_SWIZZLES) else "another swizzle"


def _tile(c: FindingContext) -> str:
    operand, read, brought, desc = c.words
    came = f"{c.against} brought it with {_pattern(brought)}"
    if operand == OF_STORE:
        return f"{c.name} takes a tile with {_pattern(read)}, and {came}"
    name = "AB"[operand]
    if read == SHIFTED:
        return f"{name} of {c.name} has base offset {desc >> 49 & 7}, and {came}, which base offset 0 fits"
    return f"{name} of {c.name} is read with {_pattern(read)}, and {came}"


def _reserved(c: FindingContext) -> Said:
    operand, value, _, _ = c.words
    name = OPERAND_NAMES[operand]
    bits = value & RESERVED_BITS
    said = ", ".join(str(n) for n in range(64) if bits >> n & 1)
    what = f"bit {said} belongs" if bits.bit_count() == 1 else f"bits {said} belong"
    return f"{name} of {c.name} is 0x{value:016x}: {what} to no field", f"operand {name}"


_GOES_ON = {
    MemoryEffect.READ: "it gets zeros",
    MemoryEffect.WRITE: "nothing is stored",
    MemoryEffect.ATOMIC: "nothing is changed, the result is 0",
}


def _forgiven(c: FindingContext) -> Said:
    """The message, place and perhaps hint of an access that failed in a launch that continues after faults (keep_going)."""
    from mmulator.sanitizer.diagnostics.faults import describe as faults
    from mmulator.sanitizer.diagnostics.faults import memory as faults_memory

    kind, (at, size), ins, help = FaultKind(c.words[0]), (int(c.entry["at"]), int(c.entry["bytes"])), c.instruction, None
    place = faults.describe_address(c.grid, at) if kind != FaultKind.BEYOND_SPACE else "beyond the state space"
    if kind in faults_memory.KINDS:
        null, place, help = faults_memory.place_of(c.grid, at, ins)
        kind = FaultKind.NULL_POINTER if null else FaultKind.OUT_OF_BOUNDS
    does = _GOES_ON.get(ins.effects.memory, "zeros are copied, or nothing")
    where = place if place.startswith("byte ") else f"address 0x{at:x}, {place}"
    wrong = faults.WORDS.get(kind, "wrong state space")
    return f"{wrong}: {ins.mnemonic}; the launch goes on, {does}", f"{size} byte{'s' * (size != 1)} at {where}", help or ""


@lru_cache(1024)
def _judged(form: Form, operand: str, word: int, shape: int) -> tuple[str, str, bool] | None:
    """The error that `mmulator descriptor check` finds in a matrix descriptor, its hint, and whether a stride is 0: so an atom is
    read again and again on purpose. shape: as in `matrix_described`.
    """
    from mmulator.matrix.inspect.descriptors.checks import check_tile, strides_used
    from mmulator.matrix.inspect.descriptors.tile import Placed, tile_of
    from mmulator.matrix.inspect.search import form_of
    from mmulator.matrix.inspect.tcgen05.descriptor import instruction_fields

    try:
        if form.effects.tensor:
            if word >> 52 & 1:  # the leading byte offset is an address, of the bytes behind a line
                return None
            fields = instruction_fields(shape, form.mnemonic)
            form, shape = form_of(fields.instruction), getattr(fields.descriptor, f"transpose_{operand}")
        tile = tile_of(form, operand, bool(shape))
        placed = Placed(tile, tile.generation.decode(word))
        found = check_tile(placed, 0, None, 1 << 32, 0)  # beyond memory is a fault
    except (MmulatorError, AttributeError):
        return None  # the launch says what is wrong
    again = any(not stride for _, stride in strides_used(placed))
    return next(((f.text, f.hint, again) for f in found if f.level == "error"), None)


def _error_of(c: FindingContext) -> tuple[str, str, bool] | None:
    operand, word, shape, _ = c.words
    return _judged(c.instruction.form, "ab"[operand], word, shape)


def misplaces(c: FindingContext) -> Rule | None:
    """The rule that a recorded matrix descriptor breaks."""
    found = _error_of(c)
    return found and (rules.MISPLACED if c.words[3] and not found[2] else rules.LAYOUT)


def _layout(c: FindingContext) -> str:
    text, hint, _ = must_be(_error_of(c), tuple)
    return f"{OPERAND_NAMES[c.words[0]]} {c.words[1]:#x} of {c.name}: {text}; {hint}"


SENTENCES: Sentences = {
    rules.SELECTOR_RANGE: _range, rules.SOURCE_SIZE: _source_size, rules.ROW_ADDRESS: _row, rules.LARGE: _large,
    rules.ADDRESS: _address, rules.STRIDE: _stride, rules.SHORT_STRIDE: _short, rules.SPACE: _space, rules.RESERVED: _reserved,
    rules.BASE_OFFSET: _base, rules.ROWS: _rows,
    **dict.fromkeys((rules.BOUNDS, rules.ALIGNMENT, rules.SPACES), _forgiven),
    **dict.fromkeys((rules.WGMMA_OPERAND, OPERAND_DIFFERS, rules.WMMA_OPERAND, rules.SELECTOR), _differs),
    **dict.fromkeys((rules.METADATA, rules.ORDER, rules.UNLISTED), _metadata),
    **dict.fromkeys((rules.TILE_SWIZZLE, rules.SWIZZLE_UNLIKE), _tile),
    **dict.fromkeys((rules.LAYOUT, rules.MISPLACED), _layout),
    **dict.fromkeys((rules.FRAGMENT, rules.CONVERTED, rules.REORDERED, rules.UNEVEN), _fragment),
}


def _mismatch(grid: Grid, cta: ResidentCta) -> Rule:
    """The rule that the warps of a warpgroup break: they executed different instructions, or one with different operands."""
    first, number = int(cta.state["fault_warp"]) // 4 * 4, int(cta.state["fault_address"])
    sites = {int(cta.operation(WGMMA, warp, number)["site"]) for warp in range(first, first + 4)}
    return DIVERGED if len(sites) > 1 else rules.WGMMA_OPERAND


FAULTS = {FaultKind.WGMMA_MISMATCH: _mismatch}
