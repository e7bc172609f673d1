"""Variables of programs that nvcc compiled with -G: in registers, here and there in others, in memory, in their blocks."""

import mmulator as mm
from mmulator.ptx.program.dwarf import PlacedVariable, visible

KERNEL = """.version 8.0
.target sm_80, debug
.address_size 64
.visible .entry k(.param .u64 k_param_0)
{
.local .align 4 .b8 __local_depot0[16];
.reg .b32 %r<3>;
$L__begin:
mov.u32 %r1, %tid.x;
$L__inner:
add.s32 %r2, %r1, 1;
$L__after:
mul.lo.s32 %r2, %r1, 1;
$L__end:
ret;
$L__last:
}
.section .debug_loc
{
.b64 $L__begin
.b64 $L__inner
LOC1.b64 $L__inner
.b64 $L__last
LOC2.b64 0
.b64 0
}
.section .debug_abbrev
{
ABBREV}
.section .debug_info
{
INFO}
"""


def leb(number: int) -> list[int]:
    return [number & 127 | 128, *leb(number >> 7)] if number > 127 else [number]


def register(name: str) -> list[int]:
    return [0x90, *leb(int.from_bytes(name.encode(), "big"))]


def lines(*parts: object) -> str:
    """Directives: bytes of lists and of texts that end in 0; other texts as they are."""
    return "".join(p if isinstance(p, str) else f".b8 {','.join(map(str, p))}\n" for p in parts)  # type: ignore[arg-type]


def name(text: str) -> list[int]:
    return [*text.encode(), 0]


def module() -> str:
    abbreviations = {
        1: (0x11, 1, (3, 8)), 2: (0x2E, 1, (0x11, 1), (0x12, 1), (0x2007, 8)), 3: (0x34, 0, (2, 10), (3, 8), (0x49, 0x13)),
        4: (0x0B, 1, (0x11, 1), (0x12, 1)), 5: (0x24, 0, (3, 8), (0x3E, 11), (11, 11)), 6: (0x0F, 0, (0x49, 0x13)),
        7: (0x34, 0, (2, 6), (3, 8), (0x49, 0x13)), 8: (1, 0, (0x49, 0x13)),
    }  # fmt: skip
    abbrev = [b for code, (tag, inner, *pairs) in abbreviations.items()
              for b in (code, tag, inner, *(x for pair in (*pairs, (0, 0)) for n in pair for x in leb(n)))]  # type: ignore[union-attr]  # fmt: skip
    kinds, at = {}, 11 + 1 + 5
    types = []
    for kind, code, encoding, size in (("int", 5, 5, 4), ("unsigned int", 5, 7, 4), ("double", 5, 4, 8)):
        kinds[kind] = at
        types += [code, *name(kind), encoding, size]
        at = 11 + 1 + 5 + len(types)
    kinds["pointer"], kinds["array"] = at, at + 5
    variable = lambda place, of, kind: lines([3, len(place)], place, name(of), f".b32 {kinds[kind]}\n")  # noqa: E731
    address = lambda symbol, offset: lines([3, 9 + 2 * bool(offset), 3], f".b64 {symbol}\n", [0x23, offset] if offset else [])  # noqa: E731
    info = lines(
        ".b32 999\n", [2, 0], ".b32 .debug_abbrev\n", [8], [1], name("k.cu"), types,
        [6], f".b32 {kinds['int']}\n", [8], f".b32 {kinds['int']}\n",
        [2], ".b64 $L__begin\n.b64 $L__last\n", name("k"),
        address("k_param_0", 0), name("x"), f".b32 {kinds['pointer']}\n", variable(register("%r1"), "i", "int"),
        address("__local_depot0", 8), name("few"), f".b32 {kinds['array']}\n", [7], ".b32 .debug_loc\n", name("j"),
        f".b32 {kinds['unsigned int']}\n", [4], ".b64 $L__inner\n.b64 $L__after\n", variable(register("%r2"), "deep", "double"),
        [0, 0, 0],
    )  # fmt: skip
    places = (lines([len(register(r)), 0], register(r)) for r in ("%r1", "%r2"))
    text = KERNEL.replace("ABBREV", lines([*abbrev, 0])).replace("INFO", info.replace(".b8 \n", ""))
    return text.replace("LOC1", next(places)).replace("LOC2", next(places))


def test_variables_are_where_the_program_stands() -> None:
    function = mm.Module.load(module(), name="k.ptx")["k"].function
    known = [visible(function, ins.span.start) for ins in function.instructions]
    always = {"x": PlacedVariable("", "k_param_0", 0, "b64"), "i": PlacedVariable("%r1", "", 0, "s32"),
              "few": PlacedVariable("", "__local_depot0", 8, "")}  # fmt: skip
    second = {**always, "j": PlacedVariable("%r2", "", 0, "u32")}
    assert known[0] == {**always, "j": PlacedVariable("%r1", "", 0, "u32")}
    assert known[1] == {**second, "deep": PlacedVariable("%r2", "", 0, "f64")} and known[2] == second


def test_what_is_no_debugging_information_says_nothing() -> None:
    text = module()
    for cut in (text[: text.index(".section .debug_abbrev")], text.replace(".b8 8\n", ".b8 8,1\n")):
        function = mm.Module.load(cut, name="k.ptx")["k"].function
        assert not visible(function, function.instructions[0].span.start).keys() - {"x", "i", "few", "j"}
