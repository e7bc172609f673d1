"""`mmulator descriptor`: matrix descriptors of wgmma, in four commands."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import join
from typing import TYPE_CHECKING, Annotated

from mmulator.base.errors import OperandError
from mmulator.cli.descriptor import idesc
from mmulator.cli.descriptor import options as o
from mmulator.cli.output import WrongUsage, exclude, misused, print_json, read_bytes
from mmulator.cli.parser import Group, Json, Positional, grouped, phrase

if TYPE_CHECKING:
    from mmulator.matrix.inspect.descriptors.answer import DescriptorAnswer
    from mmulator.matrix.inspect.descriptors.banks import BankConflicts
    from mmulator.matrix.inspect.descriptors.from_cute import CuteAnswer
    from mmulator.matrix.inspect.descriptors.tile import Tile

def encode(
    fields: o.FieldOptions, matrix: o.MatrixOptions, wanted: o.OutputOptions, words: o.Words = None, set: o.Set = None
) -> None:
    """Make the word of a descriptor from its fields, and say what it means.

    Fields that are left out are those of WORD, or else of the packed layout of the matrix that an instruction (or
    --type, --mn, --k) says. Numbers may be hexadecimal. The exit code is 1 if a check fails.

    Examples:
        mmulator descriptor encode wgmma m64n128 f16 --swizzle 128B
        mmulator descriptor encode --type bf16 --mn 128 --swizzle 64B --svg tile.svg
        mmulator descriptor encode --lbo 16 --sbo 1024 --swizzle 128B
        mmulator descriptor encode tcgen05 m128n64 bf16 --operand idesc --set transpose_b=1
    """
    from mmulator.cli.descriptor.tell import tell

    word, rest = o.split(words)
    of_matrices = {f"--{name.replace('_', '-')}": value for name, value in vars(fields).items()}
    of_matrices |= {"--major": matrix.major, "--type": matrix.type, "--base": matrix.base, **wanted.of_a_matrix()}
    if idesc.is_asked(matrix.operand, of_matrices):
        idesc.encode(o.instruction_of(rest, matrix.instruction), word, set, wanted.json)
        return
    exclude({"--set": set, "a matrix": True}, "it goes with --operand idesc")
    tile = o.tile_of(o.instruction_of(rest, matrix.instruction), matrix, {}, word)
    given, start = fields.given(), o.number("--base", matrix.base)
    if not (word or given or tile or any(wanted.of_a_matrix().values())):
        o.nothing_given()
    tell(o.word_of(word, given, tile, start), tile, start, wanted)


def decode(word: o.Word, matrix: o.MatrixOptions, wanted: o.OutputOptions, words: o.Instruction = None) -> None:
    """Take a descriptor's word apart, and say what it means for a matrix.

    The fields alone, or with an instruction (or --type, --mn, --k) which addresses are read and where an element lies.
    Numbers may be hexadecimal. The exit code is 1 if a check fails.

    Examples:
        mmulator descriptor decode 0x4000004000010040
        mmulator descriptor decode 0x4000004000010040 wgmma m64n128 f16
        mmulator descriptor decode 0x4000004000010040 --type f16 --element 3,40
        mmulator descriptor decode 0x8100490 tcgen05 bf16 --operand idesc
    """
    from mmulator.cli.descriptor.tell import tell

    of_matrices = {"--major": matrix.major, "--type": matrix.type, "--base": matrix.base, **wanted.of_a_matrix()}
    if idesc.is_asked(matrix.operand, of_matrices):
        idesc.tell(word, o.instruction_of(words, matrix.instruction), wanted.json)
        return
    tile = o.tile_of(o.instruction_of(words, matrix.instruction), matrix, {"--base": matrix.base}, word)
    tell(o.word_of(word, {}, tile, None), tile, o.number("--base", matrix.base), wanted)


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
    from mmulator.matrix.inspect.descriptors.describe import descriptor_fields

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
    from mmulator.matrix.inspect.descriptors.describe import descriptor_fields

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
    from mmulator.matrix.inspect.descriptors.banks import address_accesses, bank_conflicts

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


_Layout = Annotated[str, Positional("As CuTe prints it: first mode M or N, second K.", "LAYOUT")]
_Units = Annotated[
    o.Text, o.what("Of the layout's strides: elements (default), bytes or bits.", "UNIT", offer="elements bytes bits")
]


def from_cute(
    layout: _Layout, wanted: o.OutputOptions, words: o.Instruction = None, instruction: o.For = None, operand: o.Operand = None,
    type: o.Type = None, units: _Units = None, base: o.Base = None,
) -> None:  # fmt: skip
    """Derive the descriptors of a CuTe layout, one for each instruction over it, or say why there are none.

    It reads what CuTe prints, the notation of the specification, and CUTLASS's atoms. The exit code is 1 if no
    descriptor has the layout's addresses.

    Examples:
        mmulator descriptor from-cute "Sw<3,4,3> o (64,64):(64,1)"
        mmulator descriptor from-cute "Layout_K_SW128_Atom<half_t>" wgmma m64n8 f16
    """
    from mmulator.cli.descriptor.tell import tell
    from mmulator.cli.output import exclude

    asked = o.instruction_of(words, instruction)
    exclude({"--for": asked, "--type": type}, "the instruction says it")
    wanted.check()
    start = o.number("--base", base)
    derived = _derived(layout, asked, operand or "b", type or "f16", start, units or "elements")
    tell(derived.tiles[0].word, derived.tile, start, wanted, derived)


def _derived(text: str, instruction: str | None, operand: str, type: str, base: int | None, units: str) -> CuteAnswer:
    from mmulator.matrix.inspect.descriptors.describe import make_tile
    from mmulator.matrix.inspect.descriptors.from_cute import descriptor_from_cute, tile_of_layout

    if instruction is None:
        tile = tile_of_layout(text, operand, type, units)
    else:
        tile = make_tile(instruction, operand, mn_major=False)
    return descriptor_from_cute(text, tile, base=base, units=units)


_CHECKS = ("--access", "--at", "--shared", "--shared-base")
_FLAGS = ("--cute", "--json")


def _otherwise(words: Sequence[str]) -> None:
    """Answer a word, an instruction or an option in place of a command with the command that takes it."""
    if _names_none(words[0]):
        commands = "encode, decode, check and from-cute"
        before = [*words][: [*words, "--for"].index("--for") + 1]
        after = [*words][len(before) :]
        hint = f"mmulator descriptor {join(with_command([*before, *([phrase(after)] if after else []), *after]))}"
        raise WrongUsage(f"`descriptor` is four commands: {commands}", hint=hint)


def _names_none(first: str) -> bool:
    """Whether the first word describes a descriptor, and is neither a command nor a misspelt one."""
    from mmulator.isa.names.words import is_word

    if first.startswith("-"):
        return first not in ("--help", "-h")
    return first[:1].isdigit() or is_word(first)


def with_command(args: list[str]) -> list[str]:
    """Arguments with the command that takes them before them."""
    names = [a.partition("=")[0] for a in args]
    if "--from-cute" in names:
        at = names.index("--from-cute")
        _, equals, layout = args[at].partition("=")
        taken = 1 if equals else 2
        return ["from-cute", layout if equals else "".join(args[at + 1 : at + 2]), *args[:at], *args[at + taken :]]
    if set(_CHECKS) & set(names):
        return ["check", *args]
    fields = {"--start-address", "--lbo", "--sbo", "--base-offset", "--swizzle"} & set(names)
    alone = [a for before, a in zip(("", *args), args) if not a.startswith("-") and not _takes_next(before)]
    return ["decode" if alone and alone[0][:1].isdigit() and not fields else "encode", *args]


def _takes_next(option: str) -> bool:
    return option.startswith("--") and "=" not in option and option not in _FLAGS


descriptor = Group(
    "Encode, decode, check and draw matrix descriptors of wgmma; derive them from CuTe layouts.",
    {"encode": encode, "decode": decode, "check": check, "from-cute": from_cute}, otherwise=_otherwise,
)
