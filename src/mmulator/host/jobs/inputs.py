"""Values for a launch, as launch files and options write them: arrays, scalars, structs, raw bytes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mmulator.base.errors import LaunchError, MmulatorError, must_be
from mmulator.base.interop import named_dtype
from mmulator.host.jobs.maps import MapOf, read_options, tensor_map
from mmulator.isa.types import TYPES
from mmulator.runtime.launch.regions import Region, pointer, room_behind
from mmulator.runtime.launch.values import struct

FORMS = (
    "a.npy, b.npz:key, out:f16:256x256, random:f16:256x256:1, i32:256, f32:0.5, 450, null, "
    "i32,i32,f32:1,2,3.5 (a struct), hex:0100... or map:64x64,swizzle=128B:random:f16:256x256"
)


@dataclass
class Argument:
    """An argument of a launch.

    name: used in messages, names of saved files and expectations.
    value: an array, a scalar, bytes, a struct with pointers, a tensor map, or None for a null pointer.
    is_output: the array begins as zeros.
    pointed: the arrays that a struct points to, or that a tensor map describes.
    address: of an array, the device address at which it lies; None: one of its own.
    """

    name: str
    value: Any
    is_output: bool = False
    pointed: tuple[Argument, ...] = ()
    address: int | None = None

    @property
    def region(self) -> Region:
        """An array at its address, as launches take it."""
        address = must_be(self.address, int)
        return replace(Region.of(address, self.value, self.name), room=room_behind(self.value.nbytes), owner=(self.value,))


# element types ------------------------------------------------------------------------------------------------------
def dtype_of(name: str, where: str) -> np.dtype[Any]:
    """NumPy dtype of an element type: PTX names, i8 to i64 for signed integers."""
    t = TYPES.get("s" + name[1:] if name[:1] == "i" else name)
    if t is None or not t.numpy or t.kind == "pred":
        raise LaunchError(f"{where}: {name!r} is no element type", hint="such as f16, bf16, f32, e4m3, i32, u8")
    return named_dtype(t.numpy)


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is an integer, those of ml_dtypes included."""
    return dtype.kind in "iu" or dtype.name in ("int2", "uint2", "int4", "uint4")


# files --------------------------------------------------------------------------------------------------------------
def load_arrays(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    """The array of a .npy, or those of a .npz by name. Raises MmulatorError if it cannot be read, for whatever reason."""
    try:
        found = np.load(path, allow_pickle=False)
        return found if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
    except OSError as error:
        raise MmulatorError(f"cannot read {path}: {error.strerror or error}") from None
    except MemoryError:
        raise MmulatorError(f"cannot read {path}: its arrays do not fit into memory") from None
    except Exception as error:  # damaged files raise nearly everything: ValueError, EOFError, zlib.error, TokenError...
        if "pickle" in str(error):  # what NumPy takes every other file for
            raise MmulatorError(f"{path} is no .npy or .npz file of numbers", hint="numpy.save writes one") from None
        raise MmulatorError(f"cannot read {path}: it is damaged: {str(error).rstrip('.')}") from None


def read_array(text: str, folder: Path, where: str) -> np.ndarray:
    """The array that a text names: `a.npy`, `b.npz:key`, or `b.npz` of a single array."""
    name, _, key = text.partition(".npz:")
    path = folder / (name + ".npz" if key else text)
    try:
        loaded = load_arrays(path)
    except MmulatorError as error:
        raise LaunchError(f"{where}: {error.message}", hint=error.hint) from None
    if isinstance(loaded, np.ndarray):
        if key:
            raise LaunchError(f"{where}: {path} is one array without a name", hint=f"leave out :{key}")
        return np.ascontiguousarray(loaded)
    if not key and len(loaded) == 1:
        key = next(iter(loaded))
    if key not in loaded:
        having = ", ".join(loaded) or "none"
        said = f"has no array {key!r}; it has {having}" if key else f"holds {having}: say which, as in {path}:KEY"
        raise LaunchError(f"{where}: {path} {said}")
    return np.ascontiguousarray(loaded[key])


def typed(values: np.ndarray, dtype: np.dtype[Any] | None) -> np.ndarray:
    """A loaded array in its element type: .npy files keep bf16 and the like as raw bytes."""
    if dtype is None or values.dtype == dtype:
        return values
    if values.dtype.itemsize == dtype.itemsize and (values.dtype.kind == "V" or dtype.kind == "V"):
        return values.view(dtype)
    return values.astype(dtype)


# arrays -------------------------------------------------------------------------------------------------------------
def made(make: Callable[[], np.ndarray], shape: Sequence[int], dtype: np.dtype[Any], where: str) -> np.ndarray:
    """The array of a shape that `make` returns. Raises LaunchError where there is no memory for it."""
    size = math.prod(shape) * dtype.itemsize
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = f"{where}: an array of {' x '.join(map(str, shape))} {dtype} takes {_bytes(size)}"
    if size > most:
        raise LaunchError(f"{text}; this machine has {_bytes(most)}")
    try:
        return make()
    except MemoryError:
        raise LaunchError(f"{text}, which is more than there is left") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise LaunchError(f"{where}: {error}") from None


def _bytes(count: int) -> str:
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6)):
        if count >= 10**power:
            return f"{count / 10**power:,.1f} {unit}"
    return f"{count} bytes"


def random_array(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int, low: int | None, high: int | None) -> np.ndarray:
    """Random values of a type.

    Floats: default_rng(seed).standard_normal(shape, dtype=float32), rounded to the type.
    Integers: default_rng(seed).integers(low, high, shape); low and high are -8 and 8, for unsigned types 0 and 16.
    """
    rng = np.random.default_rng(seed)
    if is_integer(dtype):
        unsigned = dtype.name.startswith("u")
        low = (0 if unsigned else -8) if low is None else low
        high = (16 if unsigned else 8) if high is None else high
        return rng.integers(low, high, shape).astype(dtype)
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)


# scalars and structs ------------------------------------------------------------------------------------------------
def element_bytes(type_name: str, text: str, where: str) -> bytes:
    """The bytes of one number of a type; floats may be given as their bits: `0x3c00`."""
    dtype = dtype_of(type_name, where)
    raw = text.lower().startswith("0x")
    try:
        number: int | float = int(text, 0) if raw or is_integer(dtype) else float(text)
    except ValueError:
        raise LaunchError(f"{where}: {text!r} is no .{type_name}") from None
    if isinstance(number, int):
        signed = is_integer(dtype) and not dtype.name.startswith("u")
        low, high = (-(1 << 8 * dtype.itemsize - 1) if signed else 0), 1 << 8 * dtype.itemsize
        fits = low <= number < (high // 2 if signed and not raw else high)
        data = (number % high).to_bytes(dtype.itemsize, "little")
    else:
        with np.errstate(all="ignore"):
            found = np.float64(number).astype(dtype)
        fits = not math.isfinite(number) or bool(np.isfinite(found.astype(np.float64)))
        data = found.tobytes()
    if not fits:
        raise LaunchError(f"{where}: {text} does not fit .{type_name}")
    return data


def scalar(type_name: str, text: str, where: str) -> Any:
    """A number for a scalar parameter: a float for f32 and f64, otherwise the integer of its bits."""
    data = element_bytes(type_name, text, where)
    if type_name in ("f32", "f64"):
        return float(np.frombuffer(data, dtype_of(type_name, where))[0])
    return int.from_bytes(data, "little", signed=type_name[0] in "is")


def struct_bytes(types: Sequence[str], values: Sequence[str], where: str) -> bytes:
    """A C struct: each member at its alignment, the end padded to the largest. `f32x4` is four members."""
    members = [m for t in types for m in _repeated(t)]
    if len(members) == 1:  # an array
        members *= len(values)
    if len(members) != len(values):
        raise LaunchError(f"{where}: {len(members)} types and {len(values)} values")
    return struct(*(_member(m, v.strip(), where) for m, v in zip(members, values))).data


def _member(type_name: str, text: str, where: str) -> np.generic:
    """A number of a type, which knows how long it is."""
    data = element_bytes(type_name, text, where)
    found: np.generic = np.frombuffer(data, f"u{len(data)}")[0]
    return found


def _repeated(text: str) -> list[str]:
    name, x, count = text.strip().rpartition("x")
    return [name] * int(count) if x and name not in ("", "f16") and count.isdecimal() and int(count) < 65536 else [text.strip()]


def raw_bytes(text: str, where: str) -> bytes:
    """Bytes from hexadecimal digits, two a byte; blanks and `_` between them do not count."""
    try:
        return bytes.fromhex(text.replace("_", " "))
    except ValueError:
        raise LaunchError(f"{where}: bytes are pairs of hexadecimal digits, such as 0a1b") from None


# options ------------------------------------------------------------------------------------------------------------
def parse_argument(text: str, number: int, option: str = "--arg") -> Argument:
    """An argument from the text of an option (FORMS lists the ways to write it); `NAME=` before any of them names it.
    Raises LaunchError.
    """
    name, equals, spec = text.partition("=")
    if not equals or ":" in name:  # of the options of a map
        name, spec = f"arg{number}", text
    where = f"{option} {text}"
    if spec.endswith((".npy", ".npz")) or ".npz:" in spec:
        return Argument(name, read_array(spec, Path(), where))
    if spec in ("null", "none"):
        return Argument(name, None)
    kind, colon, rest = spec.partition(":")
    if not colon:
        return Argument(name, _number(spec, where))
    if kind == "map":
        return _map_option(name, rest, number, option, where)
    if kind == "hex":
        return Argument(name, raw_bytes(rest, where))
    if kind in ("out", "zeros", "random"):
        return _array_argument(name, kind, rest.split(":"), number, where)
    values = rest.split(",")
    if "," in kind or len(values) > 1 or len(_repeated(kind)) > 1:
        return Argument(name, struct_bytes(kind.split(","), values, where))
    return Argument(name, scalar(kind, rest, where))


def _map_option(name: str, spec: str, number: int, option: str, where: str) -> Argument:
    """A tensor map from `OPTIONS:ARRAY`, where ARRAY is written as an option by itself, or from `OPTIONS:@NAME` of another
    argument's.
    """
    options, _, array = spec.partition(":")
    read = read_options(options, where)
    if array.startswith("@"):
        return Argument(name, MapOf(array[1:], read, where))
    given = parse_argument(array, number, option)
    if not isinstance(given.value, np.ndarray):
        raise LaunchError(f"{where}: a map is of an array", hint="map:64x64:out:f16:256x256, map:64x64:a.npy or map:64x64:@NAME")
    given.name = name
    return Argument(name, tensor_map(given.value, read, where), pointed=(given,))


def _number(text: str, where: str) -> int | float:
    """A bare number: the parameter's type says what it becomes."""
    for read in (lambda t: int(t, 0), float):
        try:
            return read(text)
        except ValueError:
            continue
    raise LaunchError(f"{where}: not an argument", hint=FORMS)


def _array_argument(name: str, kind: str, parts: list[str], number: int, where: str) -> Argument:
    form = "random:TYPE:SHAPE[:SEED]" if kind == "random" else f"{kind}:TYPE:SHAPE"
    if not 2 <= len(parts) <= (3 if kind == "random" else 2):
        raise LaunchError(f"{where}: write {form}, such as {kind}:f16:256x256")
    dtype = dtype_of(parts[0], where)
    try:
        shape = tuple(int(n) for n in parts[1].split("x"))
        seed = int(parts[2]) if len(parts) > 2 else number
    except ValueError:
        raise LaunchError(f"{where}: a shape is 256x256, a seed a number") from None
    if min(shape) < 0 or seed < 0:
        raise LaunchError(f"{where}: extents and seeds are 0 or more")
    if kind == "random":
        return Argument(name, made(lambda: random_array(dtype, shape, seed, None, None), shape, dtype, where))
    return Argument(name, made(lambda: np.zeros(shape, dtype), shape, dtype, where), is_output=True)


# tables of a launch file --------------------------------------------------------------------------------------------
SOURCES = ("value", "zeros", "random", "npy", "npz", "values", "hex", "struct")


def table_argument(a: dict[str, Any], number: int, path: Path, default: str = "") -> Argument:
    """An argument, a variable or a member of a struct from a table of a launch file. Raises LaunchError."""
    name = str(a.get("name", default or f"arg{number}"))
    where = f"{path}: {'variable' if default else f'argument {number}'} {name if default else f'({name})'}"
    unknown = sorted(set(a) - {"name", "type", "shape", "tensormap", "address", *SOURCES})
    if unknown:
        known = ", ".join(("name", "type", "shape", "tensormap", "address", *SOURCES))
        raise LaunchError(f"{where}: unknown key {unknown[0]!r}", hint=f"keys: {known}")
    if "address" in a:
        rest = {key: value for key, value in a.items() if key != "address"}
        return at_address(table_argument(rest, number, path, default), a["address"], where)
    if "tensormap" in a:
        return _map_argument(a, number, path, default, where)
    given = [s for s in SOURCES if s in a]
    if len(given) != 1:
        raise LaunchError(f"{where}: give one of {', '.join(SOURCES)}")
    source, value = given[0], a[given[0]]
    if source == "value":
        return Argument(name, _value(value, a.get("type"), where))
    if source == "hex":
        return Argument(name, raw_bytes(str(value), where))
    if source == "struct":
        return _struct_argument(name, value, number, path, where)
    dtype = dtype_of(str(a["type"]), where) if "type" in a else None
    if source in ("npy", "npz"):
        return Argument(name, typed(read_array(str(value), path.parent, where), dtype))
    if dtype is None:
        raise LaunchError(f"{where}: 'type' is missing")
    if source == "values":
        return Argument(name, _values(value, dtype, where))
    shape = _shape(a.get("shape"), where)
    if source == "zeros":
        return Argument(name, made(lambda: np.zeros(shape, dtype), shape, dtype, where), is_output=True)
    seed, low, high = _random(value, dtype, where)
    return Argument(name, made(lambda: random_array(dtype, shape, seed, low, high), shape, dtype, where))


ALIGN = 128  # bytes: what no instruction asks more of an address than


def at_address(given: Argument, address: Any, where: str) -> Argument:
    """An array that lies at a device address, in memory of the host that is as well aligned."""
    if not isinstance(given.value, np.ndarray) or given.pointed:
        raise LaunchError(f"{where}: an array has an address, and nothing else")
    if not isinstance(address, int) or isinstance(address, bool) or not 0 < address < 1 << 64:
        raise LaunchError(f"{where}: address is {address!r}, not a whole number such as 0x7f0000000000")
    room = np.zeros(given.value.nbytes + 2 * ALIGN, np.uint8)
    skip = (address - pointer(room)) % ALIGN
    array = room[skip : skip + given.value.nbytes].view(given.value.dtype).reshape(given.value.shape)
    array[...] = given.value
    return replace(given, value=array, address=address)


def _map_argument(a: dict[str, Any], number: int, path: Path, default: str, where: str) -> Argument:
    """A tensor map, of another argument's array, or of an array that the table's other keys describe and that has the same
    name.
    """
    options = a["tensormap"]
    if not isinstance(options, dict):
        raise LaunchError(f"{where}: tensormap is a table, such as {{ of = 'A', box = [64, 64], swizzle = '128B' }}")
    rest = {key: value for key, value in a.items() if key != "tensormap"}
    read = {key: value for key, value in options.items() if key != "of"}
    if "of" in options:
        if set(rest) - {"name"}:
            raise LaunchError(f"{where}: the map is of {options['of']!r}, and of an array of its own: give one")
        return Argument(str(a.get("name", default or f"arg{number}")), MapOf(str(options["of"]), read, where))
    given = table_argument(rest, number, path, default)
    if not isinstance(given.value, np.ndarray):
        raise LaunchError(f"{where}: a tensormap is of an array", hint="of = 'A', or type, shape and zeros, random, npy, ...")
    return Argument(given.name, tensor_map(given.value, read, where), pointed=(given,))


def _value(value: Any, type_name: Any, where: str) -> Any:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise LaunchError(f"{where}: a value is a number, not {value!r}")
    if type_name is not None and not isinstance(value, float):
        element_bytes(str(type_name), str(value), where)  # does it fit?
    return value


def _values(value: Any, dtype: np.dtype[Any], where: str) -> np.ndarray:
    try:
        given = np.array(value)
        if given.dtype.kind not in "biuf" and given.size:
            raise LaunchError(f"{where}: values are numbers")
        with np.errstate(invalid="ignore"):  # NaN is no integer: found below
            found = np.ascontiguousarray(given.astype(dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise LaunchError(f"{where}: {getattr(error, 'message', error)}") from None
    if is_integer(dtype) and not np.array_equal(found.astype(np.float64), given.astype(np.float64)):
        raise LaunchError(f"{where}: a value does not fit {dtype}")
    return found


def _shape(value: Any, where: str) -> tuple[int, ...]:
    items = [value] if isinstance(value, int) else value
    whole = isinstance(items, list) and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in items)
    if not whole or not items:
        raise LaunchError(f"{where}: shape is a list of extents, such as [512, 512]")
    return tuple(items)


def _random(random: Any, dtype: np.dtype[Any], where: str) -> tuple[int, int | None, int | None]:
    if isinstance(random, int) and not isinstance(random, bool):
        random = {"seed": random}
    if not isinstance(random, dict) or "seed" not in random:
        raise LaunchError(f"{where}: random needs a seed: random = {{ seed = 1 }}")
    unknown = sorted(set(random) - {"seed", "low", "high"})
    if unknown:
        raise LaunchError(f"{where}: unknown key {unknown[0]!r} of random", hint="keys: seed, low, high")
    seed, low, high = (random.get(key) for key in ("seed", "low", "high"))
    whole = all(n is None or (isinstance(n, int) and not isinstance(n, bool)) for n in (seed, low, high))
    if not whole or seed is None or seed < 0:
        raise LaunchError(f"{where}: seed, low and high are whole numbers, the seed 0 or more")
    if not is_integer(dtype) and (low is not None or high is not None):
        raise LaunchError(f"{where}: low and high are of random integers; {dtype} is normally distributed")
    return seed, low, high


def _struct_argument(name: str, members: Any, number: int, path: Path, where: str) -> Argument:
    """A struct whose members are tables: a scalar has `type` and `value`, an array becomes a pointer to it."""
    if not isinstance(members, list) or not members or not all(isinstance(m, dict) for m in members):
        raise LaunchError(f"{where}: struct is a list of members, such as [{{ type = 'i32', value = 3 }}]")
    fields: list[Any] = []
    pointed = []
    for n, member in enumerate(members):
        if "value" in member and "type" not in member:
            raise LaunchError(f"{where}: member {n} of the struct needs a type")
        inner = table_argument({"name": f"{name}.{n}", **member}, number, path)
        if isinstance(inner.value, np.ndarray):
            pointed.append(inner)
            fields.append(inner.value)
        elif not isinstance(inner.value, int | float):
            raise LaunchError(f"{where}: member {n} of the struct is neither a number nor an array")
        else:
            fields.append(_member(str(member["type"]), str(inner.value), where))
    made = struct(*fields)
    return Argument(name, made if made.pointers else made.data, pointed=tuple(pointed))
