"""Texts that the commands of `mmulator tensormap` print for people."""

from __future__ import annotations

import sys
from textwrap import fill
from typing import TYPE_CHECKING

from mmulator.base.files import write
from mmulator.cli.descriptor.text import print_findings
from mmulator.cli.output import colours, print_json, print_text, width

if TYPE_CHECKING:
    from mmulator.matrix.inspect.tensormaps.box import TensorBox
    from mmulator.matrix.inspect.tensormaps.fields import TensorMapFields


def print_item(label: str, text: str) -> None:
    """A labelled paragraph."""
    print(
        fill(
            text, min(width(), 120), initial_indent=f"{label:<10}", subsequent_indent=" " * 10, break_on_hyphens=False,
            break_long_words=False,
        )
    )  # fmt: skip


def tell_map(found: TensorMapFields, json: bool) -> None:
    """Print the fields of a map. Ends with exit code 1 where CUDA's driver would refuse the map."""
    if json:
        print_json("tensormap", {"ok": found.ok, **found.to_dict()})
    else:
        print(repr(found.map))
        for at in range(0, 128, 32):
            if any(found.data[at:]) or not at:
                row = found.data[at : at + 32]
                print(f"  {at:#04x}  " + " ".join(row[n : n + 4].hex() for n in range(0, 32, 4)))
        print()
        for f in found.fields:
            print(f"  {f.name:<18} {f.where:<21} {f.raw:>#14x}  {f.value}")
        print()
        m = found.map
        print_item("box", f"{m.box_bytes} bytes, in {m.shared_bytes} bytes of shared memory that are aligned to {m.alignment}")
        print_item("driver", found.driver_call())
        print_findings(found.findings)
    if not found.ok:
        raise SystemExit(1)


Answers = list[tuple[tuple[int, ...], tuple[int, ...]]]


def tell_box(box: TensorBox, elements: Answers, bytes_: list[tuple[int, tuple[tuple[int, ...], ...]]], lines: int) -> None:
    """Print where a box lands, or answers to questions."""
    from mmulator.matrix.inspect.views.chunks import axes, box_text

    print(repr(box.map))
    offsets = f", offsets {box.offsets}" if box.offsets else ""
    where = "read from" if box.store else "to"
    print_item("copy", f".{box.mode} at {box.coordinates}{offsets}, {where} shared memory at {box.shared:#x}")
    outside = f", {box.filled} of them out of bounds" if box.filled else ""
    units = "elements" if box.map.fields.type.elements == 1 else "sixteens of elements"
    print_item("box", f"{' x '.join(map(str, box.placed.shared.shape))} {units}{outside}; {box.map.box_bytes} bytes")
    for element, places in elements:
        said = ", ".join(f"{a:#x} ({a})" for a in places) or "nowhere: it is not in this box"
        print_text(f"{axes(box)} {element} lands at {said}" if places else f"{axes(box)} {element} lands {said}", hang=2)
    for address, held in bytes_:
        print_text(f"{address:#x} holds {axes(box)} {' and '.join(map(str, held))}" if held else
                   f"{address:#x} holds no element of the tensor", hang=2)  # fmt: skip
    if not elements and not bytes_:
        print(f"\nshared memory: {axes(box)} of the first element of every 16 bytes")
        print(box_text(box, lines, colours(), width()))


def draw_files(box: TensorBox, svg: str | None, html: str | None, png: str | None, theme: str) -> bool:
    """Write the drawings. Returns whether standard output is one of them."""
    from mmulator.matrix.inspect.answer import png as as_png

    taken = False
    for path, text in ((svg, box.svg), (html, lambda theme: _page(box, theme))):
        if path == "-":
            sys.stdout.write(text(theme))
            taken = True
        elif path is not None:
            write(path, text(theme))
    if png is not None:
        write(png, as_png(box.svg(theme)))
    return taken


def _page(box: TensorBox, theme: str) -> str:
    """An HTML page with the drawing and the fields of the map."""
    from html import escape

    from mmulator.matrix.inspect.tensormaps.fields import tensor_map_fields

    title = escape(repr(box.map))
    fields = tensor_map_fields(box.map)._repr_html_()
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
        f"<body>{box.svg(theme)}{fields}</body></html>\n"
    )
