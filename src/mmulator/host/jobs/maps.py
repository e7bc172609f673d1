"""Tensor maps of a launch, as launch files and options write them: of an array that stands there, or of another argument's
array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.base.errors import LaunchError, OperandError, similar

if TYPE_CHECKING:
    from mmulator.matrix.layouts.tensormap import TensorMap

_TILED = ("box",)
_IM2COL = ("lower", "upper", "channels", "pixels")
_MODES = ("element_strides", "interleave", "swizzle", "l2_promotion", "oob_fill", "type")
KEYS = (*_TILED, *_IM2COL, *_MODES)


@dataclass(frozen=True)
class MapOf:
    """A tensor map of another argument's array, not made yet. options: by KEYS. where: the place, for messages."""

    of: str
    options: Mapping[str, Any]
    where: str


def tensor_map(array: np.ndarray, options: Mapping[str, Any], where: str) -> TensorMap:
    """The tensor map of an array. Raises LaunchError for missing or unknown options, and for what CUDA's driver refuses."""
    from mmulator.matrix.layouts.tensormap import TensorMap

    unknown = sorted(set(options) - set(KEYS))
    if unknown:
        raise LaunchError(f"{where}: unknown key {unknown[0]!r} of tensormap", hint="keys: of, " + ", ".join(KEYS))
    im2col = any(key in options for key in _IM2COL)
    needed = _IM2COL if im2col else _TILED
    missing = [key for key in needed if key not in options]
    if missing or (im2col and "box" in options):
        needs = f"a tensormap needs {', '.join(needed)}"
        raise LaunchError(f"{where}: {needs}" + ("" if missing else ", and no box"), hint="box, or the four of im2col")
    try:
        return (TensorMap.im2col if im2col else TensorMap.tiled)(array, **options)
    except OperandError as error:
        raise LaunchError(f"{where}: {error.message}", rule=error.rule, hint=error.hint) from None
    except TypeError as error:
        raise LaunchError(f"{where}: {error}") from None


def resolve(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The value to launch with: a MapOf becomes its TensorMap, others stay. Raises LaunchError for an unknown name."""
    if not isinstance(value, MapOf):
        return value
    if value.of not in arrays:
        near = ", ".join(similar(value.of, arrays) or arrays)
        hint = f"there are {near}" if near else "no argument is an array: such as --arg B=out:f16:64x64"
        raise LaunchError(f"{value.where}: no array argument is called {value.of!r}", hint=hint)
    return tensor_map(arrays[value.of], value.options, value.where)


def read_options(text: str, where: str) -> dict[str, Any]:
    """Options of a tensor map from a text: `64x64,swizzle=128B,oob_fill=nan` or
    `lower=-1x-1,upper=-1x-1,channels=64,pixels=64`.
    Raises LaunchError.
    """
    found: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            key, value = "box", part
        if key in found:
            raise LaunchError(f"{where}: {key} is said twice")
        found[key] = _value(key, value, where)
    return found


def _value(key: str, text: str, where: str) -> Any:
    if key in ("box", "lower", "upper", "element_strides", "channels", "pixels"):
        try:
            numbers: Sequence[int] = tuple(int(n) for n in text.split("x"))
        except ValueError:
            raise LaunchError(f"{where}: {key} is {text!r}", hint="numbers are written 64x64") from None
        return numbers[0] if key in ("channels", "pixels") and len(numbers) == 1 else numbers
    return text
