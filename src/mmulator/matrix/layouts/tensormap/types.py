"""Element types of tensor maps: their names in PTX, three numberings, and their bytes in global and in shared memory.

Tensor Dimension, size and format; tensormap.replace, table Tensormap new_val validity (PTX ISA 9.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mmulator.base.errors import OperandError, shown, similar

_TF32 = 1 << 4  # the bit of fields.ELEMENT_TYPE that rounds


@dataclass(frozen=True)
class TensorType:
    """An element type of tensor maps.

    name: name in PTX, without the dot.
    number: number in tensormap.replace.
    driver: number of the CUtensorMapDataType.
    code: number in the map.
    memory: bytes of a unit in global memory.
    shared: bytes from unit to unit in shared memory.
    elements: elements of a unit: 1, or 16 for types of less than a byte.
    is_float: whether it is a floating-point type.
    dtypes: NumPy (or ml_dtypes) names of the dtypes that have this type by default.
    """

    name: str
    number: int
    driver: int
    code: int
    memory: int
    shared: int
    elements: int = 1
    is_float: bool = False
    dtypes: tuple[str, ...] = ()

    @property
    def padded(self) -> bool:
        """Whether sixteen elements take 16 bytes of shared memory, some of which are not written."""
        return self.shared != self.memory

    @property
    def bits(self) -> int:
        """Bits of an element in global memory."""
        return 8 * self.memory // self.elements

    def bytes_of(self, elements: int) -> int:
        """Bytes of a number of elements of a row in global memory."""
        return elements * self.bits // 8

    def __str__(self) -> str:
        return self.name


def _type(name: str, number: int, driver: int, code: int, size: int, dtypes: str = "", is_float: bool = False) -> TensorType:
    return TensorType(name, number, driver, code, size, size, 1, is_float, tuple(dtypes.split()))


_FLOAT8 = "float8_e4m3fn float8_e5m2 float8_e8m0fnu float8_e4m3 float8_e3m4 float8_e4m3b11fnuz float8_e4m3fnuz float8_e5m2fnuz"
TYPES: tuple[TensorType, ...] = (
    _type("u8", 0, 0, 0, 1, f"uint8 int8 bool {_FLOAT8}"),
    _type("u16", 1, 1, 1, 2, "uint16 int16"),
    _type("u32", 2, 2, 2, 4, "uint32"),
    _type("s32", 3, 3, 3, 4, "int32"),
    _type("u64", 4, 4, 4, 8, "uint64"),
    _type("s64", 5, 5, 5, 8, "int64"),
    _type("f16", 6, 6, 6, 2, "float16", True),
    _type("f32", 7, 7, 7, 4, "float32", True),
    _type("f32.ftz", 8, 10, 8, 4, "", True),
    _type("f64", 9, 8, 9, 8, "float64", True),
    _type("bf16", 10, 9, 10, 2, "bfloat16", True),
    _type("tf32", 11, 11, 7 | _TF32, 4, "", True),
    _type("tf32.ftz", 12, 12, 8 | _TF32, 4, "", True),
    # sm_100 and later
    TensorType("b4x16", 13, 13, 11, 8, 8, 16),
    TensorType("b4x16_p64", 14, 14, 12, 8, 16, 16),
    TensorType("b6x16_p32", 15, 15, 13, 12, 16, 16),
)
BY_NAME: Mapping[str, TensorType] = {t.name: t for t in TYPES}
BY_NUMBER: Mapping[int, TensorType] = {t.number: t for t in TYPES}
BY_DRIVER: Mapping[int, TensorType] = {t.driver: t for t in TYPES}
BY_CODE: Mapping[int, TensorType] = {t.code: t for t in TYPES}
BY_DTYPE: Mapping[str, TensorType] = {dtype: t for t in TYPES for dtype in t.dtypes}
# `.b6p2x16`, what stores call it, has the number of `.b6x16_p32`.
_ALSO = {"b6p2x16": "b6x16_p32"}
RULE = "Tensor Dimension, size and format (PTX ISA 9.1)"


def tensor_type(name: object) -> TensorType:
    """The type with this name, with or without its dot. Raises OperandError for an unknown name."""
    plain = name.removeprefix(".") if isinstance(name, str) else name
    found = BY_NAME.get(_ALSO.get(plain, plain)) if isinstance(plain, str) else None
    if found is None:
        near = similar(plain, BY_NAME) if isinstance(plain, str) else []
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(BY_NAME)}"
        raise OperandError(f"type is {shown(name)}: tensor maps have no such element type", rule=RULE, hint=hint)
    return found
