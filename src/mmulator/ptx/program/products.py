"""Matrix products of a block that can be computed together: mma that share A or B, and chains in which D of one is C of the
next.

A product has no effect except on its D registers. So it may be computed later than at its place, if its operands are unchanged
until then, and no instruction accesses its D before.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import field

from mmulator.base.classes import dataclass
from mmulator.isa.effects import Ends, Together
from mmulator.isa.form import Form
from mmulator.ptx.program.blocks import LONGEST, Block, FunctionBlocks
from mmulator.ptx.program.frames import pinned_registers
from mmulator.ptx.program.uses import registers_of, uses_and_defs
from mmulator.ptx.tree import Instruction, Operand, Reg, flatten

LONGEST_CHAIN = 16
Tokens = tuple[Hashable, ...]


@dataclass(frozen=True)
class ProductTile:
    """Products [row][column][step], as indices in the block's body. Products of one row and step have the same A, those of one
    column and step the same B; D of a step is C of the next step and is not used otherwise.
    """

    products: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def rows(self) -> int:
        return len(self.products)

    @property
    def columns(self) -> int:
        return len(self.products[0])

    @property
    def steps(self) -> int:
        return len(self.products[0][0])


@dataclass(frozen=True)
class ProductGroup:
    """Products of one form (and sparsity selector) that are all computed at the place of the last.

    form: their form.
    tiles: the products as tiles.
    first, last: indices in the body.
    """

    form: Form
    tiles: tuple[ProductTile, ...]
    first: int
    last: int


def sides(ins: Instruction) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """(operands of A, operands of B): metadata and scale factors belong to one of them."""
    _, a, b, _, *rest = ins.operands
    of_a, of_b = [a], [b]
    if ins.form.sparse:
        of_a += rest[:2]
        rest = rest[2:]
    return (*of_a, *rest[:2]), (*of_b, *rest[2:])


def chains(form: Form) -> bool:
    """Whether D of a product may be C of the next in a chain."""
    return form.ctype == form.dtype and not (form.sparse or form.block_scale)


@dataclass(eq=False)
class _Chain:
    a: list[Hashable] = field(default_factory=list)
    b: list[Hashable] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    d: Tokens = ()


_SEVERAL = _Chain()


class _ProductFinder:
    def __init__(self, block: Block, live_out: Collection[str], joins: Callable[[Instruction], bool]) -> None:
        self.body, self.joins = block.body, joins
        self.facts = [uses_and_defs(ins) for ins in block.body]
        self.live_out = live_out
        self.reads: dict[str, list[int]] = defaultdict(list)
        self.writes: dict[str, list[int]] = defaultdict(list)
        last = (uses_and_defs(block.last),) if block.last is not None else ()
        for n, (uses, defs) in enumerate((*self.facts, *last)):
            for name in uses:
                self.reads[name].append(n)
            for name in defs:
                self.writes[name].append(n)
        self.version: dict[str, int] = defaultdict(int)
        self.groups: list[ProductGroup] = []
        self.start()

    def start(self) -> None:
        self.form: Form | None = None
        self.selector: Tokens = ()  # of the metadata
        self.chains: list[_Chain] = []
        self.pending: dict[str, _Chain] = {}  # registers whose value is not there yet
        self.factors: set[str] = set()  # registers of A and B that products were given
        self.begun: dict[str, _Chain] = {}  # registers of the first C of a chain, or of SEVERAL

    def close(self) -> None:
        """Finish the current group, which is computed before the next instruction."""
        if self.form is not None:
            numbers = [n for chain in self.chains for n in chain.members]
            self.groups.append(ProductGroup(self.form, tuple(_tiles(self.chains)), min(numbers), max(numbers)))
        self.start()

    def find(self) -> list[ProductGroup]:
        for n, ins in enumerate(self.body):
            uses, defs = self.facts[n]
            if ins.guard is None and self.joins(ins):
                self.product(n, ins)
            elif ins.effects.pinned or not self.pending.keys().isdisjoint(uses | defs):
                self.close()
            for name in defs:
                self.version[name] += 1
        self.close()
        return self.groups

    def product(self, n: int, ins: Instruction) -> None:
        d, _, _, c = (_tokens((o,)) for o in ins.operands[:4])
        factors = {name for o in (*sides(ins)[0], *sides(ins)[1]) for name in registers_of(o)}
        selector = _tokens(ins.operands[5:6]) if ins.form.sparse else ()
        if self.form != ins.form or self.selector != selector or not self.may_join(n, d, c, factors):
            self.close()
        self.form, self.selector = ins.form, selector
        chain = self.continued(d, c)
        if chain is None:
            chain = _Chain()
            self.chains.append(chain)
            self.begun |= {name: _SEVERAL if name in self.begun else chain for name in _names(c)}
        for name in _names(chain.d):
            del self.pending[name]
        of_a, of_b = sides(ins)
        chain.a.append(self.key(of_a))
        chain.b.append(self.key(of_b))
        chain.members.append(n)
        chain.d = d
        self.pending |= dict.fromkeys(_names(d), chain)
        self.factors |= factors

    def may_join(self, n: int, d: Tokens, c: Tokens, factors: set[str]) -> bool:
        if not self.pending.keys().isdisjoint(factors):
            return False
        chain = self.continued(d, c)
        if chain is None and not self.pending.keys().isdisjoint(_names(c)):
            return False
        if chain is not None and (len(chain.members) == LONGEST_CHAIN or (d != c and not self.done_with(c, n))):
            return False
        for name in _names(d):
            if self.pending.get(name, chain) is not chain or name in self.factors or self.begun.get(name, chain) is not chain:
                return False
        return chain is None or d == c or set(_names(d)).isdisjoint(_names(c))

    def continued(self, d: Tokens, c: Tokens) -> _Chain | None:
        """The chain whose last D is this C; None if there is none."""
        names = _names(c) if self.form is not None and chains(self.form) else []
        chain = self.pending.get(names[0]) if names else None
        return chain if chain is not None and chain.d == c else None

    def done_with(self, registers: Tokens, n: int) -> bool:
        """Whether no instruction behind n reads these registers before they are written."""
        for name in _names(registers):
            reads, writes = self.reads[name], self.writes[name]
            read = bisect_right(reads, n)
            write = bisect_right(writes, n)
            if read < len(reads) and (write == len(writes) or reads[read] <= writes[write]):
                return False
            if write == len(writes) and name in self.live_out:
                return False
        return True

    def key(self, operands: tuple[Operand, ...]) -> Hashable:
        """A key that is equal for operands with the same values."""
        return tuple((token, self.version[token] if isinstance(token, str) else 0) for token in _tokens(operands))


def _tokens(operands: Sequence[Operand]) -> Tokens:
    """Operands without their places in the text: registers as names."""
    return tuple(o.name if isinstance(o, Reg) else (type(o), getattr(o, "value", id(o))) for o in flatten(operands))


def _names(tokens: Tokens) -> list[str]:
    return [t for t in tokens if isinstance(t, str)]


def _tiles(chains: list[_Chain]) -> Iterable[ProductTile]:
    """Chains arranged as full rectangles: chains of one length, and rows with the same columns together."""
    left = chains
    while left:
        grids: dict[int, dict[Hashable, dict[Hashable, _Chain]]] = defaultdict(lambda: defaultdict(dict))
        again = []
        for chain in left:
            row = grids[len(chain.members)][tuple(chain.a)]
            if row.setdefault(tuple(chain.b), chain) is not chain:  # the same product once more
                again.append(chain)
        for grid in grids.values():
            alike: dict[frozenset[Hashable], list[dict[Hashable, _Chain]]] = defaultdict(list)
            for row in grid.values():
                alike[frozenset(row)].append(row)
            for rows in alike.values():
                yield ProductTile(tuple(tuple(tuple(row[b].members) for b in rows[0]) for row in rows))
        left = again


def groups(block: Block, live_out: Collection[str], joins: Callable[[Instruction], bool]) -> list[ProductGroup]:
    """The products of a block for which `joins` is true, in groups in the order of their computation. live_out: registers that
    are read behind the block.
    """
    return _ProductFinder(block, live_out, joins).find()


# behind barriers --------------------------------------------------------------------------------------------------------
def delay(function: FunctionBlocks) -> None:
    """Move products of a function behind barriers, to the products that add to their D, so that a chain is in one block.

    A warp leaves a barrier with the lanes that it had before. No instruction in between accesses D or writes an operand.
    """
    first = function.blocks[0].index
    ways = Counter(target for block in function.blocks for target in block.targets)
    pinned = pinned_registers(function)
    for block in function.blocks:
        if any(map(_moves, block.body)):
            reads, writes, here = set[str](), set[str](), block
            while len(here.targets) == 1 and here.ending in (Ends.NO, Ends.BARRIER):
                after = function.blocks[here.targets[0] - first]
                if ways[after.index] > 1 or after.index <= here.index:
                    break
                at = next((n for n, ins in enumerate(after.body) if _moves(ins)), len(after.body))
                passed = (*((here.last,) if here.last is not None else ()), *after.body[:at])
                for uses, defs in map(uses_and_defs, passed):
                    reads |= uses
                    writes |= defs
                here = after
                if at < len(after.body) and len(block.body) + len(after.body) < LONGEST:
                    moved = _movable(block, _taken_up(after.body[at:]), reads | pinned, writes | pinned)
                    those = set(moved)
                    block.body = [ins for ins in block.body if ins not in those]
                    after.body[at:at] = moved
                    break


def _moves(ins: Instruction) -> bool:
    """Whether a product may come later than at its place."""
    return ins.effects.multiplies and ins.effects.together is Together.WARP and ins.guard is None and chains(ins.form)


def _taken_up(body: list[Instruction]) -> set[str]:
    """Registers that products of a block read as C before anything there writes them."""
    taken: set[str] = set()
    written: set[str] = set()
    for ins in body:
        if _moves(ins):
            taken |= {*registers_of(ins.operands[3])} - written
        written |= uses_and_defs(ins)[1]
    return taken


def _movable(block: Block, wanted: set[str], reads: set[str], writes: set[str]) -> list[Instruction]:
    """The products of a block that can be computed behind it, in their order. The sets are used up.

    wanted: registers from which a product behind takes up C.
    reads, writes: registers that what they would pass over reads and writes.
    """
    moved: list[Instruction] = []
    for n, ins in reversed([*enumerate(block.body)]):
        uses, defs = uses_and_defs(ins)
        free = defs.isdisjoint(reads) and (uses | defs).isdisjoint(writes)
        if _moves(ins) and free and defs <= wanted and not (block.sync and n == 0):
            moved.append(ins)
            wanted |= {*registers_of(ins.operands[3])}
        else:
            reads |= uses
            writes |= defs
    return moved[::-1]
