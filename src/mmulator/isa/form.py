"""An instruction of a program: a row of the tables with its slots filled."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from mmulator.base.classes import dataclass
from mmulator.base.lazy import cached_property
from mmulator.isa.effects import Effects, Together
from mmulator.isa.row import BLACKWELL, FIXED_SPACES, OperandSpec, Requirement, Row, Section, Signature, Slot, Status
from mmulator.isa.types import NO_TYPE, TYPES, ElementType


@dataclass(frozen=True, eq=False, repr=False)
class Form:
    """One instruction: `form["rnd"]` is the modifier in a slot of its row, or "" if the slot is empty.

    row: the row of the tables.
    modifiers: (slot, modifier) in the order of the row, defaults included. Forms of one name with equal modifiers are equal.
    """

    row: Row
    modifiers: tuple[tuple[str, str], ...]

    @cached_property
    def _taken(self) -> dict[str, str]:
        return dict(self.modifiers)

    def __getitem__(self, slot: str) -> str:
        return self._taken.get(slot, "")

    @cached_property
    def _hash(self) -> int:
        return hash((self.row.name, self.modifiers))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Form):
            return NotImplemented
        return self is other or (self.modifiers == other.modifiers and self.row.name == other.row.name)

    def __str__(self) -> str:
        return self.mnemonic

    def __repr__(self) -> str:
        return f"Form({self.mnemonic})"

    # The name

    @cached_property
    def name(self) -> str:
        """The row's name: `add`, `cp.async`, `cp.async.wait_group`, `wgmma.mma_async`."""
        return self.row.name

    @cached_property
    def opcode(self) -> str:
        return self.row.opcode

    @cached_property
    def family(self) -> str:
        """The opcode, for a matrix instruction."""
        return self.row.opcode

    @cached_property
    def op(self) -> str:
        """The name without the opcode: `mma_async`, `load.a`; the opcode itself if nothing is left."""
        return self.row.op

    @property
    def is_matrix(self) -> bool:
        """Whether it multiplies matrices, moves them, or orders such operations: mma, wgmma, wmma, ldmatrix, stmatrix,
        movmatrix.
        """
        return self.row.signatures is not None

    @cached_property
    def mnemonic(self) -> str:
        """The instruction's name with all its modifiers, as the specification orders them."""
        row = self.row
        rest = [self.written(slot) for slot in row.slots if slot.name != row.leading]
        first = [self.opcode, self[row.leading], *row.fixed] if row.leading else [row.name]
        return ".".join(filter(None, (*first, *rest)))

    def written(self, slot: Slot) -> str:
        """The modifier that the mnemonic has in a slot of the row; "" if there is none."""
        modifier = self[slot.name]
        return "" if slot.tacit and modifier == slot.default else modifier

    # What the row says

    @property
    def section(self) -> Section:
        return self.row.section

    @cached_property
    def open(self) -> bool:
        return self.row.open

    @cached_property
    def requires(self) -> Requirement:
        """The least PTX version, and the targets: the row's requirement and those of its modifiers."""
        requires = self.row.requires
        present = {modifier for _, modifier in self.modifiers} if self.row.needs else ()
        for need in self.row.needs:
            if need.modifier in present:
                least = max(requires.minimum, need.sm)
                suffixes = "".join(s for s in requires.suffixes if s in need.suffixes) if need.suffixes else requires.suffixes
                requires = replace(requires, ptx=max(requires.ptx, need.ptx), minimum=least, suffixes=suffixes)
        return requires

    @cached_property
    def status(self) -> Status:
        """Whether the machine runs the instruction."""
        status = self.row.status
        return BLACKWELL if status.state == "runs" and self.requires.minimum >= 100 else status

    @cached_property
    def effects(self) -> Effects:
        """The effects besides computing results."""
        effects = self.row.effects
        return effects.of({modifier for _, modifier in self.modifiers}) if effects.variants else effects

    @cached_property
    def signatures(self) -> tuple[Signature, ...]:
        """The operand lists that are accepted, in the order of the text.

        There are several if an operand is optional (`stride`) or can be of two kinds (`a` or `a-desc`).
        """
        if self.row.signatures is not None:
            return self.row.signatures(self)
        taken = self._taken
        every = tuple(_resolved(o, taken) for o in self.row.operands if not o.when or o.when in taken)
        fewer = tuple(o for o in every if not o.between)
        ways = (every,) if len(fewer) == len(every) else (fewer, every)
        replaced = {o.instead for o in every if o.instead}
        if not replaced:
            return ways
        others = (tuple(o for o in way if o.name not in replaced) for way in ways)
        return (*(tuple(o for o in way if not o.instead) for way in ways), *others)

    @cached_property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """The least and the greatest number of operands of each of `signatures`."""
        return tuple((sum(not o.optional for o in signature), len(signature)) for signature in self.signatures)

    @cached_property
    def operands(self) -> Signature:
        """The first of `signatures`: the shortest spelling; for wgmma the signature with A in shared memory."""
        return self.signatures[0]

    # What the modifiers of a matrix instruction mean. Element types are NO_TYPE where the instruction has no such matrix.

    @cached_property
    def _extents(self) -> tuple[int, int, int]:
        if not self["shape"].startswith("m"):  # 32x32b of tensor memory
            return 0, 0, 0
        found = map(int, self["shape"][1:].replace("n", " ").replace("k", " ").split())
        m, n, k = (*found, 0, 0, 0)[:3]
        return m, n, k

    @cached_property
    def m(self) -> int:
        return self._extents[0]

    @cached_property
    def n(self) -> int:
        return self._extents[1]

    @cached_property
    def k(self) -> int:
        """Extent k of the shape; for sparse forms the columns of the uncompressed A; 0 if the shape has no k."""
        return self._extents[2]

    @property
    def shape(self) -> str:
        """The shape, `m16n8k16`, or `m8n8` for a matrix move; "" for an instruction without a shape."""
        return self["shape"]

    @cached_property
    def dtype(self) -> ElementType:
        return TYPES.get(self["dtype"], NO_TYPE)

    @cached_property
    def atype(self) -> ElementType:
        return TYPES.get(self["atype"], NO_TYPE)

    @cached_property
    def btype(self) -> ElementType:
        return TYPES.get(self["btype"], NO_TYPE)

    @cached_property
    def ctype(self) -> ElementType:
        return TYPES.get(self["ctype"], NO_TYPE)

    @cached_property
    def stype(self) -> ElementType:
        """Element type of the scale factors."""
        return TYPES.get(self["stype"], NO_TYPE)

    @cached_property
    def type(self) -> ElementType:
        """Element type of a move. Packed types (`f16x2`) are not element types; `form["type"]` has them."""
        return TYPES.get(self["type"], NO_TYPE)

    @property
    def alayout(self) -> str:
        return self["alayout"]

    @property
    def blayout(self) -> str:
        return self["blayout"]

    @property
    def layout(self) -> str:
        """Layout of the matrix in memory, for wmma.load and wmma.store."""
        return self["layout"]

    @cached_property
    def sparse(self) -> bool:
        return bool(self["sparse"])

    @property
    def ordered_metadata(self) -> bool:
        return self["sparse"] == "sp::ordered_metadata"

    @cached_property
    def kind(self) -> str:
        return self["kind"].removeprefix("kind::")

    @property
    def block_scale(self) -> bool:
        return bool(self["block_scale"])

    @cached_property
    def scale_vec(self) -> int:
        """Columns of scale_A per row; 0 without block scaling."""
        written = self["scale_vec"]
        if self.block_scale and "X" not in written:  # tcgen05: elements per scale of an instruction's 32 or 64, or none
            return (32 if self.kind == "mxf8f6f4" else 64) // int(written.removeprefix("block") or 32)
        return int(written.removeprefix("scale_vec::").rstrip("X") or 0)

    @property
    def satfinite(self) -> bool:
        return bool(self["satfinite"])

    @property
    def bit_op(self) -> str:
        return self["bit_op"]

    @property
    def rounding(self) -> str:
        """Rounding mode for .f64: `rn`, `rz`, `rm` or `rp`."""
        return self["rounding"]

    @property
    def space(self) -> str:
        """The state space; "" is generic."""
        return self["space"]

    @cached_property
    def num(self) -> int:
        """Number of matrices that are moved; 0 if the form does not move matrices."""
        return int(self["num"].removeprefix("x") or 0)

    @property
    def products(self) -> int:
        """Number of matrices that it multiplies by as many: m8n8k4 of .f16 does four."""
        return 4 if (self.m, self.n, self.k) == (8, 8, 4) and self.atype.name == "f16" else 1

    @property
    def is_move(self) -> bool:
        """Whether it moves matrices of m by n without arithmetic: the rows of isa/matrix_move.py."""
        return self.m > 0 and not self.k

    @property
    def trans(self) -> bool:
        return bool(self["trans"])

    @property
    def dst_fmt(self) -> str:
        return self["dst_fmt"]

    @property
    def src_fmt(self) -> str:
        return self["src_fmt"]

    @property
    def lanes(self) -> int:
        """Number of threads that execute the instruction together: 128 for wgmma, otherwise 32."""
        return 128 if self.effects.together is Together.WARPGROUP else 32


def form_of(row: Row, taken: Mapping[str, str]) -> Form:
    """The form of a row whose slots hold these modifiers; other slots are empty or have their default."""
    filled = ((slot.name, taken.get(slot.name) or slot.default) for slot in row.slots)
    return Form(row, (*(pair for pair in filled if pair[1]), *row.implied))


def forms_of(row: Row) -> Iterator[Form]:
    """Every form of a row, each once."""
    names = [slot.name for slot in row.slots]
    for choice in product(*(slot.meant for slot in row.slots)):
        taken = {name: modifier for name, modifier in zip(names, choice) if modifier}
        if row.rule is None or row.rule(taken) is None:
            yield form_of(row, taken)


def _resolved(o: OperandSpec, taken: Mapping[str, str]) -> OperandSpec:
    """The operand, with its type, count and space taken from the modifiers."""
    if o.type.startswith("wide:"):
        name = taken[o.type[5:]]
        type = name[0] + str(int(name[1:]) * 2)
    else:
        type = taken.get(o.type, o.type)
    space = taken.get(o.space, "") if o.kind == "addr" and o.space not in FIXED_SPACES else o.space
    if o.per:  # v4, 4d, x8, cta_group::2
        number = int("".join(filter(str.isdigit, taken.get(o.per, ""))) or 0)
        return o.but(type=type, count=number * o.times - o.fewer if number else 1)
    return o if (type, space) == (o.type, o.space) else o.but(type=type, space=space)
