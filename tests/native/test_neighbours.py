"""Loads of neighbouring words by each lane, done together, against the same loads done one by one."""

import numpy as np
import pytest

from mmulator.base.source import Source
from mmulator.compiler.meaning import memory
from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.blocks import build
from mmulator.ptx.program.uniform import neighbours

HEAD = ".version 8.7\n.target sm_80\n.address_size 64\n"


def kernel(body: str) -> str:
    return HEAD + """.visible .entry k(.param .u64 p, .param .u64 out, .param .u64 at, .param .u32 live)
{
.reg .b32 %a<20>, %t, %bit, %live; .reg .b64 %p, %o, %at, %b; .reg .pred %q; .shared .align 4 .b8 s[4096];
mov.u32 %t, %tid.x; ld.param.u64 %p, [p]; ld.param.u64 %o, [out]; ld.param.u64 %at, [at]; ld.param.u32 %live, [live];
mad.wide.u32 %at, %t, 8, %at; ld.global.u64 %b, [%at]; add.u64 %p, %p, %b; mad.wide.u32 %o, %t, 4, %o;
shl.b32 %bit, 1, %t; and.b32 %bit, %bit, %live; setp.eq.u32 %q, %bit, 0; @%q bra END;
""" + body + "\nEND: ret;\n}\n"  # fmt: skip


def loads(offsets: list[int]) -> str:
    every = [*enumerate(offsets)]
    reads = " ".join(f"ld.global.b32 %a{n}, [%p+{at}];" for n, at in every)
    return reads + " ".join(f"st.global.b32 [%o+{128 * n}], %a{n};" for n, _ in every)


def run(text: str, given: np.ndarray, places: np.ndarray, live: int) -> tuple[np.ndarray, str]:
    out = np.zeros((20, 32), np.uint32)
    try:
        Module.load(text)["k"].launch(1, 32, [given, out, places, live], timeout=600)
    except ExecutionFault as fault:
        return out, str(fault)
    return out, ""


OFFSETS = [[0, 4], [8, 0, 4], [0, 4, 8, 12], [-4, 4, 0, 8, 12], [*range(0, 28, 4)], [0, 4, 12, 16, 20, 0], [*range(0, 72, 4)]]


@pytest.mark.parametrize("offsets", OFFSETS, ids=str)
@pytest.mark.parametrize("live", [0xFFFFFFFF, 0x80000000, 0x0F0F1230, 0xFFFFFFFE])
def test_words_and_faults_are_those_of_single_loads(offsets: list[int], live: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(live)
    given = rng.integers(0, 1 << 32, 1024, dtype=np.uint32)
    lanes = np.arange(32, dtype=np.int64)
    ways = [lanes * 0 + 16, 16 + 4 * lanes, 16 + 20 * lanes, 16 + 48 * lanes, 16 + 4 * rng.integers(0, 900, 32)]
    ways += [4096 - 4 * len(offsets) + 4 * rng.integers(0, 2, 32), 18 + 4 * lanes, lanes * 4 - 16]
    ways += [4 * lanes + (lanes == 9) * (1 << 40)]
    text = kernel(loads(offsets))
    single = []
    with monkeypatch.context() as patch:
        patch.setattr(memory, "neighbours", lambda block, uniform: [])
        single = [run(text, given, at, live) for at in ways]
    faults = 0
    for at, (wanted, fault) in zip(ways, single):
        out, told = run(text, given, at, live)
        assert (out == wanted).all() and told == fault
        faults += bool(fault)
    assert 0 < faults < len(ways)


def found(*lines: str) -> list[list[int]]:
    """Offsets of the groups of a kernel's block that has the loads."""
    tree = parse_module(Source("k.ptx", kernel("\n".join(lines))))
    program = build(tree, tree.functions[0])
    block = next(b for b in program.blocks if any(i.opcode == "ld" and i.operands[1].base.name == "%p" for i in b.body))  # type: ignore[union-attr]
    return [[ins.operands[1].offset for ins in group] for group in neighbours(block, ())]  # type: ignore[union-attr]


def test_groups() -> None:
    a, b, c = (f"ld.global.b32 %a{n}, [%p+{4 * n}];" for n in range(3))
    assert found(a, "xor.b32 %a9, %a0, %a0;", c, b) == [[0, 4, 8]]
    assert found(a, c) == []
    for line in ("st.global.b32 [%o], %a0;", "add.u64 %p, %p, 4;", "atom.global.add.u32 %a9, [%o], 1;", "membar.gl;",
                 "ld.relaxed.gpu.global.b32 %a9, [%o];", "ld.volatile.global.b32 %a9, [%o];"):  # fmt: skip
        assert found(a, line, b) == [], line
    assert found(a, "ld.global.b32 %a9, [%o];", b) == [[0, 4]]
    assert found(a, "ld.shared.b32 %a9, [s];", b.replace("global", "shared")) == []
    assert found(a, f"@%q {b}", c) == []
    assert found(*(f"ld.global.b32 %a0, [%p+{4 * n}];" for n in range(10))) == [[*range(0, 32, 4)], [32, 36]]
