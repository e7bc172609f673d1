"""A kernel as the machine sees it. No LLVM in here.

blocks.py     functions as numbered basic blocks: the `Program`
calls.py      who calls whom, and where frames lie; frames.py: registers in them; image.py: variables
uses.py       what an instruction reads and writes; operands.py: what a call passes
addresses.py  the address space
counts.py     how instructions count in a report
runnable.py   what cannot be run, and why
as_ptxas/     liberties that ptxas takes
"""
