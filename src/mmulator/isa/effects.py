"""What an instruction does besides computing its results: a column of every row, so that nobody else keeps lists of opcodes.

What says nothing is lane-wise: each lane computes its results from its operands, and nothing else shows that it ran. A row that
does more says what. Where the modifiers decide, `where` has the difference, and a form has the effects of its own modifiers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any, Literal


class Ends(StrEnum):
    """How control leaves an instruction, and the block of code that ends there."""

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
    """Which lanes execute an instruction together."""

    ALONE = "each lane for itself"
    MEMBERS = "those of its member mask, the last operand"
    MEETING = "those of its member mask, each at any instruction of this name"
    LIVE = "those of the warp that have not exited; the instruction looks itself"
    WARP = "all 32 of the warp"
    WARPGROUP = "those of four warps that have not exited"


class MemoryEffect(Enum):
    """What becomes of the bytes at its addresses."""

    NONE = "nothing"
    READ = "read"
    WRITE = "written"
    COPY = "read at one, written at another"
    REDUCE = "read at one, combined with those at another"
    ATOMIC = "read and written, and nobody comes between"


class Queue(Enum):
    """Where an asynchronous operation waits to be done."""

    NONE = "nowhere: it is done at once"
    COPIES = "among a thread's cp.async"
    WGMMA = "among a warpgroup's wgmma"
    BULK = "among a cluster's bulk operations"


class Step(Enum):
    """What an instruction does to a queue."""

    NONE = "nothing"
    ISSUE = "adds an operation"
    COMMIT = "closes a group of operations"
    WAIT = "waits for groups"
    SIGNAL = "lets an mbarrier know when it is empty"
    FENCE = "orders registers and operations"


class Orders(Enum):
    """Orders says what an instruction orders besides its own accesses."""

    NONE = "nothing, or what its row says elsewhere"
    FENCE = "what comes before it in memory and what comes behind"
    CLUSTER = "what blocks of a cluster do before and behind their barrier"


class Ptxas(Enum):
    """What ptxas makes of it, as found by experiment (docs/contraction.md)."""

    SELECTED = "straight code; under a guard its result is selected"
    GUARDED = "straight code; under a guard a branch"
    BRANCHES = "more than one block of machine code"
    EXPANDED = "the same, and it stays when nothing reads the result"


class Algebra(Enum):
    """What folding and contraction see in it (docs/contraction.md). Of floating point, where integers have the same name."""

    NONE = "nothing"
    SUM = "a + b"
    DIFFERENCE = "a - b"
    PRODUCT = "a * b"
    QUOTIENT = "a / b"
    FUSED = "a * b + c, rounded once"
    RECIPROCAL = "1 / a"
    EXPONENTIAL = "2 ** a"
    FUNCTION = "another function of a"
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


class Flow(Enum):
    """How the results of an instruction come by a value. EACH says what is so of arithmetic; what takes values from other lanes
    or from memory says so in its row."""

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
    LANES = "as of the lane that it is taken from"
    MOVED = "an element, if the lane that it comes from has one"
    WARP = "if a lane that takes part has one: nobody may look at what the others answer"
    REDUCED = "if all lanes that take part have one"


class Stored(Enum):
    """Which values an instruction stores, and where."""

    NOTHING = "none that a register holds"
    VALUES = "those of the operand behind the address, at each lane's address"
    COMBINED = "the operand behind the address, combined with what is there"
    ROWS = "those of a matrix, in rows that other lanes have the addresses of"
    TILE = "those of a matrix, at one address for the warp"


class Pointer(Enum):
    """What an instruction makes of an address among its sources."""

    OTHER = "nobody knows"
    SAME = "an address in the same variable"
    MAPPED = "of the first, one in the variable of another block"
    CHOICE = "one of two"
    SUM = "the address and a number, in either order"
    DIFFERENCE = "the first, less a number"
    ADDEND = "the last, and a product"


class Addressed(Enum):
    """Whose addresses an instruction uses."""

    LANES = "each lane its own"
    ROWS = "those of eight lanes for each matrix, one a row"
    WARP = "one for the warp"


@dataclass(frozen=True, slots=True)
class Effects:
    """What an instruction does besides computing.

    memory: what it does at its addresses. queue, step: what it does to which queue of asynchronous operations.
    orders: a fence of memory, or a barrier of a cluster. pure: ptxas removes it when nothing reads its results. ptxas, algebra:
    how ptxas sees it. flow: where its results come from. stored: what it stores. pointer: what it makes of an address. addressed:
    whose addresses it uses. hints: nothing depends on its addresses. cancels: it makes zero of two times one register.
    counted_as: its class in a report; empty: by its type. multiplies: it counts as the multiply-accumulates of its shape.
    pinned: names of operands whose registers others read or write later. carry: how it accesses the condition code.
    approximate: its bits come from tables of a chip. allocates: it takes memory from a lane's stack. resizes: it changes how
    many registers the threads of its warp have.
    steady: what it reads nobody may write while the kernel runs.
    variants: (modifier, effects of the forms that have it), the first that fits.
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
    variants: tuple[tuple[str, Effects], ...] = ()

    def but(self, **changes: Any) -> Effects:
        return replace(self, **changes)

    def where(self, modifiers: str, **changes: Any) -> Effects:
        """These, and with `changes` for forms that have one of these modifiers (`"u64 s64"`)."""
        variant = replace(self, variants=(), **changes)
        return replace(self, variants=(*self.variants, *((m, variant) for m in modifiers.split())))

    def of(self, modifiers: Collection[str]) -> Effects:
        """Those of a form with these modifiers."""
        for modifier, effects in self.variants:
            if modifier in modifiers:
                return effects
        return replace(self, variants=()) if self.variants else self


LANEWISE = Effects()
PARTS = Effects(flow=Flow.ANY)
ACTS = Effects(pure=False, ptxas=Ptxas.GUARDED)  # to be said in full by a row
