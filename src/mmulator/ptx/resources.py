"""The resources that a kernel needs: registers, memory of each state space, threads, instructions."""

from collections import Counter
from collections.abc import Iterable, Mapping

from mmulator.base.classes import dataclass
from mmulator.isa.matrix import FAMILIES
from mmulator.ptx.symbols import parameter_bytes as parameter_bytes
from mmulator.ptx.symbols import parameter_offsets as parameter_offsets
from mmulator.ptx.tree import Function, ParsedModule, Reg, Symbol, Variable


@dataclass(frozen=True)
class Resources:
    """Resources that a kernel or function uses, callees included.

    registers: type -> number of registers.
    shared, const, local: bytes of the variables that it names; shared and const are laid out in order, with alignment.
    dynamic_shared: whether it names an extern shared array, whose size the launch decides.
    threads: directives about threads, such as maxntid, with their arguments.
    instructions: number of instructions in the text.
    matrix_instructions: mnemonic of a matrix instruction, or an opcode -> number in the text.
    calls: names of the functions that it calls.
    """

    registers: Mapping[str, int]
    shared: int
    dynamic_shared: bool
    const: int
    local: int
    threads: Mapping[str, tuple[int | str, ...]]
    instructions: int
    matrix_instructions: Mapping[str, int]
    calls: tuple[str, ...]


def _extent(variables: Iterable[Variable]) -> int:
    end = 0
    for v in variables:
        end = -(-end // v.align) * v.align + v.size
    return end


def named_symbols(functions: Iterable[Function]) -> frozenset[str]:
    """All names in the instructions of the functions, except registers."""
    return frozenset[str]().union(*(f.symbols for f in functions))


def resources(module: ParsedModule, function: Function) -> Resources:
    """Resources of a kernel or function and of everything it calls by name."""
    registers: dict[str, str] = {}
    variables: dict[tuple[str, str], Variable] = {}
    called: dict[str, Function] = {}
    waiting = [function]
    matrix: Counter[str] = Counter()
    while waiting:
        current = waiting.pop()
        for v in current.variables:
            if v.space in ("local", "shared"):  # ptxas keeps a function's own, named or not
                variables[current.name, v.name] = v
        for instruction in current.instructions:
            if current is function and instruction.opcode in FAMILIES:
                matrix[instruction.mnemonic] += 1
            guard = instruction.guard[:1] if instruction.guard else ()
            for leaf in (*guard, *instruction.leaves):
                if isinstance(leaf, Reg) and current is function:
                    registers[leaf.name] = leaf.type
                elif isinstance(leaf, Symbol):
                    own = current.variable(leaf.name)
                    found = own or module.variable(leaf.name)
                    if found is not None:
                        variables[current.name if own else "", leaf.name] = found
                    elif leaf.space == "func" and leaf.name not in called:
                        callee = module.function(leaf.name)
                        if callee is not None:
                            called[leaf.name] = callee
                            waiting.append(callee)
    shared = [v for v in module.variables if ("", v.name) in variables]  # in the order in which they lie
    every = shared + [v for (owner, _), v in variables.items() if owner]
    every.sort(key=lambda v: v.linkage == "extern")
    of = {space: [v for v in every if v.space == space] for space in ("shared", "const", "local")}
    return Resources(
        dict(sorted(Counter(registers.values()).items())),
        _extent(of["shared"]),
        any(v.linkage == "extern" for v in of["shared"]),
        _extent(of["const"]),
        _extent(of["local"]),
        dict(function.directives),
        sum(1 for _ in function.instructions),
        dict(matrix.most_common()),
        tuple(called),
    )
