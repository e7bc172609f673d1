"""`mmulator descriptor`: matrix descriptors of wgmma: encode, decode, explain, check, draw."""

from __future__ import annotations

import os
import sys
from functools import partial
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmulator.cli.completion import instruction_words

if TYPE_CHECKING:
    from mmulator.inspect.descriptors.answer import DescriptorAnswer, DescriptorFields
    from mmulator.inspect.descriptors.banks import BankConflicts
    from mmulator.inspect.descriptors.checks import Finding
    from mmulator.inspect.descriptors.from_cute import CuteAnswer
    from mmulator.inspect.descriptors.tile import Tile
    from mmulator.layouts.descriptors import MatrixDescriptor

Text = str | None
Texts = list[str] | None
_ACCESS = "Bank conflicts of ldmatrix, k:BYTES, mn:BYTES or @FILE:BYTES."
EXAMPLES = """[bold]Examples[/bold]

mmulator descriptor 0x4000004000010040

mmulator descriptor 0x4000004000010040 --type f16 --element 3,40

mmulator descriptor wgmma m64n128 f16 --swizzle 128B

mmulator descriptor --type bf16 --mn 128 --swizzle 64B --svg tile.svg

mmulator descriptor --type f16 --swizzle 128B --access ldmatrix

mmulator descriptor --type f16 --from-cute "(64,64):(64,1)\""""


def _offer(values: str) -> Any:
    """For completion: those of `values` that begin like what is typed."""
    return lambda incomplete: [v for v in values.split() if v.startswith(incomplete)]


def _option(panel: str, metavar: str | None, help: str, *names: str, offer: str = "", **more: Any) -> Any:
    more |= {"autocompletion": _offer(offer)} if offer else {}
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel, **more)


_field = partial(_option, "Fields, in bytes")
_what = partial(_option, "What it describes")
_ask = partial(_option, "Questions")
_out = partial(_option, "Output")


def descriptor(
    words: Annotated[
        Texts,
        typer.Argument(
            metavar="[WORD] [INSTRUCTION]", show_default=False, autocompletion=instruction_words,
            help="A descriptor's 64-bit word; the wgmma that reads it, as with --for.",
        ),
    ] = None,
    start_address: Annotated[Text, _field("BYTES", "Default: --base, or 0.")] = None,
    lbo: Annotated[Text, _field("BYTES", "Leading dimension byte offset.")] = None,
    sbo: Annotated[Text, _field("BYTES", "Stride dimension byte offset.")] = None,
    base_offset: Annotated[Text, _field("0..7", "Matrix base offset.")] = None,
    swizzle: Annotated[Text, _field("MODE", "none, 32B, 64B or 128B.", offer="none 32B 64B 128B")] = None,
    instruction: Annotated[Text, _what("INSTRUCTION", "A wgmma that reads it.", "--for")] = None,
    operand: Annotated[Text, _what("a|b", "Which operand. Default: b.", offer="a b")] = None,
    major: Annotated[Text, _what("k|mn", "The contiguous dimension. Default: k.", offer="k mn")] = None,
    type: Annotated[Text, _what("TYPE", "Without --for: element type.", offer="f16 bf16 tf32 e4m3 e5m2 s8 u8 b1")] = None,
    mn: Annotated[int | None, _what("N", "Without --for: extent of m or n. Default: 64.")] = None,
    k: Annotated[int | None, _what("N", "Without --for: extent of k. Default: 64.")] = None,
    base: Annotated[Text, _what("ADDRESS", "Where the buffer, so the swizzle pattern, starts.")] = None,
    shared: Annotated[Text, _what("BYTES", "Size of the shared window.")] = None,
    shared_base: Annotated[Text, _what("ADDRESS", "Its first byte. Default: 0.")] = None,
    from_cute: Annotated[Text, _what("LAYOUT", "Derive the descriptor of a CuTe layout.")] = None,
    units: Annotated[Text, _what("UNIT", "Of its strides: bytes, bits; default: elements.", offer="elements bytes bits")] = None,
    element: Annotated[Texts, _ask("ROW,COL", "Its address. Of A: m,k; of B: k,n.")] = None,
    address: Annotated[Texts, _ask("ADDRESS", "The element that lies there.")] = None,
    access: Annotated[Texts, _ask("KIND", _ACCESS, offer="ldmatrix k:4 k:8 k:16 mn:4 mn:8 mn:16")] = None,
    at: Annotated[Text, _ask("ROW,COL", "Of --access: the one that begins here.")] = None,
    cute: Annotated[bool, _out(None, "Print the CuTe layout alone.", "--cute")] = False,
    svg: Annotated[Text, _out("FILE", "Draw the tile.")] = None,
    png: Annotated[Text, _out("FILE", "Draw it as PNG (extra draw).")] = None,
    theme: Annotated[Text, _out("THEME", "auto, the default, light or dark.", offer="auto light dark")] = None,
    lines: Annotated[int, _out("N", "Lines of the map that is printed; 0: no map.", min=0)] = 8,
    json: Annotated[bool, _out(None, "Print JSON.", "--json")] = False,
) -> None:
    """Encode, decode, explain, check and draw a matrix descriptor of wgmma.

    Give a word, or fields, or --from-cute.
    --for (or --type, --mn, --k) says what it describes; fields that are left out
    are then those of the packed layout. Numbers may be hexadecimal.
    The exit code is 1 if a check fails.
    """
    from mmulator.cli.output import exclude, print_json, print_text
    from mmulator.errors import OperandError
    from mmulator.inspect.descriptors.describe import describe_descriptor, descriptor_fields

    word, instruction = _words(words or [], instruction)
    for name, value in (("--type", type), ("--mn", mn), ("--k", k)):
        exclude({"--for": instruction, name: value}, "the instruction says it")
    for name, value in (("--mn", mn), ("--k", k), ("--major", major)):
        exclude({"--from-cute": from_cute, name: value}, "the layout says it")
    exclude({"--cute": cute, "--json": json}, "one form of output at a time")
    pairs = (("--units", units, "--from-cute", from_cute), ("--at", at, "--access", access),
             ("--shared-base", shared_base, "--shared", shared), ("--theme", theme, "--svg or --png", svg or png))  # fmt: skip
    for name, value, needs, other in pairs:
        if value is not None and not other:
            raise typer.BadParameter(f"it goes with {needs}", param_hint=name)
    if not (instruction or type or from_cute):
        about = {"--operand": operand, "--major": major, "--mn": mn, "--k": k, "--shared": shared, "--shared-base": shared_base}
        for name, value in about.items():
            if value is not None:
                raise typer.BadParameter("it goes with --for or --type, which say what is described", param_hint=name)
    operand = operand or "b"
    if "-" in (svg, png):
        raise typer.BadParameter("standard output has the text: name a file", param_hint="--svg" if svg == "-" else "--png")
    given = {
        "start_address": _int("--start-address", start_address),
        "leading_byte_offset": _int("--lbo", lbo),
        "stride_byte_offset": _int("--sbo", sbo),
        "base_offset": _int("--base-offset", base_offset),
        "swizzle": swizzle,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if not any((word, given, from_cute, instruction, type, element, address, access, cute, svg, png)):
        raise OperandError("no descriptor is given", hint="a word, fields, --for, --type or --from-cute; see --help")
    base_at, window = _int("--base", base), _int("--shared", shared)
    if major not in (None, "k", "mn"):
        raise OperandError(f"--major is {major!r}", hint="k or mn")
    mn_major = major == "mn"
    if from_cute is not None:
        if word is not None or given:
            raise OperandError("--from-cute gives all fields", hint="leave the word and the other fields out")
        derived = _from_cute(from_cute, instruction, operand, type, base_at, units or "elements")
        tile: Tile | None = derived.tile
        number, descriptor_ = derived.tiles[0].word, derived.descriptor
    else:
        derived = None
        tile = _tile(instruction, operand, mn_major, type, 64 if mn is None else mn, 64 if k is None else k)
        descriptor_ = _descriptor(_int("WORD", word), given, tile, base_at)
        number = descriptor_.encode() if word is None or given else (_int("WORD", word) or 0)
    fields = descriptor_fields(number)
    questions = (element, address, access and any(not a.startswith("@") for a in access), cute, svg, png)
    if tile is None:
        if any(questions):
            raise OperandError(
                "which matrix does it describe?", hint="--for INSTRUCTION --operand a|b, or --type TYPE --mn M --k K"
            )
        found = _conflicts(None, access, at)
        if json:
            print_json({"ok": True, **fields.to_dict(), "accesses": [c.to_dict() for c in found]})
            return
        if word is not None or given or not found:
            _print_fields(fields)
        _print_conflicts(found)
        return
    answer = describe_descriptor(
        number, tile.instruction, tile.operand, mn_major=tile.mn_major, base=None if derived else base_at,
        type=tile.element.name, mn=tile.mn, k=tile.k, shared=window, shared_base=_int("--shared-base", shared_base) or 0,
    )  # fmt: skip
    places = [(e, answer.address(*_pair("--element", e))) for e in element or ()]
    elements = [(a, answer.element(_int("--address", a) or 0)) for a in address or ()]
    found = _conflicts(answer, access, at)
    _draw(answer, svg, png, theme or "auto")
    if json:
        print_json(
            {
                "ok": answer.ok,
                **fields.to_dict(),
                **answer.to_dict(),
                "elements": [{"element": list(_pair("--element", e)), "address": x} for e, x in places],
                "addresses": [{"address": _int("--address", a), "elements": e} for a, e in elements],
                "accesses": [c.to_dict() for c in found],
                "from_cute": derived.to_dict() if derived else None,
            }
        )
    elif cute:
        print(_need_cute(answer))
    else:
        _print_fields(fields, findings=False)
        _print_answer(answer, derived)
        if not (places or elements or found):
            _print_map(answer, lines)
        for e, x in places:
            row, col = _pair("--element", e)
            print(f"{answer.tile.name(*answer.tile.matrix(row, col))} lies at {x:#x} ({x})")
        for a, here in elements:
            names = ", ".join(answer.tile.name(*answer.tile.matrix(*one)) for one in here)
            print_text(f"{a} holds {names or 'no element of this matrix'}", hang=2)
        _print_conflicts(found)
        _print_findings(answer.findings)
    if not answer.ok:
        raise typer.Exit(1)


descriptor.__doc__ = f"{cleandoc(descriptor.__doc__ or '')}\n\n{EXAMPLES}"


def _words(words: list[str], instruction: str | None) -> tuple[str | None, str | None]:
    """A number, and words of an instruction."""
    from mmulator.cli.output import exclude
    from mmulator.syntax.search import is_word

    number = words[0] if words and not is_word(words[0]) else None
    rest = " ".join(words[number is not None :])
    exclude({"INSTRUCTION": rest or None, "--for": instruction}, "say it once")
    if number is not None and rest and not is_word(rest):
        raise typer.BadParameter(f"{rest!r} is no instruction", param_hint="INSTRUCTION")
    return number, rest or instruction


def _int(name: str, text: str | None) -> int | None:
    from mmulator.errors import OperandError

    if text is None:
        return None
    try:
        return int(text, 0)
    except ValueError:
        raise OperandError(f"{name} is {text!r}: a whole number is needed", hint="such as 1024 or 0x400") from None


def _pair(name: str, text: str) -> tuple[int, int]:
    from mmulator.errors import OperandError

    parts = text.split(",")
    if len(parts) != 2:
        raise OperandError(f"{name} is {text!r}: ROW,COL is needed", hint=f"such as {name} 3,8")
    return _int(name, parts[0].strip()) or 0, _int(name, parts[1].strip()) or 0


def _tile(instruction: str | None, operand: str, mn_major: bool, type: str | None, mn: int, k: int) -> Tile | None:
    from mmulator.inspect.descriptors.describe import make_tile

    if instruction is None and type is None:
        return None
    return make_tile(instruction, operand, mn_major=mn_major, type=type or "f16", mn=mn, k=k)


def _from_cute(text: str, instruction: str | None, operand: str, type: str | None, base: int | None, units: str) -> CuteAnswer:
    from mmulator.inspect.descriptors.from_cute import descriptor_from_cute, tile_of_layout

    tile = _tile(instruction, operand, False, None, 64, 64) or tile_of_layout(text, operand, type or "f16", units)
    return descriptor_from_cute(text, tile, base=base, units=units)


def _descriptor(word: int | None, given: dict[str, Any], tile: Tile | None, base: int | None) -> MatrixDescriptor:
    """The word, changed by the fields that are given; without a word the packed layout of the tile."""
    from dataclasses import replace

    from mmulator.inspect.descriptors.describe import descriptor_fields
    from mmulator.layouts.descriptors import MatrixDescriptor

    if word is not None:
        return replace(descriptor_fields(word).descriptor, **given)
    start = given.get("start_address", base or 0)
    if tile is None:
        return MatrixDescriptor(**{"start_address": start, **given})
    return replace(tile.packed(given.get("swizzle", "none"), start, base), **given)


def _conflicts(answer: DescriptorAnswer | None, access: list[str] | None, at: str | None) -> list[BankConflicts]:
    from mmulator.inspect.descriptors.banks import address_accesses, bank_conflicts

    found = []
    for kind in access or ():
        if kind.startswith("@"):
            path, _, size = kind[1:].rpartition(":")
            name, accesses = address_accesses(_addresses(path or size), _int("--access", size if path else "4") or 0)
            found.append(bank_conflicts(f"{path or size}, {name}", accesses))
        elif answer is not None:
            found.append(answer.conflicts(kind, None if at is None else _pair("--at", at)))
    return found


def _addresses(path: str) -> list[int]:
    """Addresses of a file, one or more a line; `#` begins a remark."""
    from mmulator.cli.output import read_source

    lines = (line.partition("#")[0] for line in read_source(path).text.splitlines())
    return [_int(f"an address in {path}", x) or 0 for line in lines for x in line.replace(",", " ").split()]


def _need_cute(answer: DescriptorAnswer) -> str:
    from mmulator.inspect.descriptors.tile import canonical

    return str(canonical(answer.tile, answer.descriptor))


def _draw(answer: DescriptorAnswer, svg: str | None, png: str | None, theme: str) -> None:
    from pathlib import Path

    from mmulator.errors import MmulatorError

    if svg is None and png is None:
        return
    from mmulator.inspect.views.svg import to_png

    picture = answer.svg(theme)
    for path, data in ((svg, picture.encode()), (png, to_png(picture) if png else b"")):
        if path is None:
            continue
        try:
            Path(path).write_bytes(data)
        except OSError as error:
            raise MmulatorError(f"cannot write {path}: {error.strerror}") from None


# text -----------------------------------------------------------------------------------------------------------------
def _width() -> int:
    from shutil import get_terminal_size

    return min(get_terminal_size((80, 24)).columns, 120)


def _item(label: str, text: str, indent: int = 10) -> None:
    """A labelled paragraph."""
    from textwrap import fill

    lead = f"{label:<{indent}}" if len(label) < indent else f"{label} "
    print(fill(text, _width(), initial_indent=lead, subsequent_indent=" " * indent, break_on_hyphens=False))


def _print_fields(fields: DescriptorFields, findings: bool = True) -> None:
    print(f"{fields.word:#018x}")
    for f in fields.fields:
        print(f"  {f.name:<20} bits {f.bits:<6} {f.raw:>6}  {f.value}")
    if findings:
        _print_findings(fields.findings)


def _print_answer(answer: DescriptorAnswer, derived: CuteAnswer | None) -> None:
    tile, mode = answer.tile, answer.descriptor.mode
    mn, k = answer.atom
    first, last = answer.bytes
    print()
    _item("matrix", f"{tile}" + (f", read by {tile.instruction}" if tile.instruction else ""))
    for short, o in zip(("LBO", "SBO"), answer.offsets):
        _item(short, f"{o.text} [{o.rule}]")
    what = f"{mode.name} swizzle atom" if mode.mask else "core matrix"
    _item(what.split()[-1], f"{what}: {mn} {tile.letter} x {k} k, {8 * mode.width} bytes; the matrix has "
          f"{-(-tile.mn // mn)} x {-(-tile.k // k)}")  # fmt: skip
    _item("reads", f"{tile.mn * tile.k * tile.element.bits // 8} bytes, the first at {first:#x}, the last at {last:#x}")
    if mode.mask:
        _item("start", f"a multiple of 16; of {mode.repeat} for base offset 0, unless it is an advance inside a matrix")
    _item("base", answer.base_offset_text())
    _item("CuTe", answer.cute or "no layout string says this; see --cute")
    if derived:
        count = len(derived.tiles)
        _item("derived", f"{count} tile{'s' * (count > 1)}, {derived.compared} addresses equal; {derived.remark}")
        _print_tiles(derived)


def _print_tiles(derived: CuteAnswer) -> None:
    if len(derived.tiles) == 1:
        return
    print(f"\n  {derived.tile.letter:>6}{'k':>6}{'stage':>7}  {'start':>8}  {'LBO':>6}  {'SBO':>6}  word")
    for t in derived.tiles[:16]:
        d = t.descriptor
        print(f"  {t.mn:>6}{t.k:>6}{t.stage:>7}  {d.start_address:#8x}  {d.leading_byte_offset:>6}  "
              f"{d.stride_byte_offset:>6}  {t.word:#018x}")  # fmt: skip
    if len(derived.tiles) > 16:
        print(f"  ... {len(derived.tiles) - 16} more (--json has all)")


def _print_map(answer: DescriptorAnswer, lines: int) -> None:
    from mmulator.inspect.views.tile import draw_text

    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    if lines > 0:
        print(f"\nshared memory: row,column of the first element of every 16 bytes\n{draw_text(answer, lines, colour)}")


def _print_conflicts(found: list[BankConflicts]) -> None:
    for c in found:
        print()
        _item("access", f"{c.kind}: {c.verdict()}")
        if c.ways == 1:
            continue
        for phase in c.worst.phases:
            if not phase.conflicts:
                continue
            same: dict[tuple[int, ...], list[int]] = {}
            for bank, lanes in phase.conflicts:
                same.setdefault(lanes, []).append(bank)
            for lanes, banks in list(same.items())[:4]:
                _item("", f"{c.worst.label}: lanes {_ranges(lanes)} meet in banks {_ranges(banks)}")
            break


def _ranges(numbers: Any) -> str:
    """`0-3, 8`."""
    out: list[list[int]] = []
    for n in sorted(numbers):
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def _print_findings(findings: tuple[Finding, ...]) -> None:
    for f in findings:
        print()
        _item(f"{f.level}:", f.text)
        _item("  rule:", f.rule)
        if f.hint:
            _item("  hint:", f.hint)
