"""`mmulator descriptor check`: what is wrong with a descriptor, and bank conflicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from mmulator.cli.descriptor import idesc
from mmulator.cli.descriptor import options as o
from mmulator.cli.output import misused, print_json, read_bytes
from mmulator.cli.parser import Json, grouped
from mmulator.errors import OperandError

if TYPE_CHECKING:
    from mmulator.inspect.descriptors.answer import DescriptorAnswer
    from mmulator.inspect.descriptors.banks import BankConflicts
    from mmulator.inspect.descriptors.tile import Tile


_check = grouped("Checks")
_Kinds = Annotated[
    o.Texts, _check("Bank conflicts of ldmatrix, k:BYTES, mn:BYTES or @FILE:BYTES. May be repeated.", "KIND",
                    offer="ldmatrix k:4 k:8 k:16 mn:4 mn:8 mn:16")
]  # fmt: skip


def check(
    fields: o.FieldOptions,
    matrix: o.MatrixOptions,
    words: o.Words = None,
    shared: Annotated[o.Text, _check("Size of the shared window. Default: 228 KiB.", "BYTES")] = None,
    shared_base: Annotated[o.Text, _check("Its first byte. Default: 0.", "ADDRESS")] = None,
    access: _Kinds = None,
    at: Annotated[o.Text, _check("Of --access: the one that begins here.", "ROW,COL")] = None,
    json: Json = False,
) -> None:
    """Say what is wrong with a descriptor, with the rule and what to do, and count bank conflicts.

    WORD, or fields as for encode. The exit code is 0 only if the hardware reads the matrix that is meant.

    Examples:
        mmulator descriptor check 0x4000004000010048 wgmma m64n64 f16
        mmulator descriptor check --type f16 --swizzle 64B --access ldmatrix
        mmulator descriptor check --access @addresses.txt:4
    """
    for name, value, needs, other in (("--at", at, "--access", access), ("--shared-base", shared_base, "--shared", shared)):
        if value is not None and not other:
            raise misused(f"it goes with {needs}", name)
    word, rest = o.split(words)
    of_matrices = {"--swizzle": fields.swizzle, "--major": matrix.major, "--type": matrix.type, "--base": matrix.base}
    if idesc.is_asked(matrix.operand, {**of_matrices, "--access": access}):
        idesc.tell(word, o.instruction_of(rest, matrix.instruction), json, verdict=True)
        return
    window = {"--shared": shared, "--shared-base": shared_base}
    tile = o.tile_of(o.instruction_of(rest, matrix.instruction), matrix, window, word)
    given = fields.given()
    if not (word or given or tile or access):
        o.nothing_given()
    start = o.number("--base", matrix.base)
    whole = o.word_of(word, given, tile, start)
    if tile is None:
        _by_itself(whole, bool(word or given), access, json)
    else:
        _of_a_matrix(whole, tile, start, [o.number(*one) for one in window.items()], (access, at), json)


def _by_itself(word: int, said: bool, access: list[str] | None, json: bool) -> None:
    """Check a word without its matrix, if a word is given, and accesses to addresses of a file."""
    from mmulator.cli.descriptor import text
    from mmulator.inspect.descriptors.describe import descriptor_fields

    if any(not kind.startswith("@") for kind in access or ()):
        hint = "--for INSTRUCTION --operand a|b, or --type TYPE --mn M --k K"
        raise OperandError("which matrix does it describe?", hint=hint)
    fields, found = descriptor_fields(word), _conflicts(None, access, None)
    if json:
        print_json("descriptor", {"ok": True, **fields.to_dict(), "accesses": [c.to_dict() for c in found]})
        return
    if said:
        text.print_verdict(word, None, fields.findings)
    text.print_conflicts(found)


def _of_a_matrix(
    word: int, tile: Tile, start: int | None, window: list[int | None], accesses: tuple[o.Texts, str | None], json: bool
) -> None:
    """Check a word together with the tile that is read through it."""
    from mmulator.cli.descriptor import text
    from mmulator.cli.descriptor.tell import as_data, described
    from mmulator.inspect.descriptors.describe import descriptor_fields

    answer = described(word, tile, start, window[0], window[1] or 0)
    found = _conflicts(answer, *accesses)
    if json:
        print_json("descriptor", as_data(descriptor_fields(word, tile.generation), answer, [], [], found, None))
    else:
        text.print_verdict(word, tile, answer.findings)
        text.print_conflicts(found)
    if not answer.ok:
        raise SystemExit(1)


def _conflicts(answer: DescriptorAnswer | None, access: list[str] | None, at: str | None) -> list[BankConflicts]:
    from mmulator.inspect.descriptors.banks import address_accesses, bank_conflicts

    found = []
    for kind in access or ():
        if kind.startswith("@"):
            path, _, size = kind[1:].rpartition(":")
            name, accesses = address_accesses(_addresses(path or size), o.number("--access", size if path else "4") or 0)
            found.append(bank_conflicts(f"{path or size}, {name}", accesses))
        elif answer is not None:
            found.append(answer.conflicts(kind, None if at is None else o.pair("--at", at)))
    return found


def _addresses(path: str) -> list[int]:
    """Addresses of a file, one or more a line; `#` begins a remark."""
    lines = (line.partition("#")[0] for line in read_bytes(path).decode("utf-8", "replace").splitlines())
    return [o.number(f"an address in {path}", x) or 0 for line in lines for x in line.replace(",", " ").split()]
