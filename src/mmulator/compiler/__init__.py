"""From a program to machine code: one LLVM function a block of code."""
