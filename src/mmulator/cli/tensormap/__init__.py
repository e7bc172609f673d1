"""`mmulator tensormap`: tensor maps, in four commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from mmulator.cli.output import exclude, misused, print_json
from mmulator.cli.parser import Group, Positional
from mmulator.cli.tensormap import options as o
from mmulator.host.settings.readers import whole

if TYPE_CHECKING:
    from mmulator.matrix.inspect.descriptors.checks import Diagnostic
    from mmulator.matrix.inspect.tensormaps.checks import Copy
    from mmulator.matrix.layouts.tensormap import TensorMap

_File = Annotated[o.Text, o.out("Write the 128 bytes.", "FILE")]


def encode(
    said: o.Said,
    out: _File = None,
    json: o.Json = False,
) -> None:
    """Make the 128 bytes of a tensor map, as CUDA's driver does, and say what they mean.

    What the driver refuses is refused, with the rule; the exit code is then 1.

    Examples:
        mmulator tensormap encode --shape 4096,1024 --type bf16 --box 64,64 --swizzle 128B
        mmulator tensormap encode --shape 8,56,56,64 --lower -1,-1 --upper -1,-1 --channels 64 --pixels 128 --out map.bin
    """
    from mmulator.base.files import write
    from mmulator.cli.tensormap.text import tell_map
    from mmulator.matrix.inspect.tensormaps.fields import tensor_map_fields

    found = tensor_map_fields(o.map_of(None, said))
    if out is not None:
        write(out, found.data)
    tell_map(found, json)


def decode(map: o.Map, json: o.Json = False) -> None:
    """Take the 128 bytes of a tensor map apart.

    The exit code is 1 if CUDA's driver would refuse such a map.

    Examples:
        mmulator tensormap decode map.bin
        mmulator tensormap encode --shape 64,64 --box 8,64 --out map.bin; mmulator tensormap decode - < map.bin
    """
    from mmulator.cli.tensormap.text import tell_map
    from mmulator.matrix.inspect.tensormaps.fields import tensor_map_fields

    tell_map(tensor_map_fields(o.read(map).fields.encode()), json)


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
    from mmulator.matrix.inspect.tensormaps.box import tensor_box

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


_Words = Annotated[
    o.Texts, Positional("A map as for decode, unless --shape says it; a tensor copy as in PTX, or its name.",
                         "[MAP] [INSTRUCTION]")
]  # fmt: skip
_Expect = Annotated[o.Text, o.where("What the mbarrier was told to expect.", "BYTES", names="--expect-tx")]
_Window = Annotated[o.Text, o.where("Size of shared memory. Default: 228 KiB.", "BYTES")]
_Descriptor = Annotated[o.Text, o.where("The matrix descriptor with which a wgmma reads the box.", "WORD")]
_For = Annotated[o.Text, o.where("The wgmma: its name, or words such as wgmma m64n128 f16.", "INSTRUCTION", names="--for")]
_Operand = Annotated[o.Text, o.where("Which operand of it. Default: b.", "a|b", offer="a b")]
_Major = Annotated[o.Text, o.where("Its contiguous dimension. Default: k.", "k|mn", offer="k mn")]


def check(
    words: _Words = None,
    said: o.Said = o.NOTHING,
    shared: o.Shared = None,
    expect_tx: _Expect = None,
    window: _Window = None,
    descriptor: _Descriptor = None,
    instruction: _For = None,
    operand: _Operand = None,
    major: _Major = None,
    json: o.Json = False,
) -> None:
    """Say what is wrong with a tensor map, alone or for a copy: rank, mode, alignment, bytes, and whether a wgmma finds it.

    The exit code is 0 only if nothing is.

    Examples:
        mmulator tensormap check map.bin cp.async.bulk.tensor.2d.global.shared::cta.bulk_group
        mmulator tensormap check --shape 4096,64 --box 64,64 --swizzle 128B --descriptor 0x4000004000010000 --for wgmma f16
    """
    copies = [w for w in words or () if o.is_copy(w)]
    maps = [w for w in words or () if not o.is_copy(w)]
    if not copies and len(maps) == 2:
        no_copy = f"{maps[1]!r} is no tensor copy, such as cp.async.bulk.tensor.2d..."
        raise misused(no_copy, "[INSTRUCTION]")
    if len(maps) > 1 or len(copies) > 1:
        raise misused("one map and one instruction", "[MAP] [INSTRUCTION]")
    for name, value in (("--for", instruction), ("--operand", operand), ("--major", major)):
        if value is not None and descriptor is None:
            raise misused("it goes with --descriptor", name)
    for name, value in (("--expect-tx", expect_tx), ("--window", window)):
        if value is not None and not copies:
            raise misused("it goes with an instruction", name)
    found = o.map_of(maps[0] if maps else None, said)
    copy, findings = _checked(found, copies[0] if copies else None, shared, expect_tx, window)
    if descriptor is not None:
        findings += _read_by(found, o.number("--shared", shared), descriptor, instruction, operand or "b", major == "mn")
    _tell(found, copy, findings, json)


def _checked(
    map: TensorMap, text: str | None, shared: str | None, expect: str | None, window: str | None
) -> tuple[Copy | None, tuple[Diagnostic, ...]]:
    """(the copy, what is wrong with the map, or with the copy through it)."""
    from mmulator.matrix.inspect.tensormaps.checks import check_bytes, check_copy, check_map, parse_copy

    own = check_bytes(map.fields.encode(), map.fields)
    if text is None:
        return None, (*own, *check_map(map.fields))
    copy = parse_copy(text)

    def maybe(option: str, value: str | None) -> int | None:
        return None if value is None else o.number(option, value)

    at, bytes_, size = maybe("--shared", shared), maybe("--expect-tx", expect), maybe("--window", window)
    return copy, (*own, *check_copy(map.fields, copy, at, bytes_, size))


def _read_by(map: TensorMap, at: int, word: str, instruction: str | None, operand: str, mn_major: bool) -> tuple[Diagnostic, ...]:
    """Errors of a wgmma's descriptor that reads the box."""
    from mmulator.matrix.inspect.descriptors.describe import describe_descriptor
    from mmulator.matrix.inspect.tensormaps.box import tensor_box
    from mmulator.matrix.inspect.tensormaps.checks import check_reader

    answer = describe_descriptor(o.number("--descriptor", word), instruction or "wgmma m64n64 f16", operand, mn_major=mn_major)
    return (*answer.findings, *check_reader(tensor_box(map, shared=at), answer.placed))


def _tell(map: TensorMap, copy: Copy | None, findings: tuple[Diagnostic, ...], json: bool) -> None:
    from mmulator.cli.descriptor.text import print_findings
    from mmulator.cli.tensormap.text import print_item

    ok = not any(f.level == "error" for f in findings)
    if json:
        print_json("tensormap-check", {
            "ok": ok, "map": repr(map), "instruction": copy.form.mnemonic if copy else None, "box_bytes": map.box_bytes,
            "findings": [f.to_dict() for f in findings],
        })  # fmt: skip
    else:
        print_item("map", repr(map))
        print_item("copy", copy.form.mnemonic if copy else "none given: only the map is checked")
        print_item("bytes", f"{map.box_bytes} for each box: what an mbarrier must expect")
        if not findings:
            print_item("checked", "nothing is wrong")
        print_findings(findings)
    if not ok:
        raise SystemExit(1)


tensormap = Group(
    "Encode, decode, check and draw tensor maps: the 128 bytes, and where each element of a box lands.",
    {"encode": encode, "decode": decode, "draw": draw, "check": check},
)
