"""`explain`: all that is known of a matrix instruction, from the tables that execute it."""

from mmulator.errors import InvalidInstructionError, UnsupportedError
from mmulator.inspect.explanation import paste
from mmulator.inspect.explanation.answer import Explanation, Snippet
from mmulator.inspect.explanation.arithmetic import arithmetic, runs_on
from mmulator.inspect.explanation.related import related
from mmulator.inspect.explanation.rules import rules
from mmulator.inspect.explanation.words import computes, operands, signature
from mmulator.inspect.search import forms_of, is_tcgen05, name_in
from mmulator.isa.form import Form
from mmulator.isa.matrix import FAMILIES
from mmulator.isa.names.words import split
from mmulator.isa.targets import Target, as_pair


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
        from mmulator.inspect.tcgen05 import explain as in_tensor_memory

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
