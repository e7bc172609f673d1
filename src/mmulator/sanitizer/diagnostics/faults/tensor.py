"""Faults of tensor copies, of tensor memory and of the instructions that use it as sentences: of a copy the contents of its
tensor map, and what the map or the memory lacks.
"""

from collections.abc import Callable

from mmulator.base.errors import ExecutionFault, MmulatorError, OperandError
from mmulator.base.rules.operands import DESCRIPTOR, TENSOR_MAP
from mmulator.matrix.layouts.tensormap import Encoded
from mmulator.matrix.layouts.tensormap.fields import BYTES
from mmulator.matrix.layouts.tensormap.rules import refusals
from mmulator.ptx.program.addresses import RANK_SHIFT
from mmulator.ptx.tree import Address, Instruction
from mmulator.runtime.launch.arena import read
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.regions import freed
from mmulator.runtime.launch.resident import ResidentCta
from mmulator.runtime.launch.tensor_tables import tables_of
from mmulator.runtime.native.asynchrony.maps import MapFault
from mmulator.runtime.native.matrix.tensor_state import BY_ADDRESS, ODD, TENSOR_COLUMNS, TENSOR_UNIT
from mmulator.runtime.native.state import FaultKind
from mmulator.sanitizer.diagnostics.faults.cluster import MULTICAST

_MAP = "Tensors: Tensor-map (PTX ISA 9.1)"
_SHARED = "the shared bytes of the launch must have room for the whole box, elements out of bounds included"
_TENSOR = (
    "a copy touches the elements of its box whose coordinates lie between 0 and the sizes in the map; all of them must be in the "
    "buffer (PTX ISA 9.1, Tensors)"
)
_STALE = "the map was encoded for memory that was freed since: encode it again, for the memory that took its place"
_STEPS = "make the array as large as the map says, or the map's sizes, strides and address what the array has"


def is_tensor_copy(ins: Instruction) -> bool:
    return any(isinstance(o, Address) and o.coordinates for o in ins.operands)


def describe_copy(cta: ResidentCta, ins: Instruction, kind: FaultKind, who: str, name: Callable[[int], str]) -> ExecutionFault:
    """The exception for a fault of a tensor copy.

    cta: the block of the thread that issued the copy.
    ins: the instruction.
    kind: the kind of fault.
    who: the thread, in words.
    name: a function from an address to words.
    """
    copy = _Copy(cta, ins, name)
    text, rule, hint = (_of_map if kind == FaultKind.TENSOR_MAP or copy.is_of_map else _of_memory)(copy, kind)
    if isinstance(copy.map, Encoded) and freed(copy.map.address) and " freed" in copy.says:
        hint = _STALE
    return ExecutionFault(f"{text}, in {who}", span=ins.span, rule=rule, hint=hint)


class _Copy:
    """Facts about a copy that failed. at: address of its tensor map. place: address of its box in shared memory."""

    def __init__(self, cta: ResidentCta, ins: Instruction, name: Callable[[int], str]) -> None:
        state = cta.state
        self.ins, self.name = ins, name
        self.address, self.bytes = int(state["fault_address"]), int(state["fault_bytes"])
        self.at, self.place, *coordinates = (int(word) for word in state["fault_words"])
        given = next(len(o.coordinates) for o in ins.operands if isinstance(o, Address) and o.coordinates)
        self.coordinates = [c - ((c & 1 << 31) << 1) for c in coordinates[:given]]
        self.data = read(cta.warp(int(state["fault_warp"])), int(state["fault_lane"]), self.at, BYTES)

    @property
    def is_of_map(self) -> bool:
        """Whether the fault is that the tensor map cannot be read."""
        return (self.address, self.bytes) == (self.at, BYTES)

    @property
    def box(self) -> str:
        return f"{self.ins.mnemonic} of the box at ({', '.join(map(str, self.coordinates))})"

    @property
    def map(self) -> Encoded | OperandError:
        try:
            return Encoded.decode(self.data)
        except OperandError as error:
            return error

    @property
    def says(self) -> str:
        """The tensor map in words: `its map says: f16 at byte 0 of argument 0 (x), which has 4096, sizes (64, 32), strides
        (128) bytes, box (16, 8)`.
        """
        m = self.map
        if isinstance(m, OperandError):
            return "its map cannot be read"
        box = f"{m.channels} channels of {m.pixels} pixels" if m.im2col else f"box {_numbers(m.box)}"
        strides = f", strides {_numbers(m.strides)} bytes" if m.strides else ""
        return f"its map says: {m.type} at {self.name(m.address)}, sizes {_numbers(m.sizes)}{strides}, {box}, innermost first"


def _numbers(values: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, values))})"


# Coordinates with which a map cannot be used, measured on an H200: what, the rule, what to do.
_PLACES = {
    MapFault.COORDINATE: (
        "begins within 16 bytes of its row",
        "without interleaving, coordinate 0 times the bytes of an element is a multiple of 16",
        "move the tensor's address by the rest, or copy from the multiple before it",
    ),
    MapFault.NEGATIVE: (
        "begins before the tensor", "coordinates of a store or a reduction are not negative, those of a load may be",
        "clip the box, or let its map begin where it does",
    ),
    MapFault.CORNER: (
        "begins outside of its bounding box, or is written with one that reaches beyond the tensor",
        "the first pixel of im2col lies in the bounding box, from its lower corner to size - 1 + its upper corner; lower corners "
        "of what is written are not negative, and upper ones not positive",
        "check coordinates and corners along W, H and D",
    ),
}  # fmt: skip


# the map ------------------------------------------------------------------------------------------------------------
def _of_map(c: _Copy, kind: FaultKind) -> tuple[str, str, str]:
    where = f"tensor map at address 0x{c.at:x}, {c.name(c.at)}"
    if kind != FaultKind.TENSOR_MAP:
        return f"{where}, cannot be read by {c.ins.mnemonic}", _MAP, "a tensor map has 128 bytes in .param, .const or .global"
    m = c.map
    wrong = MapFault(c.bytes)
    rank = c.ins.form["dim"][0]
    if wrong is MapFault.ALIGNMENT:
        return f"misaligned: {where}, for {c.ins.mnemonic}: 64 must divide it", _MAP, "declare it .align 64, alignas(64)"
    if wrong is MapFault.ZEROS:
        return f"no tensor map: {where}, is all zeros; {c.ins.mnemonic} needs one", _MAP, TENSOR_MAP.hint
    if isinstance(m, OperandError):
        return f"no tensor map: {where}: {m.message}", _MAP, TENSOR_MAP.hint
    if wrong in _PLACES:
        text, rule, hint = _PLACES[wrong]
        return f"{c.box} {text}; {c.says}", f"{rule}; an H200 raises an illegal instruction", hint
    if wrong is MapFault.REFUSED:
        refusal = next(refusals(m))
        text = f"a map that CUDA's driver does not encode: {refusal.parameter} {refusal.message}: {where}; {c.says}"
        return text, refusal.rule, refusal.hint or TENSOR_MAP.hint
    text = {
        MapFault.RANK: f"{c.ins.mnemonic} copies {rank} dimensions, and its map has {m.rank}",
        MapFault.MODE: f"{c.ins.mnemonic} with a map of {'im2col' if m.im2col else 'tiled'} mode",
        MapFault.SPAN: f"a box of {m.span} bytes, which no block has room for",
        MapFault.OPERATION: f"{c.ins.mnemonic} cannot combine elements of {m.type}",
    }.get(wrong, "the map's swizzle mode and its atomicity are none that a chip has together")
    return f"{text}: {where}; {c.says}", _MAP, TENSOR_MAP.hint


_HOW = {FaultKind.READ_ONLY: "store to read-only memory", FaultKind.WRONG_SPACE: "wrong state space"}


# memory -------------------------------------------------------------------------------------------------------------
def _of_memory(c: _Copy, kind: FaultKind) -> tuple[str, str, str]:
    where = f"0x{c.address:x}, {c.name(c.address)}"
    if kind == FaultKind.MISALIGNED:
        what = "the box" if c.address == c.place else "its mbarrier"
        return (
            f"misaligned: {c.box} with {what} at {where}: {c.bytes} must divide the address",
            f"{what} in shared memory begins at a multiple of {c.bytes} bytes (PTX ISA 9.1, cp.async.bulk.tensor)",
            f"declare the shared memory .align {c.bytes}",
        )
    if kind in (FaultKind.OUT_OF_BOUNDS, FaultKind.NULL_POINTER, FaultKind.READ_ONLY, FaultKind.WRONG_SPACE):
        how = _HOW.get(kind, "out of bounds")
        bytes = f"{c.bytes} bytes" if c.bytes else "more bytes than there can be"
        return f"{how}: {c.box} touches {bytes} from {where}; {c.says}", _TENSOR, _STEPS
    rank = (c.address >> RANK_SHIFT) & 0xFF
    what = f"{c.bytes} bytes" if c.bytes else "its box"
    text = {
        FaultKind.NO_SUCH_RANK: f"the cluster has no block of rank {rank}",
        FaultKind.OTHER_CTA: f"shared memory of the block of rank {rank}, where its own is needed",
        FaultKind.CTA_EXITED: f"the block of rank {rank} has exited",
        FaultKind.BEYOND_SPACE: "an address of .shared has 32 bits",
    }.get(kind, "out of bounds")
    hint = "check the mask, the address and the shared bytes of the launch"
    if kind == FaultKind.NO_SUCH_RANK and "multicast" in c.ins.mnemonic:
        hint = MULTICAST
    return f"{text}: {c.box} with {what} at {where}; {c.says}", _SHARED, hint


# tensor memory ---------------------------------------------------------------------------------------------------------
KINDS = frozenset(kind for kind in FaultKind if kind.name.startswith("TENSOR_") and kind != FaultKind.TENSOR_MAP)
_FAMILY = "PTX ISA 9.1, TensorCore 5th Generation Family Instructions"
_MANAGED = f"({_FAMILY}: Tensor Memory Allocation and Management Instructions)"
_ALLOCATION = f"columns are allocated in powers of two from 32 to 512 {_MANAGED}"
_ADDRESSES = f"tensor memory has 128 lanes and 512 columns; only allocated columns may be accessed ({_FAMILY}: Tensor Memory)"
_PAIRS = f"cta_group::2 is for two CTAs of a cluster whose ranks differ in the last bit ({_FAMILY}: CTA Pair)"


def _at(address: int) -> str:
    return f"lane {address >> 16}, column {address & 0xFFFF}"


def _held(cta: ResidentCta) -> str:
    """The columns of a CTA that are allocated."""
    units = [int(n) for n in cta.state["unit_counts"]]
    parts = [f"{TENSOR_UNIT * u} to {TENSOR_UNIT * (u + n) - 1}" for u, n in enumerate(units) if n]
    return f"allocated are columns {', '.join(parts)}" if parts else "no columns are allocated"


def _lacking(cta: ResidentCta, column: int, columns: int) -> str:
    """The columns that are allocated: of the CTA, or of its peer, if the CTA has those that an instruction uses."""
    units = range(column // TENSOR_UNIT, -(-(column + columns) // TENSOR_UNIT))
    if all(int(cta.state["held_units"]) >> unit & 1 for unit in units):
        return f"in the other CTA of the pair {_held(cta.resident.each()[cta.rank ^ 1])}"
    return _held(cta)


def describe_cells(grid: Grid, cta: ResidentCta, ins: Instruction, kind: FaultKind, who: str) -> ExecutionFault:
    """The exception for a fault of KINDS. who: the thread, in words."""
    address, number = int(cta.state["fault_address"]), int(cta.state["fault_bytes"])
    name = ins.mnemonic
    hint: str | None = None
    rule: str | None = _ADDRESSES
    match kind:
        case FaultKind.TENSOR_COLUMNS:
            last = (address & 0xFFFF) + number
            beyond = f", beyond the last one, {TENSOR_COLUMNS - 1}" if last > TENSOR_COLUMNS else ""
            text = f"{name} of {number} columns from {_at(address)} on{beyond}: {_lacking(cta, address & 0xFFFF, number)}"
            hint = "check the address that tcgen05.alloc wrote, and what was added to it"
        case FaultKind.TENSOR_COUNT:
            text, rule = f"{name} of {number} columns", _ALLOCATION
        case FaultKind.TENSOR_RELINQUISHED:
            text = f"{name} of {number} columns after tcgen05.relinquish_alloc_permit"
            rule = f"a CTA that has relinquished the permit may not allocate again {_MANAGED}"
            hint = "relinquish once, after the last allocation of the CTA"
        case FaultKind.TENSOR_DEALLOC:
            text = f"{name} of {number} columns from {_at(address)} on, where no allocation of so many begins: {_held(cta)}"
            rule = f"dealloc takes the address and the number of columns of one alloc {_MANAGED}"
        case FaultKind.TENSOR_PAIR:
            text = f"{name} by a CTA of rank {address} whose cluster has {len(cta.resident.ctas)} CTAs: it has no peer"
            rule, hint = _PAIRS, "launch in clusters of an even number of CTAs"
        case FaultKind.TENSOR_ALIGNED:
            text = f"{name} with {_at(address)}: it begins in lane 0 of a quarter, or where its shape has 16 lanes, in lane 16"
            if number == ODD:
                text = f"{name} with metadata at {_at(address)}: it begins in an even column"
                rule = f"the sparsity selector names one of two columns ({_FAMILY}: Sparsity selector)"
        case FaultKind.TENSOR_INSTRUCTION:
            problem = tables_of(grid.kernel.matrix.tensor).problems.get((number, address))
            said = "with .ashift M is 128 or 256, and 256 if A is sparse in a pair"
            text = f"{name}: {problem or f'instruction descriptor {address:#010x}: {said}'}"
            rule = f"{_FAMILY}: Instruction descriptor"
            if isinstance(problem, MmulatorError):
                text, rule, hint = f"{name}: {problem.message}", problem.rule, problem.hint
        case FaultKind.TENSOR_MATRIX:
            text = f"{name} with matrix descriptor {address:#018x}: {_wrong_in(address)}"
            rule = f"bits 46 to 48 are 0b001, 53 to 60 are 0, swizzles are 0, 1, 2, 4 and 6 ({_FAMILY}: Shared memory descriptor)"
            hint = "mmulator descriptor decode shows the fields; descriptors of wgmma have others"
        case _:
            text = f"{name}: a matrix reaches beyond shared memory, at byte {address} of it"
            rule, hint = f"a matrix lies in the shared memory of its CTA ({_FAMILY}: Shared memory descriptor)", DESCRIPTOR.hint
    return ExecutionFault(f"{text}, in {who}", span=ins.span, rule=rule, hint=hint)


def _wrong_in(desc: int) -> str:
    if desc >> 46 & 7 != 1:
        return f"bits 46 to 48 are {desc >> 46 & 7:#05b}"
    if desc >> 53 & 0xFF:
        return f"bits 53 to 60 are {desc >> 53 & 0xFF:#x}"
    if desc & BY_ADDRESS:
        return "bit 52 is 1: the leading byte offset is an address for K = 96, 128B swizzling and base offset 0 alone"
    return f"the swizzle is {desc >> 61}"
