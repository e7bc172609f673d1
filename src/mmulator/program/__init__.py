"""A kernel as the machine sees it: blocks of code, what each instruction reads and writes, what ptxas does. No LLVM in here."""
