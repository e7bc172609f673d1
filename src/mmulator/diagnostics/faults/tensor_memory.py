"""Faults of tensor memory and of the instructions that use it, as sentences."""

from mmulator.errors import ExecutionFault, MmulatorError
from mmulator.launch.grid import Grid
from mmulator.launch.resident import ResidentCta
from mmulator.launch.tensor_tables import tables_of
from mmulator.native.matrix.tensor_state import BY_ADDRESS, ODD, TENSOR_COLUMNS, TENSOR_UNIT
from mmulator.native.state import FaultKind
from mmulator.ptx.tree import Instruction

MATRIX = "check the start address, offsets and swizzle of the matrix descriptor, and the shared bytes of the launch"
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


def describe(grid: Grid, cta: ResidentCta, ins: Instruction, kind: FaultKind, who: str) -> ExecutionFault:
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
            rule, hint = f"a matrix lies in the shared memory of its CTA ({_FAMILY}: Shared memory descriptor)", MATRIX
    return ExecutionFault(f"{text}, in {who}", span=ins.span, rule=rule, hint=hint)


def _wrong_in(desc: int) -> str:
    if desc >> 46 & 7 != 1:
        return f"bits 46 to 48 are {desc >> 46 & 7:#05b}"
    if desc >> 53 & 0xFF:
        return f"bits 53 to 60 are {desc >> 53 & 0xFF:#x}"
    if desc & BY_ADDRESS:
        return "bit 52 is 1: the leading byte offset is an address for K = 96, 128B swizzling and base offset 0 alone"
    return f"the swizzle is {desc >> 61}"
