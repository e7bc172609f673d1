"""The effects of an instruction besides computing its results: a column of every row, so that no other file lists opcodes.

A row without effects is lane-wise: each lane computes its results from its operands, and nothing else shows that the
instruction ran. If modifiers change the effects, `where` states the difference, and a form has the effects of its own
modifiers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any, Literal


class Ends(StrEnum):
    """How control leaves an instruction, which ends its basic block."""

    NO = "goto"  # for what follows
    BRANCH = "branch"
    INDEXED = "indexed"  # for one label of a list
    CALL = "call"
    RETURN = "return"
    EXIT = "exit"
    TRAP = "trap"
    BARRIER = "barrier"  # of the thread block; control comes back behind it
    WAIT = "wait"  # until what is pending is done; control may come back to the same instruction


class Together(Enum):
    """The lanes that execute an instruction together."""

    ALONE = "each lane for itself"
    MEMBERS = "those of its member mask, the last operand"
    MEETING = "those of its member mask, each at any instruction of this name"
    LIVE = "those of the warp that have not exited; the instruction looks itself"
    WARP = "all 32 of the warp"
    WARPGROUP = "those of four warps that have not exited"


class MemoryEffect(Enum):
    """The effect of an instruction on the bytes at its addresses."""

    NONE = "nothing"
    READ = "read"
    WRITE = "written"
    COPY = "read at one, written at another"
    REDUCE = "read at one, combined with those at another"
    ATOMIC = "read and written, and nobody comes between"


class Queue(Enum):
    """The queue in which an asynchronous operation waits for its execution."""

    NONE = "nowhere: it is done at once"
    COPIES = "among a thread's cp.async"
    WGMMA = "among a warpgroup's wgmma"
    BULK = "among a cluster's bulk operations"
    TENSOR = "among a thread's products, copies and shifts in tensor memory"
    TENSOR_MOVES = "among a thread's loads and stores of tensor memory"


class Step(Enum):
    """The effect of an instruction on a queue."""

    NONE = "nothing"
    ISSUE = "adds an operation"
    COMMIT = "closes a group of operations"
    WAIT = "waits for groups"
    SIGNAL = "lets an mbarrier know when it is empty"
    FENCE = "orders registers and operations"


class Orders(Enum):
    """The accesses that an instruction orders besides its own."""

    NONE = "nothing, or what its row says elsewhere"
    FENCE = "what comes before it in memory and what comes behind"
    CLUSTER = "what blocks of a cluster do before and behind their barrier"


class Ptxas(Enum):
    """The code that ptxas generates for an instruction, as found by experiment (docs/explanation/arithmetic.md)."""

    SELECTED = "straight code; under a guard its result is selected"
    GUARDED = "straight code; under a guard a branch"
    BRANCHES = "more than one block of machine code"
    EXPANDED = "the same, and it stays when nothing reads the result"


class Algebra(Enum):
    """The operation that folding and contraction see in an instruction (docs/explanation/arithmetic.md); for floating point, even
    if integer instructions have the same name.
    """

    NONE = "nothing"
    SUM = "a + b"
    DIFFERENCE = "a - b"
    PRODUCT = "a * b"
    QUOTIENT = "a / b"
    FUSED = "a * b + c, rounded once"
    RECIPROCAL = "1 / a"
    EXPONENTIAL = "2 ** a"
    ROOT = "the square root of a"
    INVERSE_ROOT = "1 / the square root of a"
    SINE = "sin a"
    COSINE = "cos a"
    LOGARITHM = "log2 a"
    TANGENT = "tanh a"
    NEGATION = "-a"
    MAGNITUDE = "|a|"
    COPY = "a"
    CONVERSION = "a in another type"
    SELECTION = "c ? a : b"
    COMPARISON = "a < b"
    AND = "a and b"
    OR = "a or b"
    XOR = "a xor b"
    NOT = "not a"
    MULTIPLE = "a * b of integers"
    SHIFT = "a << b"
    RIGHT = "a >> b"
    EXTREME = "the lesser of a and b, or the greater"


FUNCTIONS = (Algebra.ROOT, Algebra.INVERSE_ROOT, Algebra.SINE, Algebra.COSINE, Algebra.LOGARITHM)  # that ptxas evaluates, too


class Flow(Enum):
    """The condition under which a result has a defined value. EACH holds for arithmetic; the rows of instructions that take
    values from other lanes or from memory name another condition.
    """

    DEFINED = "they have one"
    EACH = "in a lane, if all its sources have one"
    ANY = "in a lane, if one of its sources has one: parts are put together, and nobody knows which are used"
    BESIDE = "as ANY where it puts several sources side by side, else as EACH"
    CHOICE = "as of the source that is chosen"
    LOGIC = "as EACH, or if one source decides alone"
    LOADED = "if the bytes have been written"
    ROWS = "the same, of rows that other lanes have the addresses of"
    PRODUCT = "an element, if its row of A, its column of B and what is added have one"
    TILE = "of an element, if the bytes of a tile that the warp has one address of have been written"
    WGMMA = "the same, of matrices in shared memory"
    PICKS = "as ANY of the sources that a selector picks from"
    LANES = "as of the lane that it is taken from"  # shfl alone, with its operands a, b, c and membermask
    ANSWER = "if the answer that it reads is yes"  # of clusterlaunchcontrol.query_cancel alone
    MOVED = "an element, if the lane that it comes from has one"  # the meaning calls `definedness.moved`, which needs a function
    WARP = "if a lane that takes part has one: nobody may look at what the others answer"
    REDUCED = "if all lanes that take part have one"


class Stored(Enum):
    """The values that an instruction stores, and the places where it stores them."""

    NOTHING = "none that a register holds"
    VALUES = "those of the operand behind the address, at each lane's address"
    COMBINED = "the operand behind the address, combined with what is there"
    ROWS = "those of a matrix, in rows that other lanes have the addresses of"
    TILE = "those of a matrix, at one address for the warp"


class Pointer(Enum):
    """The relation between an instruction's result and an address among its sources."""

    OTHER = "nobody knows"
    SAME = "an address in the same variable"
    MAPPED = "of the first, one in the variable of another block"
    CHOICE = "one of two"
    SUM = "the address and a number, in either order"
    DIFFERENCE = "the first, less a number"
    ADDEND = "the last, and a product"


class Addressed(Enum):
    """The lanes whose addresses an instruction uses."""

    LANES = "each lane its own"
    ROWS = "those of eight lanes for each matrix, one a row"
    WARP = "one for the warp"


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of an instruction besides computing.

    ends: how control leaves it.
    together: the lanes that execute it together.
    memory: its effect on the bytes at its addresses.
    queue, step: its effect on a queue of asynchronous operations.
    orders: whether it is a fence of memory, or a barrier of a cluster.
    pure: whether ptxas removes it if its results are not read.
    ptxas, algebra: how ptxas treats it.
    flow: when its results have a defined value.
    stored: what it stores.
    pointer: what it computes from an address.
    addressed: the lanes whose addresses it uses.
    hints: whether nothing depends on its addresses.
    cancels: whether its result is 0 if both sources are one register.
    counted_as: its class in a report; if empty, its type decides.
    multiplies: whether it counts as the multiply-accumulates of its shape.
    pinned: names of operands whose registers are read or written later by the hardware.
    carry: how it accesses the condition code.
    steady: whether the bytes that it reads must not be written while the kernel runs.
    approximate: whether its bits come from tables of a chip.
    allocates: whether it takes memory from a lane's stack.
    resizes: whether it changes the number of registers of its warp's threads.
    holds, frees: whether it takes columns of tensor memory, for which it may wait; whether it gives some back.
    tensor: whether it works on tensor memory.
    opaque: whether the specification leaves open which lane holds which element of its matrices.
    chooses: what the schedule chooses by its result, for a certificate; "" for nothing, or what other columns say.
    variants: (modifier, effects of forms with this modifier); the first match counts.
    still: whether there are none, besides the results: follows from the others.
    """

    ends: Ends = Ends.NO
    together: Together = Together.ALONE
    memory: MemoryEffect = MemoryEffect.NONE
    queue: Queue = Queue.NONE
    step: Step = Step.NONE
    orders: Orders = Orders.NONE
    pure: bool = True
    ptxas: Ptxas = Ptxas.SELECTED
    algebra: Algebra = Algebra.NONE
    flow: Flow = Flow.EACH
    stored: Stored = Stored.NOTHING
    pointer: Pointer = Pointer.OTHER
    addressed: Addressed = Addressed.LANES
    hints: bool = False
    cancels: bool = False
    counted_as: str = ""
    multiplies: bool = False
    pinned: tuple[str, ...] = ()
    carry: Literal["", "r", "w", "rw"] = ""
    steady: bool = False
    approximate: bool = False
    allocates: bool = False
    resizes: bool = False
    holds: bool = False
    frees: bool = False
    tensor: bool = False
    opaque: bool = False
    chooses: str = ""
    variants: tuple[tuple[str, Effects], ...] = ()
    still: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        alone = self.together is Together.ALONE and self.memory is MemoryEffect.NONE and self.ends is Ends.NO
        waits = self.queue is not Queue.NONE or self.step is not Step.NONE
        object.__setattr__(self, "still", alone and self.pure and not self.allocates and not waits)

    def but(self, **changes: Any) -> Effects:
        return replace(self, **changes)

    def where(self, modifiers: str, **changes: Any) -> Effects:
        """These effects, with `changes` for forms that have one of the modifiers (`"u64 s64"`)."""
        variant = replace(self, variants=(), **changes)
        return replace(self, variants=(*self.variants, *((m, variant) for m in modifiers.split())))

    def of(self, modifiers: Collection[str]) -> Effects:
        """The effects of a form with these modifiers."""
        for modifier, effects in self.variants:
            if modifier in modifiers:
                return effects
        return replace(self, variants=()) if self.variants else self


LANEWISE = Effects()
PARTS = Effects(flow=Flow.ANY)
ACTS = Effects(pure=False, ptxas=Ptxas.GUARDED)  # to be said in full by a row
