"""The vocabulary of meanings: binding of functions to rows, lane-wise functions, operands, bits of small formats."""
