"""Instruction descriptors of tcgen05.mma: what encodes decodes, what is reserved is refused by name, tables as data."""

import random
import re
from dataclasses import replace
from itertools import product

import pytest

from mmulator.errors import OperandError
from mmulator.matrix.layouts.instruction_descriptor import (
    FORMATS,
    KINDS,
    SCALED,
    InstructionDescriptor,
    check_scales,
    decode,
    encode,
    implied_k,
    known_m,
    known_n,
)

# Table 39, restated: (kinds, M of one CTA, M of a pair) and N.
FLOAT = ("f16", "tf32", "f8f6f4")
BY_8, BY_16, BY_32 = range(8, 257, 8), range(16, 257, 16), range(32, 257, 32)
INTEGER_N = (8, 16, 24, *range(32, 257, 16))
FLAGS = list(product((False, True), repeat=3))  # pair, ws, sparse


def stated_shapes(kind: str, pair: bool, ws: bool, sparse: bool) -> set[tuple[int, int]]:
    if kind in SCALED:
        ms = () if ws else (256,) if pair and sparse else (128, 256) if pair else (128,)
        return set(product(ms, BY_16 if pair else BY_8))
    if ws:
        return set() if pair else set(product((32, 64, 128), (64, 128) if sparse else (64, 128, 256)))
    if kind == "i8":
        return set(product((128, 256), BY_32)) if pair else set(product((64, 128), INTEGER_N))
    return set(product((128, 256), BY_16)) if pair else set(product((64, 128), BY_8))


# Reserved bits of Tables 42 to 44.
RESERVED = {
    **dict.fromkeys((*FLOAT, "i8"), (6, 23, 29)),
    "mxf8f6f4": (0, 1, 3, 6, 24, 25, 26, 31),
    **dict.fromkeys(("mxf4", "mxf4nvf4"), (0, 1, 3, 6, 12, 24, 25, 26)),
}  # fmt: skip
STARTS = {
    "f16": ("f32", "f16", "f16", ""), "tf32": ("f32", "tf32", "tf32", ""), "f8f6f4": ("f32", "e4m3", "e5m2", ""),
    "i8": ("s32", "s8", "u8", ""), "mxf8f6f4": ("f32", "e4m3", "e2m1", "ue8m0"), "mxf4": ("f32", "e2m1", "e2m1", "ue8m0"),
    "mxf4nvf4": ("f32", "e2m1", "e2m1", "ue4m3"),
}  # fmt: skip


def start(kind: str, pair: bool = False, ws: bool = False, sparse: bool = False) -> InstructionDescriptor:
    m, n = max(stated_shapes(kind, pair, ws, sparse))
    return InstructionDescriptor(kind, *STARTS[kind], m=m, n=n, pair=pair, ws=ws, sparse=sparse)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("pair", "ws", "sparse"), FLAGS)
def test_shapes_are_those_of_the_table(kind: str, pair: bool, ws: bool, sparse: bool) -> None:
    wanted = stated_shapes(kind, pair, ws, sparse)
    found = set()
    for m, n in product(range(0, 513, 16), range(0, 513, 8)):
        try:
            d = InstructionDescriptor(kind, *STARTS[kind], m=m, n=n, pair=pair, ws=ws, sparse=sparse)
        except OperandError as error:
            assert error.rule == "Matrix Shape (PTX ISA 9.1)"
            continue
        assert decode(encode(d), kind, pair=pair, ws=ws, sparse=sparse) == d
        found.add((m, n))
    assert found == wanted
    assert {m for m, _ in wanted} == set(known_m(kind, pair, ws, sparse))
    if wanted:
        assert {n for _, n in wanted} == set(known_n(start(kind, pair, ws, sparse)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("pair", "ws", "sparse"), FLAGS)
def test_decoding_undoes_encoding_of_every_combination(kind: str, pair: bool, ws: bool, sparse: bool) -> None:
    """All values of all fields but m and n at once; each is a descriptor or has an error that names its bits."""
    if not stated_shapes(kind, pair, ws, sparse):
        return
    base = start(kind, pair, ws, sparse)
    free = [f for f in FORMATS[kind] if f.name not in ("m", "n", "sparse")]
    words = set()
    for values in product(*(f.choices.values() for f in free)):
        try:
            d = replace(base, **{"k": 0} | dict(zip((f.name for f in free), values)))
            size = {"mxf8f6f4": 1}.get(kind, 4 if d.stype == "ue4m3" else 2)
            check_scales(d, size)
        except OperandError as error:
            assert re.search(r"\(bits? \d", error.message), error
            continue
        word = encode(d)
        assert decode(word, kind, pair=pair, ws=ws, sparse=sparse, scale_vec=size) == d
        words.add(word)
    assert len(words) >= 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_reserved_bit_is_refused_by_its_number(kind: str) -> None:
    word = encode(start(kind))
    for bit in RESERVED[kind]:
        with pytest.raises(OperandError, match=rf"0x[0-9a-f]{{8}}: bit {bit} is 1: it is reserved for \.kind::{kind} and"):
            decode(word | 1 << bit, kind)
    own = sum(((1 << f.bits) - 1) << f.low for f in FORMATS[kind])
    assert own == (1 << 32) - 1 - sum(1 << bit for bit in RESERVED[kind])


def test_numbers_without_a_meaning_are_refused_by_their_bits() -> None:
    for kind in KINDS:
        word = encode(start(kind))
        for f in FORMATS[kind]:
            for raw in set(range(1 << f.bits)) - set(f.choices):
                said = f"{f.where} ({f.name}) {'are' if f.bits > 1 else 'is'} {raw}: "
                with pytest.raises(OperandError, match=re.escape(said)):
                    decode(word & ~(((1 << f.bits) - 1) << f.low) | raw << f.low, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_any_word_is_refused_or_means_one_thing(kind: str) -> None:
    rng = random.Random(27)
    taken = 0
    for _ in range(4000):
        pair, ws, sparse = rng.choice(FLAGS)
        shapes = sorted(stated_shapes(kind, pair, ws, sparse))
        word = encode(start(kind, pair, ws, sparse)) if shapes else 0
        for _ in range(rng.choice((0, 1, 1, 2, 9))):
            word ^= 1 << rng.randrange(32)
        try:
            d = decode(word, kind, pair=pair, ws=ws, sparse=sparse, scale_vec=4 if kind == "mxf4nvf4" else 0)
        except OperandError as error:
            assert error.message.startswith(f"instruction descriptor {word:#010x}: ") and "PTX ISA" in str(error.rule)
            continue
        assert encode(d) == word and (d.m, d.n) in shapes and (d.pair, d.ws, d.sparse) == (pair, ws, sparse)
        taken += 1
    assert taken > 400


# CUTLASS's unions, mma_sm100_desc.hpp: (name, lowest bit) of what this file's names stand for.
CUTLASS = {
    "selector": 0, "sparse": 2, "saturate": 3, "dtype": 4, "scale_b_id": 4, "atype": 7, "btype": 10, "negate_a": 13,
    "negate_b": 14, "transpose_a": 15, "transpose_b": 16, "n": 17, "stype": 23, "m": 24, "scale_a_id": 29, "max_shift": 30,
    "k": 31,
}  # fmt: skip


def test_fields_lie_where_cutlass_has_them() -> None:
    for kind in KINDS:
        for f in FORMATS[kind]:
            low = CUTLASS[f.name] + (3 if f.name == "m" and kind in SCALED else 0)
            assert f.low == low, (kind, f)
    # make_instr_desc<half_t, half_t, float, 128, 256, K, K> and block scaled <e2m1, e2m1, float, ue4m3, 128, 128>
    assert encode(InstructionDescriptor("f16", "f32", "f16", "f16", m=128, n=256)) == 1 << 4 | 32 << 17 | 8 << 24
    scaled = InstructionDescriptor("mxf4nvf4", "f32", "e2m1", "e2m1", "ue4m3", m=128, n=128)
    assert encode(scaled) == 1 << 7 | 1 << 10 | 16 << 17 | 8 << 24


# relations ------------------------------------------------------------------------------------------------------------
D = InstructionDescriptor
CASES = [
    (lambda: D("f16", "f16", "f16", "bf16"), r"dtype is 'f16' \(bits 4-5\): A and B must be f16 then, and are f16 and bf16"),
    (lambda: D("f16", "f32", "f16", "f16", selector=1), r"selector is 1 \(bits 0-1\): there is one only with \.sp"),
    (lambda: D("f16", "f32", "f16", "f16", max_shift=8), r"max_shift is 8 \(bits 30-31\): there is one only with \.ws"),
    (lambda: D("f16", "f32", "f16", "f16", m=32, ws=True, max_shift=32), r"max_shift is 32 .*: M = 32 takes at most 16"),
    (lambda: D("f8f6f4", "f32", "e2m1", "e4m3", transpose_a=True), r"transpose_a is True \(bit 15\): e2m1 cannot be transposed"),
    (lambda: D("f8f6f4", "f32", "e4m3", "e4m3", n=24, transpose_b=True), r"B of e4m3 transposed takes 16 to 256 in steps of 16"),
    (lambda: D("i8", "s32", "s8", "s8", n=40), r"n is 40 \(bits 17-22\): \.kind::i8 with \.cta_group::1 takes 8, 16, 24, 32, "),
    (lambda: D("f16", "f32", "f16", "f16", pair=True, ws=True), r"there is no \.kind::f16 with \.ws, \.cta_group::2"),
    (lambda: D("mxf4", "f32", "e2m1", "e2m1", "ue8m0", k=96, sparse=True), r"k is 96 \(bit 31\): .* takes 128"),
    (lambda: D("mxf4", "f32", "e2m1", "e2m1", "ue8m0", k=96, pair=True), r"k is 96 \(bit 31\): .* takes 64"),
    (lambda: D("i8", "s32", "s8", "s8", negate_a=True), r"negate_a is True \(bit 13\): .* takes False"),
    (lambda: D("f16", "f32", "f16", "f16", "ue8m0"), r"stype is 'ue8m0': .* takes none"),
    (lambda: D("f32", "f32", "f16", "f16"), r"kind is 'f32': no such kind"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), CASES)
def test_what_no_instruction_has_is_refused(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OperandError, match=message):
        make()


def test_scale_factors_and_their_ids() -> None:
    """Block Scaling for tcgen05.mma; Scale Factor A ID: bytes of a cell, by factors of a row."""
    allowed = {("mxf8f6f4", 0): (0, 1, 2, 3), ("mxf8f6f4", 1): (0, 1, 2, 3), ("mxf4", 0): (0, 2), ("mxf4", 2): (0, 2)}
    allowed |= {("mxf4nvf4", 2): (0, 2), ("mxf4nvf4", 4): (0,)}
    for (kind, size), ids in allowed.items():
        for side, number in product("ab", range(4)):
            d = replace(start(kind), stype="ue8m0", **{f"scale_{side}_id": number})
            if number in ids:
                check_scales(d, size)
            else:
                with pytest.raises(OperandError, match=rf"scale_{side}_id is {number} \(bits "):
                    check_scales(d, size)
    with pytest.raises(OperandError, match=r"stype is 'ue4m3' \(bit 23\): \.scale_vec::2X takes ue8m0"):
        check_scales(start("mxf4nvf4"), 2)
    longer = D("mxf4", "f32", "e2m1", "e2m1", "ue8m0", k=96, scale_a_id=3)
    check_scales(longer, 2)
    with pytest.raises(OperandError, match=r"K = 96 and \.block16 takes 0, 2"):
        check_scales(longer, 4)


def test_what_the_instruction_says_and_the_descriptor_denies() -> None:
    word = encode(start("f16"))
    with pytest.raises(OperandError, match=r"sparse is False \(bit 2\): the instruction has \.sp"):
        decode(word, "f16", sparse=True)
    with pytest.raises(OperandError, match=r"sparse is True \(bit 2\): the instruction has no \.sp"):
        decode(word | 4, "f16")
    for wrong in (-1, 1 << 32, 1.5, None, "0x10"):
        with pytest.raises(OperandError, match="an integer from 0 to"):
            decode(wrong, "f16")  # type: ignore[arg-type]


def test_what_no_source_says_is_named() -> None:
    assert not start("f16", sparse=True).unknown
    assert "sparsity selector 2" in replace(start("f16", sparse=True), selector=2).unknown
    assert not replace(start("f16", sparse=True), selector=1).unknown
    assert not D("mxf4", "f32", "e2m1", "e2m1", "ue8m0", k=96).unknown


def test_k_of_a_kind() -> None:
    """The shapes of tcgen05.mma: 32 bytes of A; a narrow element takes a whole one, but half a one in the kinds of mxf4."""
    k = {"tf32": 8, "f16": 16, "i8": 32, "f8f6f4": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
    assert {kind: (implied_k(kind, False), implied_k(kind, True)) for kind in k} == {kind: (n, 2 * n) for kind, n in k.items()}
