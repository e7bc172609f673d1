"""`mmulator layout`: which lane and register holds which element of an operand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mmulator.inspect.layouts import Element, Layout


def layout(
    instruction: Annotated[str, typer.Argument(help="As in PTX, or a few words: mma m16n8k16 bf16.", show_default=False)],
    operand: Annotated[
        str,
        typer.Argument(
            help="a, b, c, d; r of a load or store; e (wgmma: sp_meta), the metadata; scale_a, scale_b.", show_default=False
        ),
    ],
    element: Annotated[str | None, typer.Option(metavar="ROW,COL[,COPY]", help="Who holds this element.")] = None,
    register: Annotated[str | None, typer.Option(metavar="LANE,REG[,INDEX]", help="What lies in this register.")] = None,
    by: Annotated[str, typer.Option(metavar="matrix|lane", help="Table by rows and columns, or by lanes.")] = "matrix",
    full: Annotated[bool, typer.Option("--full", help="All of a large one, not just what repeats.")] = False,
    selector: Annotated[int | None, typer.Option(help="Sparsity selector, for the metadata. Default: 0.")] = None,
    byte_id: Annotated[int | None, typer.Option(help="Of the scale factors. Default: 0.")] = None,
    thread_id: Annotated[int | None, typer.Option(help="Of the scale factors. Default: 0.")] = None,
    device: Annotated[str, typer.Option(help="Matters for wmma, whose fragments the specification leaves open.")] = "sm_90",
    svg: Annotated[str | None, typer.Option(metavar="FILE", help="Draw it. - is standard output, here and below.")] = None,
    png: Annotated[str | None, typer.Option(metavar="FILE", help="Draw it; needs the extra draw.")] = None,
    theme: Annotated[str, typer.Option(metavar="auto|light|dark", help="Of the drawing; auto follows the reader's.")] = "auto",
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line for each place in the registers.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    cute: Annotated[bool, typer.Option("--cute", help="Print the CuTe layout from (thread, value) to an element.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Which lane and register holds which element of a matrix, its metadata or its scale factors.

    Examples: mmulator layout mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 a

    mmulator layout "wgmma m64n256 bf16" d --element 17,200

    mmulator layout "mma.sp m16n8k32 f16" e --selector 1 --svg metadata.svg

    Elements are named as in the specification's figures: a5 is a lane's element number 5.
    """
    from mmulator.inspect.layouts import layout as answer
    from mmulator.inspect.svg import check_theme

    if by not in ("matrix", "lane"):
        raise typer.BadParameter("matrix or lane", param_hint="--by")
    check_theme(theme)
    _one_output({"--svg": svg, "--png": png}, {"--element": element, "--register": register}, csv, markdown, cute, json)
    where = None if element is None else _numbers(element, "--element", "ROW,COL[,COPY]")
    place = None if register is None else _numbers(register, "--register", "LANE,REG[,INDEX]")
    found = answer(
        instruction, operand, selector=selector or 0, byte_id=byte_id or 0, thread_id=thread_id or 0, device=device
    )
    of = {"--selector": (selector, "metadata"), "--byte-id": (byte_id, "scales"), "--thread-id": (thread_id, "scales")}
    for name, (value, kind) in of.items():
        if value is not None and found.kind != kind:
            what = {"metadata": "the metadata", "scales": "scale factors"}[kind]
            raise typer.BadParameter(f"it is of {what}, not of operand {operand}", param_hint=name)
    if svg is not None:
        _write(svg, found.svg(theme, full).encode())
    if png is not None:
        _write(png, found.png(theme, full))
    if svg is not None or png is not None:
        return
    if where is not None or place is not None:
        elements = [found.element(*where)] if where else []
        elements += found.at(*place) if place else ()
        _print_elements(found, elements, json)
    elif cute:
        _print_cute(found, json)
    elif json:
        from mmulator.cli.output import print_json

        print_json(found.to_dict())
    else:
        _print_all(instruction, found, by, full, csv, markdown)


def _one_output(
    pictures: dict[str, str | None], questions: dict[str, str | None], csv: bool, markdown: bool, cute: bool, json: bool
) -> None:
    """Wrong usage where an option would be without effect. --json goes with questions and --cute, --svg with --png."""
    from mmulator.cli.output import exclude

    if "-" in pictures.values():
        exclude({f"{name} -": path == "-" for name, path in pictures.items()}, "standard output takes one")
    formats = {"--csv": csv, "--markdown": markdown, "--cute": cute}
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
        raise typer.BadParameter(f"{text!r} is not {form}", param_hint=option)
    return numbers


def _write(path: str, data: bytes) -> None:
    import sys
    from pathlib import Path

    from mmulator.errors import MmulatorError

    if path == "-":
        if data.startswith(b"<"):
            sys.stdout.write(data.decode())
        else:
            sys.stdout.buffer.write(data)
        return
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise MmulatorError(f"cannot write {path}: {error.strerror}") from None


def _print_elements(found: Layout, elements: list[Element], json: bool) -> None:
    if json:
        from mmulator.cli.output import print_json

        print_json({"instruction": found.instruction, "operand": found.operand, "elements": [e.to_dict() for e in elements]})
        return
    if not elements:
        print(f"nothing of operand {found.operand}: this lane's register is not used")
    for e in elements:
        spot = f"row {e.row}, {found.column_name} {e.column}" + (f", matrix {e.copy}" if found.copies > 1 else "")
        if found.spans:
            first, last = found.spans[e.column]
            spot += f" (of columns {first} to {last} of A)"
        for h in e.holders:
            what = f" is {h.name}" if found.kind == "elements" else ""
            bits = f"bit {h.low}" if h.low == h.high else f"bits {h.low} to {h.high}"
            print(f"{found.operand}: {spot}{what}: lane {h.lane}, register {h.register}, {bits}")


def _print_cute(found: Layout, json: bool) -> None:
    from mmulator.errors import UnsupportedError

    if found.cute is None:
        raise UnsupportedError(found.cute_note)
    if json:
        from mmulator.cli.output import print_json

        print_json({"instruction": found.instruction, "operand": found.operand, "cute": found.cute, "meaning": found.cute_note})
    else:
        print(found.cute)
        print(found.cute_note)


def _print_all(text: str, found: Layout, by: str, full: bool, csv: bool, markdown: bool) -> None:
    from shutil import get_terminal_size
    from textwrap import fill

    from mmulator.inspect import tables
    from mmulator.inspect.draw import subtitle

    if csv:
        print(tables.to_csv(found), end="")
        return
    if markdown:
        print(tables.to_markdown(found), end="")
        return
    width = get_terminal_size().columns
    print(found.instruction)
    if unknown := found.evidence.startswith("not known"):
        print(fill(f"warning: {found.evidence}.", width))
    print(fill(subtitle(found), width))
    for name, rule in found.rule:
        print(f"  {name} = {rule}")
    print()
    print((tables.lane_table if by == "lane" else tables.matrix_table)(found, width, full))
    print()
    for note in (*found.notes, f"{found.section}." if unknown else f"{found.section}: {found.evidence}."):
        print(fill(note, width))
    if other := _others(text, found):
        print(fill(f"The words fit other forms too, of which {other} lays {found.operand} out otherwise.", width))


def _others(text: str, found: Layout) -> str:
    """The first of the other forms that the words fit and whose layout of the operand is another."""
    from mmulator.inspect.layouts import is_name, operands
    from mmulator.layouts import fragment
    from mmulator.syntax import parse_mnemonic
    from mmulator.syntax.search import find_forms

    if is_name(text) or found.kind != "elements":
        return ""
    own = fragment(parse_mnemonic(found.instruction), found.operand)
    for form in find_forms(text):
        if found.operand in operands(form) and fragment(form, found.operand) != own:
            return str(form)
    return ""
