"""Liberties that ptxas takes with a kernel, found by experiment: fused products, folded constants, results in flight."""
