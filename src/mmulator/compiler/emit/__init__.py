"""What the code of a block is written with: values, operands, the kernel around it. Meanings stand on it."""
