"""What meanings are written with: how a function is bound to its rows, lane-wise functions, operands, bits of small formats."""
