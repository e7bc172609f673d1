"""Options that several of the four commands have, and how their values are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from mmulator.cli.output import misused
from mmulator.cli.parser import Positional, grouped
from mmulator.settings.readers import whole

if TYPE_CHECKING:
    from mmulator.inspect.descriptors.tile import Tile

Text = str | None
Texts = list[str] | None

_field = grouped("Fields, in bytes")
what = grouped("The matrix that it describes")
_ask = grouped("Questions")
_check = grouped("Checks")
_out = grouped("Output")

Word = Annotated[str, Positional(metavar="WORD", help="A descriptor's 64 bits as a number.")]
_INSTRUCTION = "The wgmma or tcgen05.mma that reads it, as with --for."
Instruction = Annotated[
    Texts, Positional(metavar="INSTRUCTION", help=_INSTRUCTION, offer="instruction_words")
]
Words = Annotated[
    Texts,
    Positional(
        metavar="WORD INSTRUCTION", offer="instruction_words",
        help="A word whose fields are taken where none is given; what reads it, as with --for.",
    ),
]  # fmt: skip

For = Annotated[
    Text, what("INSTRUCTION", "What reads it: a name, or words: wgmma m64n128 f16, tcgen05 m128n64 f16.", "--for", phrase=True)
]
Operand = Annotated[Text, what("a|b|idesc", "Which operand; idesc: of tcgen05. Default: b.", offer="a b idesc")]
Major = Annotated[Text, what("k|mn", "The contiguous dimension. Default: k.", offer="k mn")]
Type = Annotated[Text, what("TYPE", "Without --for: element type.", offer="f16 bf16 tf32 e4m3 e5m2 s8 u8 b1")]
Mn = Annotated[int | None, what("N", "Without --for: extent of m or n. Default: 64.")]
K = Annotated[int | None, what("N", "Without --for: extent of k. Default: 64.")]
Base = Annotated[Text, what("ADDRESS", "Where the buffer, so the swizzle pattern, starts.")]

StartAddress = Annotated[Text, _field("BYTES", "Default: --base, or 0.")]
Lbo = Annotated[Text, _field("BYTES", "Leading dimension byte offset.")]
Sbo = Annotated[Text, _field("BYTES", "Stride dimension byte offset.")]
BaseOffset = Annotated[Text, _field("0..7", "Matrix base offset.")]
Swizzle = Annotated[
    Text, _field("MODE", "none, 32B, 64B, 128B; tcgen05: 128B_atom_32B.", offer="none 32B 64B 128B 128B_atom_32B")
]

Set = Annotated[Texts, grouped("Fields of --operand idesc")("NAME=VALUE", "Such as transpose_b=1. May be repeated.", "--set")]

Element = Annotated[Texts, _ask("ROW,COL", "Its address. Of A: m,k; of B: k,n. May be repeated.")]
Address = Annotated[Texts, _ask("ADDRESS", "The element that lies there. May be repeated.")]

Shared = Annotated[Text, _check("BYTES", "Size of the shared window. Default: 228 KiB.")]
SharedBase = Annotated[Text, _check("ADDRESS", "Its first byte. Default: 0.")]
Access = Annotated[
    Texts, _check("KIND", "Bank conflicts of ldmatrix, k:BYTES, mn:BYTES or @FILE:BYTES. May be repeated.",
                  offer="ldmatrix k:4 k:8 k:16 mn:4 mn:8 mn:16")
]  # fmt: skip
At = Annotated[Text, _check("ROW,COL", "Of --access: the one that begins here.")]

Cute = Annotated[bool, _out("", "Print the CuTe layout alone.", "--cute")]
Svg = Annotated[Text, _out("FILE", "Draw the tile.")]
Png = Annotated[Text, _out("FILE", "Draw it as PNG (extra draw).")]
Theme = Annotated[Text, _out("THEME", "auto, the default, light or dark.", offer="auto light dark")]
Lines = Annotated[int, _out("N", "Lines of the map that is printed; 0: no map.", read=whole(0))]
Json = Annotated[bool, _out("", "Print JSON.")]


# what is given --------------------------------------------------------------------------------------------------------
def split(words: list[str] | None) -> tuple[str | None, list[str]]:
    """(number, words of an instruction) from the words of a command line."""
    from mmulator.isa.names.words import is_word

    words = words or []
    number = words[0] if words and not is_word(words[0]) else None
    return number, words[number is not None :]


def instruction_of(words: list[str] | None, given: str | None) -> str | None:
    """The instruction, given as words or with --for. Raises WrongUsage where it is given twice, or the words name none."""
    from mmulator.cli.output import exclude
    from mmulator.isa.names.words import is_word

    text = " ".join(words or ())
    exclude({"INSTRUCTION": text or None, "--for": given}, "say it once")
    if text and not is_word(text):
        raise misused(f"{text!r} is no instruction", "INSTRUCTION")
    return text or given


def tile_of(
    instruction: str | None, operand: str | None, major: str | None, type: str | None, mn: int | None, k: int | None,
    rest: Mapping[str, object], word: str | None = None,
) -> Tile | None:  # fmt: skip
    """The matrix that the options describe; None if none of them does.

    rest: other options that make sense only with a matrix.
    word: the descriptor, if it is given, whose generation a matrix by itself gets.
    """
    from mmulator.cli.output import exclude
    from mmulator.errors import OperandError
    from mmulator.inspect.descriptors.describe import make_tile
    from mmulator.layouts.descriptors import MatrixDescriptor, generation

    for name, value in (("--type", type), ("--mn", mn), ("--k", k)):
        exclude({"--for": instruction, name: value}, "the instruction says it")
    if major not in (None, "k", "mn"):
        raise OperandError(f"--major is {major!r}", hint="k or mn")
    if instruction is None and type is None:
        for option, given in ({"--operand": operand, "--major": major, "--mn": mn, "--k": k} | dict(rest)).items():
            if given is not None:
                raise misused("it goes with --for or --type, which say what is described", option)
        return None
    return make_tile(
        instruction, operand or "b", mn_major=major == "mn", type=type or "f16", mn=64 if mn is None else mn,
        k=64 if k is None else k, generation=MatrixDescriptor if word is None else generation(number("WORD", word) or 0),
    )  # fmt: skip


def fields_of(
    start_address: str | None, lbo: str | None, sbo: str | None, base_offset: str | None, swizzle: str | None
) -> dict[str, Any]:
    given = {
        "start_address": number("--start-address", start_address),
        "leading_byte_offset": number("--lbo", lbo),
        "stride_byte_offset": number("--sbo", sbo),
        "base_offset": number("--base-offset", base_offset),
        "swizzle": swizzle,
    }
    return {name: value for name, value in given.items() if value is not None}


def word_of(word: str | None, given: dict[str, Any], tile: Tile | None, base: int | None) -> int:
    """A descriptor word.

    word: the word to begin with; None: the packed layout of the tile.
    given: fields that replace those of the word.
    tile: the matrix.
    base: shared address of the repeating pattern.
    """
    from dataclasses import replace

    from mmulator.inspect.descriptors.describe import descriptor_fields
    from mmulator.layouts.descriptors import MatrixDescriptor, SharedDescriptor
    from mmulator.layouts.swizzle import ATOM_32B

    whole = number("WORD", word)
    if whole is not None:
        found = descriptor_fields(whole, tile.generation if tile else None).descriptor
        return replace(found, **given).encode() if given else whole
    start = given.get("start_address", base or 0)
    if tile is None:
        of = SharedDescriptor if given.get("swizzle") == ATOM_32B.name else MatrixDescriptor
        return of(**{"start_address": start, **given}).encode()
    return replace(tile.packed(given.get("swizzle", "none"), start, base), **given).encode()


def nothing_given() -> NoReturn:
    """Raise an OperandError that says which options could be given."""
    from mmulator.errors import OperandError

    raise OperandError("no descriptor is given", hint="a word, fields, an instruction or --type; see --help")


def number(name: str, text: str | None) -> int | None:
    """A number as people write it, hexadecimal too. Raises OperandError."""
    from mmulator.errors import OperandError

    if text is None:
        return None
    try:
        return int(text, 0)
    except ValueError:
        raise OperandError(f"{name} is {text!r}: a whole number is needed", hint="such as 1024 or 0x400") from None


def pair(name: str, text: str) -> tuple[int, int]:
    """`ROW,COL` as numbers. Raises OperandError."""
    from mmulator.errors import OperandError

    parts = text.split(",")
    if len(parts) != 2:
        raise OperandError(f"{name} is {text!r}: ROW,COL is needed", hint=f"such as {name} 3,8")
    return number(name, parts[0].strip()) or 0, number(name, parts[1].strip()) or 0
