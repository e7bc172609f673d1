"""Which mma of a block are done together."""

import pytest

from mmulator.base.source import Source
from mmulator.matrix.twin.wide import widens
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.blocks import build
from mmulator.ptx.program.frames import liveness
from mmulator.ptx.program.products import LONGEST_CHAIN, ProductGroup, delay, groups

HEAD = ".version 8.7\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n.reg .b32 %a<64>, %b<64>, %u;"
DECLARED = ".reg .f32 %f<256>; .reg .pred %q; .reg .b64 %p; mov.u32 %u, %tid.x; setp.eq.u32 %q, %u, 77;\n"
SMALL = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"


def mma(d: int, a: int, b: int, c: int | None = None) -> str:
    """D in accumulator d, A in fragment a and so on."""
    four = ["{" + ", ".join(f"%f{4 * x + i}" for i in range(4)) + "}" for x in (d, d if c is None else c)]
    return f"{SMALL} {four[0]}, {{%a{2 * a}, %a{2 * a + 1}}}, {{%b{b}}}, {four[1]};"


def found(*lines: str, live: str = "") -> list[ProductGroup]:
    """Groups of a kernel's block that begins with the first mma. live: lines behind a barrier."""
    text = "\n".join((HEAD, DECLARED, *lines, f"bar.sync 0; {live} ret; }}"))
    tree = parse_module(Source("k.ptx", text))
    program = build(tree, tree.functions[0])
    block = next(b for b in program.blocks if any(i.opcode == "mma" for i in b.body))
    out = liveness(program.entry).out[block.index]
    return groups(block, out, lambda ins: ins.effects.multiplies and widens(ins.form))


def shapes(found: list[ProductGroup]) -> list[list[tuple[int, int, int]]]:
    return [[(t.rows, t.columns, t.steps) for t in g.tiles] for g in found]


def grid(rows: int, columns: int, step: int = 0) -> list[str]:
    return [mma(r * columns + c, r + 8 * step, c + 8 * step) for r in range(rows) for c in range(columns)]


def test_products_that_share_a_and_b_are_a_tile_and_steps_along_k_a_chain() -> None:
    assert shapes(found(*grid(2, 3))) == [[(2, 3, 1)]]
    assert shapes(found(*grid(2, 3), *grid(2, 3, 1), "mov.b32 %a40, %u;", *grid(2, 3, 2))) == [[(2, 3, 3)]]
    (group,) = found(*grid(2, 2), *grid(2, 2, 1))
    assert group.tiles[0].products == (((0, 4), (1, 5)), ((2, 6), (3, 7))) and (group.first, group.last) == (0, 7)


def test_rows_with_other_columns_are_tiles_of_their_own() -> None:
    assert shapes(found(mma(0, 0, 0), mma(1, 0, 1), mma(2, 1, 0), mma(3, 1, 2))) == [[(1, 2, 1), (1, 2, 1)]]
    assert shapes(found(mma(0, 0, 0), mma(1, 1, 1))) == [[(1, 1, 1), (1, 1, 1)]]
    assert shapes(found(mma(0, 0, 0), mma(1, 0, 0))) == [[(1, 1, 1), (1, 1, 1)]]  # the same product, other C


def test_a_register_that_was_written_in_between_is_another_operand() -> None:
    assert shapes(found(mma(0, 0, 0), "mov.b32 %a0, %u;", mma(1, 0, 1))) == [[(1, 1, 1), (1, 1, 1)]]
    assert shapes(found(mma(0, 0, 0), "mov.b32 %b7, %u;", mma(1, 0, 1))) == [[(1, 2, 1)]]


def test_who_reads_or_writes_a_result_comes_behind_the_group() -> None:
    two = mma(0, 0, 0), mma(2, 0, 1)
    for line in ("add.f32 %f99, %f1, %f1;", "mov.f32 %f1, 0f00000000;", "@%q mov.f32 %f3, %f99;", "mov.b32 %a0, %f0;",
                 "st.shared.f32 [%u], %f2;"):  # fmt: skip
        assert shapes(found(two[0], line, two[1])) == [[(1, 1, 1)], [(1, 1, 1)]], line
    for line in ("add.f32 %f99, %f98, %f98;", "ld.shared.b32 %a9, [%u];", "mov.b32 %a0, %a0;"):
        assert len(found(two[0], line, two[1])) == 1, line


def test_a_chain_ends_where_what_is_between_its_steps_is_still_needed() -> None:
    onward = mma(1, 1, 1, 0)  # takes D of the first as C, and writes other registers
    assert shapes(found(mma(0, 0, 0), onward)) == [[(1, 1, 2)]]
    assert shapes(found(mma(0, 0, 0), onward, live="st.shared.f32 [%u], %f0;")) == [[(1, 1, 1)], [(1, 1, 1)]]
    assert shapes(found(mma(0, 0, 0), onward, "add.f32 %f99, %f2, %f2;")) == [[(1, 1, 1)], [(1, 1, 1)]]
    assert shapes(found(mma(0, 0, 0), onward, "@%q mov.f32 %f2, %f99;")) == [[(1, 1, 1)], [(1, 1, 1)]]
    assert shapes(found(mma(0, 0, 0), onward, mma(2, 1, 2, 0))) == [[(1, 1, 1)], [(1, 2, 1)]]  # two take it


def test_a_result_over_what_another_product_was_given_comes_later() -> None:
    assert shapes(found(mma(0, 0, 0, 5), mma(5, 0, 1, 6))) == [[(1, 1, 1)], [(1, 1, 1)]]  # over its C
    assert shapes(found(mma(0, 0, 0, 5), mma(1, 0, 1, 5), mma(5, 0, 2, 5))) == [[(1, 2, 1)], [(1, 1, 1)]]
    swapped = mma(1, 2, 3, 0).replace("%f4,", "%f3,", 1)
    assert len(found(mma(0, 0, 0), swapped)) == 2  # D overlaps its C, but is not in its place


def test_other_forms_guards_and_long_chains() -> None:
    other = mma(3, 0, 1).replace("m16n8k8.row.col.f32.f16.f16", "m16n8k8.row.col.f32.bf16.bf16")
    assert shapes(found(mma(0, 0, 0), other, mma(1, 0, 1))) == [[(1, 1, 1)]] * 3
    assert shapes(found(*[mma(0, n, n) for n in range(LONGEST_CHAIN + 1)])) == [[(1, 1, LONGEST_CHAIN)], [(1, 1, 1)]]
    assert found(f"@%q {mma(0, 0, 0)}") == []


def test_sparse_products_share_metadata_and_selector_and_make_no_chains() -> None:
    def sparse(d: int, a: int, b: int, e: str, f: int) -> str:
        dense = mma(d, a, b).replace("mma.sync.aligned.m16n8k8", "mma.sp::ordered_metadata.sync.aligned.m16n8k16")
        return dense.replace(f"{{%b{b}}}", f"{{%b{b}, %b{b + 1}}}").replace(";", f", %{e}, {f};")

    assert shapes(found(sparse(0, 0, 0, "a9", 0), sparse(1, 0, 2, "a9", 0))) == [[(1, 2, 1)]]
    assert shapes(found(sparse(0, 0, 0, "a9", 0), sparse(1, 0, 2, "a8", 0))) == [[(1, 1, 1), (1, 1, 1)]]
    assert shapes(found(sparse(0, 0, 0, "a9", 0), sparse(1, 0, 2, "a9", 1))) == [[(1, 1, 1)], [(1, 1, 1)]]
    assert shapes(found(sparse(0, 0, 0, "a9", 0), sparse(0, 1, 2, "a9", 0))) == [[(1, 1, 1)], [(1, 1, 1)]]


# behind barriers --------------------------------------------------------------------------------------------------------
BARRIER = "bar.sync 0;"
LOAD = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%a60}, [%u];"  # from here on the warp is together


def delayed(*lines: str) -> list[list[str]]:
    """The accumulators of the products of each block that has some, in their order, after `delay`."""
    text = "\n".join((HEAD.replace(".visible", ".func f() { ret; }\n.visible"), DECLARED, LOAD, *lines, "ret; }"))
    tree = parse_module(Source("k.ptx", text))
    program = build(tree, tree.functions[-1])
    delay(program.entry)
    bodies = ([i for i in b.body if i.opcode == "mma"] for b in program.blocks)
    return [[ins.operands[0].elements[0].name for ins in body] for body in bodies if body]  # type: ignore[union-attr]


def test_products_go_behind_a_barrier_to_those_that_add_to_them() -> None:
    assert delayed(*grid(1, 2), BARRIER, LOAD, *grid(1, 2, 1)) == [["%f0", "%f4", "%f0", "%f4"]]
    assert delayed(*grid(1, 2), BARRIER, BARRIER, LOAD, *grid(1, 2, 1)) == [["%f0", "%f4", "%f0", "%f4"]]
    assert delayed(mma(0, 0, 0), BARRIER, LOAD, mma(0, 0, 0), BARRIER, mma(0, 1, 1)) == [["%f0", "%f0", "%f0"]]
    assert delayed(mma(2, 0, 0, 3), mma(0, 1, 1, 2), BARRIER, mma(1, 1, 1, 0)) == [["%f8", "%f0", "%f4"]]  # D of the first is C
    assert delayed(mma(0, 0, 0), mma(9, 0, 0), BARRIER, mma(0, 1, 1)) == [["%f36"], ["%f0", "%f0"]]  # none adds to the other


@pytest.mark.parametrize("line", [
    "mov.b32 %a0, %u;", "mov.b32 %b0, %u;", "mov.f32 %f1, %f90;", "mov.f32 %f90, %f1;", "st.shared.f32 [%u], %f1;",
    "@%q bra L; L:", "call f;", "@%q ld.shared.b32 %a0, [%u];", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%a0}, [%u];",
])  # fmt: skip
def test_products_stay_before_what_touches_their_registers_and_before_branches(line: str) -> None:
    for lines in ((line, BARRIER), (BARRIER, line)):
        assert delayed(mma(0, 0, 0), *lines, LOAD, mma(0, 1, 1)) == [["%f0"], ["%f0"]], lines
