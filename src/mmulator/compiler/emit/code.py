"""The facts about a kernel that are used while the code of its blocks is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mmulator.base.codegen.values import Value
    from mmulator.ptx.program.as_ptxas.inflight import Moved
    from mmulator.ptx.program.blocks import Program
    from mmulator.ptx.program.image import LocalFrame, ModuleImage
    from mmulator.ptx.program.skips import Skips
    from mmulator.ptx.program.undefined import MaybeUndefined
    from mmulator.ptx.tree import Instruction, ParsedModule, Symbol, Variable
    from mmulator.runtime.compiled import MatrixTables
    from mmulator.runtime.native.state import OperationKind
    from mmulator.runtime.options import CompileOptions


class Names(Protocol):
    """The values of names in a kernel."""

    def symbol(self, e: Any, symbol: Symbol) -> Value:
        """Address of a variable."""

    def special(self, e: Any, name: str) -> Value:
        """The value of a special register: in 32 lanes, or one value for all lanes."""


class KernelCode(Names, Protocol):
    """A kernel while its blocks are written.

    module, device, options: what is compiled.
    sites: the instruction of each number that a fault can name, filled as blocks are written.
    executed: the instruction of each such number as it is executed, which a rewrite may have made.
    matrix: tables of matrix instructions.
    queues: kind of asynchronous operation -> address of the function that carries it out.
    movers: kind of bulk operation (a TransferKind, or a number of this kernel) -> address of the function that carries it out.
    mbarriers: whether it initialises mbarriers.
    reserved: whether it asks where the system's part of shared memory is.
    unfenced: wgmma without a fence before them.
    moved: instructions that were moved from their place.
    image: the module's variables and functions.
    program: the kernel and the functions that it reaches.
    numbers: function -> its number.
    locals: function -> its local memory.
    params: offset of each kernel parameter.
    parameter_bytes: size of the kernel's parameters.
    stack: bytes of a lane for alloca.
    doubtful: function -> registers that may be undefined, under an instrument that needs them.
    variables: function -> variables that are adjacent to others.
    origins: function -> register with an address in one of these variables -> the variable.
    skips: aligned barriers that lanes may skip, under an instrument that needs them.
    unread: loads that may stay unread -> the number of their registers, under an instrument that needs them.
    held: function -> register of such a load -> these numbers.
    """

    module: ParsedModule
    device: str
    options: CompileOptions
    sites: list[Instruction]
    executed: list[Instruction]
    matrix: MatrixTables
    queues: dict[OperationKind, int]
    movers: dict[int, int]
    mbarriers: bool
    reserved: bool
    unfenced: set[Instruction]
    moved: Moved
    image: ModuleImage
    program: Program
    numbers: dict[str, int]
    locals: dict[str, LocalFrame]
    params: dict[str, int]
    parameter_bytes: int
    stack: int
    doubtful: dict[str, MaybeUndefined]
    variables: dict[str, dict[str, Variable]]
    origins: dict[str, dict[str, Symbol]]
    skips: Skips
    unread: dict[Instruction, int]
    held: dict[str, dict[str, set[int]]]
