"""Two kernels, the same or not: each stored element as an expression of the inputs, graded for all values at one size."""
