"""Instructions of tcgen05 explained: what each computes, what its operands hold, what must hold."""

from collections.abc import Iterator

from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec
from mmulator.isa.targets import Target
from mmulator.matrix.inspect.explanation.answer import Explanation, Operand, Snippet
from mmulator.matrix.inspect.explanation.arithmetic import arithmetic
from mmulator.matrix.inspect.explanation.related import Related
from mmulator.matrix.inspect.explanation.rules import StatedRule
from mmulator.matrix.inspect.search import descriptor_of, text_of
from mmulator.matrix.layouts.instruction_descriptor import encode
from mmulator.matrix.layouts.tensor_memory import layout_id, moved

_COMPUTES = {
    "alloc": "Allocates columns of tensor memory and writes the address to shared memory; one warp (of a pair: one of each CTA), "
    "which waits until enough columns are free.",
    "dealloc": "Gives columns of tensor memory back, by one warp (of a pair: one of each CTA).",
    "relinquish_alloc_permit": "The CTA allocates no tensor memory any more.",
    "ld": "Loads from tensor memory into registers of a warp, asynchronously.",
    "ld.red": "Loads from tensor memory into registers of a warp, with each thread's least or greatest value, asynchronously.",
    "st": "Stores registers of a warp into tensor memory, asynchronously.",
    "wait::ld": "Waits until all loads from tensor memory of the thread are complete.",
    "wait::st": "Waits until all stores into tensor memory of the thread are complete.",
    "cp": "Copies from shared memory to tensor memory, by one thread, asynchronously.",
    "shift": "Moves rows of 32 bytes in tensor memory down by one lane, by one thread, asynchronously.",
    "commit": "Lets an mbarrier know when all earlier asynchronous tcgen05 operations of the thread are complete.",
    "fence::before_thread_sync": "Orders earlier tcgen05 operations before what follows a synchronization of threads.",
    "fence::after_thread_sync": "Orders later tcgen05 operations behind what precedes a synchronization of threads.",
}
_OPERANDS = {
    "a-desc": "descriptor of A in shared memory", "b-desc": "descriptor of B in shared memory",
    "sp-meta": "address of the sparsity metadata", "disable-output-lane": "bits of lanes of D that are not written",
    "enable-input-d": "false: D = A B, d is not read", "scale-input-d": "D is multiplied by 2^-scale first",
    "zero-column-mask": "columns of B that are taken as zeros", "scale-a": "address of the scale factors of A",
    "scale-b": "address of the scale factors of B", "taddr": "address in tensor memory", "nCols": "columns: a power of two",
    "dst": "where the address is written, in shared memory", "redval": "least or greatest value of the thread",
    "s-desc": "descriptor of the source in shared memory", "mbar": "mbarrier in shared memory",
    "ctaMask": "CTAs of the cluster whose mbarriers are told", "immHalfSplitoff": "columns from lanes 0-15 to lanes 16-31",
    "r": "cells of tensor memory",
}  # fmt: skip


def explain_form(form: Form, query: str, target: Target | None, device: str | None) -> Explanation:
    """All that is known of a form of tcgen05; see `inspect.explain`."""
    requires, text = form.requires, text_of(form)
    specs = {spec.name: spec for signature in form.signatures for spec in signature}
    return Explanation(
        query=query or text, mnemonic=text, family=form.family, section=str(form.section), computes=_computes(form),
        shape=(form.m, form.n, form.k) if form.atype else (0, 0, 0),
        macs=form.m * form.n * (form.k // 2 if form.sparse else form.k) if form.atype else 0,
        threads=32 if form["sync"] else 1, requires=requires.describe_targets(), ptx_version=_dotted(requires.ptx),
        targets=tuple((str(t), _dotted(requires.first_ptx(t))) for t in requires.targets()),
        signatures=tuple(", ".join(map(_written, signature)) for signature in form.signatures),
        operands=tuple(_operand(form, spec) for spec in specs.values()), arithmetic=arithmetic(form, device),
        rules=tuple(_rules(form)), snippets=(Snippet("", _ptx(form), ""),), cuda_head="",
        related=_related(form),
    )  # fmt: skip


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _computes(form: Form) -> str:
    if not form.atype:
        return _COMPUTES[form.op]
    d = descriptor_of(form)
    formula = "D = (A scale_A) (B scale_B) + D" if form.block_scale else "D = A B + D"
    half = ", half of it zeros" if form.sparse else ""
    scale = f"; scale factors {d.stype} for every {d.k // form.scale_vec} along k" if form.block_scale else ""
    who = "one thread for a pair of CTAs" if d.pair else "one thread"
    a, b = f"A {d.m} x {d.k} {d.atype}{half}, in shared or tensor memory", f"B {d.k} x {d.n} {d.btype} in shared memory"
    return (f"{formula}: {a}; {b}; D {d.m} x {d.n} {d.dtype} in tensor memory{scale}; by {who}, asynchronously.")  # fmt: skip


def _operand(form: Form, spec: OperandSpec) -> Operand:
    constant = spec.kind in ("imm", "immediate")
    values = tuple(spec.values) or (tuple(range(spec.lo, spec.hi + 1)) if constant and spec.lo is not None and spec.hi else None)
    what = _OPERANDS.get(spec.name, "")
    if form.atype and spec.name in ("a", "d", "idesc"):
        d = descriptor_of(form)
        word = f"types and shape: {encode(d):#010x} with both matrices K-major"
        what = {"a": f"address of A {d.m} x {d.k // (1 + d.sparse)} {d.atype}", "idesc": word}.get(
            spec.name, f"address of D {d.m} x {d.n} {d.dtype}")  # fmt: skip
    return Operand(
        spec.name, spec.kind, {"r": "in", "w": "out", "rw": "inout"}[spec.access], 0 if constant else spec.count, spec.type,
        spec.types or (spec.type,), values, what,
    )  # fmt: skip


def _written(spec: OperandSpec) -> str:
    return f"[{spec.name}]" if spec.kind == "addr" else f"{{{spec.name}}}" if spec.kind == "registers" else spec.name


def _ptx(form: Form) -> str:
    """A statement with names of registers."""
    def text(spec: OperandSpec) -> str:
        name = "%" + spec.name.replace("-", "_")
        if spec.kind == "registers":
            return "{" + ", ".join(f"{name}{i}" for i in range(spec.count)) + "}"
        return f"[{name}]" if spec.kind == "addr" else "0" if spec.kind == "imm" else name

    own = (spec for spec in form.signatures[0] if not spec.optional)
    return f"{form.mnemonic} {', '.join(map(text, own))}".rstrip() + ";\n"


_MMA = "TensorCore 5th Generation Instructions: tcgen05.mma"
_ORDER = "Memory Consistency Model for 5th generation of TensorCore operations"


def _rules(form: Form) -> Iterator[StatedRule]:
    own = form.section.title
    if form.atype:
        d = descriptor_of(form)
        letter = layout_id(d.m, d.pair, d.ws, d.sparse)
        yield StatedRule("One thread issues it; all threads of a warp would issue it 32 times.", "Issue Granularity")
        yield StatedRule(f"D lies in layout {letter}.", "Data Path Layout Organization")
        says = "The instruction descriptor says types and shape, and every reserved bit of it is 0."
        yield StatedRule(says, "Instruction descriptor")
        yield StatedRule("Shared memory that it reads was written by the async proxy, or a fence.proxy.async follows the "
                         "writes.", "Async Proxy", True)  # fmt: skip
        yield StatedRule("A, B and D are not touched until a tcgen05.commit after it has completed an mbarrier.", _ORDER, True)
        yield StatedRule("A tcgen05.mma after it with the same kind, accumulator and shape runs in order.", _ORDER)
        if form.sparse:
            selects = "the first or second column at the metadata's address, which is even; 2 and 3 are not known"
            one = "The sparsity selector is 0." if d.kind not in ("f16", "tf32") else f"Sparsity selectors 0 and 1: {selects}."
            yield StatedRule(one, "Sparsity selector")
        if d.pair:
            yield StatedRule("Each CTA of the pair holds half of A's rows and half of B's columns; descriptors and addresses "
                             "are the same in both.", _MMA)  # fmt: skip
    elif form.op in ("ld", "ld.red", "st"):
        quarter = "Warp w of a warpgroup reaches lanes 32 w to 32 w + 31."
        yield StatedRule(quarter, "Tensor Memory", True)
        lane, column = moved(form["shape"], 9, 0, 0)
        yield StatedRule(f"Thread 9 has lane {lane}, column {column} in its first register.", "Matrix and Data Movement Shape")
        way = "st" if form.op == "st" else "ld"
        yield StatedRule(f"tcgen05.wait::{way} completes it for other threads.", _ORDER, True)
    elif form.op in ("alloc", "dealloc", "relinquish_alloc_permit"):
        yield StatedRule("All that is allocated is given back before the kernel ends.", "Tensor Memory Allocation", True)
        yield StatedRule("After relinquish_alloc_permit the CTA allocates no more.", "Tensor Memory Allocation", True)
    elif form.op == "cp" and form["shape"] == "4x256b":
        yield StatedRule("Each row is written 32 lanes behind the row before, from the address's lane on (inferred).", own)
    if form["cta_group"]:
        yield StatedRule("All tcgen05 instructions of a kernel have one .cta_group.", own)


def _related(form: Form) -> tuple[Related, ...]:
    if not form.atype:
        return ()
    commit = f"tcgen05.commit.{form['cta_group']}.mbarrier::arrive::one.shared::cluster.b64"
    return (
        Related("completion", commit), Related("D into registers", "tcgen05.ld.sync.aligned.32x32b.x32.b32"),
    )  # fmt: skip
