"""The views of shared memory: swizzles, and the tiles that matrix descriptors of wgmma and tcgen05 describe."""

from functools import cache
from itertools import product

from mmulator.errors import MmulatorError, OperandError
from mmulator.explore.blocks import CHUNKS, facts, lines, table, text
from mmulator.explore.view import Choices, Document, View
from mmulator.inspect.descriptors.answer import DescriptorAnswer
from mmulator.inspect.descriptors.checks import Diagnostic
from mmulator.inspect.descriptors.describe import describe_descriptor, descriptor_fields, make_tile
from mmulator.inspect.views.lines import CHUNK, LINE, Drawn
from mmulator.inspect.views.tile import cells
from mmulator.layouts.swizzle import SWIZZLES5, Swizzle

_MODES = {"128B": SWIZZLES5["128B"], **SWIZZLES5}  # the usual one first
_MAJORS = {"K-major": False, "M-major or N-major": True}
# What reads a tile -> types of elements, of which those beside it have the same tiles.
_TYPES = {
    "wgmma": {"f16, bf16": "f16", "tf32": "tf32", "e4m3, e5m2, s8, u8": "e4m3", "b1": "b1"},
    "tcgen05": {"f16, bf16": "f16", "tf32": "tf32", "e4m3 and others of a byte": "e4m3", "s8, u8": "s8", "e2m1 of mxf4": "mxf4"},
}
_SIZES = {"wgmma": {"a": (64,), "b": (8, 16, 32, 64, 128, 256)}, "tcgen05": {"a": (64, 128), "b": (16, 64, 128, 256)}}


# swizzles -------------------------------------------------------------------------------------------------------------
def _swizzles() -> Choices:
    return {
        name: dict.fromkeys([str(n) for n in range(mode.mask + 1)] if mode.mask else ["0"]) for name, mode in _MODES.items()
    }


def _xor(mode: Swizzle) -> str:
    if not mode.mask:
        return "an address stays as it is"
    low, bits = mode.unit.bit_length() - 1, mode.mask.bit_length()
    return f"address bits {low + bits - 1}..{low} are XORed with bits {6 + bits}..7, which count lines of 128 bytes"


def swizzled(mode: Swizzle, base: int) -> dict[int, Drawn]:
    """The chunks of 16 bytes of one period, by the place where the swizzle puts them, with their numbers before it."""
    chunks = range(max(mode.repeat, LINE) // CHUNK)
    return {
        int(mode(CHUNK * n, base)) // CHUNK: Drawn(str(n), 4 * (n % CHUNKS) + (1, 3)[n // CHUNKS % 2])
        for n in chunks
    }


def _swizzle(mode: str, base: str) -> Document:
    s = SWIZZLES5[mode]
    drawn = swizzled(s, int(base))
    rows = [
        ("moves", f"{s.unit} bytes as a whole"), ("atom", f"{s.lines} rows of {s.width} bytes"),
        ("repeats every", f"{s.repeat} bytes"), ("does", _xor(s)), ("of wgmma and tcgen05", f"code {s.code} in a descriptor"),
    ]  # fmt: skip
    return [
        facts(rows),
        lines("shared memory: numbers of chunks of 16 bytes before the swizzle", drawn, sorted({n // CHUNKS for n in drawn})),
        text("Four banks of 4 bytes lie in a chunk: chunks in one column of the table are in the same banks."),
    ]


SWIZZLE = View(
    "swizzle", "Swizzles", "Where a swizzle puts each 16 bytes of shared memory.",
    (("mode", "Swizzle"), ("base", "Base offset")), _swizzles, _swizzle,
)  # fmt: skip


# descriptors ----------------------------------------------------------------------------------------------------------
@cache
def choices() -> Choices:
    tree: Choices = {}
    for reader, types in _TYPES.items():
        for named, operand in product(types, "ab"):
            for size, major, mode in product(_SIZES[reader][operand], _MAJORS, _MODES):
                values = reader, named, operand, f"{'m' if operand == 'a' else 'n'} = {size}", major, mode
                try:
                    answer(*values)
                except MmulatorError:
                    continue
                at = tree
                for value in values[:-1]:
                    at = at.setdefault(value, {})
                at[mode] = None
    return tree


def _instruction(reader: str, named: str, operand: str, size: str) -> str:
    number = size.rpartition(" ")[2]
    m, n = (number, 64) if operand == "a" else (128 if reader == "tcgen05" else 64, number)
    return f"{reader} m{m}n{n} {_TYPES[reader][named]}"


def answer(
    reader: str, named: str, operand: str, size: str, major: str, mode: str, start: str = "", word: str = ""
) -> DescriptorAnswer:
    """The answer of `mmulator descriptor` to a choice: its tile packed from `start` on, or as a word places it."""
    instruction, mn_major = _instruction(reader, named, operand, size), _MAJORS[major]
    tile = make_tile(instruction, operand, mn_major=mn_major)
    given = _number(word) if word else tile.packed(mode, _number(start or "0"))
    return describe_descriptor(given, instruction, operand, mn_major=mn_major)


def _number(given: str) -> int:
    try:
        return int(given, 0)
    except ValueError:
        raise OperandError(f"{given!r} is no number", hint="such as 0x400") from None


def drawn(found: DescriptorAnswer) -> dict[int, Drawn]:
    """The chunks of a tile, by their address in units of 16 bytes, with row and column of their first element."""
    tile = found.tile
    out = {}
    for c in cells(found):
        row, column = tile.matrix(c.mn, c.k)
        name = f"{row},{column}" if c.inside else ""
        out[c.address // CHUNK] = Drawn(name if c.read else "-", c.hue if c.read else None)
    return out


def findings(found: tuple[Diagnostic, ...]) -> Document:
    """A table of what is wrong; none if nothing is."""
    rows = [(f.level, f.text, f.rule or "", f.hint or "") for f in found]
    return [table("findings", ("level", "finding", "rule", "hint"), rows)] if rows else []


def _descriptor(
    reader: str, named: str, operand: str, size: str, major: str, mode: str, start: str = "", word: str = ""
) -> Document:
    found = answer(reader, named, operand, size, major, mode, start, word)
    fields = descriptor_fields(found.word, found.tile.generation)
    chunks = drawn(found)
    read = sorted({n // CHUNKS for n, c in chunks.items() if c.hue is not None})
    first, last = found.bytes
    rows = [
        ("tile", str(found.tile)), ("word", f"{found.word:#018x}"), ("bytes read", f"{first:#x} to {last:#x}"),
        ("swizzle atom", "{} x {} elements (m or n, k)".format(*found.atom)), ("CuTe layout", found.cute or ""),
        ("base offset", found.base_offset_text()),
    ]  # fmt: skip
    return [
        facts(rows),
        table("fields of the word", ("field", "bits", "raw", "value"), [(f.name, f.bits, f.raw, f.value) for f in fields.fields]),
        table("offsets", ("field", "bytes", "what it means"), [(o.field, o.bytes, o.text) for o in found.offsets]),
        *findings(found.findings),
        lines(f"shared memory: {found.tile.axes} of the first element of each 16 bytes", chunks, read),
    ]


DESCRIPTOR = View(
    "descriptor", "Descriptors",
    "The tile that one instruction reads from shared memory, and its matrix descriptor: the tables of mmulator descriptor.",
    (("reader", "Instruction"), ("type", "Type"), ("operand", "Operand"), ("size", "Size"), ("major", "Contiguous"),
     ("mode", "Swizzle")),
    choices, _descriptor, (("start", "Start address", "0x400"), ("word", "Or a descriptor's word", "0x4000004000010040")),
)  # fmt: skip
