"""PTX written by hand: the file is the source."""


def case(name, file, block, args, **more):
    return {"name": name, "entry": name, "file": file, "grid": [1, 1, 1], "block": [block, 1, 1], "args": args, **more}


BITS = {"seed": 1, "dist": "bits"}
CASES = [
    case("literals", "syntax.ptx", 16, [["out", "u32", [16, 20]], 4711]),
    case("variables", "syntax.ptx", 32, [["out", "u32", [32, 12]]], shared=64),
    case("branches", "syntax.ptx", 32, [["in", "u32", [32], BITS], ["out", "u32", [32]]]),
    case("calling", "calls.ptx", 32, [["in", "u32", [32], BITS], ["out", "u32", [32, 8]]]),
    case("results", "results.ptx", 32, [["in", "u32", [32], BITS], ["out", "u32", [32, 2]]]),
    case("hints", "hints.ptx", 128, [["in", "u32", [128, 4], BITS], ["out", "u32", [128, 8]]]),
]
