"""Tensor maps: the 128 bytes that describe a tensor and a box of it to the tensor copies, and where each element lands.

`TensorMap` is what a user holds, in the array's own order (outermost dimension first). Everything below it is in the
hardware's order, dimension 0 the innermost: `Encoded`, what the 128 bytes say; `fields`, where they say it; `places`, the
model of a copy. Tensors, Tensor-map (PTX ISA 9.1); cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col (CUDA driver API).
"""

from mmulator.layouts.tensormap.encoded import Encoded
from mmulator.layouts.tensormap.places import OUTSIDE, Places, places
from mmulator.layouts.tensormap.tensor_map import TensorMap

__all__ = ["OUTSIDE", "Encoded", "Places", "TensorMap", "places"]
