"""Tensor maps: the 128 bytes that describe a tensor and a box of it to the tensor copies, and the places of its elements.

`TensorMap` is the object that users hold, in the array's own order (outermost dimension first). All other files use the
hardware's order, in which dimension 0 is the innermost: `Encoded` is the content of the 128 bytes, `fields` their format,
`places` the model of a copy. Tensors, Tensor-map (PTX ISA 9.1); cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col (CUDA driver
API).
"""

from mmulator.matrix.layouts.tensormap.encoded import Encoded
from mmulator.matrix.layouts.tensormap.places import OUTSIDE, Places, places
from mmulator.matrix.layouts.tensormap.tensor_map import TensorMap

__all__ = ["OUTSIDE", "Encoded", "Places", "TensorMap", "places"]
