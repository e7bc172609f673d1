"""Liberties that ptxas takes with a kernel, found by experiment: functions to functions, in this order.

fold.py      arithmetic with constants is computed, what undoes itself goes; quotient.py: divisions as ptxas writes them
contract.py  which products and sums become one instruction. products.py: what counts as one; regions.py: straight lines of
             the machine code; facts.py: what registers hold; reaching.py: which product, at each place; scale.py: products by
             powers of two; rewrite.py: the function with the choice made
inflight.py  what is computed from accumulators in flight waits for them

What an instruction is to them, its row says (`Effects.ptxas`, `Effects.algebra`). Each instruction of a result knows the one of
the text that it was made from (`Instruction.original`).
"""
