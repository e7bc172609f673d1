"""Changes that ptxas makes to a kernel, found by experiment: each file rewrites a function, in this order.

used_bytes.py  leaves out elements that a load does not use
fold.py      computes arithmetic with constants and removes operations that cancel; quotient.py: divisions as ptxas writes them
contract.py  fuses products and sums. products.py: what counts as a product; regions.py: straight lines of the machine code;
             facts.py: constants and definitions, and the product in a register at each place; rewrite.py: the function with the
             choice made
inflight.py  delays computations from accumulators in flight

The rows of instructions state how these files treat them (`Effects.ptxas`, `Effects.algebra`). Each instruction of a result
refers to the instruction of the text from which it was made (`Instruction.original`).
"""
