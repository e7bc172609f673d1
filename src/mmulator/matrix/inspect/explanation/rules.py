"""Obligations of a matrix instruction's user: one table, by family and property."""

from collections.abc import Callable
from dataclasses import dataclass

from mmulator.isa.effects import MemoryEffect
from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec
from mmulator.isa.types import TYPES
from mmulator.matrix.layouts import sparse


@dataclass(frozen=True)
class StatedRule:
    """An obligation. text: in words. section: of the PTX ISA 9.1, by title. undefined: breaking it is undefined behaviour."""

    text: str
    section: str
    undefined: bool = False


_Text = str | Callable[[Form], str]
_Test = Callable[[Form], bool]


def operand(form: Form, name: str) -> OperandSpec | None:
    """An operand of any of the form's signatures, also inside a group."""
    every = [s for signature in form.signatures for s in signature]
    return next((s for s in [*every, *(p for s in every for p in s.parts)] if s.name == name), None)


def _list(values: tuple[int, ...] | range) -> str:
    numbers = [str(v) for v in values or ()]
    return numbers[0] if len(numbers) == 1 else ", ".join(numbers[:-1]) + " or " + numbers[-1]


def _own(form: Form) -> str:
    return form.section.title


# What the rules say where it depends on the form -----------------------------------------------------------------------
_THREADS = {32: "All 32 threads of the warp", 128: "All 128 threads of the warpgroup"}


def _together(form: Form) -> str:
    return (
        f"{_THREADS[form.lanes]} execute it together, with the same qualifiers; in conditional code all of them take "
        "the same branch, and none has exited."
    )


def _selector(form: Form) -> str:
    name = "sp-sel" if form.lanes > 32 else "f"
    spec = operand(form, name)
    assert spec is not None
    count = len(spec.defined or ())
    who = {4: "thread f of each four", 2: "threads 0, 1 or threads 2, 3 of each four", 1: "all threads"}[count]
    who = who.replace("thread f", f"thread {name}")
    return f"The sparsity selector {name} must be {_list(spec.defined)}: the metadata is taken from {who}."


def _granularity(form: Form) -> str:
    g = sparse.granularity(form)
    if g.chunk == 2:
        return (
            "A keeps one of every two neighbours in a row (1:2); a nibble of metadata for each two: 0b0100 keeps the first, "
            "0b1110 the second."
        )
    what = "two pairs of every four pairs of neighbours in a row (4:8)"
    what = what if g.group == 2 else "two of every four neighbours in a row (2:4)"
    order = "ascending" if form.ordered_metadata else "different"
    return f"A keeps {what}; a nibble of metadata for each four: two {order} 2-bit indices, the low one first."


def _containers(form: Form) -> str:
    return (
        "Elements narrower than 8 bits take a byte each: e2m1 its bits 2 to 5, e3m2 and e2m3 its bits 0 to 5; the others "
        "are padding."
    )


def _scales(form: Form) -> str:
    size = form.scale_vec
    byte_a, thread_a, thread_b = (operand(form, n) for n in ("byte-id-a", "thread-id-a", "thread-id-b"))
    assert byte_a and thread_a and thread_b
    return (
        f"scale_A is {form.m} x {size}, scale_B {size} x {form.n}, of .{form.stype}: one factor for {form.k // size} "
        f"elements along k. byte-id: {_list(byte_a.values)}, the first byte used of scale-a-data and scale-b-data. "
        f"thread-id-a: {_list(thread_a.values)}, a thread pair of each four; thread-id-b: {_list(thread_b.values)}, a thread."
    )


def _wmma_bytes(form: Form) -> int:
    """Size of a fragment in bytes, to which p and every row or column must be aligned."""
    spec = operand(form, "r")
    assert spec is not None
    return min(32, spec.count * TYPES[spec.type if spec.type in TYPES else "b32"].bits // 8)


def wmma_extent(form: Form) -> int:
    """Elements of one row (column, for .col) of a matrix that wmma loads or stores: the least and default stride."""
    rows, columns = {"a": (form.m, form.k), "b": (form.k, form.n)}.get(form.op[-1], (form.m, form.n))
    return columns if form.layout == "row" else rows


def _wmma_memory(form: Form) -> str:
    """Alignment of lines of a wmma matrix. Lines shorter than the fragment begin, at the default stride, at multiples of their
    own size.
    """
    whole, line = _wmma_bytes(form), "row" if form.layout == "row" else "column"
    own = wmma_extent(form) * form.type.bits // 8
    whose = "fragment's" if whole <= own else f"{line}'s"
    size = min(whole, own)
    return f"p and the start of every {line} (p plus multiples of stride) are aligned to {size} bytes, the {whose} size."


def _wmma_stride(form: Form) -> str:
    return (
        f"stride counts elements from one {'row' if form.layout == 'row' else 'column'} to the next: at least "
        f"{wmma_extent(form)}, which is also the default. All threads give the same p and stride."
    )


def _spaces(form: Form) -> str:
    if form.space:
        return f"p is an address in .{form.space}."
    return "p is a generic address that points to .global or .shared memory."


def _matrix_addresses(form: Form) -> str:
    rows = 16 if (form.m, form.n) == (16, 16) else 8
    groups = "".join(f"{', ' if i else ''}lanes {rows * i} to {rows * i + rows - 1}: matrix {i}" for i in range(max(1, form.num)))
    return f"Each lane's p is the address of one row of 16 bytes, aligned to 16 bytes ({groups})."


def _spare_lanes(form: Form) -> str:
    return "On sm_75 or lower the addresses of all 32 lanes must be valid, also of those that are not used."


# The table -----------------------------------------------------------------------------------------------------------
def _is(family: str, *ops: str) -> _Test:
    return lambda f: f.family == family and (not ops or any(f.op == op or f.op.startswith(op + ".") for op in ops))


def _and(*tests: _Test) -> _Test:
    return lambda f: all(t(f) for t in tests)


_async = _is("wgmma", "mma_async")
_moves = _is("wmma", "load", "store")


def _addressed(form: Form) -> bool:
    """Whether a form is a matrix move from or to memory."""
    return form.is_move and form.effects.memory is not MemoryEffect.NONE


_DESCRIPTORS = "Matrix Descriptor Format"
_FENCE = "Asynchronous Multiply-and-Accumulate Instruction: wgmma.fence"
_WAIT = "Asynchronous Multiply-and-Accumulate Instruction: wgmma.wait_group"
_STORAGE = "Sparse matrix storage"
_SCALING = "Block Scaling for mma.sync"

# (test, text, section or None for the form's own, undefined)
_TABLE: tuple[tuple[_Test, _Text, str | None, bool], ...] = (
    (lambda f: True, _together, None, True),
    (_is("wgmma"), "A warpgroup is four warps in a row, the first of a rank divisible by 4.", "Warpgroup", False),
    # wgmma
    (_async, "wgmma.fence comes before the first wgmma.mma_async, and between any other access to the registers of d or a "
     "and the wgmma.mma_async that uses them (not between those of one shape that accumulate in the same d).", _FENCE, True),
    (_async, "d is not read, nor d or a written, before wgmma.commit_group and a wgmma.wait_group that covers it.", _WAIT, True),
    (_async, "fence.proxy.async stands between ordinary stores to the matrices in shared memory and the wgmma.mma_async that "
     "reads them.", "Async Proxy", False),
    (_async, "Descriptors are the same in all four warps. Matrices start at multiples of 16 bytes.", _DESCRIPTORS, False),
    (_async, "With 128B, 64B or 32B swizzling the pattern starts at a multiple of 1024, 512 or 256 bytes; if not, base "
     "offset = (pattern start address >> 7) & 7.", _DESCRIPTORS, False),
    (lambda f: _async(f) and f.atype.bits == 16,
     "imm-trans-a, imm-trans-b: 0 for K-major, 1 for MN-major matrices in shared memory. A in registers has no imm-trans-a.",
     None, False),
    (lambda f: _async(f) and bool(f.atype) and f.atype.bits != 16,
     "Matrices in shared memory are K-major: only 16-bit types can be transposed.", None, False),
    (lambda f: _async(f) and f.atype.is_float,
     "imm-scale-a, imm-scale-b: 1, or -1 to negate A or B.", None, False),
    (_async, "scale-d false: D = A B, and d is not read.", None, False),
    (_is("wgmma", "fence"), "It stands before the first wgmma.mma_async, and between any access to the registers of d or a "
     "and the wgmma.mma_async that uses them, except accumulation in the same d by instructions of one shape.", _FENCE, True),
    (_is("wgmma", "fence"), "It orders registers only: stores to shared memory need fence.proxy.async.", _FENCE, False),
    (_is("wgmma", "commit_group"), "It puts all earlier wgmma.mma_async that are in no group yet into a new group; the group "
     "is empty if there are none.", None, False),
    (_is("wgmma", "wait_group"), "It waits until at most N of the newest groups are pending. Until then the registers d and a "
     "of a pending wgmma.mma_async are not to be touched.", _WAIT, True),
    # sparse
    (lambda f: f.sparse, _granularity, _STORAGE, True),
    (lambda f: f.sparse, _selector, _STORAGE, True),
    (lambda f: f.sparse and f.lanes == 32 and not f.ordered_metadata,
     "mma.sp may be much slower on some targets: prefer mma.sp::ordered_metadata.", None, False),
    # narrow types and scales
    (lambda f: f.kind in ("f8f6f4", "mxf8f6f4"), _containers, None, False),
    (lambda f: f.block_scale, _scales, _SCALING, False),
    (lambda f: "tf32" in (str(f.atype), str(f.type)), "Registers and memory hold tf32 in 32 bits, of which the lower 13 are "
     "ignored.", None, False),
    (lambda f: f.bit_op != "", lambda f: f"Multiplication is .{f.bit_op} of single bits; .popc counts the ones.", None, False),
    (lambda f: not f.effects.tensor and str(f.dtype) == "s32" and f.bit_op == "",
     lambda f: "Sums that overflow are clamped to the range of s32." if f.satfinite
     else "Sums that overflow wrap; .satfinite clamps them.", None, False),
    (lambda f: f.products > 1, "It computes four products: one by "
     "lanes 0-3 and 16-19, one by 4-7 and 20-23, and so on. Made for sm_70; it may be much slower elsewhere.", None, False),
    # wmma
    (_is("wmma", "mma"), "a, b and c come from wmma.load of the same shape, types and layouts. Which lane holds which "
     "element is unspecified: the same operation on all registers of a fragment is all that is portable.",
     "Matrix Fragments for WMMA", False),
    (_moves, _wmma_memory, "Matrix Storage for WMMA", False),
    (_moves, _wmma_stride, "Matrix Storage for WMMA", True),
    (_moves, _spaces, None, False),
    # matrix moves
    (_addressed, _matrix_addresses, None, False),
    (_and(_is("ldmatrix"), lambda f: f.requires.minimum <= 75 and f.num < 4), _spare_lanes, None, True),
    (lambda f: _addressed(f) and not f.space, "p is a generic address that points to .shared memory.", None, False),
    (lambda f: f.src_fmt[:1] == "b", lambda f: f"Memory holds 16 elements of {f.src_fmt[1]} bits a row, then padding "
     f"({f.src_fmt}); registers get a byte for each.", None, False),
    (lambda f: f.src_fmt == "s4", "A row of memory is 8 bytes, two elements a byte, the first in the low half; registers get "
     "a byte of the same value for each.", None, False),
    (lambda f: f.is_move and not _addressed(f), "Registers in, registers out: memory is not touched.", None, False),
)  # fmt: skip


def rules(form: Form) -> tuple[StatedRule, ...]:
    """Every rule that holds for a form."""
    return tuple(
        StatedRule(text if isinstance(text, str) else text(form), section or _own(form), undefined)
        for test, text, section, undefined in _TABLE
        if test(form)
    )
