"""Arrays in .npy and .npz files, with the dtypes that NumPy has from ml_dtypes only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mmulator.isa.types import ElementType


def load_file(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """The array of a .npy, or those of a .npz by name. Raises MmulatorError if it cannot be read."""
    from mmulator.jobs.inputs import load_arrays

    return load_arrays(path)


def typed(array: NDArray[Any], element: ElementType, convert: bool) -> NDArray[Any]:
    """An array of an element type.

    Opaque elements, as NumPy saves bf16 and the like, are read as that type. With `convert`, numbers of another dtype are
    rounded to
    the type, and unsigned integers of its size are its raw bits; without it they stay what they are. Raises OperandError if the
    sizes do not fit.
    """
    import numpy as np

    from mmulator.errors import OperandError
    from mmulator.numerics.formats import numpy_dtype

    want: np.dtype[Any] = numpy_dtype(element)
    opaque = array.dtype.kind == "V"
    if opaque and array.dtype.itemsize != want.itemsize:
        raise OperandError(
            f"elements of {array.dtype.itemsize} bytes without a type; .{element} has {want.itemsize}",
            hint="--type says what they are",
        )
    if opaque or (convert and array.dtype == np.dtype(f"u{want.itemsize}") and element.name != f"u{8 * want.itemsize}"):
        return np.ascontiguousarray(array).view(want)
    return array.astype(want) if convert else array


def save_file(path: Path, **arrays: Any) -> None:
    """Write a .npz of arrays by name, or a .npy of the only one. Raises MmulatorError for another name, or no place."""
    import numpy as np

    from mmulator.errors import MmulatorError
    from mmulator.files import replacing

    want = ".npy" if len(arrays) == 1 else ".npz"
    if path.suffix != want:
        raise MmulatorError(f"cannot write {path}: the name must end in {want}")
    with replacing(path) as file:
        if want == ".npy":
            np.save(file, next(iter(arrays.values())))
        else:
            np.savez(file, **arrays)
