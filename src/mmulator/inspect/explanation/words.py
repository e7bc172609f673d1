"""An instruction in words: its computation and its operands."""

from dataclasses import replace

from mmulator.inspect.explanation.answer import Operand
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec
from mmulator.layouts import element_of, fragment

_MATRIX = {"a": "A", "b": "B", "c": "C", "d": "D"}
_SPARE = {
    "e": "sparsity metadata", "sp-meta": "sparsity metadata", "f": "sparsity selector", "sp-sel": "sparsity selector",
    "a-desc": "descriptor of A in shared memory", "b-desc": "descriptor of B in shared memory",
    "scale-d": "false: D = A B, d is not read", "imm-scale-a": "-1 negates A", "imm-scale-b": "-1 negates B",
    "imm-trans-a": "1: A is MN-major", "imm-trans-b": "1: B is MN-major",
    "scale-a-data": "scale factors of A", "scale-b-data": "scale factors of B",
    "byte-id-a": "first byte of scale-a-data", "thread-id-a": "thread pair with scale-a-data",
    "byte-id-b": "first byte of scale-b-data", "thread-id-b": "thread with scale-b-data",
    "stride": "elements from row to row, or column to column; may be left out", "N": "groups that may stay pending",
}  # fmt: skip


def _address(form: Form) -> str:
    if form.effects.opaque:
        return "address of the matrix, the same in all lanes"
    return "address of a row of 16 bytes, each lane its own"


_DIRECTIONS = {"r": "in", "w": "out", "rw": "inout"}


def _operand(form: Form, spec: OperandSpec) -> Operand:
    registers = {"registers": spec.count, "immediate": 0}.get(spec.kind, 1)
    constants = spec.defined or spec.values
    values = None if not constants or len(constants) > 64 else tuple(constants)
    base = Operand(spec.name, spec.kind, _DIRECTIONS[spec.access], registers, spec.type, spec.types, values, "")
    if spec.kind not in ("registers", "register") or spec.name not in "abcdr":
        return replace(base, what=_address(form) if spec.kind == "address" else _SPARE[spec.name])
    element, rule = element_of(form, spec.name), fragment(form, spec.name)
    name = "" if spec.name == "r" else _MATRIX[spec.name] + ", "
    kept = "compressed " if form.sparse and spec.name == "a" else ""
    copies = f"{rule.copies} matrices of " if rule.copies > 1 else ""
    what = f"{name}{copies}{kept}{rule.rows} x {rule.columns} {element}, {rule.per_register} a register"
    return replace(
        base, what=what, element=str(element), rows=rule.rows, columns=rule.columns, lanes=rule.lanes,
        per_register=rule.per_register,
    )  # fmt: skip


def operands(form: Form) -> tuple[Operand, ...]:
    specs = {p.name: p for signature in form.signatures for s in signature for p in (s.parts or (s,))}
    return tuple(_operand(form, s) for s in specs.values())


def signature(operands: tuple[OperandSpec, ...]) -> str:
    def text(spec: OperandSpec) -> str:
        inner = ", ".join(p.name for p in spec.parts)
        return f"[{spec.name}]" if spec.kind == "address" else f"{{{inner}}}" if spec.parts else spec.name

    return ", ".join(map(text, operands))


_WMMA_MATRIX = {"a": "A", "b": "B", "c": "the accumulator C", "d": "the accumulator D"}
_ORDERING = {
    "fence": "Orders accesses to registers: those before it come before those of the wgmma.mma_async after it.",
    "commit_group": "Puts the wgmma.mma_async that the warp has issued so far into a new wgmma-group.",
    "wait_group": "Waits until at most N of the newest wgmma-groups are pending.",
}


def computes(form: Form) -> str:
    """The computation of an instruction in one or two sentences."""
    if form.op in _ORDERING:
        return _ORDERING[form.op]
    if form.atype:
        return _product(form)
    if form.effects.opaque:
        rows, columns = {"a": (form.m, form.k), "b": (form.k, form.n)}.get(form.op[-1], (form.m, form.n))
        verb, where = ("Loads", "from") if form.op.startswith("load") else ("Stores", "to")
        layout = "row-major" if form.layout == "row" else "column-major"
        return f"{verb} {_WMMA_MATRIX[form.op[-1]]}, {rows} x {columns} {form.type} {layout}, {where} memory, by one warp."
    width = 16 if (form.m, form.n) == (8, 8) else 8
    if form.effects.memory is MemoryEffect.NONE:
        verb = "Transposes" if form.trans else "Moves"
        return f"{verb} an {form.m} x {form.n} matrix of {width}-bit elements across the registers of a warp."
    count = "a matrix" if form.num == 1 else f"{form.num} matrices"
    verb, where = ("Loads", "from") if form.effects.memory is MemoryEffect.READ else ("Stores", "to")
    turned = ", transposed" if form.trans else ""
    packed = f", {form.src_fmt[1]} bits each in memory" if form.src_fmt else ""
    return f"{verb} {count} of {form.m} x {form.n} {width}-bit elements{packed} {where} shared memory{turned}, by one warp."


def _product(form: Form) -> str:
    m, n, k = form.m, form.n, form.k
    sums = "D" if not form.ctype else "C"
    if form.bit_op:
        formula = f"D = {sums} + popcount(A {form.bit_op} B)"
    elif form.block_scale:
        formula = f"D = (A scale_A) (B scale_B) + {sums}"
    else:
        formula = f"D = A B + {sums}"
    a = f"A {m} x {k} {form.atype}" + (", half of it zeros" if form.sparse else "")
    who = "a warpgroup (128 threads), asynchronously" if form.lanes > 32 else "one warp"
    c = "" if not form.ctype or form.ctype is form.dtype else f"C {form.ctype}, "
    cd = f"{c}D {m} x {n} {form.dtype}"
    copies = ", four times" if form.products > 1 else ""
    scale = f"; scale factors {form.stype} for every {k // form.scale_vec} along k" if form.block_scale else ""
    return f"{formula}: {a}; B {k} x {n} {form.btype}; {cd}{scale}; by {who}{copies}."
