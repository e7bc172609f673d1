"""The places of elements: register fragments, swizzles, matrix descriptors, sparsity metadata. Pure functions in both
directions.
"""

from mmulator.matrix.layouts.descriptors import MatrixDescriptor, operand_addresses
from mmulator.matrix.layouts.fragments import Fragment
from mmulator.matrix.layouts.operands import element_of, fragment
from mmulator.matrix.layouts.swizzle import SWIZZLES, Swizzle, swizzle

__all__ = ["SWIZZLES", "Fragment", "MatrixDescriptor", "Swizzle", "element_of", "fragment", "operand_addresses", "swizzle"]
