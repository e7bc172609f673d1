"""What the code of a block knows of the kernel that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mmulator.compiler.emit.block import Names
from mmulator.compiler.emit.tables import MatrixTables as MatrixTables
from mmulator.native.state import OperationKind
from mmulator.program.as_ptxas.inflight import Moved
from mmulator.program.image import LocalFrame
from mmulator.program.skips import Skips
from mmulator.program.undefined import MaybeUndefined
from mmulator.ptx.tree import Instruction, ParsedModule, Symbol, Variable

if TYPE_CHECKING:
    from mmulator.compiler.options import CompileOptions


class KernelCode(Names, Protocol):
    """A kernel while its blocks are written.

    sites: the instruction of each number that a fault can name, filled as blocks are written. unfenced: instructions (by
    id) of wgmma without a fence before them. moved: what does not stand where it stood. numbers: of the functions. locals: their
    local memory. params: offset of each kernel parameter. queues: address of what carries out each kind of asynchronous
    operation; movers: of each kind of bulk operation (by number: a TransferKind, or one of the kernel's own). mbarriers: it makes
    some. stack: bytes that a lane has for alloca. doubtful: of each function the registers that may have no value, if anybody
    asks; variables: those that lie side by side; origins: of registers that are addresses in one of these which one. skips:
    aligned barriers that lanes may pass by, if anybody asks.
    """

    module: ParsedModule
    device: str
    options: CompileOptions
    sites: list[Instruction]
    matrix: MatrixTables
    queues: dict[OperationKind, int]
    movers: dict[int, int]
    mbarriers: bool
    unfenced: set[int]
    moved: Moved
    numbers: dict[str, int]
    locals: dict[str, LocalFrame]
    params: dict[str, int]
    parameter_bytes: int
    stack: int
    doubtful: dict[str, MaybeUndefined]
    variables: dict[str, dict[str, Variable]]
    origins: dict[str, dict[str, Symbol]]
    skips: Skips
