"""Kernels of pipelines with one mistake each: what is said names the instruction, the line and the rule, and nothing hangs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

import mmulator as mm
from mmulator.diagnostics.faults import warp as faults_warp
from mmulator.errors import ExecutionFault, LaunchError, MmulatorError
from tests.support import ptx_text

MATRIX = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
MAP = ".param .align 64 .b8 map[128], .param .u64 out"


def kernel(body: str, params: str, entry: str) -> str:
    """One in which thread 0 has predicate q, and `m` the address of the parameter `map`."""
    named = "mov.b64 m, map; cvta.param.u64 m, m;" if "map" in params else ""
    return ptx_text.entry(f"""\
 .reg .pred p, q; .reg .b16 h; .reg .b32 r, s, t, n; .reg .b64 a, st, m;
 .shared .align 1024 .b8 buf[4096]; .shared .align 8 .b64 bar, bar2;
 ld.param.u64 a, [out]; mov.u32 t, %tid.x; setp.eq.u32 q, t, 0; {named}
{body}""", params, "8.8", directives=entry)  # fmt: skip


def made(count: int | str = 1, before: str = "") -> str:
    return f"{before} @q mbarrier.init.shared.b64 [bar], {count};\nbar.sync 0;\n"


def expect(size: int) -> str:
    return f"@q mbarrier.arrive.expect_tx.shared.b64 st, [bar], {size};\n"


def load(to: str = "buf", source: str = "a", size: int | str = 128, more: str = "", mask: str = "") -> str:
    name = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    return f"@q {name}{more} [{to}], [{source}], {size}, [bar]{mask};\n"


def tensor(dim: str, at: str, to: str = "buf") -> str:
    return f"@q cp.async.bulk.tensor.{dim}.shared::cluster.global.mbarrier::complete_tx::bytes [{to}], [m, {{{at}}}], [bar];\n"


def store(at: str, source: str = "buf") -> str:
    name = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
    return f"@q {name} [m, {{{at}}}], [{source}];\ncp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n"


def peer(name: str, rank: int = 1) -> str:
    """Address in s of a variable of another block."""
    return f"mov.u32 s, {name}; mapa.shared::cluster.u32 s, s, {rank};\n"


ARRIVE = "@q mbarrier.arrive.shared.b64 st, [bar];\n"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 p, [bar], 0;\n@!p bra W;\n"
AGAIN = "V: mbarrier.try_wait.parity.shared.b64 p, [bar], 1;\n@!p bra V;\n"
MEET = "barrier.cluster.arrive; barrier.cluster.wait;\n"


class Case(NamedTuple):
    """said: part of the message. at: what stands in the line that is named. map: makes the map. Others: of the launch."""

    name: str
    body: str
    said: str
    at: str
    map: Callable[[], Any] | None = None
    entry: str = ""
    block: int = 32
    grid: int = 1
    cluster: tuple[int, int, int] | None = None


def tiled(box: tuple[int, int] = (16, 16)) -> Callable[[], Any]:
    return lambda: mm.TensorMap.tiled(MATRIX, box)


PAIR: dict[str, Any] = {"grid": 2, "cluster": (2, 1, 1)}
CASES = (
    # mbarriers
    Case("wait, no init", WAIT, "where no mbarrier has been initialised", "try_wait"),
    Case("arrive, no init", ARRIVE, "where no mbarrier has been initialised", "arrive"),
    Case("count 0", made("n", "mov.u32 n, 0;"), "of 0 arrivals", "init"),
    Case("count 2^20", made("n", "mov.u32 n, 1048576;"), "of 1048576 arrivals", "init"),
    Case("misaligned", "mbarrier.init.shared.b64 [bar+4], 1;", "misaligned", "init"),
    Case("global memory", "mbarrier.init.b64 [a], 1;", "which is not shared memory", "init"),
    Case("parity never flipped", made() + ARRIVE + WAIT + AGAIN, "1 of 1 arrival is missing", "V: mbarrier.try_wait"),
    Case("count too high", made(2) + ARRIVE + WAIT, "1 of 2 arrivals is missing", "W: mbarrier.try_wait"),
    Case("more bytes expected", made() + expect(256) + load() + WAIT, "128 of 256 expected bytes have not come", "try_wait"),
    Case("fewer bytes expected", made() + expect(64) + load() + WAIT, "64 bytes came that nobody expects", "try_wait"),
    Case("expect_tx of 2^20", made() + expect(1 << 20), "of 1048576 bytes", "expect_tx"),
    Case("more arrivals than pending", made(4) + "@q mbarrier.arrive.shared.b64 st, [bar], 5;", "awaits 4 arrivals", "arrive"),
    Case("the last arrival with noComplete", made() + "@q mbarrier.arrive.noComplete.shared.b64 st, [bar], 1;",
         "with the last arrival", "noComplete"),
    Case("after inval", made() + "@q mbarrier.inval.shared.b64 [bar];\n" + ARRIVE, "has invalidated", "arrive"),
    Case("dropped below zero", made() + 2 * ARRIVE.replace("arrive", "arrive_drop"), "awaits 0 arrivals", "arrive_drop"),
    Case("each waits for the other", made()
         + "@q mbarrier.init.shared.b64 [bar2], 1;\nbar.sync 0;\nsetp.lt.u32 p, t, 32;\n@p bra P;\n"
         + WAIT
         + "mbarrier.arrive.shared.b64 st, [bar2];\nbra D;\nP: mbarrier.try_wait.parity.shared.b64 p, [bar2], 0;\n@!p bra P;\n"
         "mbarrier.arrive.shared.b64 st, [bar];\nD:", "nobody has arrived since mbarrier.init", "try_wait", block=64),
    Case("cp.async to no barrier", "cp.async.mbarrier.arrive.shared.b64 [bar];", "where no mbarrier", "cp.async.mbarrier"),
    # bulk copies
    Case("source misaligned", made() + "add.u64 a, a, 4;\n" + load(size=16), "misaligned", "cp.async.bulk"),
    Case("destination misaligned", made() + load("buf+8", size=16), "misaligned", "cp.async.bulk"),
    Case("odd size", made() + "mov.u32 n, 24;\n" + load(size="n"), "no multiple of 16", "cp.async.bulk"),
    Case("source too short", made() + load(size=8192), "out of bounds", "cp.async.bulk"),
    Case("no such destination", made() + "mov.u32 r, buf; add.u32 r, r, 65536;\n" + load("r"), "out of bounds", "cp.async.bulk"),
    Case("null", made() + "mov.u64 a, 0;\n" + load(), "null pointer", "cp.async.bulk"),
    Case("shared memory as source", made() + "mov.u64 a, buf; cvta.shared.u64 a, a;\n" + load("buf+64", size=16),
         "wrong state space", "cp.async.bulk"),
    Case("no cluster", made()
         + "@q cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [buf], [buf+64], 16, [bar];",
         "without clusters", "cp.async.bulk"),
    Case("mask of ranks", made() + "mov.u16 h, 6;\n" + load(more=".multicast::cluster", mask=", h"), "rank 1", "multicast"),
    Case("mask of ranks in a cluster", made() + MEET + "mov.u16 h, 4;\n" + load(more=".multicast::cluster", mask=", h"),
         "rank 2", "multicast",
         **PAIR),
    Case("bulk copy, no barrier", load(), "where no mbarrier has been initialised", "cp.async.bulk"),
    Case("store too far", "add.u64 a, a, 4080;\n@q cp.async.bulk.global.shared::cta.bulk_group [a], [buf], 32;", "out of bounds",
         "cp.async.bulk"),
    # tensors
    Case("rank of the copy", made() + tensor("3d", "0, 0, 0"), "copies 3 dimensions, and its map has 2", "cp.async.bulk.tensor",
         tiled()),
    Case("map of zeros", made() + tensor("2d", "0, 0"), "all zeros", "cp.async.bulk.tensor", lambda: np.zeros(128, np.uint8)),
    Case("map of ones", made() + tensor("2d", "0, 0"), "no tensor map", "cp.async.bulk.tensor", lambda: np.full(128, 255,
         np.uint8)),
    Case("map in shared memory", "mov.u64 m, buf; cvta.shared.u64 m, m;\n" + made() + tensor("2d", "0, 0"), "cannot be read",
         "cp.async.bulk.tensor", tiled()),
    Case("map of an array that is gone", made() + tensor("2d", "0, 0"), "memory that no argument owns", "cp.async.bulk.tensor",
         lambda: np.frombuffer(tiled()().encode(0x7000000000), np.uint8)),
    Case("box misaligned", made() + tensor("2d", "0, 0", "buf+16"), "128 must divide", "cp.async.bulk.tensor", tiled()),
    Case("box too large", made() + tensor("2d", "0, 0"), "out of bounds", "cp.async.bulk.tensor", tiled((64, 64))),
    Case("half of the bytes", made() + expect(512) + tensor("2d", "0, 0") + WAIT, "512 bytes came that nobody expects",
         "try_wait",
         tiled()),
    Case("coordinate within 16 bytes", made() + tensor("2d", "1, 0"), "within 16 bytes", "cp.async.bulk.tensor", tiled()),
    Case("store before the tensor", store("-4, 0"), "begins before the tensor", "cp.async.bulk.tensor", tiled()),
    Case("store misaligned", store("0, 0", "buf+16"), "128 must divide", "cp.async.bulk.tensor", tiled()),
    Case("and of floats", store("0, 0").replace("cp.async.bulk.tensor.2d.global.shared::cta",
         "cp.reduce.async.bulk.tensor.2d.global."
         "shared::cta.and"), "cannot combine elements of f32", "cp.reduce", tiled()),
    Case("a parameter changed", "tensormap.replace.tile.rank.b1024.b32 [m], 2;", "read-only", "tensormap.replace", tiled()),
    Case("fence by one lane",
         "@q tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [a], [buf], 128;",
         "by part of a warp", "cp_fenceproxy"),
    # clusters
    Case("no such rank", peer("buf", 5) + "st.shared::cluster.b32 [s], t;", "rank 5, and the cluster has 2 blocks", "st.shared",
         **PAIR),
    Case("a peer by .shared::cta", peer("buf") + "st.shared::cta.b32 [s], t;\n" + MEET, "wrong state space", "st.shared", **PAIR),
    Case("a peer that has exited", "mov.u32 r, %cluster_ctarank; setp.eq.u32 q, r, 1;\n@q exit;\n" + peer("buf")
         + "mov.u32 n, 0;\n"
         "L: st.shared::cluster.b32 [s], t; add.u32 n, n, 1; setp.lt.u32 p, n, 200000;\n@p bra L;", "access after exit",
         "st.shared",
         **PAIR),
    Case("a peer's barrier, no init", peer("bar") + "mbarrier.arrive.shared::cluster.b64 _, [s];\n" + MEET, "where no mbarrier",
         "arrive",
         **PAIR),
    Case("waits at a peer's barrier", peer("bar") + "mbarrier.test_wait.parity.shared.b64 p, [s], 0;\n" + MEET,
         "wrong state space",
         "test_wait", **PAIR),
    Case("a block that does not arrive", "mov.u32 r, %cluster_ctarank; setp.eq.u32 q, r, 1;\n@!q barrier.cluster.arrive;\n"
         "@q bar.sync 1, 64;\nbarrier.cluster.wait;", "32 of 64 threads of the cluster have arrived", "barrier.cluster.wait",
         **PAIR),
    Case("wait without arrive", "barrier.cluster.wait;", "a thread that has not arrived", "wait", **PAIR),
    Case("arrive twice", "barrier.cluster.arrive;\n" + MEET, "has not waited since", "arrive", **PAIR),
    Case("data and barrier apart", made() + peer("buf")
         + "mov.u32 r, bar;\n@q st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 "
         "[s], t, [r];\n" + MEET, "writes to the shared memory of block", "st.async", **PAIR),
    # registers
    Case("registers that nobody gives", "setmaxnreg.inc.sync.aligned.u32 256;", "0 registers are free", "setmaxnreg",
         entry=".maxnreg 128", block=512),
    Case("dec that takes more", "setmaxnreg.dec.sync.aligned.u32 240;", "by a thread that has 64 registers", "setmaxnreg",
         entry=".maxnreg 64", block=128),
    Case("setmaxnreg by some lanes", "setp.lt.u32 q, t, 5;\n@q setmaxnreg.dec.sync.aligned.u32 24;", "by part of a warp",
         "setmaxnreg",
         entry=".maxnreg 128", block=128),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_a_mistake_is_named(case: Case) -> None:
    text = kernel(case.body, MAP if case.map else ".param .u64 out", case.entry)
    values = [np.zeros(1024, np.uint32)]
    arguments = [case.map(), *values] if case.map else values
    with pytest.raises(ExecutionFault) as caught:
        mm.Module.load(text, name="k.ptx")["k"].launch(case.grid, case.block, arguments, timeout=30, cluster=case.cluster)
    assert case.said in caught.value.message, caught.value.message
    assert caught.value.span is not None and caught.value.hint
    assert case.at in text.splitlines()[caught.value.span.line - 1]


@pytest.mark.parametrize(
    "entry, grid, cluster, said",
    [
        ("", 4, (3, 1, 1), "no multiple of the 3 blocks"),
        ("", 17, (17, 1, 1), "it must be 1 to 16"),
        (".reqnctapercluster 2, 1, 1", 4, (4, 1, 1), "compiled for clusters of (2, 1, 1)"),
        (".explicitcluster", 4, None, "asks for a cluster"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(entry: str, grid: int, cluster: tuple[int, int, int] | None, said: str) -> None:
    text = kernel("", ".param .u64 out", entry)
    with pytest.raises(MmulatorError) as caught:
        mm.Module.load(text)["k"].launch(grid, 32, [np.zeros(4, np.uint32)], cluster=cluster)
    assert said in caught.value.message


@pytest.mark.parametrize("kind", ["u8", "u32", "f32", "f64"])
def test_a_number_takes_no_tensor_map(kind: str) -> None:
    tensor_map = mm.TensorMap.tiled(MATRIX, (8, 8))
    module = mm.Module.load(kernel("", f".param .u64 out, .param .{kind} x", ""))
    for value in (tensor_map, [tensor_map, tensor_map]):
        with pytest.raises(LaunchError) as caught:
            module["k"].launch(1, 1, [None, value])
        assert caught.value.hint and f"argument 1 (x) is .{kind}: " in caught.value.message


def test_blocks_whose_warps_have_ended_are_at_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended:
        def __init__(self) -> None:
            self.state = {"linear": 0}

        def __str__(self) -> str:
            return "block (0, 0, 0)"

        def each(self) -> list[Ended]:
            return [self]

    monkeypatch.setattr(faults_warp, "groups", lambda grid, cta: [])
    resident: Any = Ended()
    assert faults_warp.unfinished(cast("Any", None), [resident])[0] == "block (0, 0, 0) is at its end"


def test_a_poll_with_a_limit_ends_at_it_and_beyond_many_tries_is_a_deadlock() -> None:
    text = kernel(
        f"{made()} ld.param.u32 s, [limit]; mov.u32 n, 0;\nAGAIN: mbarrier.try_wait.parity.shared.b64 p, [bar], 0;\n"
        " add.u32 n, n, 1; setp.ge.or.u32 p, n, s, p;\n@!p bra AGAIN;\nst.global.u32 [a], n;",
        ".param .u64 out, .param .u32 limit", "",
    )  # fmt: skip
    out = np.zeros(1, np.uint32)
    mm.Module.load(text)["k"].launch(1, 1, [out, 65536], timeout=30)
    assert out[0] == 65536
    with pytest.raises(ExecutionFault, match="deadlock"):
        mm.Module.load(text)["k"].launch(1, 1, [out, 1 << 20], timeout=30)
