"""`mmulator tensormap draw`: where each element of a box lands in shared memory."""

from typing import Annotated

from mmulator.cli.output import exclude, misused, print_json
from mmulator.cli.tensormap import options as o
from mmulator.settings.readers import whole

_Element = Annotated[o.Texts, o.where("Where this element of the tensor lands. May be repeated.", "N,N,...")]
_Byte = Annotated[o.Texts, o.where("What lands in this byte of shared memory. May be repeated.", "ADDRESS", names="--byte")]
_Svg = Annotated[o.Text, o.out("Draw it.", "FILE")]
_Html = Annotated[o.Text, o.out("The drawing and the fields as a page.", "FILE")]
_Png = Annotated[o.Text, o.out("Draw it as PNG (extra draw).", "FILE")]
_Theme = Annotated[o.Text, o.out("auto, the default, light or dark.", "THEME", offer="auto light dark")]
_Lines = Annotated[int, o.out("Lines of 128 bytes that are printed.", "N", read=whole(1))]


def draw(
    map: o.MaybeMap = None,
    said: o.Said = o.NOTHING,
    at: o.At = None,
    offsets: o.Offsets = None,
    shared: o.Shared = None,
    mode: o.Mode = None,
    store: o.Store = False,
    element: _Element = None,
    byte: _Byte = None,
    svg: _Svg = None,
    html: _Html = None,
    png: _Png = None,
    theme: _Theme = None,
    lines: _Lines = 8,
    json: o.Json = False,
) -> None:
    """Draw where each element of a box lands in shared memory: swizzle, interleave, fill, im2col.

    Coordinates are in the array's order, the innermost last. A chunk of 16 bytes is named by the element at its lowest
    address; a star says that a part of it is out of bounds, 0 or NaN that all of it is.

    Examples:
        mmulator tensormap draw --shape 64,60 --strides 128 --box 8,64 --swizzle 128B --at 60,0
        mmulator tensormap draw map.bin --at 0,64 --shared 0x400 --element 3,70 --svg box.svg
    """
    from mmulator.cli.tensormap.text import draw_files, tell_box
    from mmulator.inspect.tensormaps.box import tensor_box

    if theme is not None and not (svg or html or png):
        raise misused("it goes with --svg, --html or --png", "--theme")
    exclude({"--svg": svg == "-" or None, "--html": html == "-" or None, "--json": json}, "standard output takes one")
    found = tensor_box(
        o.map_of(map, said), None if at is None else o.numbers("--at", at), o.numbers("--offsets", offsets or ""),
        shared=o.number("--shared", shared), mode=mode, store=store,
    )  # fmt: skip
    elements = [(o.numbers("--element", e), found.address(*o.numbers("--element", e))) for e in element or ()]
    bytes_ = [(o.number("--byte", b), found.element(o.number("--byte", b))) for b in byte or ()]
    taken = draw_files(found, svg, html, png, theme or "auto")
    if json:
        print_json("tensormap-box", {
            "ok": True, "map": repr(found.map), **found.to_dict(),
            "elements": [{"element": e, "addresses": a} for e, a in elements],
            "bytes": [{"address": b, "elements": e} for b, e in bytes_],
        })  # fmt: skip
    elif not taken:
        tell_box(found, elements, bytes_, lines)
