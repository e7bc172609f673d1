"""The compiler: from a program to machine code, with one LLVM function for each basic block."""
