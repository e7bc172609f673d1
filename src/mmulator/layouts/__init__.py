"""The places of elements: register fragments, swizzles, matrix descriptors, sparsity metadata. Pure functions in both
directions.
"""

from mmulator.layouts.descriptors import MatrixDescriptor, operand_addresses
from mmulator.layouts.fragments import Fragment
from mmulator.layouts.operands import element_of, fragment
from mmulator.layouts.swizzle import SWIZZLES, Swizzle, swizzle

__all__ = ["SWIZZLES", "Fragment", "MatrixDescriptor", "Swizzle", "element_of", "fragment", "operand_addresses", "swizzle"]
