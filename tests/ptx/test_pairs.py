"""Kernels whose tcgen05 instructions have one .cta_group, and others: verdicts of ptxas 13.5."""

import pytest

from mmulator.base.source import Source
from mmulator.ptx.parser import parse_module
from mmulator.ptx.verify import verify

REGISTERS = ".reg .b32 r<2>; .reg .b64 a; .reg .pred p; .shared .align 128 .b8 s[1024];"
ALLOC = "tcgen05.alloc.cta_group::{}.sync.aligned.b32 [s], 32;"
DEALLOC = "tcgen05.dealloc.cta_group::{}.sync.aligned.b32 r0, 32;"
GIVE_UP = "tcgen05.relinquish_alloc_permit.cta_group::{}.sync.aligned;"
MMA = "tcgen05.mma.cta_group::{}.kind::f16 [r0], a, a, r1, p;"
WEIGHTS = "tcgen05.mma.ws.cta_group::{}.kind::f16 [r0], a, a, r1, p;"
COMMIT = "tcgen05.commit.cta_group::{}.mbarrier::arrive::one.b64 [s];"
COPY = "tcgen05.cp.cta_group::{}.128x256b [r0], a;"
SHIFT = "tcgen05.shift.cta_group::{}.down [r0];"
TENSOR = "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::{} [s], [a, {{r0}}], [s+512];"


def _kernel(name: str, *lines: str) -> str:
    return f".visible .entry {name}() {{ {REGISTERS}\n" + "\n".join(lines) + "\nret; }\n"


def _function(*lines: str) -> str:
    return f".func f() {{ {REGISTERS}\n" + "\n".join(lines) + "\nret; }\n"


CASES = {
    "one group": (_kernel("k", ALLOC.format(2), MMA.format(2), COMMIT.format(2), TENSOR.format(1)), True),
    "tensor copies do not count": (_kernel("k", TENSOR.format(2), TENSOR.format(1), ALLOC.format(1)), True),
    "two kernels": (_kernel("k", MMA.format(1)) + _kernel("m", MMA.format(2)), True),
    "a function that no kernel calls": (_function(MMA.format(2), ALLOC.format(1)) + _kernel("k", MMA.format(1)), True),
    "a function": (_function(MMA.format(2)) + _kernel("k", MMA.format(1), "call f, ();"), False),
    "within a function": (_function(MMA.format(2), ALLOC.format(1)) + _kernel("k", "call f, ();"), False),
    "behind the end": (_kernel("k", MMA.format(1), "ret;", MMA.format(2)), False),
    **{
        line.partition("{")[0]: (_kernel("k", line.format(1), ALLOC.format(2)), False)
        for line in (ALLOC, DEALLOC, GIVE_UP, MMA, WEIGHTS, COMMIT, COPY, SHIFT)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_group_in_a_kernel(name: str) -> None:
    text, legal = CASES[name]
    errors = verify(parse_module(Source("p.ptx", f".version 9.3\n.target sm_100a\n.address_size 64\n{text}")))
    assert legal == (not errors)
    for error in errors:
        assert "must have one .cta_group" in error.message and "CTA pair" in (error.rule or "")
