"""Addresses outside the kernel's memory, in words: from which argument an address was computed, what lies near it, and
whether 32 bits did not hold an index: then the offset and a multiple of 2^32 elements lie in the argument, and 32
bits lead there.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from mmulator.base.findings import spoken
from mmulator.base.rules.words import WIDE_INDEX
from mmulator.isa.effects import Algebra, Pointer
from mmulator.isa.types import TYPES, type_bits
from mmulator.ptx.program.addresses import SHARED_BASE
from mmulator.ptx.program.parameters import called, names
from mmulator.ptx.program.provenance import pointers
from mmulator.ptx.tree import Address, Function, Immediate, Instruction, Reg, flatten
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.regions import NULL, Region, freed
from mmulator.runtime.native.state import FaultKind

KINDS = (FaultKind.OUT_OF_BOUNDS, FaultKind.NULL_POINTER)  # of accesses to the global space
_NEAR = 1 << 20  # bytes: a nearer buffer than the argument's is named too
_FAR = 1 << 32  # bytes: a greater distance is not meaningful
_POINTER, _LOW, HALF = 8, (1 << 32) - 1, 1 << 63
FREED = "free memory when the last kernel that uses it is over; a pointer that was stored or passed before must be set anew"
OWN = "a kernel may use memory of cudaMalloc, cudaMallocManaged and cudaMallocHost, and what cudaHostRegister was given"
# Of programs of C++, whose device memory the host cannot read: (addresses, name) of the host's memory around an address.
host_memory: list[Callable[[int], tuple[range, str] | None]] = []


def place_of(grid: Grid, address: int, ins: Instruction) -> tuple[bool, str, str | None]:
    """(whether the pointer was null, the place of the address in words, a hint or None for the usual hint).

    The place reads `byte 4096 of argument 1 (x), which has 512; 512 bytes before argument 0 (out)`.
    """
    argument = argument_of(grid, ins)
    if argument is not None and not argument[0]:
        return True, f"byte {address} of {argument[1]}, which is null", f"pass memory for {argument[1]}, or do not access it"
    memories = named(grid)
    cut = next((m for m in memories if NULL <= m.start & _LOW < m.start and 0 <= address - (m.start & _LOW) < m.size), None)
    if cut is not None:
        said = f"which is in no buffer: these are the low 32 bits of byte {address - (cut.start & _LOW)} of {cut.label}"
        return False, said, "compute addresses in 64 bits: an instruction that takes or leaves 32 has cut this one off"
    memory = _given(grid, argument[0]) if argument is not None else None
    others = sorted((m for m in memories if memory is None or m.start != memory.start), key=lambda m: apart(m, address))
    nearest = others[0] if others else None
    if memory is not None and address >= NULL:
        said = f"byte {address - memory.start} of {memory.label}, which has {memory.size}"
        wrap = wrapped(function_of(grid, ins), ins, (address - memory.start + HALF) % (2 * HALF) - HALF, memory.size)
        if wrap is not None:
            return False, f"{said}; {wrap[0]}", wrap[1]
        if nearest is not None and apart(nearest, address) < min(apart(memory, address), _NEAR):
            said += f"; {_beside(nearest, address)}"
        return False, said, None
    if address < NULL:
        return True, f"byte {address} of the null page", None
    if address < SHARED_BASE + grid.shared:
        said = f"which is in no buffer; as an offset it would be byte {address - SHARED_BASE} of shared memory"
        return False, said, "an address of .shared is an offset: access it with .shared, or make it generic with cvta.shared"
    if gone := freed(address, memories):
        return False, gone, FREED
    if own := own_memory(grid, address):
        return False, own, OWN
    said = "which is in no buffer" + (f"; nearest: {_nearest(nearest, address)}" if nearest is not None else "")
    return False, said, "no single argument leads to this address: look where it is computed, or loaded from"


def named(grid: Grid) -> Sequence[Region]:
    """The memory of a launch, where the source of the kernel is known with the names that it has for the arguments."""
    function = grid.kernel.program.entry.function
    known = names(function)
    if not known:
        return grid.memory
    pointed = {value: f"argument {n} ({known[n]})" for n, at, value in reversed([*_words(grid)]) if not at}
    out = []
    for m in grid.memory:
        label = m.label
        for n, p in enumerate(function.params):
            label = label.replace(f"argument {n} ({p.name})", f"argument {n} ({known[n]})")
        out.append(replace(m, label=label if label.startswith("argument") else pointed.get(m.start, label)))
    return out


def own_memory(grid: Grid, address: int) -> str:
    """Memory that a program of C++ never gave to CUDA in words: which it is, and the argument nearest to the address that points
    there; "" for other addresses.
    """
    found = host_memory[0](address) if host_memory else None
    if found is None:
        return ""
    where, name = found
    near = [w for w in _words(grid) if w[2] in where and _given(grid, w[2]) is None]
    if not near:  # pinned and managed memory lie in the heap, too
        return "" if any(m.start in where for m in grid.memory) else f"in {name}"
    n, _, value = min(near, key=lambda w: abs(address - w[2]))
    return f"byte {address - value} of argument {n} ({called(grid.kernel.program.entry.function)[n]}), which points to {name}"


def argument_of(grid: Grid, ins: Instruction) -> tuple[int, str] | None:
    """The pointer argument from which an access computed its address, as (value, name); None if that is unknown."""
    function = function_of(grid, ins)
    if function is None or function.name != grid.kernel.program.entry.function.name:
        return None
    given = {(name, at): (value, label) for name, at, value, label in _values(grid, function)}
    for wanted in (bool, lambda value: not value):  # what is 0 may be a number, too
        known = pointers(function, {key: None for key, (value, _) in given.items() if wanted(value)})
        bases = [o.base for o in ins.original.operands if isinstance(o, Address)]
        found = {known[base.name] for base in bases if isinstance(base, Reg) and base.name in known}
        if len(found) == 1:
            return given[found.pop()]
    return None


def function_of(grid: Grid, ins: Instruction) -> Function | None:
    """The function of the kernel's program that contains an instruction."""
    every = (f.function for f in grid.kernel.program.functions.values())
    return next((f for f in every for i in f.instructions if i.original.span == ins.span), None)


def _values(grid: Grid, function: Function) -> Iterator[tuple[str, int, int, str]]:
    """Words of the launch's parameters, at multiples of 8 bytes, that are addresses in memory, or 0."""
    for n, at, value in _words(grid):
        memory = _given(grid, value) if value else None
        if not value or memory is not None:
            label = memory.label if memory is not None else f"argument {n} ({called(grid.kernel.program.entry.function)[n]})"
            yield function.params[n].name, at, value, label


def _words(grid: Grid) -> Iterator[tuple[int, int, int]]:
    """(number of the parameter, offset in it, value) of the words of the launch's parameters, at multiples of 8 bytes."""
    data, offsets = grid.arguments.params.tobytes(), list(grid.arguments.offsets)
    for at in range(0, len(data) - _POINTER + 1, _POINTER):
        n = bisect_right(offsets, at) - 1
        if n >= 0:
            yield n, at - offsets[n], int.from_bytes(data[at : at + _POINTER], "little")


def _given(grid: Grid, value: int) -> Region | None:
    """The memory that a pointer points to: the memory that begins there, or otherwise the memory that contains the address."""
    memories = named(grid)
    return next((m for m in memories if m.start == value), None) or next(
        (m for m in memories if m.start <= value <= m.start + m.size), None
    )


def apart(m: Region, address: int) -> int:
    """Distance between a piece of memory and an address, in bytes; 0 inside."""
    return m.start - address if address < m.start else max(0, address - m.start - m.size)


def _beside(m: Region, address: int) -> str:
    """A nearby buffer in words: `512 bytes before argument 0 (out)`."""
    if address < m.start:
        return f"{m.start - address} bytes before {m.label}"
    beyond = address - m.start - m.size
    if beyond < 0:
        return f"byte {address - m.start} of {m.label}"
    return f"{beyond} bytes after {m.label}" if beyond else f"right after {m.label}"


def _nearest(m: Region, address: int) -> str:
    if apart(m, address) < _FAR:
        return f"byte {address - m.start} of {m.label}, which has {m.size}"
    return f"{m.label}, {m.size} bytes at 0x{m.start:x}"


# indices that 32 bits did not hold ------------------------------------------------------------------------------------
_TURNS, _SIZES = (1, -1, 2, -2), (1, 2, 4, 8, 16)  # how often 2^32 was left out; bytes of an element
_LEAST = -(1 << 31)  # of an i32
_MOST = 200  # registers from which an address is computed
_WORDS = {
    Algebra.MULTIPLE: "product", Algebra.SHIFT: "product", Pointer.ADDEND: "product", Pointer.SUM: "sum",
    Pointer.DIFFERENCE: "difference",
}  # fmt: skip


def wrapped(function: Function | None, ins: Instruction, offset: int, size: int) -> tuple[str, str] | None:
    """(what happened, a hint) of an access at a byte of an argument; None where no index of 32 bits explains it.

    function, ins: the access.
    offset: of the access from the argument's first byte.
    size: bytes of the argument.
    """
    meant = ((turns, n) for turns in _TURNS for n in _SIZES if 0 <= offset + (turns * n << 32) < size)
    base = next((o.base for o in ins.original.operands if isinstance(o, Address)), None)
    turns, n = min(meant, key=lambda x: not _LEAST <= offset // x[1] < 1 << 32, default=(0, 0))
    if function is None or not isinstance(base, Reg) or not turns:
        return None
    found = (max if turns > 0 else min)(_narrow(function, base.name), key=_factor, default=None)
    if found is None:
        return None
    span, index, turned = found.original.span, offset // n, "2 * 2^32" if turns**2 > 1 else "2^32"
    said = f"{index} = {index + (turns << 32)} {'-' if turns > 0 else '+'} {turned}"
    if not _LEAST <= index < 1 << 32:  # other numbers are added to it
        way = "before" if turns > 0 else "after"
        said = f"{turned} elements of {n} byte{'s' * (n > 1)} {way} byte {offset + (turns * n << 32)}"
    kind, edge = ("an i32", "2^31") if index < 0 else ("a u32", "2^32")
    word = f"{kind} {_word(found)} {f'passed {edge}' if turns > 0 else 'went below 0'}"
    return f"{word} at {span.brief or span.row} ({said})", spoken(WIDE_INDEX, span)


def _word(ins: Instruction) -> str:
    """The result of arithmetic on integers in words; "" of other instructions."""
    return _WORDS.get(ins.effects.algebra) or _WORDS.get(ins.effects.pointer, "")


def _narrow(function: Function, name: str) -> Iterator[Instruction]:
    """Instructions that compute in 32 bits and lead to a register, the nearest first."""
    left = [name]
    for register in left:
        for i in function.instructions if len(left) < _MOST else ():
            to, *given = i.operands or (None,)
            if not isinstance(to, Reg) or to.name != register or any(isinstance(o, Address) for o in given):
                continue
            left += [o.name for o in flatten(given) if isinstance(o, Reg) and o.type != "pred" and o.name not in left]
            if _word(i) and i.form["type"] in TYPES and type_bits(i.form["type"]) == 32 and i.form["mode"] != "wide":
                yield i


def _factor(ins: Instruction) -> int:
    """How large a result can be beside its first operand: a product of registers is larger than one with a constant."""
    word, second = _word(ins), ins.operands[2]
    if word != "product" or not isinstance(second, Immediate):
        return {"product": 1 << 32, "sum": 1, "difference": 0}[word]
    return 1 << (second.value & 31) if ins.effects.algebra is Algebra.SHIFT else abs(second.value)
