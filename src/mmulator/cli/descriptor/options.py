"""Options that several of the four commands have, and how their values are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from mmulator.base.errors import OperandError
from mmulator.cli.output import exclude, misused
from mmulator.cli.parser import Positional, grouped
from mmulator.host.settings.readers import whole

if TYPE_CHECKING:
    from mmulator.matrix.inspect.descriptors.tile import Tile

Text = str | None
Texts = list[str] | None

_field = grouped("Fields, in bytes")
what = grouped("The matrix that it describes")
_ask = grouped("Questions")
_out = grouped("Output")

Word = Annotated[str, Positional("A descriptor's 64 bits as a number.", "WORD")]
_INSTRUCTION = "The wgmma or tcgen05.mma that reads it, as with --for."
Instruction = Annotated[Texts, Positional(_INSTRUCTION, "INSTRUCTION", offer="instruction_words")]
Words = Annotated[
    Texts,
    Positional(
        "A word whose fields are taken where none is given; what reads it, as with --for.", "WORD INSTRUCTION",
        offer="instruction_words",
    ),
]  # fmt: skip

For = Annotated[
    Text, what("What reads it: a name or words: wgmma m64n128 f16, tcgen05 m128n64 f16.", "INSTRUCTION", names="--for",
               phrase=True)
]  # fmt: skip
Operand = Annotated[Text, what("Which operand; idesc: of tcgen05. Default: b.", "a|b|idesc", offer="a b idesc")]
Type = Annotated[Text, what("Without --for: element type.", "TYPE", offer="f16 bf16 tf32 e4m3 e5m2 s8 u8 b1")]
Base = Annotated[Text, what("Where the buffer, so the swizzle pattern, starts.", "ADDRESS")]
Set = Annotated[Texts, grouped("Fields of --operand idesc")("Such as transpose_b=1. May be repeated.", "NAME=VALUE")]
_MODES = "none 32B 64B 128B 128B_atom_32B"


@dataclass(frozen=True)
class MatrixOptions:
    """Options of the matrix that a descriptor describes."""

    instruction: For = None
    operand: Operand = None
    major: Annotated[Text, what("The contiguous dimension. Default: k.", "k|mn", offer="k mn")] = None
    type: Type = None
    mn: Annotated[int | None, what("Without --for: extent of m or n. Default: 64.", "N")] = None
    k: Annotated[int | None, what("Without --for: extent of k. Default: 64.", "N")] = None
    base: Base = None


@dataclass(frozen=True)
class FieldOptions:
    """Options of a descriptor's fields."""

    start_address: Annotated[Text, _field("Default: --base, or 0.", "BYTES")] = None
    lbo: Annotated[Text, _field("Leading dimension byte offset.", "BYTES")] = None
    sbo: Annotated[Text, _field("Stride dimension byte offset.", "BYTES")] = None
    base_offset: Annotated[Text, _field("Matrix base offset.", "0..7")] = None
    swizzle: Annotated[Text, _field("none, 32B, 64B, 128B; tcgen05: 128B_atom_32B.", "MODE", offer=_MODES)] = None

    def given(self) -> dict[str, Any]:
        """The fields of a descriptor that are given."""
        found = {
            "start_address": number("--start-address", self.start_address), "leading_byte_offset": number("--lbo", self.lbo),
            "stride_byte_offset": number("--sbo", self.sbo), "base_offset": number("--base-offset", self.base_offset),
            "swizzle": self.swizzle,
        }  # fmt: skip
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class OutputOptions:
    """Questions about a descriptor, and the form of the output."""

    element: Annotated[Texts, _ask("Its address. Of A: m,k; of B: k,n. May be repeated.", "ROW,COL")] = None
    address: Annotated[Texts, _ask("The element that lies there. May be repeated.", "ADDRESS")] = None
    cute: Annotated[bool, _out("Print the CuTe layout alone.")] = False
    svg: Annotated[Text, _out("Draw the tile.", "FILE")] = None
    png: Annotated[Text, _out("Draw it as PNG (extra draw).", "FILE")] = None
    theme: Annotated[Text, _out("auto, the default, light or dark.", "THEME", offer="auto light dark")] = None
    lines: Annotated[int, _out("Lines of the map that is printed; 0: no map. Default: 8.", "N", read=whole(0))] = 8
    json: Annotated[bool, _out("Print JSON.")] = False

    def check(self) -> None:
        """Raise WrongUsage where options contradict each other, or would have no effect."""
        exclude({"--cute": self.cute, "--json": self.json}, "one form of output at a time")
        if self.theme is not None and not (self.svg or self.png):
            raise misused("it goes with --svg or --png", "--theme")
        for name, path in (("--svg", self.svg), ("--png", self.png)):
            if path == "-":
                raise misused("standard output has the text: name a file", name)

    def of_a_matrix(self) -> dict[str, Any]:
        """The questions that only a matrix answers, by option."""
        return {f"--{name}": getattr(self, name) for name in ("element", "address", "cute", "svg", "png")}


# what is given --------------------------------------------------------------------------------------------------------
def split(words: list[str] | None) -> tuple[str | None, list[str]]:
    """(number, words of an instruction) from the words of a command line."""
    from mmulator.isa.names.words import is_word

    words = words or []
    number = words[0] if words and not is_word(words[0]) else None
    return number, words[number is not None :]


def instruction_of(words: list[str] | None, given: str | None) -> str | None:
    """The instruction, given as words or with --for. Raises WrongUsage where it is given twice, or the words name none."""
    from mmulator.isa.names.words import is_word

    text = " ".join(words or ())
    exclude({"INSTRUCTION": text or None, "--for": given}, "say it once")
    if text and not is_word(text):
        raise misused(f"{text!r} is no instruction", "INSTRUCTION")
    return text or given


def tile_of(instruction: str | None, o: MatrixOptions, rest: Mapping[str, object], word: str | None = None) -> Tile | None:
    """The matrix that the options describe; None if none of them does.

    instruction: the one that reads it.
    rest: other options that make sense only with a matrix.
    word: the descriptor, if it is given, whose generation a matrix by itself gets.
    """
    from mmulator.matrix.inspect.descriptors.describe import make_tile
    from mmulator.matrix.layouts.descriptors import MatrixDescriptor, generation

    for name, value in (("--type", o.type), ("--mn", o.mn), ("--k", o.k)):
        exclude({"--for": instruction, name: value}, "the instruction says it")
    if o.major not in (None, "k", "mn"):
        raise OperandError(f"--major is {o.major!r}", hint="k or mn")
    if instruction is None and o.type is None:
        for option, given in ({"--operand": o.operand, "--major": o.major, "--mn": o.mn, "--k": o.k} | dict(rest)).items():
            if given is not None:
                raise misused("it goes with --for or --type, which say what is described", option)
        return None
    return make_tile(
        instruction, o.operand or "b", mn_major=o.major == "mn", type=o.type or "f16", mn=64 if o.mn is None else o.mn,
        k=64 if o.k is None else o.k, generation=MatrixDescriptor if word is None else generation(number("WORD", word) or 0),
    )  # fmt: skip


def word_of(word: str | None, given: dict[str, Any], tile: Tile | None, base: int | None) -> int:
    """A descriptor word.

    word: the word to begin with; None: the packed layout of the tile.
    given: fields that replace those of the word.
    tile: the matrix.
    base: shared address of the repeating pattern.
    """
    from mmulator.matrix.inspect.descriptors.describe import descriptor_fields
    from mmulator.matrix.layouts.descriptors import MatrixDescriptor, SharedDescriptor
    from mmulator.matrix.layouts.swizzle import ATOM_32B

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
    raise OperandError("no descriptor is given", hint="a word, fields, an instruction or --type; see --help")


def number(name: str, text: str | None) -> int | None:
    """A number as people write it, hexadecimal too. Raises OperandError."""
    if text is None:
        return None
    try:
        return int(text, 0)
    except ValueError:
        raise OperandError(f"{name} is {text!r}: a whole number is needed", hint="such as 1024 or 0x400") from None


def pair(name: str, text: str) -> tuple[int, int]:
    """`ROW,COL` as numbers. Raises OperandError."""
    parts = text.split(",")
    if len(parts) != 2:
        raise OperandError(f"{name} is {text!r}: ROW,COL is needed", hint=f"such as {name} 3,8")
    return number(name, parts[0].strip()) or 0, number(name, parts[1].strip()) or 0
