"""Approximate functions in plain integers: rcp, rsqrt, sqrt, lg2, ex2, sin, cos, tanh, div.approx, div.full.

tables.py      the coefficients of a chip, and which chip a device computes with
unit.py        the special-function unit
operations.py  the instructions: the unit, with what ptxas puts around it
"""
