"""Approximate functions in plain integers: rcp, rsqrt, sqrt, lg2, ex2, sin, cos, tanh, div.approx, div.full.

tables.py      the coefficients of a chip, and the choice of a chip for each device
arithmetic.py  multiplication and rounding of f32
constants.py   the values that ptxas computes for constants
"""
