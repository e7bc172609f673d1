"""What a user holds without a kernel: one matrix instruction on arrays, and whole matrices through one."""

from mmulator.instruction.instruction import Instruction

__all__ = ["Instruction"]
