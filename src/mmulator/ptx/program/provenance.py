"""The variable from which an address was computed: a register has an origin if all instructions that write it take it from one
variable.

Only certain origins are reported. A register that can come from two variables, from a variable and something else, or from
arithmetic other than adding numbers to an address, has no known origin.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum

from mmulator.isa.effects import Ends, Flow, MemoryEffect, Pointer, Queue, Step
from mmulator.isa.types import type_bits
from mmulator.ptx.program.flow import settle
from mmulator.ptx.program.uses import accesses, registers_of, uses_and_defs
from mmulator.ptx.tree import (
    Address,
    Function,
    Immediate,
    Instruction,
    Operand,
    ParsedModule,
    Reg,
    Symbol,
    Variable,
    VectorOperand,
)

NOTHING: Mapping[str, Symbol] = {}
SPACES = ("shared", "local", "const")  # where variables lie side by side

ROW = 16  # bytes of a row of ldmatrix


class OtherOrigin(Enum):
    NUMBER = "no address"
    UNKNOWN = "an address, perhaps, of whatever it is"


Origin = Symbol | OtherOrigin


def variables_of(module: ParsedModule, function: Function) -> dict[str, Variable]:
    """Variables of known size that are adjacent to others, by name."""
    every = [*module.variables, *function.variables]
    return {v.name: v for v in every if v.space in SPACES and v.linkage != "extern" and v.size > 0}


def accessed_bytes(ins: Instruction) -> int:
    """Bytes that each lane accesses at the first address of an instruction; 0 if that is unknown."""
    effects = ins.effects
    if effects.counted_as in ("memory", "atomic") and "type" in dict(ins.form.modifiers):
        target = ins.operands[0 if not isinstance(ins.operands[0], Address) else 1]
        return max(type_bits(ins.form["type"]) // 8, 1) * (len(target.elements) if isinstance(target, VectorOperand) else 1)
    if effects.counted_as == "matrix move" and effects.memory is not MemoryEffect.NONE:
        return ROW
    copies = effects.queue in (Queue.COPIES, Queue.BULK) and effects.step is Step.ISSUE and len(ins.operands) > 2
    return ins.operands[2].value if copies and isinstance(ins.operands[2], Immediate) else 0


def _joined(a: Origin | None, b: Origin | None) -> Origin | None:
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, Symbol) and isinstance(b, Symbol):
        return a if a.name == b.name else OtherOrigin.UNKNOWN
    return a if a is b else OtherOrigin.UNKNOWN


def _loads(ins: Instruction) -> bool:
    return ins.effects.flow is Flow.LOADED and ins.effects.memory is MemoryEffect.READ


def pointers(function: Function, given: Mapping[tuple[str, int], object]) -> dict[str, tuple[str, int]]:
    """The pointer parameter from which each register's address is computed: register -> (name of the parameter, byte in it).
    given: parameters that are pointers.
    """
    loaded: dict[str, Symbol] = {}
    twice: set[str] = set()
    for ins in function.instructions:
        place = next((o for o in ins.operands if isinstance(o, Address)), None)
        if not _loads(ins) or place is None or not isinstance(place.base, Symbol) or place.base.space != "param":
            continue
        at = place.base.offset + place.offset
        for n, name in enumerate(registers_of(ins.operands[0])):
            twice |= {name} & loaded.keys()
            key = place.base.name, at + 8 * n
            if key in given:
                loaded[name] = replace(place.base, name=f"{key[0]}+{key[1]}", offset=0)
    keys = {f"{name}+{at}": (name, at) for name, at in given}
    found = origins(function, {}, {n: s for n, s in loaded.items() if n not in twice})
    return {name: keys[symbol.name] for name, symbol in found.items()}


def stored_through(function: Function, given: Mapping[tuple[str, int], object]) -> frozenset[tuple[str, int]] | None:
    """The pointer parameters through which a function writes global memory, as (name, byte in it); None if it may write
    elsewhere. given: parameters that are pointers.
    """
    known, found = pointers(function, given), set()
    for ins in filter(_writes_global, function.instructions):
        base = next((o.base for o in ins.operands if isinstance(o, Address)), None)
        if ins.effects.ends is Ends.CALL or ".tensor." in ins.mnemonic or not isinstance(base, Reg) or base.name not in known:
            return None
        found.add(known[base.name])
    return frozenset(found)


def _writes_global(ins: Instruction) -> bool:
    """Whether an instruction may write global memory."""
    effects, memory = ins.effects, ins.effects.memory
    if effects.ends is Ends.CALL:
        return True
    if memory in (MemoryEffect.NONE, MemoryEffect.READ) or effects.counted_as in ("barrier", "cluster"):
        return False
    if effects.queue in (Queue.COPIES, Queue.TENSOR, Queue.TENSOR_MOVES):
        return False
    said = ins.mnemonic.replace("::cluster", "").replace("::cta", "")
    return not {*said.split(".")} & {"shared", "local", "param"} or "global.shared" in said


def origins(function: Function, variables: dict[str, Variable], loaded: Mapping[str, Symbol] = NOTHING) -> dict[str, Symbol]:
    """The variable of each register's address, by the register's name. loaded: registers that load an address from memory, with
    the address's variable.
    """
    known: dict[str, Origin] = {}
    steps = [(i, uses_and_defs(i)[1]) for i in function.instructions]
    steps = [(i, defs) for i, defs in steps if defs]

    def step() -> dict[str, Origin]:
        for ins, defs in steps:
            said = _origin(ins, known, variables)
            for name in defs:
                origin = loaded[name] if name in loaded and _loads(ins) else said
                joined = _joined(known.get(name), origin) if origin is not None else None
                if joined is not None:
                    known[name] = joined
        return {**known}

    settle(step, {})
    given = {p.name for p in (*function.params, *function.returns)}
    return {n: o for n, o in known.items() if isinstance(o, Symbol) and n not in given}


def _of(operand: Operand, known: dict[str, Origin], variables: dict[str, Variable]) -> Origin | None:
    if isinstance(operand, Reg):
        return known.get(operand.name)
    if isinstance(operand, Symbol) and operand.name in variables:
        return replace(operand, offset=0)
    return OtherOrigin.UNKNOWN if isinstance(operand, Symbol) else OtherOrigin.NUMBER


def _origin(ins: Instruction, known: dict[str, Origin], variables: dict[str, Variable]) -> Origin | None:
    """The origin of an instruction's results; None if it is not known yet."""
    if ins.effects.ends is not Ends.NO or any(isinstance(o, Address) for o in ins.operands):
        return OtherOrigin.NUMBER  # loaded, or the result of a call
    kind = ins.effects.pointer
    if kind is Pointer.SAME and len(ins.operands) == 2 and isinstance(ins.operands[0], Reg):
        if not isinstance(ins.operands[1], Reg | Symbol):
            return OtherOrigin.UNKNOWN if _touches(ins, known, variables) else OtherOrigin.NUMBER
        return _of(ins.operands[1], known, variables)
    if kind is Pointer.MAPPED:
        return _of(ins.operands[1], known, variables)
    sources = [_of(o, known, variables) for o in ins.operands[1:]]
    if kind is Pointer.CHOICE:
        return _joined(*sources[:2])
    if kind is not Pointer.OTHER and kind is not Pointer.SAME and len(sources) in (2, 3):
        if any(s is None for s in sources):
            return None
        last = sources[-1]
        found = [s for s in sources if isinstance(s, Symbol)]
        if OtherOrigin.UNKNOWN in sources or len(found) > 1:
            return OtherOrigin.UNKNOWN
        if not found:
            return OtherOrigin.NUMBER
        wrong = kind is not Pointer.SUM and isinstance(last, Symbol) == (kind is Pointer.DIFFERENCE)
        return OtherOrigin.UNKNOWN if wrong else found[0]
    return OtherOrigin.UNKNOWN if _touches(ins, known, variables) else OtherOrigin.NUMBER


def _touches(ins: Instruction, known: dict[str, Origin], variables: dict[str, Variable]) -> bool:
    """Whether an instruction computes with an address."""
    for access, operand in accesses(ins):
        if "r" in access:
            if isinstance(operand, Symbol) and operand.name in variables:
                return True
            if any(isinstance(o := known.get(n), Symbol) or o is OtherOrigin.UNKNOWN for n in registers_of(operand)):
                return True
    return False
