"""Arguments of the corpus's launches, as tests/support/inputs.py reads them."""


def arr(dtype, *shape, seed=1, dist="normal"):
    return ["in", dtype, list(shape), {"seed": seed, "dist": dist}]


def out(dtype, *shape):
    return ["out", dtype, list(shape)]


def inout(dtype, *shape, seed=1, dist="bits"):
    return ["inout", dtype, list(shape), {"seed": seed, "dist": dist}]


def bits(dtype, *shape, seed=1):
    return arr(dtype, *shape, seed=seed, dist="bits")
