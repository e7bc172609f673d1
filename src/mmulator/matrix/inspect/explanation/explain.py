"""`explain`: all that is known of a matrix instruction, from the tables that execute it; its operands and meaning in words."""

from dataclasses import replace

from mmulator.base.errors import InvalidInstructionError, UnsupportedError
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.form import Form
from mmulator.isa.matrix import FAMILIES
from mmulator.isa.names.words import split
from mmulator.isa.row import OperandSpec
from mmulator.isa.targets import Target, as_pair
from mmulator.matrix.inspect.explanation import paste
from mmulator.matrix.inspect.explanation.answer import Explanation, Operand, Snippet
from mmulator.matrix.inspect.explanation.arithmetic import arithmetic, runs_on
from mmulator.matrix.inspect.explanation.related import related
from mmulator.matrix.inspect.explanation.rules import rules
from mmulator.matrix.inspect.search import forms_of, is_tcgen05, name_in
from mmulator.matrix.layouts import element_of, fragment

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


def find(text: str, target: Target | None, ptx: tuple[int, int] | None) -> tuple[Form, ...]:
    """The forms that a mnemonic, a pasted statement or a fragment names, the likeliest first."""
    words = split(text)
    if not words or name_in(text) or is_tcgen05(text):
        return forms_of(text, target, ptx)
    if len(words) == 1 or "." in text.split(None, 1)[0]:
        _no_scalar(words[0], text.strip())
    try:
        return forms_of(text, target, ptx)
    except InvalidInstructionError:
        _no_scalar(words[0], text.strip())
        raise


def _no_scalar(opcode: str, text: str) -> None:
    """Raises UnsupportedError for the opcode of an instruction of the scalar tables, with what they say."""
    if opcode in FAMILIES or not opcode.isalnum() or len(opcode) < 2:
        return
    from mmulator.isa.table import ROWS

    rows = ROWS.get(opcode, ())
    if not rows:
        return
    longest = max((len(row.name) for row in rows if (text + ".").startswith(row.name + ".")), default=0)
    rows = tuple(row for row in rows if len(row.name) == longest and text.startswith(row.name)) or rows
    sections = "; ".join(dict.fromkeys(row.section.title for row in rows))
    gaps = [row for row in rows if not row.status.runs]
    runs = "runs it" if not gaps else "runs some of its forms"
    if len(gaps) == len(rows):
        runs = f"does not run it: {gaps[0].status.reason}"
    raise UnsupportedError(
        f"`{rows[0].name}` is no matrix instruction; explain covers {', '.join(FAMILIES)}",
        rule=f"{sections} (PTX ISA 9.1)", hint=f"in kernels, mmulator {runs}",
    )  # fmt: skip


def explain(
    text: str, target: str | Target | None = None, ptx: str | tuple[int, int] | None = None, *, device: str | None = None
) -> Explanation:
    """All that is known of a matrix instruction.

    text: its name, a pasted statement, or words such as `wgmma m64n128 bf16`. If several forms fit, the likeliest is explained
        and
    the others are named in `matches`.
    target: `.target` that must have it.
    ptx: `.version` that must have it.
    device: whose arithmetic; None for every device that has it.

    Raises InvalidInstructionError where nothing fits, naming what is nearest; UnsupportedError for other instructions and for a
    device that does not have it; OperandError for an unknown target or version.
    """
    wanted, version = as_pair(target, ptx)
    form, *others = find(text, wanted, version)
    if form.effects.tensor:
        from mmulator.matrix.inspect.tcgen05 import explain as in_tensor_memory

        return in_tensor_memory.explain_form(form, text, wanted, device)
    if device is not None and others:
        having = [f for f in (form, *others) if runs_on(f, device)]
        form, *others = having or (form, *others)
    return explain_form(form, text, tuple(f.mnemonic for f in others), target=wanted, device=device)


def explain_form(
    form: Form, query: str = "", matches: tuple[str, ...] = (), *, target: Target | None = None, device: str | None = None
) -> Explanation:
    """All that is known of a form; see `explain`."""
    m, n, k = form.m, form.n, form.k
    requires = form.requires
    return Explanation(
        query=query or form.mnemonic,
        mnemonic=form.mnemonic,
        family=form.family,
        section=str(form.section),
        computes=computes(form),
        shape=(m, n, k),
        macs=form.products * m * n * (k // 2 if form.sparse else k) if form.atype else 0,
        threads=form.lanes,
        requires=requires.describe_targets(),
        ptx_version=_dotted(requires.ptx),
        targets=tuple((str(t), _dotted(requires.first_ptx(t))) for t in requires.targets()),
        signatures=tuple(map(signature, form.signatures)),
        operands=operands(form),
        arithmetic=arithmetic(form, device),
        rules=rules(form),
        snippets=tuple(
            Snippet(title, paste.ptx_text(form, way), paste.cuda_text(form, way))
            for way, (title, _) in enumerate(paste.signatures(form))
        ),
        cuda_head=paste.cuda_head(form, target),
        related=related(form),
        matches=matches,
    )


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
