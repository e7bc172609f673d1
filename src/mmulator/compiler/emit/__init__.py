"""The tools that write a block's code: values, operands, and the kernel around the block. The meanings of instructions use
them.
"""
