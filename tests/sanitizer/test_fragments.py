"""program/fragments.py: what registers hold of wmma fragments, by the text alone; and what the corpus does not show."""

from __future__ import annotations

from mmulator import Module
from mmulator.program.blocks import build
from mmulator.program.fragments import Misuse, fragments_of

A, B = "{%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}", "{%b0, %b1, %b2, %b3, %b4, %b5, %b6, %b7}"
C, D = "{%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7}", "{%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}"
LOADS = f"""
    wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {A}, [%p];
    wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {B}, [%p];
    wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {C}, [%p];
"""
MMA = f"wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {D}, {A}, {B}, {C};"
STORE = f"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%p], {D};"


def found(body: str) -> list[tuple[Misuse, str, int]]:
    """What is wrong in a kernel: misuse, operand, register."""
    text = f"""
    .version 8.3
    .target sm_90a
    .address_size 64
    .visible .entry k(.param .u64 in) {{
        .reg .b64 %p;
        .reg .b32 %a<8>, %b<8>, %n, %lane;
        .reg .f32 %c<8>, %d<8>, %s, %t;
        .reg .pred %q;
        ld.param.u64 %p, [in];
        ld.param.u32 %n, [in];
        {body}
        ret;
    }}"""
    module = Module.load(text)
    function = build(module.tree, module.tree.entries[0]).entry
    return [(w.misuse, w.name, w.slot) for wrong in fragments_of(function).wrong.values() for w in wrong]


def each(statement: str) -> str:
    return "\n".join(statement.replace("?", str(n)) for n in range(8))


def test_what_is_done_to_all_alike_is_right() -> None:
    assert not found(LOADS + MMA + each("mul.f32 %d?, %d?, 0f40000000;") + each("fma.rn.f32 %d?, %c?, %s, %d?;") + STORE)


def test_sums_over_elements_are_no_fragment() -> None:
    """What is computed of several elements may be stored by whoever likes; as a fragment it is unknown."""
    assert not found(LOADS + MMA + "add.f32 %s, %d0, %d1; st.global.f32 [%p], %s;" + STORE)


def test_ways_that_meet_with_different_values_are_not_judged() -> None:
    assert not found(LOADS + MMA + "setp.ne.u32 %q, %n, 0; @%q bra over;" + "mul.f32 %d0, %d0, %s; over:" + STORE)
    assert not found(LOADS + MMA + "setp.ne.u32 %q, %n, 0; @%q mov.f32 %d0, %d1;" + STORE)


def test_what_went_through_other_lanes_or_memory_is_not_judged() -> None:
    assert not found(LOADS + MMA + "shfl.sync.bfly.b32 %d0, %d1, 1, 31, -1; ld.global.f32 %d1, [%p];" + STORE)


def test_accumulators_that_begin_as_constants_in_a_loop() -> None:
    loop = "more:" + LOADS.replace(C, D) + MMA.replace(C, D) + "sub.u32 %n, %n, 1; setp.ne.u32 %q, %n, 0; @%q bra more;"
    assert not found(each("mov.f32 %d?, 0f00000000;") + loop + STORE)


def test_one_element_that_is_a_constant() -> None:
    assert found(LOADS + MMA + "mov.f32 %d3, 0f00000000;" + STORE) == [(Misuse.UNEVEN, "d", 0)]


def test_copies_keep_what_they_copy() -> None:
    swap = "mov.f32 %s, %d2; mov.f32 %d2, %d5; mov.f32 %d5, %s;"
    assert found(LOADS + MMA + swap + STORE) == [(Misuse.REORDERED, "d", 2)]
    assert not found(LOADS + MMA + swap + swap + STORE)


def test_the_fragment_that_is_used_counts_not_the_one_before() -> None:
    again = LOADS.replace(".row.m16n16k16.global.f16", ".col.m16n16k16.global.f16")
    assert found(again + MMA) == [(Misuse.LAYOUT, "a", 0)]
    assert not found(again + LOADS + MMA)
