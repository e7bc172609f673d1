"""`mmulator layout`: which lane and register holds which element of an operand."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from mmulator.base.errors import OperandError, UnsupportedError
from mmulator.base.files import write
from mmulator.cli.output import exclude, misused, print_json, print_line, print_text, width
from mmulator.cli.parser import Json, Option, Positional

if TYPE_CHECKING:
    from mmulator.matrix.inspect.layouts.answer import Element, Layout


@dataclass(frozen=True)
class LayoutQuestions:
    """Questions about a layout, and the form of the answer."""

    element: Annotated[str | None, Option("Who holds this element.", "ROW,COL[,COPY]")] = None
    register: Annotated[str | None, Option("What lies in this register.", "LANE,REG[,INDEX]")] = None
    by: Annotated[str | None, Option("Table by rows and columns, or by lanes. Default: matrix.", "matrix|lane")] = None
    full: Annotated[bool, Option("All of a large one, not just what repeats.")] = False
    svg: Annotated[str | None, Option("Draw it. - is standard output, here and below.", "FILE")] = None
    png: Annotated[str | None, Option("Draw it; needs the extra draw.", "FILE")] = None
    theme: Annotated[str | None, Option("Of the drawing; auto, the default, follows the reader's.", "auto|light|dark")] = None
    csv: Annotated[bool, Option("Print CSV, a line for each place in the registers.")] = False
    markdown: Annotated[bool, Option("Print a Markdown table.")] = False
    cute: Annotated[bool, Option("Print the CuTe layout from (thread, value) to an element.")] = False
    json: Json = False

    def check(self) -> None:
        """Raise WrongUsage where options contradict each other, or one would have no effect."""
        from mmulator.matrix.inspect.views.svg import check_theme

        if self.by not in (None, "matrix", "lane"):
            raise misused("matrix or lane", "--by")
        if self.theme is not None and self.svg is self.png is None:
            raise misused("it goes with --svg or --png", "--theme")
        check_theme(self.theme or "auto")
        pictures = {"--svg": self.svg, "--png": self.png}
        questions = {"--element": self.element, "--register": self.register}
        formats = {"--csv": self.csv, "--markdown": self.markdown, "--cute": self.cute}
        others = questions | formats | {"--json": self.json}
        for name, given in (others | pictures).items():
            exclude({"--by": self.by, name: given}, "it turns the printed table")
        for name, given in others.items():
            exclude({"--full": self.full, name: given}, "this has all of it")
        _one_output(pictures, questions, formats, self.json)
        self.places()

    def asked(self) -> dict[str, Any]:
        """Options that are about one operand."""
        return {f"--{name}": value for name, value in vars(self).items() if name != "theme"}

    def places(self) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        """The element and the register that are asked for, as numbers."""
        where = None if self.element is None else _numbers(self.element, "--element", "ROW,COL[,COPY]")
        place = None if self.register is None else _numbers(self.register, "--register", "LANE,REG[,INDEX]")
        return where, place

    def give(self, instruction: str, found: Layout) -> None:
        """Print drawings, answers to the questions, or the table in one of its forms."""
        theme = self.theme or "auto"
        if self.svg is not None:
            _write("--svg", self.svg, found.svg(theme, self.full).encode())
        if self.png is not None:
            _write("--png", self.png, found.png(theme, self.full))
        if self.svg is not None or self.png is not None:
            _say_drawn(instruction, found, [p for p in (self.svg, self.png) if p is not None])
        elif self.element is not None or self.register is not None:
            _answer(instruction, found, *self.places(), self.json)
        elif self.cute:
            _print_cute(found, self.json)
        elif self.json:
            print_json("layout", {"ok": True, **found.to_dict()})
        else:
            _print_all(instruction, found, self.by or "matrix", self.full, self.csv, self.markdown)


def layout(
    words: Annotated[
        list[str],
        Positional(
            "The instruction as in PTX or in words (mma m16n8k16 bf16), then the operand: a, b, c, d; r of a load or store; e "
            "(wgmma: sp_meta), the metadata; scale_a, scale_b. Of tcgen05, no operand: all that have a layout.",
            "INSTRUCTION [OPERAND]", offer="instruction_words",
        ),
    ],
    wanted: LayoutQuestions,
    selector: Annotated[int | None, Option("Sparsity selector, for the metadata. Default: 0.")] = None,
    byte_id: Annotated[int | None, Option("Of the scale factors. Default: 0.")] = None,
    thread_id: Annotated[int | None, Option("Of the scale factors. Default: 0.")] = None,
    device: Annotated[
        str | None, Option("Matters for wmma, whose fragments the specification leaves open. Default: sm_90.")
    ] = None,
) -> None:
    """Which lane and register holds which element of a matrix, its metadata or its scale factors.

    Examples:
        mmulator layout mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 a
        mmulator layout wgmma m64n256 bf16 d --element 17,200
        mmulator layout mma.sp m16n8k32 f16 e --selector 1 --svg metadata.svg
        mmulator layout tcgen05 m128n64 f16

    Elements are named as in the specification's figures: a5 is a lane's element number 5.
    """
    wanted.check()
    instruction, operand = _split(words)
    if operand is None:
        options = {"--selector": selector, "--byte-id": byte_id, "--thread-id": thread_id, "--device": device}
        operand = _only_operand(instruction, options | wanted.asked())
    if operand is None:
        _print_overview(instruction)
        return
    found = _find(instruction, operand, selector, byte_id, thread_id, device)
    if wanted.full and (wanted.svg is not None or wanted.png is not None):
        _check_size(found)
    wanted.give(instruction, found)


def _find(
    instruction: str, operand: str, selector: int | None, byte_id: int | None, thread_id: int | None, device: str | None
) -> Layout:
    """The layout. Raises WrongUsage for an option that belongs to another kind of operand."""
    from mmulator.matrix.inspect.layouts.layout import layout as answer

    found = answer(
        instruction, operand, selector=selector or 0, byte_id=byte_id or 0, thread_id=thread_id or 0, device=device or "sm_90"
    )
    if device is not None:
        _check_device(found, device)
    of = {"--selector": (selector, "metadata"), "--byte-id": (byte_id, "scales"), "--thread-id": (thread_id, "scales")}
    for name, (value, kind) in of.items():
        if value is not None and found.kind != kind:
            what = {"metadata": "the metadata", "scales": "scale factors"}[kind]
            raise misused(f"it is of {what}, not of operand {operand}", name)
    return found


def _answer(instruction: str, found: Layout, where: tuple[int, ...] | None, place: tuple[int, ...] | None, json: bool) -> None:
    """Print who holds an element, and what lies in a register; also for another form whose answer differs."""
    from mmulator.matrix.inspect.layouts.layout import other_answer
    from mmulator.matrix.inspect.search import name_in

    def ask(layout: Layout) -> list[Element]:
        elements = [layout.element(*where)] if where else []
        return elements + list(layout.at(*place) if place else ())

    other = other_answer(instruction, found, ask)
    _print_elements(found, ask(found), json, other, not name_in(instruction))


def _one_output(pictures: dict[str, str | None], questions: dict[str, str | None], formats: dict[str, bool], json: bool) -> None:
    """Raise WrongUsage where an option would have no effect. --json goes with questions and --cute, --svg with --png."""
    if "-" in pictures.values():
        exclude({f"{name} -": path == "-" for name, path in pictures.items()}, "standard output takes one")
    exclude(formats, "one form of output")
    for name, value in pictures.items():
        for other, given in (formats | questions | {"--json": json}).items():
            exclude({name: value, other: given}, "a drawing is the only output")
    for name, wanted in formats.items():
        for other, given in (questions | ({} if name == "--cute" else {"--json": json})).items():
            exclude({name: wanted, other: given}, "one form of output")


def _numbers(text: str, option: str, form: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (2, 3):
        raise misused(f"{text!r} is not {form}", option)
    return numbers


def _split(words: list[str]) -> tuple[str, str | None]:
    """The instruction, and the operand, which is the last word; None where an instruction of tcgen05 stands alone."""
    from mmulator.matrix.inspect.search import is_tcgen05

    if is_tcgen05(" ".join(words)):
        from mmulator.matrix.inspect.tcgen05.layout import may_be_operand

        if not may_be_operand(words[-1]):
            return " ".join(words), None
    if len(words) < 2:
        said = "an instruction and one of its operands, such as: mma m16n8k16 f16 a"
        raise misused(said, "INSTRUCTION OPERAND")
    return " ".join(words[:-1]), words[-1]


def _only_operand(instruction: str, options: dict[str, Any]) -> str | None:
    """The operand of an instruction of tcgen05 that has one with a layout; None if it has several. Raises WrongUsage for options
    that are about one operand, and OperandError if there is none.
    """
    from mmulator.matrix.inspect.search import form_of, text_of
    from mmulator.matrix.inspect.tcgen05.layout import operands

    form = form_of(instruction)
    held = operands(form)
    if not held:
        raise OperandError(f"{text_of(form)} has no matrix in tensor memory or registers")
    for name, value in options.items():
        if len(held) > 1 and value not in (None, False):
            raise misused(f"it is about one operand: name {', '.join(held)} as the last word", name)
    return held[0] if len(held) == 1 else None


def _print_overview(instruction: str) -> None:
    """Print where all operands of a tcgen05.mma lie, each in short, and how they are loaded."""
    from mmulator.base.tables import text_table
    from mmulator.matrix.inspect.search import form_of, text_of
    from mmulator.matrix.inspect.tcgen05.layout import layout as answer
    from mmulator.matrix.inspect.tcgen05.layout import operands
    from mmulator.matrix.inspect.views.layout import subtitle

    form = form_of(instruction)
    print(text_of(form))
    evidence: dict[str, list[str]] = {}
    for name in sorted(operands(form), key=lambda name: name != "d"):
        found = answer(form, name)
        print()
        print_text(subtitle(found))
        for part, rule in found.rule:
            print(f"  {part} = {rule}")
        if found.blocks:
            print("\n".join(text_table(("rows", "columns", "lanes", "columns of tensor memory"), found.blocks)))
        evidence.setdefault(found.evidence, []).append(name)
    print()
    print_text("registers of tcgen05.ld and tcgen05.st, 32x32b: register r of lane t is column r of lane t of the warp's quarter")
    print()
    for said, names in evidence.items():
        print_text(f"{', '.join(names)}: {said}.")
    print_text(f"one operand with all elements: mmulator layout {instruction} d --full", hang=2)
    print_text("other loads: mmulator layout tcgen05.ld.sync.aligned.16x256b.x2.b32", hang=2)
    print_text(f"A and B in shared memory: mmulator descriptor encode {instruction}", hang=2)


def _check_device(found: Layout, device: str) -> None:
    """Raise an error for a device that does not have the instruction."""
    from mmulator.isa.chips import as_device
    from mmulator.isa.targets import DEVICES
    from mmulator.matrix.inspect.explanation.arithmetic import runs_on
    from mmulator.matrix.inspect.search import form_of

    form = form_of(found.instruction)
    device = as_device(device)
    if not runs_on(form, device):
        have = ", ".join(d for d in DEVICES if runs_on(form, d)) or "none"
        raise UnsupportedError(f"{device} has no {found.instruction}", hint=f"devices that have it: {have}")


def _check_size(found: Layout) -> None:
    """Raise an error for the drawing of a large accumulator in full, which no page and no screen holds."""
    if found.rows * found.columns * found.copies > 4096:
        raise OperandError(
            f"operand {found.operand} of {found.rows} x {found.columns} is too large to draw in full",
            hint="without --full what repeats is drawn; --csv, or --full without a drawing, has every element",
        )


def _say_drawn(text: str, found: Layout, paths: list[str]) -> None:
    """Print what was drawn; on standard error where standard output has the drawing."""
    from mmulator.matrix.inspect.layouts.layout import other_form
    from mmulator.matrix.inspect.search import name_in

    out = sys.stderr if "-" in paths else sys.stdout
    files = ", ".join(p for p in paths if p != "-")
    if files:
        print_line(f"{files}: operand {found.operand} of {found.instruction}", file=out)
    elif not name_in(text):
        print_line(f"operand {found.operand} of {found.instruction}", file=out)
    if other := other_form(text, found):
        print_text(f"The words fit other forms too, of which {other} lays {found.operand} out otherwise.", file=out)


def _write(option: str, path: str, data: bytes) -> None:
    if path == "-" and not data.startswith(b"<") and sys.stdout.isatty():
        raise misused("a PNG is no text for a terminal: name a file, or redirect it", option)
    if path == "-":
        if data.startswith(b"<"):
            sys.stdout.write(data.decode())
        else:
            sys.stdout.buffer.write(data)
        return
    write(path, data)


def _print_elements(
    found: Layout, elements: list[Element], json: bool, other: tuple[Layout, list[Element]] | None, words: bool
) -> None:
    if json:
        about: dict[str, Any] = {"instruction": found.instruction, "operand": found.operand}
        about["elements"] = [e.to_dict() for e in elements]
        if other:
            about["otherwise"] = {"instruction": other[0].instruction, "elements": [e.to_dict() for e in other[1]]}
        print_json("layout-element", {"ok": True, **about})
        return
    if words:
        print(found.instruction)
    print("\n".join(_sentences(found, elements)))
    if other:
        print_text(f"The words fit other forms too, of which {other[0].instruction} answers otherwise:")
        print("\n".join(_sentences(*other)))


def _sentences(found: Layout, elements: list[Element]) -> list[str]:
    if not elements:
        return [f"{found.operand}: nothing: this lane's {found.where} is not used"]
    out = []
    for e in elements:
        spot = f"row {e.row}, {found.column_name} {e.column}" + (f", matrix {e.copy}" if found.copies > 1 else "")
        if found.spans:
            first, last = found.spans[e.column]
            spot += f" (of columns {first} to {last} of A)"
        for h in e.holders:
            what = f" is {h.name}" if found.kind == "elements" and not found.blocks else ""
            bits = f"bit {h.low}" if h.low == h.high else f"bits {h.low} to {h.high}"
            out.append(f"{found.operand}: {spot}{what}: lane {h.lane}, {found.where} {h.register}, {bits}")
    return out


def _print_cute(found: Layout, json: bool) -> None:
    if found.cute is None:
        raise UnsupportedError(found.cute_note)
    if json:
        data = {"instruction": found.instruction, "operand": found.operand, "cute": found.cute, "meaning": found.cute_note}
        print_json("layout-cute", {"ok": True, **data})
    else:
        print(found.cute)
        print(found.cute_note)


def _print_all(text: str, found: Layout, by: str, full: bool, csv: bool, markdown: bool) -> None:
    from mmulator.matrix.inspect.layouts.layout import other_form
    from mmulator.matrix.inspect.views import tables
    from mmulator.matrix.inspect.views.layout import subtitle

    if csv:
        print(tables.to_csv(found), end="")
        return
    if markdown:
        print(tables.to_markdown(found), end="")
        return
    print(found.instruction)
    if unknown := found.evidence.startswith("not known"):
        print_text(f"warning: {found.evidence}.")
    print_text(subtitle(found))
    for name, rule in found.rule:
        print(f"  {name} = {rule}")
    print()
    print((tables.lane_table if by == "lane" else tables.matrix_table)(found, width(), full))
    print()
    for note in (*found.notes, f"{found.section}." if unknown else f"{found.section}: {found.evidence}."):
        print_text(note)
    if other := other_form(text, found):
        print_text(f"The words fit other forms too, of which {other} lays {found.operand} out otherwise.")
