"""Why an element has its value: from the store back through registers, memory, copies and products to what the launch found."""

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.host.jobs.job import load_job, run_job
from mmulator.observation.record import memory, origins
from mmulator.observation.record.cause import Cause
from mmulator.observation.record.launches.answers import WhyAnswer
from mmulator.observation.record.names import question
from tests.jobs.test_tensor_maps import PTX
from tests.support import corpus, one_block, places

EXAMPLES = places.ROOT / "examples"


def remarks(answer: WhyAnswer) -> list[str]:
    return [r for c in (answer.cause.walk() if answer.cause else ()) for r in c.remarks]


def counted(function: Callable[..., Any], counts: dict[str, int]) -> Callable[..., Any]:
    """A function that counts its calls, by its name."""

    def call(*args: Any) -> Any:
        counts[function.__name__] += 1
        return function(*args)

    return call


def asked_of_example(name: str, *elements: str) -> list[WhyAnswer]:
    return run_job(load_job(EXAMPLES / name / "launch.toml"), why=elements).report.why


# real kernels -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [n for n in corpus.manifest() if n.startswith("gemm")] + list(corpus.manifest())[60::6])
def test_kernels_of_the_corpus(name: str) -> None:
    """Two elements of each output: their store is found, and what the model makes of a product's operands is what the machine
    made (an InternalError says if not)."""
    entry = corpus.manifest()[name]
    kernel = corpus.module(entry["ptx"])[entry["entry"]]
    args, outputs = corpus.arguments(entry)
    args += [0] * (len(kernel.function.params) - len(args))
    named = {f"out{n}": a for n, a in outputs.items()}
    rng = np.random.default_rng(len(name))
    ask = [
        f"out{n}[{','.join(map(str, rng.integers(a.shape)))}]" for n, a in outputs.items() for _ in range(2)
        if a.size and a.itemsize <= 8
    ]  # fmt: skip
    before = {n: a.copy() for n, a in outputs.items()}
    report = kernel.launch(
        entry["grid"], entry["block"], args, entry["shared"], device="sm_90", timeout=600, why=ask, names=named
    )
    after = {n: a.copy() for n, a in outputs.items()}
    for n, a in before.items():
        outputs[n][...] = a
    plain, again = corpus.arguments(entry)
    plain += [0] * (len(args) - len(plain))
    kernel.launch(entry["grid"], entry["block"], plain, entry["shared"], device="sm_90", timeout=600)
    for n, a in again.items():
        assert a.tobytes() == after[n].tobytes()  # memory is as the launch left it
    for answer, text in zip(report.why, ask):
        assert answer.name == text
        stored = outputs[text[3 : text.index("[")]]
        if answer.cause is None:
            continue
        index = tuple(map(int, re.findall(r"\d+", text[text.index("[") :])))
        raw = after[text[3 : text.index("[")]][index]
        assert answer.cause.bits == int.from_bytes(np.asarray(raw).tobytes(), "little"), stored.dtype
        assert "InternalError" not in str(answer) and json.dumps(answer.as_dict())


@pytest.mark.parametrize(
    "name, element, a, b",
    [
        ("handwritten", "C[3,5]", "A[3,0..255]", "B[5,0..255]"),
        ("hopper_gemm", "C[101,33]", "A[101,0..335]", "B[0..335,33]"),
        ("hopper_gemm", "C[449,399]", "A[449,0..335]", "B[0..335,399]"),
        ("hopper_pipeline", "D[200,77]", "A[200,0..199]", "B[77,0..199]"),
    ],
)
def test_rows_and_columns_of_a_product_are_named(
    name: str, element: str, a: str, b: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through cp.async, tensor copies of one block for two, ldmatrix and descriptors; of each byte few writes are looked at."""
    looked = {"last_write": 0, "_writes_of": 0}
    for function in looked:
        monkeypatch.setattr(memory, function, counted(getattr(memory, function), looked))
    monkeypatch.setattr(origins, "last_write", memory.last_write)
    (answer,) = asked_of_example(name, element)
    assert 0 < looked["_writes_of"] < 3 * looked["last_write"], looked
    said = remarks(answer)
    assert any(r.startswith(f"row of A: {a}") for r in said) and any(r.startswith(f"column of B: {b}") for r in said), said
    assert "was meant" not in str(answer)
    product = next(c for c in answer.cause.walk() if c.element is not None)  # type: ignore[union-attr]
    assert product.element is not None and product.element.bits == product.bits


def test_swapped_registers_of_a_fragment_are_seen() -> None:
    text = (EXAMPLES / "handwritten/mma.ptx").read_text().replace("{a0, a1, a2, a3}", "{a0, a2, a1, a3}")
    a, b = (np.random.default_rng(n).standard_normal(s, np.float32).astype(np.float16) for n, s in ((1, (64, 64)), (2, (32, 64))))
    c = np.zeros((64, 32), np.float32)
    report = mm.Module.load(text)["gemm"].launch((4, 4), 32, [a, b, c, 32, 64], device="sm_80", why="C[3,5]")
    assert "row of A: A[3,0..7], A[11,0..7]" in str(report.why[0])


# single instructions ----------------------------------------------------------------------------------------------------
def words(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 1 << 32, 32, np.uint32)


def why(body: str, *arrays: np.ndarray, thread: int = 5, **more: Any) -> Cause:
    _, report = one_block.launch(body, *arrays, why=f"results[{thread},0]:u32", **more)
    cause = report.why[0].cause
    assert cause is not None
    return cause


def leaf(cause: Cause) -> Cause:
    return leaf(cause.inputs[-1]) if cause.inputs else cause


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("c", [0x1F, 0x1C03, 0x181F, 0x100F, 0x00])
def test_shuffles_are_followed_to_the_lane_that_gave_the_value(mode: str, c: int) -> None:
    x = np.arange(100, 132, dtype=np.uint32)
    for b in (0, 1, 3, 16, 31):
        body = f"ld.global.u32 r1, [in0]; shfl.sync.{mode}.b32 r0, r1, {b}, {c}, -1; st.global.u32 [out], r0;"
        results, report = one_block.launch(body, x, why=[f"results[{4 * t}]:u32" for t in range(32)])
        for t, answer in enumerate(report.why):
            found = leaf(answer.cause)
            assert found.bits == results[t, 0] and found.name == f"given0[{found.bits - 100}]", (mode, b, c, t)


def test_a_load_under_a_false_predicate_is_told() -> None:
    body = "mov.u32 r0, 7; setp.lt.s32 p0, t, 5; @p0 ld.global.u32 r0, [in0]; st.global.u32 [out], r0;"
    cause = why(body, words(1))
    assert leaf(cause).bits == 7
    assert any("was predicated off: p0 is false: setp.lt.s32 5, 5" in r for c in cause.walk() for r in c.remarks)
    assert leaf(why(body, words(1), thread=4)).name == "given0[4]"


def test_a_selection_names_its_condition() -> None:
    body = """setp.lt.s32 p0, t, 5; ld.global.u32 r1, [in0]; ld.global.u32 r2, [in1]; selp.b32 r0, r1, r2, p0;
    st.global.u32 [out], r0;"""
    for thread, name in ((4, "given0[4]"), (5, "given1[5]")):
        cause = why(body, words(1), words(2), thread=thread)
        assert leaf(cause).name == name and any("setp.lt.s32" in r for c in cause.walk() for r in c.remarks)


@pytest.mark.parametrize("size", [0, 2, 4])
def test_a_copy_that_is_shorter_fills_with_zeros(size: int) -> None:
    body = f""".shared .align 16 .b8 room[128]; mov.u32 r2, room; mad.lo.u32 r2, t, 4, r2;
    cp.async.ca.shared.global [r2], [in0], 4, {size}; cp.async.wait_all; ld.shared.u32 r0, [r2]; st.global.u32 [out], r0;"""
    x = words(3)
    cause = why(body, x)
    if size == 0:
        assert cause.bits == 0 and any("zeros" in r for c in cause.walk() for r in c.remarks)
    else:
        assert leaf(cause).name == "given0[5]"


def test_coordinates_below_zero_are_numbers_with_a_sign() -> None:
    """A tensor copy whose coordinates are negative constants: the first rows and columns of the box are outside."""
    x = np.arange(1, 1 + 16 * 64, dtype=np.uint16).reshape(16, 64)
    kernel = mm.Module.load(PTX.replace("{0, 2}", "{-8, -1}"))["given"]
    out = np.zeros((8, 64), np.uint16)
    ask = ["out[1,9]", "out[1,7]", "out[0,9]"]
    report = kernel.launch(1, 256, [mm.TensorMap.tiled(x, (8, 64)), out], why=ask, names={"x": x, "out": out})
    assert out[1, 9] == x[0, 1] and not out[0].any()
    inside, left, above = report.why
    assert leaf(inside.cause).name.startswith("x[0,1]") and any("box at (-8, -1)" in r for r in remarks(inside))
    assert all(any("zeros" in r for r in remarks(each)) for each in (left, above))


def test_values_of_other_threads_are_found_in_shared_and_local_memory() -> None:
    body = """.shared .align 4 .b8 room[128]; .local .align 4 .b8 own[8]; ld.global.u32 r1, [in0];
    mov.u32 r2, room; mad.lo.u32 r3, t, 4, r2; st.local.u32 [own+4], r1; ld.local.u32 r1, [own+4]; st.shared.u32 [r3], r1;
    bar.warp.sync -1; xor.b32 r4, t, 1; mad.lo.u32 r4, r4, 4, r2; ld.shared.u32 r0, [r4]; st.global.u32 [out], r0;"""
    assert leaf(why(body, words(4))).name == "given0[4]"


def test_bytes_of_several_stores_are_told_apart() -> None:
    """A word of two halves that other threads stored, one of which a third store wrote again in part."""
    body = """.shared .align 4 .b8 room[256]; mov.u32 r2, room; mad.lo.u32 r3, t, 2, r2; ld.global.u32 r1, [in0];
    cvt.u16.u32 h0, r1; st.shared.b16 [r3], h0; bar.warp.sync -1; setp.eq.u32 p0, t, 0; @p0 st.shared.b8 [r2+23], r1;
    bar.warp.sync -1; mad.lo.u32 r4, t, 4, r2; ld.shared.u32 r0, [r4]; st.global.u32 [out], r0;"""
    _, report = one_block.launch(body, words(6), why="results[5,0]:u32")
    (answer,) = report.why
    assert answer.sources[0] == "computed from given0[0], given0[10..11]"
    named = [c.name for c in answer.cause.walk() if c.how == "as the launch found it"]  # type: ignore[union-attr]
    assert named == ["given0[10]", "given0[11]", "given0[0]"]


@pytest.mark.parametrize(
    "body",
    [
        "redux.sync.add.s32 r0, r1, -1;", "setp.gt.u32 p0, r1, 5; vote.sync.ballot.b32 r0, p0, -1;",
        "ld.param.u64 d0, [results]; red.global.add.u32 [d0+80], r1; ret;",
        ".shared .align 4 .b8 room[4]; mov.u32 r2, room; st.shared.u32 [r2], 9; bar.warp.sync -1; red.shared.add.u32 [r2], r1;"
        " bar.warp.sync -1; ld.shared.u32 r0, [r2];",
    ],
)  # fmt: skip
def test_values_of_all_lanes_are_named(body: str) -> None:
    """What a warp reduces, and what its lanes add to a place in memory: a few are told, and all are sources."""
    x = words(6)
    _, report = one_block.launch(f"ld.global.u32 r1, [in0]; {body} st.global.u32 [out], r0;", x, why="results[5,0]:u32")
    (answer,) = report.why
    assert answer.sources[0] == "computed from given0[0..31]"
    assert any("32 lanes that take part" in r or "32 contributions of 32 threads" in r for r in remarks(answer))
    if "shared" in body:
        (before,) = (c for c in answer.cause.walk() if c.name == "what was there")  # type: ignore[union-attr]
        assert before.bits == 9 and before.how == "st.shared.u32"


@pytest.mark.parametrize("there", [0, 7])
def test_what_lay_where_threads_add_is_named(there: int) -> None:
    """An array that nobody has cleared: what the launch found is a source, and without it the value is the reference's."""
    text = """.version 8.0
    .target sm_90
    .address_size 64
    .visible .entry k(.param .u64 y) { .reg .b64 d; .reg .b32 r; .reg .f32 f;
    ld.param.u64 d, [y]; mov.u32 r, %ctaid.x; cvt.rn.f32.u32 f, r; red.global.add.f32 [d], f; ret; }"""
    y = np.full(1, there, np.float32)
    report = mm.Module.load(text)["k"].launch(4, 1, [y], why="y[0]", against=np.float32([6]))
    (answer,) = report.why
    lead = "y[0] differs: without what the launch found there, 7, it is the reference's"
    assert (str(answer).splitlines()[0] == lead) == bool(there) == ("computed from y[0]" in answer.sources), answer


def test_elements_that_an_address_comes_from_are_named() -> None:
    """A table of indices: the value comes from where the table says, and the table's element is named with its value."""
    body = """mul.wide.u32 d0, t, 4; ld.param.u64 d1, [given1]; add.u64 d1, d1, d0; ld.global.u32 r1, [d1];
    mul.wide.u32 d0, r1, 4; ld.param.u64 d1, [given0]; add.u64 d1, d1, d0; ld.global.u32 r0, [d1]; st.global.u32 [out], r0;"""
    table = np.arange(32, dtype=np.uint32)[::-1].copy()
    _, report = one_block.launch(body, words(6), table, why="results[5,0]:u32")
    (answer,) = report.why
    assert answer.sources[:2] == ("computed from given0[26]", "addressed by given1[5] = 26")


def test_a_loop_is_told_twice_and_depth_ends_it() -> None:
    body = """mov.u32 r0, t; mov.u32 r1, 0; again: mad.lo.u32 r0, r0, 3, 1; add.u32 r1, r1, 1; setp.lt.u32 p0, r1, 9;
    @p0 bra again; st.global.u32 [out], r0;"""
    cause = why(body)
    assert [c.how for c in cause.walk()].count("mad.lo.u32") == 3 and any(c.more for c in cause.walk())


def test_a_value_that_depends_on_another_block_is_explained_by_the_whole_launch() -> None:
    text = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) { .reg .b64 d; .reg .b32 r<4>; .reg .pred p;
  ld.param.u64 d, [out]; mov.u32 r0, %ctaid.x; setp.eq.u32 p, r0, 0; @p bra first;
wait: ld.acquire.gpu.global.u32 r1, [d]; setp.eq.u32 p, r1, 0; @p bra wait; add.u32 r2, r1, 1; st.global.u32 [d+4], r2; ret;
first: mov.u32 r1, 41; st.release.gpu.global.u32 [d], r1; ret; }
"""
    out = np.zeros(2, np.uint32)
    answer = mm.Module.load(text)["k"].launch(2, 1, [out], why="out[1]").why[0]
    assert out.tolist() == [41, 42] and answer.cause is not None and answer.cause.bits == 42 and not answer.notes


def test_an_element_that_nothing_stored() -> None:
    _, report = one_block.launch("st.global.u32 [out], t;", why="results[2]:u32")
    assert "no thread of the launch stored it" in str(report.why[0]) and "no store came to its address" in str(report.why[0])


def test_a_store_that_a_predicate_left_out() -> None:
    body = "setp.lt.s32 p0, t, 7; @p0 st.global.u32 [out], t;"
    _, report = one_block.launch(body, why=["results[7,0]", "results[6,0]"])
    said = str(report.why[0])
    assert "block (0, 0, 0), thread (7, 0, 0): st.global.u32" in said and "p0 is false: setp.lt.s32 7, 7" in said
    assert report.why[1].cause is not None


PAST = {
    "a way": ("setp.ge.s32 p0, t, 7; @p0 bra past; st.global.u32 [out], t; past: ret;", 7, "bra", "p0 is true: setp.ge.s32 7, 7"),
    "the end": ("setp.ge.s32 p0, t, 7; @p0 ret; st.global.u32 [out], t;", 9, "ret", "p0 is true: setp.ge.s32 9, 7"),
    "not": ("setp.lt.s32 p0, t, 7; @!p0 bra past; st.global.u32 [out], t; past: ret;", 7, "bra", "p0 is false: setp.lt.s32 7, 7"),
    "two of them": (
        "setp.ge.s32 p0, t, 30; @p0 bra past; setp.ge.s32 p1, t, 7; @p1 bra past; st.global.u32 [out], t; past: ret;", 7, "bra",
        "p1 is true: setp.ge.s32 7, 7",
    ),
    "a load that it spares": (
        "setp.ge.s32 p0, t, 7; @p0 bra past; ld.global.u32 r0, [in0]; st.global.u32 [out], r0; past: ret;", 7, "bra",
        "p0 is true: setp.ge.s32 7, 7",
    ),
    "other stores": (
        "setp.ge.s32 p0, t, 7; @p0 bra past; st.global.u32 [out], t; past: st.global.u32 [out+4], t;", 8, "bra",
        "p0 is true: setp.ge.s32 8, 7",
    ),
    "a function": (
        "setp.ge.s32 p0, t, 7; @p0 bra past; call keep, (out, t); past: ret;", 8, "bra", "p0 is true: setp.ge.s32 8, 7",
    ),
}  # fmt: skip
KEEP = ".func keep(.reg .b64 at, .reg .b32 x) { st.global.u32 [at], x; ret; }\n"


@pytest.mark.parametrize("name", PAST)
def test_a_store_that_a_branch_leads_past(name: str) -> None:
    """The thread is found by its address, and memory stays as the launch left it. Lanes up to 7 may load words."""
    body, thread, branch, said = PAST[name]
    results, report = one_block.launch(body, np.arange(8, dtype=np.uint32), why=f"results[{thread},0]", top=KEEP)
    told = str(report.why[0])
    assert f"block (0, 0, 0), thread ({thread}, 0, 0): {branch} at k.ptx" in told
    assert said in told and "leads past st.global.u32 at k.ptx" in told and not results[thread:, 0].any()


def test_a_loop_that_ends_too_early() -> None:
    body = """mov.u32 r0, t; again: setp.ge.u32 p0, r0, 99; @p0 bra past; mad.wide.u32 d0, r0, 4, in0; mul.wide.u32 d1, t, 4;
    sub.u64 d0, d0, d1; st.global.u32 [d0], r0; add.u32 r0, r0, 32; bra again; past: ret;"""
    _, report = one_block.launch(body, np.zeros(100, np.uint32), why=["given0[99]:u32", "given0[98]:u32"])
    assert "thread (3, 0, 0): bra at" in str(report.why[0]) and "p0 is true: setp.ge.u32 99, 99" in str(report.why[0])
    assert report.why[1].cause is not None and report.why[1].cause.at is not None and report.why[1].cause.at.thread == (2, 0, 0)


def test_with_the_sanitizer_and_watched_elements() -> None:
    body = "ld.global.u32 r0, [in0]; st.global.u32 [out], r0;"
    _, report = one_block.launch(body, words(1), why="results[3,0]", watch=[(1, (2, 0))], sanitize=True)
    assert [s.index for s in report.stores] == [(2, 0)] and leaf(report.why[0].cause).name == "given0[3]" and not report.findings


CHOSEN = """.version 8.0
.target sm_90
.address_size 64
.entry scale(.param .u64 x, .param .u64 y, .param .u32 mode) {
  .reg .b64 a, b; .reg .f32 f, s; .reg .b32 m, t; .reg .pred p, q;
  ld.param.u64 a, [x]; ld.param.u64 b, [y]; ld.param.u32 m, [mode];
  setp.eq.u32 p, m, 1; mov.f32 s, 0f3F800000;
  @p bra ONE;
  setp.eq.u32 q, m, 2;
  @q bra TWO;
  bra END;
ONE: mov.f32 s, 0f3F000000; bra END;
TWO: mov.f32 s, 0f40000000;
END: ld.global.f32 f, [a+8]; mul.f32 f, f, s; st.global.f32 [b], f; ret;
}
.entry pass(.param .u64 x, .param .u64 flag, .param .u64 y) {
  .reg .b64 a, b, c; .reg .f32 f, s; .reg .b32 m, t; .reg .pred p, q;
  ld.param.u64 a, [x]; ld.param.u64 b, [flag]; ld.param.u64 c, [y];
  mov.u32 m, %ctaid.x; setp.eq.u32 p, m, 1; mov.f32 s, 0f00000000; mov.u32 t, 0;
  @p bra WAIT;
  st.global.f32 [a], 0f40400000;
  st.release.gpu.global.u32 [b], 1; ret;
WAIT: ld.acquire.gpu.global.u32 t, [b]; add.f32 s, s, 0f00000000; setp.ne.u32 q, t, 1;
  @q bra WAIT;
  ld.global.f32 f, [a]; add.f32 f, f, s; st.global.f32 [c], f; ret;
}
"""


@pytest.mark.parametrize("mode, said", [
    (0, "k.ptx:10, not the value of k.ptx:13: q is false: setp.eq.u32 0, 2 at k.ptx:9"),
    (1, "k.ptx:8, not the value of k.ptx:13: p is true: setp.eq.u32 1, 1 at k.ptx:7"),
    (2, "k.ptx:10, not the value of k.ptx:7: q is true: setp.eq.u32 2, 2 at k.ptx:9"),
])  # fmt: skip
def test_a_constant_that_a_branch_chose(mode: int, said: str) -> None:
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    scale = mm.Module.load(CHOSEN, name="k.ptx")["scale"]
    (answer,) = scale.launch(1, 1, [x, y, mode], why="y[0]").why
    assert str(answer).count("chosen by bra at") == 1 and f"chosen by bra at {said}" in str(answer)
    y[:] = 0
    (answer,) = scale.launch(1, 1, [x, y, mode], why="y[3]").why
    assert "; the grid is (1, 1, 1) blocks of (1, 1, 1) threads; the last element before it that changed is y[0]" in str(answer)


@pytest.mark.parametrize("before", [0, 3])  # the block alone leaves the second as it is
def test_a_value_that_another_block_stored(before: int) -> None:
    x, flag, y = np.zeros(1, np.float32), np.zeros(1, np.uint32), np.full(1, before, np.float32)
    (answer,) = mm.Module.load(CHOSEN, name="k.ptx")["pass"].launch(2, 1, [x, flag, y], why="y[0]").why
    assert "x[0] = 3.0: stored by another block of this launch" in str(answer) and "chosen by" not in str(answer)
    assert "x[0] was stored last by st.global.f32 at k.ptx:21, block (0, 0, 0), thread (0, 0, 0)" in str(answer)


NARROW = """.version 8.0
.target sm_90
.address_size 64
.entry k(.param .u64 x, .param .u64 y, .param .u32 n) {
  .reg .b64 a, b; .reg .f32 f; .reg .b32 m, t; .reg .b16 h, g;
  ld.param.u64 a, [x]; ld.param.u64 b, [y]; ld.param.u32 m, [n]; cvt.u16.u32 g, m;
  BODY
  cvt.u32.u16 t, h; and.b32 t, t, 3; mad.wide.u32 a, t, 4, a;
  ld.global.f32 f, [a]; st.global.f32 [b], f; ret;
}
"""


@pytest.mark.parametrize("body, n, said", [
    ("mov.b16 h, g;", 70000, "cvt.u16.u32 at k.ptx:6 makes 4464 of 70000"),
    ("mov.b16 h, g;", 65535, ""),
    ("cvt.s16.s32 h, m;", 40000, "cvt.s16.s32 at k.ptx:7 makes -25536 of 40000"),
    ("cvt.sat.s16.s32 h, m;", 40000, ""),
    ("add.s16 h, g, 30000;", 30000, "add.s16 at k.ptx:7 makes -5536 of 30000 + 30000 = 60000"),
    ("sub.u16 h, g, 8;", 3, "sub.u16 at k.ptx:7 makes 65531 of 3 - 8 = -5"),
    ("mul.lo.u16 h, g, g;", 300, "mul.lo.u16 at k.ptx:7 makes 24464 of 300 * 300 = 90000"),
    ("mul.wide.u16 t, g, g; cvt.u16.u32 h, t;", 255, ""),
    ("mul.hi.u16 h, g, g;", 300, ""),
    ("mad.lo.s16 h, g, g, g;", 200, "mad.lo.s16 at k.ptx:7 makes -25336 of 200 * 200 + 200 = 40200"),
])  # fmt: skip
def test_an_index_of_16_bits_that_wraps(body: str, n: int, said: str) -> None:
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    (answer,) = mm.Module.load(NARROW.replace("BODY", body), name="k.ptx")["k"].launch(1, 1, [x, y, n], why="y[0]").why
    wraps = [line for line in str(answer).splitlines() if "overflows" in line]
    assert wraps == [f"an index overflows: {said}, which 16 bits do not hold"] * bool(said)


# questions --------------------------------------------------------------------------------------------------------------
def test_questions() -> None:
    q = question("gemm:C[3, 0x5]:f16@2")
    assert (q.kernel, q.name, q.index, q.type, q.launch) == ("gemm", "C", (3, 5), "f16", 2)
    assert question("0x7f00:f32").index is None


@pytest.mark.parametrize("text", ["", "C[", "C[x]", "C", "C[1]:nothing", "[3]"])
def test_what_is_no_question(text: str) -> None:
    with pytest.raises(mm.errors.LaunchError, match="is no element"):
        question(text)


@pytest.mark.parametrize(
    "element, said",
    [
        ("X[0]", "no array X"),
        ("out[9]", r"of shape \(2,\) has no element \[9\]"),
        ((7, 0), "no argument 7"),
        (3, "is 3, not an element"),
    ],
)
def test_elements_that_there_are_not(element: object, said: str) -> None:
    kernel = mm.Module.load(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out) { ret; }\n")["k"]
    with pytest.raises(mm.errors.LaunchError, match=said):
        kernel.launch(1, 1, [np.zeros(2, np.float32)], why=element)
