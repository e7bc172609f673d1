"""Texts that the commands of `mmulator descriptor` print for people."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill
from typing import TYPE_CHECKING

from mmulator.cli.output import colours, width

if TYPE_CHECKING:
    from mmulator.matrix.inspect.descriptors.answer import DescriptorAnswer, DescriptorField, DescriptorFields
    from mmulator.matrix.inspect.descriptors.banks import BankConflicts
    from mmulator.matrix.inspect.descriptors.checks import Diagnostic
    from mmulator.matrix.inspect.descriptors.from_cute import CuteAnswer
    from mmulator.matrix.inspect.descriptors.tile import Tile
    from mmulator.matrix.inspect.tcgen05.descriptor import InstructionFields


def _item(label: str, text: str, indent: int = 10) -> None:
    """A labelled paragraph."""
    lead = f"{label:<{indent}}" if len(label) < indent else f"{label} "
    print(fill(text, min(width(), 120), initial_indent=lead, subsequent_indent=" " * indent, break_on_hyphens=False))


def print_fields(fields: DescriptorFields, findings: bool = True) -> None:
    print(f"{fields.word:#018x}")
    for f in fields.fields:
        _print_field(f)
    if findings:
        print_findings(fields.findings)


def _print_field(f: DescriptorField) -> None:
    print(f"  {f.name:<20} {'bits' if '-' in f.bits else 'bit '} {f.bits:<6} {f.raw:>6}  {f.value}")


def print_instruction_fields(found: InstructionFields, verdict: bool) -> None:
    """Print an instruction descriptor, with its fields unless only the verdict is wanted."""
    print(f"{found.word:#010x}")
    if verdict:
        _item("checked", f"for {found.instruction}" + (": nothing is wrong" if not found.findings else ""))
    else:
        for f in found.fields:
            _print_field(f)
        print()
        for label, said in found.lines():
            _item(label, said)
    print_findings(found.findings)


def _matrix(tile: Tile) -> str:
    """A line about the matrix and the instruction that reads it."""
    return f"{tile}" + (f", read by {tile.reader}" if tile.reader else "")


def print_verdict(word: int, tile: Tile | None, findings: tuple[Diagnostic, ...]) -> None:
    """Print a word, what it is checked for, and what is wrong with it."""
    print(f"{word:#018x}")
    if tile is not None:
        _item("matrix", _matrix(tile))
    else:
        _item("matrix", "not known: only the word is checked; --for or --type says more")
    if not findings:
        _item("checked", "nothing is wrong")
    print_findings(findings)


def print_answer(answer: DescriptorAnswer, derived: CuteAnswer | None) -> None:
    tile, mode = answer.tile, answer.descriptor.mode
    mn, k = answer.atom
    first, last = answer.bytes
    print()
    _item("matrix", _matrix(tile))
    for short, o in zip(("LBO", "SBO"), answer.offsets):
        _item(short, f"{o.text} [{o.rule}]")
    what = f"{mode.name} swizzle atom" if mode.mask else "core matrix"
    _item(what.split()[-1], f"{what}: {mn} {tile.letter} x {k} k, {mode.repeat} bytes; the matrix has "
          f"{-(-tile.mn // mn)} x {-(-tile.k // k)}")  # fmt: skip
    _item("reads", f"{tile.mn * tile.k_bytes} bytes, the first at {first:#x}, the last at {last:#x}")
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


def print_map(answer: DescriptorAnswer, lines: int) -> None:
    from mmulator.matrix.inspect.views.chunks import tile_text

    if lines > 0:
        print(f"\nshared memory: row,column of the first element of every 16 bytes\n{tile_text(answer, lines, colours())}")


def print_conflicts(found: list[BankConflicts]) -> None:
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


def _ranges(numbers: Iterable[int]) -> str:
    """`0-3, 8`."""
    out: list[list[int]] = []
    for n in sorted(numbers):
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def print_findings(findings: tuple[Diagnostic, ...]) -> None:
    for f in findings:
        print()
        _item(f"{f.level}:", f.text)
        _item("  rule:", f.rule)
        if f.hint:
            _item("  hint:", f.hint)
