"""PTX written by hand: the file is the source."""

from tests.kernels.arguments import bits, out


def case(name, file, block, args, **more):
    return {"name": name, "entry": name, "file": file, "grid": [1, 1, 1], "block": [block, 1, 1], "args": args, **more}


CASES = [
    case("literals", "syntax.ptx", 16, [out("u32", 16, 20), 4711]),
    case("variables", "syntax.ptx", 32, [out("u32", 32, 12)], shared=64),
    case("branches", "syntax.ptx", 32, [bits("u32", 32), out("u32", 32)]),
    case("calling", "calls.ptx", 32, [bits("u32", 32), out("u32", 32, 8)]),
    case("results", "results.ptx", 32, [bits("u32", 32), out("u32", 32, 2)]),
    case("hints", "hints.ptx", 128, [bits("u32", 128, 4), out("u32", 128, 8)]),
]
