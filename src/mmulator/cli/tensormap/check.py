"""`mmulator tensormap check`: what is wrong with a tensor map, or with a copy through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from mmulator.cli.output import misused, print_json
from mmulator.cli.parser import Positional
from mmulator.cli.tensormap import options as o

if TYPE_CHECKING:
    from mmulator.inspect.descriptors.checks import Diagnostic
    from mmulator.inspect.tensormaps.checks import Copy
    from mmulator.layouts.tensormap import TensorMap

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
    from mmulator.inspect.tensormaps.checks import check_bytes, check_copy, check_map, parse_copy

    own = check_bytes(map.fields.encode(), map.fields)
    if text is None:
        return None, (*own, *check_map(map.fields))
    copy = parse_copy(text)

    def maybe(option: str, value: str | None) -> int | None:
        return None if value is None else o.number(option, value)

    at, bytes_, size = maybe("--shared", shared), maybe("--expect-tx", expect), maybe("--window", window)
    return copy, (*own, *check_copy(map.fields, copy, at, bytes_, size))


def _read_by(
    map: TensorMap, at: int, word: str, instruction: str | None, operand: str, mn_major: bool
) -> tuple[Diagnostic, ...]:
    """Errors of a wgmma's descriptor that reads the box."""
    from mmulator.inspect.descriptors.describe import describe_descriptor
    from mmulator.inspect.tensormaps.box import tensor_box
    from mmulator.inspect.tensormaps.checks import check_reader

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
