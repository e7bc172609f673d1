"""A kernel as basic blocks, registers and memory: the analyses between the PTX tree and the compiler. Nothing here depends on
LLVM.

blocks.py     functions as numbered basic blocks: the `Program`
calls.py      the call graph, and the places of frames; frames.py: registers in frames; image.py: variables
uses.py       the registers that an instruction reads and writes, and the operands of a call
flow.py       the fixpoints of all analyses
addresses.py  the address space
counts.py     how instructions count in a report
runnable.py   instructions that the machine cannot run, and the reasons
as_ptxas/     changes that ptxas makes to a kernel
"""
