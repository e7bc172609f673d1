"""`explain`: all that is known of a matrix instruction, from the tables that execute it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from mmulator.errors import InvalidInstructionError, UnsupportedError
from mmulator.inspect import paste
from mmulator.inspect.arithmetic import Arithmetic, arithmetic
from mmulator.inspect.related import Related, related
from mmulator.inspect.usage import Rule, rules
from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec
from mmulator.isa.targets import Target, as_pair
from mmulator.layouts import element_of, fragment
from mmulator.syntax import parse_mnemonic
from mmulator.syntax.search import find_forms, split


@dataclass(frozen=True)
class Operand:
    """An operand of the instruction.

    name, kind, direction: as in isa.row.OperandSpec. registers: how many a thread gives (0 for a constant), of
    register type `type`; `types`: all that are accepted. values: the constants that mean something, None for any. what: in
    words.
    For a fragment: rows and columns of its matrix (of sparse A the compressed one), element: its type, lanes,
    per_register: elements in a register; None or 0 otherwise.
    """

    name: str
    kind: str
    direction: str
    registers: int
    type: str
    types: tuple[str, ...]
    values: tuple[int, ...] | None
    what: str
    element: str | None = None
    rows: int = 0
    columns: int = 0
    lanes: int = 0
    per_register: int = 0


@dataclass(frozen=True)
class Snippet:
    """Text to paste. title: which way to write the instruction, empty if there is one. ptx: declarations and
    statement. cuda: a `__device__` function."""

    title: str
    ptx: str
    cuda: str


@dataclass(frozen=True)
class Explanation:
    """What `explain` answers.

    query: what was asked. mnemonic; section: title and version of its section. computes: in words. macs:
    multiply-accumulates (of sparse forms those that are done), 0 for an instruction that multiplies nothing. threads:
    that execute it together. shape: m, n, k, 0 where there is none.
    requires: targets in words; ptx_version: first PTX version; targets: (target, first PTX version) of each.
    signatures: operand lists that are accepted. operands: all of them, each once.
    arithmetic: per device. rules. snippets: to paste. related. matches: what else fits the query, likeliest first.
    """

    query: str
    mnemonic: str
    family: str
    section: str
    computes: str
    shape: tuple[int, int, int]
    macs: int
    threads: int
    requires: str
    ptx_version: str
    targets: tuple[tuple[str, str], ...]
    signatures: tuple[str, ...]
    operands: tuple[Operand, ...]
    arithmetic: tuple[Arithmetic, ...]
    rules: tuple[Rule, ...]
    snippets: tuple[Snippet, ...]
    cuda_head: str
    related: tuple[Related, ...]
    matches: tuple[str, ...] = ()

    @property
    def ptx(self) -> str:
        """Declarations and statement; other ways to write it as comments."""
        first, *others = self.snippets
        out = first.ptx
        for other in others:
            out += f"\n// or, {other.title}:\n" + "".join(f"// {line}\n" for line in other.ptx.splitlines())
        return out

    @property
    def cuda(self) -> str:
        """`__device__` functions, for each way to write it."""
        return self.cuda_head + "".join(f"\n{'// ' + s.title + chr(10) if s.title else ''}{s.cuda}" for s in self.snippets)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {**asdict(self), "ptx": self.ptx, "cuda": self.cuda}

    def _repr_html_(self) -> str:
        from mmulator.inspect.html import explanation

        return explanation(self)


# In words --------------------------------------------------------------------------------------------------------------
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
    if form.family == "wmma":
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


def _operands(form: Form) -> tuple[Operand, ...]:
    specs = {p.name: p for signature in form.signatures for s in signature for p in (s.parts or (s,))}
    return tuple(_operand(form, s) for s in specs.values())


def _signature(operands: tuple[OperandSpec, ...]) -> str:
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
    """What an instruction does, in one or two sentences."""
    if form.op in _ORDERING:
        return _ORDERING[form.op]
    if form.atype:
        return _product(form)
    if form.family == "wmma":
        rows, columns = {"a": (form.m, form.k), "b": (form.k, form.n)}.get(form.op[-1], (form.m, form.n))
        verb, where = ("Loads", "from") if form.op.startswith("load") else ("Stores", "to")
        layout = "row-major" if form.layout == "row" else "column-major"
        return f"{verb} {_WMMA_MATRIX[form.op[-1]]}, {rows} x {columns} {form.type} {layout}, {where} memory, by one warp."
    if form.family == "movmatrix":
        return "Transposes an 8 x 8 matrix of 16-bit elements across the registers of a warp."
    width = 16 if (form.m, form.n) == (8, 8) else 8
    count = "a matrix" if form.num == 1 else f"{form.num} matrices"
    verb, where = ("Loads", "from") if form.family == "ldmatrix" else ("Stores", "to")
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
    who = "a warpgroup (128 threads), asynchronously" if form.family == "wgmma" else "one warp"
    c = "" if not form.ctype or form.ctype is form.dtype else f"C {form.ctype}, "
    cd = f"{c}D {m} x {n} {form.dtype}"
    copies = ", four times" if form.shape == "m8n8k4" and form.family == "mma" and str(form.atype) == "f16" else ""
    scale = f"; scale factors {form.stype} for every {k // form.scale_vec} along k" if form.block_scale else ""
    return f"{formula}: {a}; B {k} x {n} {form.btype}; {cd}{scale}; by {who}{copies}."


# The answer ------------------------------------------------------------------------------------------------------------
def find(text: str, target: Target | None, ptx: tuple[int, int] | None) -> tuple[Form, ...]:
    """The forms that a mnemonic, a pasted statement or a fragment names, the likeliest first."""
    if not isinstance(text, str):
        split(text)  # raises
    word = text.strip().split(None, 1)[0].rstrip(";") if text.strip() else ""
    if "." in word:
        try:
            return (parse_mnemonic(word, target=target, ptx=ptx),)
        except InvalidInstructionError:
            if "sync" in word.split("."):  # a whole name with a mistake: the parser says which
                raise
    words = split(text)
    if len(words) == 1 or "." in word:
        _no_scalar(words[0], text.strip())
    try:
        return find_forms(text, target, ptx)
    except InvalidInstructionError:
        if words:
            _no_scalar(words[0], text.strip())
        raise


def _no_scalar(opcode: str, text: str) -> None:
    """Raises UnsupportedError for the opcode of an instruction of the scalar tables, with what they say."""
    from mmulator.isa.matrix import FAMILIES

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

    text: its name, a pasted statement, or words such as `wgmma m64n128 bf16`; of several forms that fit, the likeliest
    is explained and the others are named in `matches`. target, ptx: `.target` and `.version` that must have it.
    device: whose arithmetic; None for every device that has it.
    Raises InvalidInstructionError where nothing fits, naming what is nearest; UnsupportedError for other instructions
    and for a device that does not have it; OperandError for an unknown target or version.
    """
    wanted, version = as_pair(target, ptx)
    form, *others = find(text, wanted, version)
    if device is not None and others:
        from mmulator.inspect.arithmetic import runs_on

        having = [f for f in (form, *others) if runs_on(f, device)]
        form, *others = having or (form, *others)
    return explain_form(form, text, tuple(f.mnemonic for f in others), target=wanted, device=device)


def explain_form(
    form: Form, query: str = "", matches: tuple[str, ...] = (), *, target: Target | None = None, device: str | None = None
) -> Explanation:
    """As `explain`, for a form."""
    m, n, k = form.m, form.n, form.k
    requires = form.requires
    copies = 4 if form.family == "mma" and form.shape == "m8n8k4" and str(form.atype) == "f16" else 1
    return Explanation(
        query=query or form.mnemonic,
        mnemonic=form.mnemonic,
        family=form.family,
        section=str(form.section),
        computes=computes(form),
        shape=(m, n, k),
        macs=copies * m * n * (k // 2 if form.sparse else k) if form.atype else 0,
        threads=form.lanes,
        requires=requires.describe_targets(),
        ptx_version=_dotted(requires.ptx),
        targets=tuple((str(t), _dotted(requires.first_ptx(t))) for t in requires.targets()),
        signatures=tuple(map(_signature, form.signatures)),
        operands=_operands(form),
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
