"""A module's functions as numbered basic blocks: what the JIT compiles and the scheduler steps through.

A block ends where control may leave (branch, call, barrier, exit) and begins at a label or at an instruction that needs its
warp together (`.sync`): there the block's code first checks that the lanes are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from mmulator.errors import UnsupportedError
from mmulator.isa.forms import MatrixForm, OperandSpec
from mmulator.program.calls import cycles, reached
from mmulator.program.operands import call_operands
from mmulator.ptx.tree import (
    Address,
    Function,
    Immediate,
    Instruction,
    Label,
    LabelRef,
    Module,
    Operand,
    Reg,
    Symbol,
    VectorOperand,
    flatten,
)

Ending = Literal["goto", "branch", "exit", "return", "call", "barrier", "indexed", "wgmma.wait"]
CARRY = "%CC"  # the condition code register of add.cc and its kin, as a predicate register of each function

BUILTINS = ("vprintf", "__assertfail")  # functions of CUDA's runtime that can be called

WGMMA_BLOCK = 32  # wgmma.mma_async in one basic block, at most: half of what a warp may be ahead of the others
# Registers that the instructions of a block name, repetitions counted. LLVM's time grows faster than the length of a function,
# so longer blocks are cut; what lives across a cut goes through memory, which costs little every few hundred instructions.
LONGEST = 4000

_WARP_SYNC = {"shfl.sync", "vote.sync", "match.any.sync", "match.all.sync", "match.sync", "redux.sync", "elect.sync",
              "bar.warp.sync"}  # fmt: skip
_WHOLE_WARP = {"mma", "wmma", "wgmma", "ldmatrix", "stmatrix", "movmatrix", "setmaxnreg"}
_ENDS = {"bra", "brx", "ret", "exit", "call", "bar", "barrier", "trap"}


@dataclass
class Block:
    """body: straight-line instructions. ending: how it ends; `last`: the instruction that ends it, if one does.

    sync: the first instruction of body needs its partners here. after: results that arrive when control comes back
    (of a barrier reduction or a call), written at the start. targets: following blocks (for `branch`: taken, next).
    """

    index: int
    function: FunctionBlocks
    body: list[Instruction] = field(default_factory=list)
    ending: Ending = "goto"
    last: Instruction | None = None
    targets: list[int] = field(default_factory=list)
    sync: bool = False
    after: Instruction | None = None


@dataclass
class FunctionBlocks:
    function: Function
    blocks: list[Block] = field(default_factory=list)

    @property
    def entry(self) -> int:
        return self.blocks[0].index


@dataclass
class Program:
    """The kernel (first) and every function it can reach, their blocks numbered through.

    groups: functions that can call each other, callers first, and whether they can recur. pointed: functions whose address is
    taken, which alone can be called through pointers.
    """

    module: Module
    functions: dict[str, FunctionBlocks]
    blocks: list[Block]
    groups: list[tuple[tuple[str, ...], bool]]
    pointed: frozenset[str]

    @property
    def entry(self) -> FunctionBlocks:
        return next(iter(self.functions.values()))


def form_name(ins: Instruction) -> str:
    return getattr(ins.form, "name", "") or ins.opcode


def takes_whole_warp(ins: Instruction) -> bool:
    """A warp-level .aligned instruction: all 32 lanes execute it together."""
    return ins.opcode in _WHOLE_WARP


def needs_warp(ins: Instruction) -> bool:
    return ins.opcode in _WHOLE_WARP or form_name(ins) in _WARP_SYNC


def is_wgmma_issue(ins: Instruction) -> bool:
    return ins.opcode == "wgmma" and ins.modifiers[:1] == ("mma_async",)


def is_wgmma_wait(ins: Instruction) -> bool:
    return ins.opcode == "wgmma" and ins.modifiers[:1] == ("wait_group",)


def is_warp_barrier(ins: Instruction) -> bool:
    return form_name(ins).endswith("warp.sync")


def ends_block(ins: Instruction) -> bool:
    if ins.opcode in ("bar", "barrier"):
        return form_name(ins) != "bar.warp.sync"
    return ins.opcode in _ENDS or is_wgmma_wait(ins)


class Together(IntEnum):
    """Which lanes are known to be in the block."""

    SOME = 0
    LIVE = 1  # all that have not exited
    WHOLE = 2  # all 32
    MASK = 3  # those of a member mask that is not known here


def _partners(ins: Instruction) -> Together:
    """What an instruction asks for. Lanes of a warpgroup that have exited are checked where it issues."""
    if ins.opcode in _WHOLE_WARP:
        return Together.LIVE if ins.opcode == "wgmma" else Together.WHOLE
    last = ins.operands[-1] if ins.operands else None
    return Together.LIVE if isinstance(last, Immediate) and last.bits("b32") == 0xFFFFFFFF else Together.MASK


def build(
    module: Module, entry: Function, prepare: Callable[[Function], Function] = lambda f: f, *, longest: int = LONGEST
) -> Program:
    """Number the blocks of `entry` and of the functions it can reach, each after `prepare` has rewritten it.

    longest: see LONGEST; with 0 every instruction is a block of its own.
    """
    found = reached(module, entry)
    functions = {name: FunctionBlocks(prepare(function)) for name, (function, _) in found.items()}
    mentioned = {name: mentions for name, (_, mentions) in found.items()}
    blocks: list[Block] = []
    for item in functions.values():
        _split(item, blocks, longest)
    pointed = frozenset(n for r in mentioned.values() for n in r.taken)
    return Program(module, functions, blocks, cycles(mentioned), pointed)


class _Splitter:
    def __init__(self, item: FunctionBlocks, blocks: list[Block], longest: int) -> None:
        self.item, self.blocks, self.longest = item, blocks, longest
        self.fixups: list[tuple[Block, int, str]] = []
        self.labels: dict[str, int] = {}
        self.together = Together.SOME
        self.current = self.new()
        function = item.function
        self.receives = not function.is_entry and any(p.space == "reg" for p in function.params)

    def new(self) -> Block:
        block = Block(len(self.blocks), self.item)
        self.blocks.append(block)
        self.item.blocks.append(block)
        self.together = Together.SOME
        self.weight = 0
        return block

    def fall(self) -> Block:
        """End the current block by going on to a new one."""
        old = self.current
        self.current = self.new()
        old.targets.append(self.current.index)
        return old

    def label(self, name: str) -> None:
        first = self.receives and self.current is self.item.blocks[0]  # it takes the parameters, once
        if self.current.body or self.current.after or first or self.item.blocks[-1] is not self.current:
            self.fall()
        self.labels[name] = self.current.index

    def guard(self, ins: Instruction) -> None:
        """A guarded instruction that must stand alone: branch around it."""
        block = self.current
        block.ending, block.last = "branch", ins
        self.current = self.new()
        block.targets.append(self.current.index)

    def add(self, ins: Instruction) -> None:
        if self.weight > self.longest:
            together = self.together
            self.fall()
            self.together = together  # nobody else comes here
        special = ends_block(ins)
        sync = needs_warp(ins)
        if ins.opcode == "bra" and ins.guard is not None:
            block = self.current
            block.ending, block.last = "branch", ins
            self.target(block, ins.operands[0])
            self.current = self.new()
            block.targets.append(self.current.index)
            return
        guarded = ins.guard is not None and (special or sync)
        around = self.current if guarded else None
        if guarded:
            self.guard(ins)
        alone = is_wgmma_wait(ins) or self.crowded(ins) or (ins.opcode == "wgmma" and not self.current.sync)
        if sync and (alone or self.together < _partners(ins)):
            # a wait is tried again from the start of its block: nothing may stand before it
            if self.current.body or self.current.after:
                self.fall()
            self.current.sync = True
            self.together = _partners(ins) if _partners(ins) is not Together.MASK else Together.SOME
        if special:
            self.end(ins)
        else:
            self.current.body.append(ins)
            self.weight += 2 + sum(1 for o in flatten(ins.operands) if isinstance(o, Reg))
            if is_warp_barrier(ins) and self.current.sync and len(self.current.body) == 1:
                self.fall()  # its lanes may come to several of them, and go on from each
                self.together = Together.SOME
        if around is not None:
            if self.current.body or self.current.sync or self.current.after is not None:
                self.fall()  # lanes that skip it do not receive its results either
            around.targets.append(self.current.index)

    def crowded(self, ins: Instruction) -> bool:
        """A block asks at its start for room in the queue for all wgmma in it."""
        return is_wgmma_issue(ins) and sum(map(is_wgmma_issue, self.current.body)) >= WGMMA_BLOCK

    def target(self, block: Block, operand: Operand) -> None:
        if not isinstance(operand, LabelRef):
            raise UnsupportedError("a branch goes to a label", span=operand.span)
        block.targets.append(-1)
        self.fixups.append((block, len(block.targets) - 1, operand.name))

    def end(self, ins: Instruction) -> None:
        block = self.current
        block.last = ins
        is_entry = self.item.function.is_entry
        match ins.opcode:
            case "bra":
                block.ending = "goto"
                self.target(block, ins.operands[0])
                self.current = self.new()
                return
            case "brx":
                block.ending = "indexed"
                name = ins.operands[1]
                if not isinstance(name, Symbol):
                    raise UnsupportedError("brx.idx needs a .branchtargets list", span=ins.span)
                for label in self.item.function.targets[name.name].targets:
                    self.target(block, label)
                self.current = self.new()
                return
            case "exit":
                block.ending = "exit"
            case "trap":
                block.ending = "exit"
            case "ret":
                block.ending = "exit" if is_entry else "return"
            case "call":
                block.ending = "call"
            case "wgmma":
                block.ending = "wgmma.wait"
            case _:
                block.ending = "barrier"
        after = self.fall() if block.ending in ("call", "barrier", "wgmma.wait") else None
        if after is None:
            self.current = self.new()
        elif block.ending in ("call", "barrier"):
            self.current.after = ins

    def finish(self) -> None:
        # control that runs off the end returns
        self.current.ending = "exit" if self.item.function.is_entry else "return"
        for block, at, name in self.fixups:
            block.targets[at] = self.labels[name]


def _split(item: FunctionBlocks, blocks: list[Block], longest: int) -> None:
    splitter = _Splitter(item, blocks, longest)
    for statement in item.function.body:
        if isinstance(statement, Label):
            splitter.label(statement.name)
        else:
            splitter.add(statement)
    splitter.finish()


# registers ----------------------------------------------------------------------------------------------------------
def registers_of(operand: Operand) -> Iterator[str]:
    for o in flatten((operand,)):
        if isinstance(o, Reg):
            yield o.name


def uses_and_defs(ins: Instruction) -> tuple[set[str], set[str]]:
    """Registers that an instruction reads and those it writes. A guarded write reads too: the old value may stay."""
    uses: set[str] = set()
    defs: set[str] = set()
    if ins.opcode == "call":
        results, arguments = call_operands(ins)
        defs.update(n for o in results for n in registers_of(o))
        uses.update(n for o in arguments for n in registers_of(o))
        uses.update(n for o in ins.operands if isinstance(o, Reg) for n in registers_of(o))
    else:
        for access, operand in accesses(ins):
            names = set(registers_of(operand))
            if "w" in access and not isinstance(operand, Address):
                defs |= names
            if "r" in access or isinstance(operand, Address):
                uses |= names
    name = form_name(ins)
    if ins.opcode in ("addc", "subc", "madc"):
        uses.add(CARRY)
    if ins.opcode in ("add", "sub", "mad", "addc", "subc", "madc") and "cc" in (*ins.modifiers, *name.split(".")):
        defs.add(CARRY)
    if ins.guard is not None:
        uses.add(ins.guard[0].name)
        uses |= defs
    return uses, defs


def accesses(ins: Instruction) -> Iterator[tuple[str, Operand]]:
    """Each operand with how it is accessed: r, w or rw."""
    if isinstance(ins.form, MatrixForm):
        for spec, operand in zip(signature_of(ins.form, ins.operands), ins.operands):
            yield _ACCESS[spec.direction], operand
        return
    specs = ins.form.operands if ins.form is not None else ()
    for number, operand in enumerate(ins.operands):
        yield (specs[number].access if number < len(specs) else "r"), operand


_ACCESS = {"in": "r", "out": "w", "inout": "rw"}


def signature_of(form: MatrixForm, operands: tuple[Operand, ...]) -> tuple[OperandSpec, ...]:
    """Of the operand lists that a form accepts, the one these operands are written in."""
    for signature in form.signatures:
        if len(signature) == len(operands) and all(
            (spec.kind in ("registers", "group")) == isinstance(o, VectorOperand) for spec, o in zip(signature, operands)
        ):
            return signature
    return form.operands
