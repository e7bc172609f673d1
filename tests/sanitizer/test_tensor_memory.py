"""Tensor memory: products of every kind have no findings, each trap of ptxas is a rule, and what is not waited for is found."""

import re
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.base.rules import RULES, TOPICS
from mmulator.matrix.layouts.instruction_descriptor import KINDS
from tests.support import breaches, places
from tests.support.tensor_cases import draw, make, scale_factors
from tests.support.tensor_kernels import run

FILES = {file.stem: file for file in breaches.files("tensor_memory")}


@pytest.mark.parametrize("kind", KINDS)
def test_products_have_no_findings(kind: str) -> None:
    rng = np.random.default_rng([0, KINDS.index(kind)])
    d = draw(rng, kind=kind)
    case = make(rng, d, scale_factors(rng, d), not d.ws and not d.transpose_a)
    assert np.array_equal(run(case.product, case.before, seed=1, sanitize="raise"), case.behind)


# What ptxas -G puts into a kernel as traps: the page's table names our rule, and a change of the corpus breaks it.
TRAPS = {
    "access_out_of_physical_bounds": ("columns", "physical"),
    "allocation_granularity_invalid": ("pair_products", "odd_columns"),
    "col_being_dealloced_not_returned_by_alloc": ("columns", "inside"),
    "current_warp_owner_invalid": ("columns", "quarter"),
    "invalid_datapath_alignment": ("columns", "between_lanes"),
    "phase_invalid_during_alloc": ("columns", "relinquished"),
    "sparse_mismatch_between_idesc_mod": ("sparse", "dense"),
    "unallocated_columns_access": ("columns", "given_back"),
    "unallocated_columns_being_dealloced": ("columns", "twice"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_each_trap_of_ptxas_is_a_rule(trap: str) -> None:
    page = (places.ROOT / "docs/explanation/tensor-memory.md").read_text()
    named = re.search(rf"\| `{trap}` \| `([\w-]+)` \|", page)
    assert named and named[1] in RULES
    file, change = TRAPS[trap]
    assert breaches.rules_found(breaches.launch(FILES[file], change)) == {named[1]}


def test_the_table_of_traps_is_complete() -> None:
    page = (places.ROOT / "docs/explanation/tensor-memory.md").read_text()
    assert sorted(re.findall(r"^\| `([a-z_]{20,})` \|", page, re.MULTILINE)) == sorted(TRAPS)


# Titles of sections of chapter 9.7.16 of the PTX ISA, 9.1, that state the rules.
TITLES = {
    "TensorCore 5th Generation Family Instructions", "Tensor Memory Addressing", "CTA Pair", "Shared memory descriptor",
    "Tensor Memory Allocation and Management Instructions", "Tensor Memory and Register Load/Store Instructions",
    "Access restrictions", "Memory Consistency Model for 5th generation of TensorCore operations",
    "Pipelined tcgen05 Instructions", "Specialized Inter-thread Synchronization for tcgen05 instructions",
    "Canonical synchronization patterns", "mbarrier based completion mechanism",
    "tcgen05.wait instruction based completion mechanism",
}  # fmt: skip


@pytest.mark.parametrize("rule", TOPICS["tensor_memory"], ids=lambda r: r.name)
def test_rules_name_sections_that_exist(rule: Any) -> None:
    document, _, sections = rule.section.partition(", ")
    assert document == "PTX ISA 9.1" and set(re.split(": |; ", sections)) <= TITLES


# What a tcgen05.ld or st that is not waited for may be in the way of. The columns, 0 to 7, have been written before.
LATE = {
    "ld": "tcgen05.ld.sync.aligned.32x32b.x8.b32 {%x0, %x1, %x2, %x3, %x4, %x5, %x6, %x7}, [%r9];",
    "st": "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r9], {%x0, %x1, %x2, %x3, %x4, %x5, %x6, %x7};",
}
PRODUCTS = {
    "accumulator": "tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd3, %rd4, 0x08040010, %p3;",
    "A": "tcgen05.mma.cta_group::1.kind::f16 [%r8 + 32], [%r8], %rd4, 0x08040010, %p3;",
    "factors": "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%r8 + 32], %rd3, %rd4, 0x08880000, [%r8], "
    "[%r8 + 4], %p3;",
    "metadata": "tcgen05.mma.sp.cta_group::1.kind::f16 [%r8 + 32], %rd3, %rd4, [%r8], 0x08040014, %p3;",
    "cp": "tcgen05.cp.cta_group::1.128x256b [%r8], %rd3;",
    "shift": "tcgen05.shift.cta_group::1.down [%r8];",
}
SECOND = {**LATE, **{name: f"@%p2 bra issued; {text} issued:" for name, text in PRODUCTS.items()}}
READERS = {"ld", "A", "factors", "metadata"}


def late(first: str, wait: str, second: str) -> frozenset[str]:
    """The rules that are broken by an access to columns behind another one."""
    head, _, _ = breaches.text(FILES["operand_cells"]).partition("	@%p2 bra first;")
    whole = ", ".join(["%r6"] * 32)
    fill = "".join(f"tcgen05.st.sync.aligned.32x32b.x32.b32 [%r9 + {n}], {{{whole}}};\n" for n in (0, 32))
    meet = "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;\n"
    wait_all = "tcgen05.wait::ld.sync.aligned; tcgen05.wait::st.sync.aligned;\n"
    text = f"""{head}mov.b32 %r6, 0x44444444; {fill}{wait_all}{meet}
    mov.b32 %x0, %r6; mov.b32 %x1, %r6; mov.b32 %x2, %r6; mov.b32 %x3, %r6;
    mov.b32 %x4, %r6; mov.b32 %x5, %r6; mov.b32 %x6, %r6; mov.b32 %x7, %r6;
    {first} {wait} {meet} {second}
    @%p2 bra over; tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r3];
    over: mbarrier.try_wait.parity.shared.b64 %p0, [%r3], 0; @!%p0 bra over;
    {wait_all} {meet} @%p1 bra done; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 64; done: ret;\n}}"""
    (kernel,) = mm.Module.load(text).values()
    report = kernel.launch(1, 128, [np.zeros(4096, np.float32)], shared=8192, sanitize="strict")
    return breaches.rules_found(report)


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", LATE)
def test_each_access_behind_a_load_or_store_needs_its_wait(first: str, second: str) -> None:
    """tcgen05.ld and st are carried out where they stand; what could go wrong on a chip, where they come later, is found."""
    meets = not (first == "ld" and second in READERS)
    own = "tensor-order-not-promised" if second == "st" else "tensor-wait-missing"
    assert late(LATE[first], "", SECOND[second]) == (frozenset({own}) if meets else frozenset())
    assert not late(LATE[first], f"tcgen05.wait::{first}.sync.aligned;", SECOND[second])
