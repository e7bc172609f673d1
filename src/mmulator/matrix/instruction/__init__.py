"""The API for single matrix instructions without a kernel: one instruction on arrays, and products of whole matrices."""

from mmulator.matrix.instruction.instruction import Instruction

__all__ = ["Instruction"]
