"""The 128 bytes of a tensor map taken apart."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mmulator.matrix.inspect.answer import Answer
from mmulator.matrix.inspect.descriptors.checks import Diagnostic
from mmulator.matrix.inspect.tensormaps.checks import check_bytes, check_map
from mmulator.matrix.layouts.tensormap import TensorMap
from mmulator.matrix.layouts.tensormap import fields as f
from mmulator.matrix.layouts.tensormap.encoded import Encoded


@dataclass(frozen=True)
class MapField:
    """A field of a tensor map. name: as tensormap.replace calls it, dimension 0 the innermost. where: its bits. value: in
    words.
    """

    name: str
    where: str
    raw: int
    value: str

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "where": self.where, "raw": self.raw, "value": self.value}


@dataclass(frozen=True)
class TensorMapFields(Answer):
    """A tensor map, its bytes, and what is wrong with it."""

    map: TensorMap
    data: bytes
    fields: tuple[MapField, ...]
    findings: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        return not any(found.level == "error" for found in self.findings)

    def driver_call(self) -> str:
        """The call of CUDA's driver that makes the map, in C."""
        return driver_call(self.map.fields)

    def to_dict(self) -> dict[str, Any]:
        m = self.map
        box = {"lower": m.lower, "upper": m.upper, "channels": m.fields.channels, "pixels": m.fields.pixels}
        return {
            "bytes": self.data.hex(),
            "mode": m.mode,
            "type": m.type,
            "address": m.address,
            "shape": list(m.shape),
            "strides": list(m.strides),
            "element_strides": list(m.element_strides),
            **({k: list(v) if isinstance(v, tuple) else v for k, v in box.items()} if m.fields.im2col else {"box": list(m.box)}),
            "interleave": m.interleave,
            "swizzle": m.swizzle,
            "l2_promotion": m.l2_promotion,
            "oob_fill": m.oob_fill,
            "box_bytes": m.box_bytes,
            "shared_bytes": m.shared_bytes,
            "alignment": m.alignment,
            "fields": [field.to_dict() for field in self.fields],
            "driver_call": self.driver_call(),
            "findings": [found.to_dict() for found in self.findings],
        }


def tensor_map_fields(given: TensorMap | bytes) -> TensorMapFields:
    """The fields of a tensor map, given as such or as 128 bytes. Raises OperandError for bytes that no tensor map has."""
    data = given.fields.encode() if isinstance(given, TensorMap) else bytes(given)
    m = TensorMap.decode(data)
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, f.BYTES, 4)]
    named = tuple(
        MapField(name, _where(field), sum((words[p.word] >> p.shift & p.mask) << p.low for p in field.parts), value)
        for name, field, value in _named(m.fields)
    )
    return TensorMapFields(m, data, named, (*check_bytes(data, m.fields), *check_map(m.fields)))


def _where(field: f.StoredField) -> str:
    """Place of a field: `0x08 bits 7-10, 16`, `0x08 bit 15` (byte of the word, and bits of it)."""
    words: dict[int, list[str]] = {}
    for p in field.parts:
        bits = words.setdefault(p.word, [])
        if p.width < 32:
            bits.append(str(p.shift) if p.width == 1 else f"{p.shift}-{p.shift + p.width - 1}")
    return ", ".join(f"{4 * word:#04x}" + _bits(bits) for word, bits in words.items())


def _bits(bits: list[str]) -> str:
    return f" bit{'s' * (len(bits) > 1 or '-' in bits[0])} {', '.join(bits)}" if bits else ""


def _named(m: Encoded) -> Iterator[tuple[str, f.StoredField, str]]:
    """Name, place and value of each field that a map of this kind has."""
    yield "global_address", f.GLOBAL_ADDRESS, f"{m.address:#x}"
    yield "mode", f.IM2COL, "im2col" if m.im2col else "tiled"
    yield "rank", f.RANK, str(m.rank)
    yield "elemtype", f.ELEMENT_TYPE, m.type.name
    yield "interleave_layout", f.INTERLEAVE, m.interleave
    yield "swizzle_mode", f.SWIZZLE, m.swizzle
    if m.mode.atomicity:
        yield "swizzle_atomicity", f.ATOMICITY, m.swizzle.partition("_")[2]
    yield "fill_mode", f.FILL_NAN, m.oob_fill
    yield "L2 promotion", f.L2_PROMOTION, m.l2_promotion
    for n, size in enumerate(m.sizes):
        yield f"global_dim[{n}]", f.GLOBAL_DIM[n], str(size)
    for n, stride in enumerate(m.strides):
        yield f"global_stride[{n}]", f.GLOBAL_STRIDE[n], f"{stride} bytes"
    for n, step in enumerate(m.element_strides):
        yield f"element_stride[{n}]", f.ELEMENT_STRIDE[n], str(step)
    if m.im2col:
        yield "channels", f.CHANNELS, str(m.channels)
        yield "pixels", f.PIXELS, str(m.pixels)
        for n, axis in enumerate("WHD"[: m.rank - 2]):
            yield f"lower {axis}", f.LOWER[m.rank][n], str(m.lower[n])
            yield f"upper {axis}", f.UPPER[m.rank][n], str(m.upper[n])
    else:
        for n, box in enumerate(m.box):
            yield f"box_dim[{n}]", f.BOX_DIM[n], str(box)
    yield "bytes of a box", f.BOX_BYTES, str(m.described_bytes if m.box_bytes is None else m.box_bytes)
    yield "alignment", f.SHARED_ALIGNMENT, str(m.mode.alignment if m.alignment is None else m.alignment)


# Of CUtensorMapDataType, in its order.
_DRIVER_TYPES = (
    "UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "FLOAT32_FTZ",
    "TFLOAT32", "TFLOAT32_FTZ", "16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B",
)  # fmt: skip


def driver_call(m: Encoded) -> str:
    """The call of CUDA's driver that makes a map, in C; its arrays are in the driver's order, the innermost first."""

    def array(kind: str, values: tuple[int, ...]) -> str:
        return f"({kind}[]){{{', '.join(map(str, values))}}}"

    promotion = "NONE" if m.l2_promotion == "none" else f"L2_{m.l2_promotion}"
    box = (
        [array("int", m.lower), array("int", m.upper), str(m.channels), str(m.pixels)]
        if m.im2col else [array("cuuint32_t", m.box)]
    )  # fmt: skip
    arguments = [
        "&map", f"CU_TENSOR_MAP_DATA_TYPE_{_DRIVER_TYPES[m.type.driver]}", str(m.rank), f"(void *){m.address:#x}",
        array("cuuint64_t", m.sizes), array("cuuint64_t", m.strides), *box, array("cuuint32_t", m.element_strides),
        f"CU_TENSOR_MAP_INTERLEAVE_{m.interleave.upper()}", f"CU_TENSOR_MAP_SWIZZLE_{m.swizzle.upper()}",
        f"CU_TENSOR_MAP_L2_PROMOTION_{promotion}",
        f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{'NAN_REQUEST_ZERO_FMA' if m.oob_fill == 'nan' else 'NONE'}",
    ]  # fmt: skip
    return f"cuTensorMapEncode{'Im2col' if m.im2col else 'Tiled'}({', '.join(arguments)});"
