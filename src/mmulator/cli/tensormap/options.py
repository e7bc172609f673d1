"""Options that several of the four commands have, and how their values are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from mmulator.base.errors import OperandError
from mmulator.cli.output import misused, read_bytes
from mmulator.cli.parser import Positional, grouped

if TYPE_CHECKING:
    from mmulator.matrix.layouts.tensormap import TensorMap

Text = str | None
Texts = list[str] | None

_tensor = grouped("The tensor and its box, in the array's order")
where = grouped("The copy")
out = grouped("Output")

_MAP = "128 bytes as hexadecimal digits, or a file that has them (as bytes or digits); - is standard input."
Map = Annotated[str, Positional(_MAP, "MAP")]
MaybeMap = Annotated[Text, Positional(_MAP + " Or say --shape and --box.", "MAP")]

_SWIZZLES = "none 32B 64B 128B 128B_atom_32B 128B_atom_32B_flip_8B 128B_atom_64B 96B"
_TYPES = "u8 u16 u32 s32 u64 s64 f16 bf16 f32 f32.ftz tf32 tf32.ftz f64 b4x16 b4x16_p64 b6x16_p32"

_AT = "Coordinates, in the array's order; of gather4 four rows and a column. Default: the first."
At = Annotated[Text, where(_AT, "N,N,...")]
Offsets = Annotated[Text, where("im2col offsets D,H,W as far as there are; of im2col::w wHalo,wOffset.", "N,...")]
Shared = Annotated[Text, where("Of the box in shared memory. Default: 0.", "ADDRESS")]
_MODES = "tile tile::gather4 tile::scatter4 im2col im2col_no_offs im2col::w im2col::w::128"
Mode = Annotated[Text, where("As in PTX. Default: tile or im2col, as the map is.", "MODE", offer=_MODES)]
Store = Annotated[bool, where("From shared to global memory.", names="--store")]

Json = Annotated[bool, out("Print JSON.")]



@dataclass(frozen=True)
class Said:
    """Options of a tensor and its box, as texts: a field for each option."""

    shape: Annotated[Text, _tensor("Elements of each dimension, the innermost last, without slices.", "N,N,...")] = None
    strides: Annotated[Text, _tensor("Of each dimension but the innermost. Default: packed.", "BYTES,...")] = None
    type: Annotated[Text, _tensor("PTX's name. Default: f16.", "TYPE", offer=_TYPES)] = None
    box: Annotated[Text, _tensor("Elements of each dimension of the box.", "N,N,...")] = None
    element_strides: Annotated[Text, _tensor("Steps within the box. Default: 1.", "N,N,...")] = None
    lower: Annotated[Text, _tensor("im2col: lower corner of D,H,W as far as there are.", "N,...")] = None
    upper: Annotated[Text, _tensor("im2col: upper corner.", "N,...")] = None
    channels: Annotated[int | None, _tensor("im2col: channels of a pixel.", "N")] = None
    pixels: Annotated[int | None, _tensor("im2col: pixels of a column.", "N")] = None
    interleave: Annotated[Text, _tensor("none, 16B or 32B.", "MODE", offer="none 16B 32B")] = None
    swizzle: Annotated[Text, _tensor("none, 32B, 64B, 128B; sm_100: 96B, 128B_atom_32B.", "MODE", offer=_SWIZZLES)] = None
    l2_promotion: Annotated[Text, _tensor("none, 64B, 128B or 256B.", "MODE", offer="none 64B 128B 256B")] = None
    fill: Annotated[Text, _tensor("What is out of bounds: zero or nan.", "MODE", offer="zero nan")] = None
    address: Annotated[Text, _tensor("Of the tensor in global memory. Default: 0.", "ADDRESS")] = None

    @property
    def anything(self) -> bool:
        return self != NOTHING


NOTHING = Said()


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Numbers between commas, also hexadecimal. Raises OperandError."""
    try:
        return tuple(int(part, 0) for part in text.replace(" ", "").split(",") if part)
    except ValueError:
        hint = f"such as {option} 64,128"
        raise OperandError(f"{option} is {text!r}: whole numbers between commas are needed", hint=hint) from None


def number(option: str, text: str | None) -> int:
    """A number, also hexadecimal; 0 for None. Raises OperandError."""
    try:
        found = numbers(option, text or "0")
    except OperandError:
        raise OperandError(f"{option} is {text!r}: a whole number is needed", hint=f"such as {option} 0x400") from None
    if len(found) != 1:
        raise misused("one number", option)
    return found[0]


def is_copy(text: str) -> bool:
    """Whether a word is a copy in PTX, perhaps with a predicate, and no map."""
    return text.lstrip().startswith(("cp.", "@"))


def map_of(given: str | None, said: Said) -> TensorMap:
    """The tensor map, given as bytes or by the options. Raises OperandError, or WrongUsage where both or neither are given."""
    if given is not None and said.anything:
        raise misused("the map is given: options of a tensor go without it", "MAP")
    if given is not None:
        return read(given)
    if said.shape is None:
        raise OperandError("no tensor map is given", hint="128 bytes, or --shape 64,128 --box 64,64 --type f16; see --help")
    return _made(said)


def read(given: str) -> TensorMap:
    """A tensor map from hexadecimal digits, or from a file of bytes or digits. Raises OperandError."""
    from os.path import exists  # which takes names that are too long for one

    from mmulator.matrix.layouts.tensormap import TensorMap

    digits = given if given != "-" and not exists(given) else ""  # noqa: PTH110
    data = b"" if digits else read_bytes(given)
    if len(data) != 128:
        text = digits or data.decode("ascii", "replace")
        plain = "".join(text.replace("0x", " ").replace(",", " ").split())
        try:
            data = bytes.fromhex(plain)
        except ValueError:
            named = text if len(text) <= 40 else f"{text[:37]}..."
            hint = "a tensor map is 128 bytes, 256 digits"
            raise OperandError(f"{named!r} is no file and no hexadecimal number", hint=hint) from None
    return TensorMap.decode(data)


def _made(said: Said) -> TensorMap:
    """The map that the options say, checked as the driver would."""
    from mmulator.matrix.layouts.tensormap import TensorMap
    from mmulator.matrix.layouts.tensormap.encoded import Encoded
    from mmulator.matrix.layouts.tensormap.modes import FILLS, INTERLEAVES, PROMOTIONS, SLICES, SWIZZLES, choose
    from mmulator.matrix.layouts.tensormap.rules import check
    from mmulator.matrix.layouts.tensormap.types import tensor_type

    kind, shape = tensor_type(said.type or "f16"), numbers("--shape", said.shape or "")
    if not shape:
        raise misused("at least one dimension", "--shape")
    rank = len(shape)
    im2col = any(v is not None for v in (said.lower, said.upper, said.channels, said.pixels))
    rule = f"cuTensorMapEncode{'Im2col' if im2col else 'Tiled'} (CUDA driver API)"
    modes = {"interleave": said.interleave or "none", "swizzle": said.swizzle or "none",
             "l2_promotion": said.l2_promotion or "none", "oob_fill": said.fill or "zero"}  # fmt: skip
    for (name, value), known in zip(modes.items(), (INTERLEAVES, SWIZZLES, PROMOTIONS, FILLS)):
        choose(name, value, known, rule)

    def inner_first(option: str, text: str | None, default: tuple[int, ...], count: int) -> tuple[int, ...]:
        values = default if text is None else numbers(option, text)
        if len(values) != count:
            raise misused(f"{len(values)} numbers where a shape of {rank} dimensions takes {count}", option)
        return values[::-1]

    slice_ = SLICES.get(modes["interleave"], 0)
    packed, reach = [], shape[-1] * slice_ or kind.bytes_of(shape[-1])
    for size in shape[-2::-1]:
        packed.append(reach)
        reach *= size
    common: dict[str, Any] = {
        "type": kind, "sizes": shape[::-1], "address": number("--address", said.address), **modes,
        "strides": inner_first("--strides", said.strides, tuple(packed[::-1]), max(rank - 1, 0)),
        "element_strides": inner_first("--element-strides", said.element_strides, (1,) * rank, rank),
    }  # fmt: skip
    if not im2col:
        if said.box is None:
            raise misused("a tiled map needs it", "--box")
        return TensorMap(check(Encoded(**common, box=inner_first("--box", said.box, (), rank))))
    if said.box is not None or said.channels is None or said.pixels is None:
        raise misused("an im2col map has --channels and --pixels, and no --box", "--lower")
    spatial = max(rank - 2, 0)
    return TensorMap(check(Encoded(
        **common, im2col=True, lower=inner_first("--lower", said.lower, (0,) * spatial, spatial),
        upper=inner_first("--upper", said.upper, (0,) * spatial, spatial), channels=said.channels, pixels=said.pixels,
    )))  # fmt: skip
