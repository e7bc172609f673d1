"""The output of encode, decode and from-cute: fields, their meaning for a matrix, answers to questions, a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmulator.base.files import write
from mmulator.cli.descriptor.options import OutputOptions, number, pair
from mmulator.cli.output import print_json, print_text

if TYPE_CHECKING:
    from mmulator.matrix.inspect.descriptors.answer import DescriptorAnswer, DescriptorFields
    from mmulator.matrix.inspect.descriptors.banks import BankConflicts
    from mmulator.matrix.inspect.descriptors.from_cute import CuteAnswer
    from mmulator.matrix.inspect.descriptors.tile import Tile


def tell(word: int, tile: Tile | None, base: int | None, wanted: OutputOptions, derived: CuteAnswer | None = None) -> None:
    """Print all about a word for the reader of `tile`. Ends with exit code 1 where a check fails."""
    from mmulator.base.errors import OperandError
    from mmulator.cli.descriptor import text
    from mmulator.matrix.inspect.descriptors.describe import descriptor_fields

    wanted.check()
    fields = descriptor_fields(word, tile.generation if tile else None)
    if tile is None:
        if any(wanted.of_a_matrix().values()):
            hint = "--for INSTRUCTION --operand a|b, or --type TYPE --mn M --k K"
            raise OperandError("which matrix does it describe?", hint=hint)
        if wanted.json:
            print_json("descriptor", {"ok": True, **fields.to_dict(), "accesses": []})
        else:
            text.print_fields(fields)
        return
    answer = described(word, tile, None if derived else base)
    places = [(pair("--element", e), answer.address(*pair("--element", e))) for e in wanted.element or ()]
    elements = [(a, answer.element(number("--address", a) or 0)) for a in wanted.address or ()]
    _draw(answer, wanted)
    if wanted.json:
        print_json("descriptor", as_data(fields, answer, places, elements, [], derived))
    elif wanted.cute:
        print(canonical_text(answer))
    else:
        text.print_fields(fields, findings=False)
        text.print_answer(answer, derived)
        if not (places or elements):
            text.print_map(answer, wanted.lines)
        for at, x in places:
            print(f"{answer.tile.name(*answer.tile.matrix(*at))} lies at {x:#x} ({x})")
        for a, here in elements:
            names = ", ".join(answer.tile.name(*answer.tile.matrix(*one)) for one in here)
            print_text(f"{a} holds {names or 'no element of this matrix'}", hang=2)
        text.print_findings(answer.findings)
    if not answer.ok:
        raise SystemExit(1)


def described(word: int, tile: Tile, base: int | None, shared: int | None = None, shared_base: int = 0) -> DescriptorAnswer:
    """The meaning of a word for a tile."""
    from mmulator.matrix.inspect.descriptors.describe import describe_descriptor

    return describe_descriptor(
        word, tile.instruction, tile.operand, mn_major=tile.mn_major, base=base, type=tile.element.name, mn=tile.mn,
        k=tile.k, shared=shared, shared_base=shared_base,
    )  # fmt: skip


def as_data(
    fields: DescriptorFields, answer: DescriptorAnswer, places: list[Any], elements: list[Any], found: list[BankConflicts],
    derived: CuteAnswer | None,
) -> dict[str, Any]:  # fmt: skip
    """The whole answer for JSON: one shape, whichever command gives it."""
    return {
        "ok": answer.ok,
        **fields.to_dict(),
        **answer.to_dict(),
        "elements": [{"element": list(at), "address": x} for at, x in places],
        "addresses": [{"address": number("--address", a), "elements": e} for a, e in elements],
        "accesses": [c.to_dict() for c in found],
        "from_cute": derived.to_dict() if derived else None,
    }


def canonical_text(answer: DescriptorAnswer) -> str:
    """The CuTe layout. Raises OperandError where no string says it, with the reason."""
    from mmulator.matrix.inspect.descriptors.tile import canonical

    return str(canonical(answer.tile, answer.descriptor))


def _draw(answer: DescriptorAnswer, wanted: OutputOptions) -> None:
    if wanted.svg is None and wanted.png is None:
        return
    from mmulator.matrix.inspect.answer import png

    picture = answer.svg(wanted.theme or "auto")
    if wanted.svg is not None:
        write(wanted.svg, picture)
    if wanted.png is not None:
        write(wanted.png, png(picture))
