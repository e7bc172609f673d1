"""Answers as plain semantic HTML for notebooks: headings, tables, preformatted text; nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from mmulator.base.tables import element
from mmulator.base.tables import html_table as table

if TYPE_CHECKING:
    from mmulator.matrix.inspect.descriptors.answer import DescriptorAnswer, DescriptorFields
    from mmulator.matrix.inspect.descriptors.banks import BankConflicts
    from mmulator.matrix.inspect.descriptors.checks import Diagnostic
    from mmulator.matrix.inspect.descriptors.from_cute import CuteAnswer
    from mmulator.matrix.inspect.explanation.answer import Explanation
    from mmulator.matrix.inspect.layouts.answer import Layout
    from mmulator.matrix.inspect.listing import FormGroups
    from mmulator.matrix.inspect.sparse import MetadataWord, PatternReport
    from mmulator.matrix.inspect.tcgen05.descriptor import InstructionFields
    from mmulator.matrix.inspect.tensormaps.box import TensorBox
    from mmulator.matrix.inspect.tensormaps.fields import TensorMapFields


def explanation(e: Explanation) -> str:
    """An Explanation as a section."""
    from mmulator.matrix.inspect.explanation.arithmetic import by_devices, numbers

    parts = [
        f"<h3><code>{escape(e.mnemonic)}</code></h3>",
        element("p", e.computes),
        element("p", f"{e.section}. Target: {e.requires}; PTX {e.ptx_version} or higher."),
    ]
    if e.operands:
        rows = [(o.name, o.direction, o.registers or "constant", o.type and f".{o.type}", o.what) for o in e.operands]
        parts += [element("h4", "Operands"), table(("operand", "in/out", "registers", "type", "holds"), rows)]
    if e.arithmetic:
        groups = by_devices(e.arithmetic)
        parts += [element("h4", "Arithmetic"), table(
            ("device", "L", "F", "floor", "rounding", "NaN", "confidence"), [(names, *numbers(a)) for names, a in groups]
        )]  # fmt: skip
        parts += [element("p", f"{names}: {a.words} {a.note}") for names, a in groups]
    rules = "".join(
        "<li>" + escape(r.text) + (" <strong>Otherwise undefined.</strong>" if r.undefined else "")
        + f" <cite>{escape(r.section)}</cite></li>" for r in e.rules
    )  # fmt: skip
    parts += [element("h4", "Rules"), f"<ul>{rules}</ul>"]
    parts += [element("h4", "PTX"), element("pre", e.ptx), element("h4", "CUDA"), element("pre", e.cuda)]
    if e.related:
        links = [(r.relation, r.instruction, r.also) for r in e.related]
        parts += [element("h4", "Related"), table(("relation", "instruction", ""), links)]
    return "<section>" + "\n".join(parts) + "</section>"


def picture(layout: Layout) -> str:
    """The drawing of a layout."""
    return f"<div>{layout.svg()}</div>"


def form_groups(groups: FormGroups) -> str:
    """Groups of forms as a table."""
    return table(groups.COLUMNS, groups.rows())


# descriptors ---------------------------------------------------------------------------------------------------------
def descriptor_fields(d: DescriptorFields) -> str:
    """The fields of a word, and what is wrong with it."""
    rows = [(f.name, f.bits, f.raw, f.value) for f in d.fields]
    return element("p", f"{d.word:#018x}") + table(("field", "bits", "raw", "value"), rows) + _findings(d.findings)


def instruction_fields(d: InstructionFields) -> str:
    """The fields of an instruction descriptor, and what it means."""
    rows = [(f.name, f.bits, f.raw, f.value) for f in d.fields]
    meaning = table(("", ""), d.lines())
    return element("p", f"{d.word:#010x}") + table(("field", "bits", "raw", "value"), rows) + meaning + _findings(d.findings)


def descriptor(answer: DescriptorAnswer) -> str:
    """The picture of a tile, and what is wrong with its descriptor."""
    return answer.svg() + _findings(answer.findings)


def _findings(findings: tuple[Diagnostic, ...]) -> str:
    rows = [(f.level, f.text, f.rule, f.hint) for f in findings]
    return table(("finding", "", "rule", "hint"), rows) if rows else ""


def cute_answer(answer: CuteAnswer) -> str:
    """The descriptors of a layout, one a tile."""
    names = ("start_address", "leading_byte_offset", "stride_byte_offset", "base_offset", "swizzle")
    rows = [(t.mn, t.k, t.stage, *(getattr(t.descriptor, n) for n in names), f"{t.word:#018x}") for t in answer.tiles]
    head = element("p", f"{answer.layout}: {answer.tile}")
    return head + table((answer.tile.letter, "k", "stage", *names, "word"), rows)


def bank_conflicts(found: BankConflicts) -> str:
    """Accesses and their wavefronts."""
    rows = [(a.label, a.bytes, a.wavefronts, a.least, f"{a.ways}-way") for a in found.accesses]
    head = element("p", f"{found.kind}: {found.verdict()}")
    return head + table(("first element", "bytes a lane", "wavefronts", "least", "worst phase"), rows)


# sparse --------------------------------------------------------------------------------------------------------------
def metadata_word(w: MetadataWord) -> str:
    """The nibbles of a metadata register."""
    word = "" if w.word is None else f": 0x{w.word:08x}"
    rows = [(f"{n.bits[0]}..{n.bits[1]}", n.row, f"{n.columns[0]}..{n.columns[1]}", n.text, n.meaning) for n in w.nibbles]
    head = element("p", f"lane {w.lane}, selector {w.selector}{word}")
    return head + table(("bits", "row", "columns", "nibble", "meaning"), rows)


def pattern_report(report: PatternReport) -> str:
    """Whether a matrix fits the pattern, and the first chunks that do not."""
    text = f"{report.dtype} {list(report.shape)}: {report.too_dense:,} of {report.chunks:,} chunks are too dense; {report.rule}"
    rows = [(*c.batch, c.row, c.chunk, f"{c.columns[0]}..{c.columns[1]}", ", ".join(c.values)) for c in report.first]
    batch = [f"matrix {n}" for n in range(len(report.shape) - 2)]
    return element("p", text) + (table((*batch, "row", "chunk", "columns", "values"), rows) if rows else "")


# tensor maps ---------------------------------------------------------------------------------------------------------
def tensor_map_fields(d: TensorMapFields) -> str:
    """The fields of a map, and what is wrong with it."""
    rows = [(f.name, f.where, f.raw, f.value) for f in d.fields]
    return element("p", repr(d.map)) + table(("field", "bits", "raw", "value"), rows) + _findings(d.findings)


def tensor_box(box: TensorBox) -> str:
    """The drawing of a box."""
    return f"<div>{box.svg()}</div>"
