"""Conformance: the cases are what they say, the kernels are valid PTX, and a wrong bit is found and explained."""

import ctypes
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.base.source import Source
from mmulator.cli.app import run as mmulator
from mmulator.errors import LaunchError, MmulatorError, UnsupportedError
from mmulator.evaluation.conformance import cases, compare, kernels, memory, probes, report, run, values, vectors
from mmulator.evaluation.conformance.gpu import Gpu, GpuError
from mmulator.evaluation.conformance.launches import compare_launch
from mmulator.evaluation.conformance.stream import RandomStream
from mmulator.evaluation.conformance.subjects import Subject, forms, problem, subjects
from mmulator.host.backend import HOW, Backend, Chip
from mmulator.host.cpu import Cpu
from mmulator.host.jobs.job import load_job
from mmulator.host.module import Module
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.isa.targets import Target
from mmulator.matrix.numerics.formats import decode, element_type
from mmulator.matrix.numerics.profiles import dot_key, profile_for
from mmulator.ptx.parser import parse_module
from mmulator.ptx.tree import Parameter
from mmulator.ptx.verify import verify
from mmulator.runtime.launch.launch import How, Launch, Ran
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.values import Aggregate
from mmulator.runtime.options import CompileOptions
from tests.support.matrix_model import model_matmul
from tests.support.places import ROOT
from tests.support.ptx_text import stored
from tests.support.schemas import checked

HOPPER = Target(90, "a")
DEVICE = "sm_90"

# one or two forms of every family, with every way of being written
SOME = (
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16",
    "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k8.row.col.rp.f64.f64.f64.f64",
    "mma.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.u4.s32",
    "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc",
    "mma.sp.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.u4.u4.s32",
    "wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16",
    "wgmma.mma_async.sync.aligned.m64n8k32.f16.e5m2.e4m3",
    "wgmma.mma_async.sync.aligned.m64n16k256.s32.b1.b1.and.popc",
    "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.bf16.bf16",
    "wgmma.mma_async.sp.sync.aligned.m64n8k64.satfinite.s32.s8.s8",
    "wmma.mma.sync.aligned.row.col.m32n8k16.f32.f16",
    "wmma.mma.sync.aligned.col.row.m16n16k8.f32.tf32.tf32.f32",
    "wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16",
    "wmma.load.b.sync.aligned.col.m8n32k16.u8",
    "wmma.store.d.sync.aligned.col.m8n8k4.global.f64",
    "ldmatrix.sync.aligned.m8n8.x4.trans.b16",
    "stmatrix.sync.aligned.m8n8.x2.shared.b16",
    "movmatrix.sync.aligned.m8n8.trans.b16",
)


def of(name: str) -> list[Subject]:
    return subjects(parse_mnemonic(name))


# cases --------------------------------------------------------------------------------------------------------------
def test_streams_do_not_change() -> None:
    """Vectors hold only while these words come out."""
    s = RandomStream(1, "a", "b")
    assert [hex(x) for x in s.words(3)] == STREAM[0]
    assert s.below(1000, 4).tolist() == STREAM[1]
    assert [hex(x) for x in s.doubles(2)] == STREAM[2]


STREAM: list[Any] = [
    ["0xe6953f3a", "0xeca656c2", "0x6004cdde"], [694, 623, 360, 850], ["0xf986c37ba4c3741a", "0xa5a4994a197e6536"],
]  # fmt: skip


def parts(b: cases.CaseBatch) -> Iterator[tuple[str, Any]]:
    yield from b.registers.items()
    yield "image", b.image
    yield "segments", [(s.first, s.count, s.kind, str(s.scalars)) for s in b.segments]


@pytest.mark.parametrize("name", SOME)
def test_same_seed_same_operands(name: str) -> None:
    subject = of(name)[-1]
    one, same, other = (cases.build(subject, DEVICE, seed, 20) for seed in (5, 5, 6))
    for (key, x), (_, y) in zip(parts(one), parts(same)):
        assert np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y, key
    assert any(isinstance(x, np.ndarray) and not np.array_equal(x, y) for (_, x), (_, y) in zip(parts(one), parts(other)))


@pytest.mark.parametrize("name", SOME)
def test_every_kind_of_operands_comes_up(name: str) -> None:
    subject = of(name)[0]
    kinds = cases.kinds_of(subject.form, DEVICE)
    assert cases.executions(subject.form, 1, 1, DEVICE) == len(kinds)
    batch = cases.build(subject, DEVICE, 1, len(kinds))
    if subject.form.family != "movmatrix":
        assert {batch.kind_of(n) for n in range(batch.count)} == set(kinds)
    assert sum(s.count for s in batch.segments) == batch.count


def kind(name: str, form: str = SOME[0], count: int = 300) -> tuple[values.MatrixProblem, Any, Any, Any]:
    p = problem(parse_mnemonic(form), DEVICE)
    return p, *values.operands(RandomStream("test", name), name, p, count)


def exponents(p: values.MatrixProblem, a: Any, b: Any) -> Any:
    """Exponents of the products of the first result of each execution; a large negative number for a zero."""
    fa, fb = decode(p.atype, a[:, 0, :]), decode(p.btype, b[:, :, 0])
    zero = (fa.significand == 0) | (fb.significand == 0)
    return np.where(zero, -9999, fa.exponent + fb.exponent)


@pytest.mark.parametrize("form", [SOME[0], "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", SOME[9]])
def test_alignment_kinds_reach_the_edges_of_truncation(form: str) -> None:
    """Terms lie F - 1, F and F + 1 bits below the largest, in many executions each."""
    p, a, b, _ = kind("align", form)
    e = exponents(p, a, b)
    below = e.max(axis=1, keepdims=True) - e
    for distance in (p.fraction - 1, p.fraction, p.fraction + 1):
        assert (below == distance).any(axis=1).sum() > 20, distance
    p, a, b, _ = kind("floor", form)
    e = exponents(p, a, b)
    reachable = p.floor >= -2 * (p.atype.bias + p.atype.mantissa)
    assert not reachable or ((e > p.floor - 4) & (e < p.floor + 4)).any(axis=1).sum() > 20


def test_special_kinds_hold_what_they_say() -> None:
    for form in (SOME[0], SOME[1], SOME[3]):
        p, a, _, c = kind("special", form)
        f = decode(p.ctype, c) if p.ctype.bits < 64 else None
        if f is not None:
            assert f.nan.any() and f.inf.any() and len(np.unique(c[f.nan])) > 8
        p, a, _, c = kind("zeros", form)
        sign = a.dtype.type(1 << (p.atype.bits - 1))
        assert (a == 0).any() and (a == sign).any()
        p, a, _, c = kind("subnormal", form)
        width = p.atype.bits - 1 - p.atype.exponent
        field = a.astype(np.uint64) >> np.uint64(width) & np.uint64((1 << p.atype.exponent) - 1)
        assert ((field == 0) & (a & (sign - a.dtype.type(1)) != 0)).mean() > 0.5


def test_cancellation_cancels() -> None:
    """Many results lose most of their bits: the sum is far below its largest term."""
    _, a, b, c = kind("cancel")
    key = dot_key(parse_mnemonic(SOME[0]))
    d = model_matmul(key, DEVICE, a, b, c).view(np.float32)
    assert (np.abs(d) < 2.0**-6).mean() > 0.1


def test_integers_reach_both_ends() -> None:
    form = parse_mnemonic(SOME[4])
    p = problem(form, DEVICE)
    a, b, c = values.operands(RandomStream("test"), "saturate", p, 200)
    d = model_matmul(dot_key(form), DEVICE, a, b, c).astype(np.uint32).view(np.int32)
    for end in (-(1 << 31), (1 << 31) - 1):
        assert 0.05 < (d == end).mean() < 0.45


def test_layouts_of_wgmma_operands_do_not_overlap() -> None:
    """As a kernel would write them, for every n, type, major and swizzle: each element has bytes of its own."""
    seen = set()
    for subject in (subject for form in forms(HOPPER)[0] for subject in subjects(form)):
        for place in cases._places(subject).values() if subject.form.family == "wgmma" else ():
            if (key := (place.rows, place.columns, place.element, place.mn_major)) in seen:
                continue
            seen.add(key)
            for swizzle in memory.SWIZZLES:
                d = memory.descriptor(RandomStream("x"), place, swizzle, odd=False)
                at = place.addresses(d)[:, :: max(1, 8 // place.element.bits)]
                assert place.fits(d) and len(np.unique(at)) == at.size, (key, swizzle)
                assert place.fits(memory.descriptor(RandomStream(str(key)), place, swizzle, odd=True))
    assert len(seen) > 100


def test_metadata_is_defined_unless_asked_otherwise() -> None:
    from mmulator.matrix.layouts import sparse

    for name in (SOME[6], SOME[7], SOME[11]):
        subject = of(name)[0]
        key, selector = ("e", "f") if "e" in kernels_fields(subject) else ("sp_meta", "sp_sel")
        batch = cases.build(subject, DEVICE, 1, 60)
        for s in batch.segments:
            words = batch.registers[key][s.part]
            nibbles = sparse.from_registers(words, subject.form, subject.fixed[selector])
            assert sparse.undefined(nibbles, subject.form).any() == (s.kind == "metadata"), s.kind


def kernels_fields(subject: Subject) -> list[str]:
    return [f.name for f in kernels.fields(subject)]


def test_the_page_is_current() -> None:
    from tools.pages import conformance_page

    assert conformance_page.PAGE.read_text() == conformance_page.page(), "run python -m tools.pages.conformance_page"


# kernels ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("target", ["sm_90a", "sm_120a", "sm_80"])
def test_kernels_are_valid_ptx(target: str) -> None:
    """One kernel of every form and way of writing it (of wgmma: with n to 32)."""
    t = Target.parse(target)
    there = [f for f in forms(t)[0] if f.family != "wgmma" or f.n <= 32]
    rng = random.Random(1)
    for form in rng.sample(there, 150):
        text = kernels.module(subjects(form), t)
        assert verify(parse_module(Source("k.ptx", text))) == (), form


def test_every_form_is_there_or_missing() -> None:
    there, missing = forms(HOPPER)
    assert len(there) == len({f.mnemonic for f in there}) == 1936
    assert all(f.requires.admits(HOPPER) for f in there) and not any(f.requires.admits(HOPPER) for f in missing)
    assert any(f.block_scale for f in missing) and any(f.family == "ldmatrix" for f in missing)
    older = {f.mnemonic for f in forms(HOPPER, (9, 0))[0]}  # of a driver that reads no newer PTX
    assert {f.requires.first_ptx(HOPPER) for f in there if f.mnemonic not in older} == {(9, 4)}


# the whole way, the model's machine in the GPU's place --------------------------------------------------------------
@pytest.mark.parametrize("name", SOME)
def test_machine_in_the_place_of_a_gpu(name: str) -> None:
    item = run.WorkItem(name, "", name)
    row = run.check(item, Cpu(DEVICE), run.RunSettings(seed=3, count=20))
    assert (row.verdict, row.error, row.wrong) == ("same", "", 0), row
    assert row.words >= row.executions and row.cases >= 20 and row.subjects == len(of(name))


class Wrong(Cpu):
    """A GPU that gets one word of each launch wrong, by its lowest bit."""

    def __init__(self, word: int, bit: int = 0) -> None:
        super().__init__(DEVICE)
        self.word, self.bit = word, bit

    def launch(self, launch: Launch, how: How = HOW, observers: Sequence[Observer] = ()) -> Ran:
        ran = super().launch(launch, how, observers)
        flat = launch.arguments.values[-1].reshape(-1)
        flat[self.word] ^= flat.dtype.type(1 << self.bit)
        return ran


def test_a_wrong_bit_is_explained() -> None:
    name = SOME[0]
    row = run.check(run.WorkItem(name, "", name), Wrong(5), run.RunSettings(count=20))
    assert (row.verdict, row.wrong) == ("different", 1)
    batch = cases.build(of(name)[0], DEVICE, 1, 20)
    want = compare.model(batch, DEVICE)
    got = want.copy()
    got.reshape(-1)[5] ^= 1
    _, first = compare.compare(batch, got, want, DEVICE)
    assert first is not None and row.first == first.as_dict()
    assert (first.execution, first.lane, first.register, first.row, first.column) == (0, 1, 1, 0, 3)
    text = "\n".join(first.lines())
    assert f"0x{int(want[0, 1, 1]):08x}" in text and f"0x{int(got[0, 1, 1]):08x}" in text
    assert "all that differ: lane 1, register 1" in text
    t = element_type("f32")
    assert compare.apart(t, 0x3F800000, 0x3F800003) == "3 ULP apart" and compare.apart(t, 0x80000001, 1) == "2 ULP apart"
    assert compare.apart(t, 0x7F800000, 0) == compare.apart(element_type("s32"), 0, 1) == ""
    got[:, 4:8, 2] ^= 2
    assert compare.compare(batch, got, want, DEVICE)[1].where == "lane 1 to 7, register 1 to 2"  # type: ignore[union-attr]
    got[0, 1, 1] ^= 1
    assert compare.compare(batch, got, want, DEVICE)[1].where == "lane 4 to 7, register 2"  # type: ignore[union-attr]
    assert "16 products a chunk (measured), 25 bits are kept below the largest exponent" in text and "product" in text


def test_the_explanation_is_right() -> None:
    """The operands that it names give the result by the exact model: every family, any element."""
    from mmulator.matrix.numerics.dot import dot

    tf32 = "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32"  # metadata may mix halves of two elements
    for name in (n for n in (*SOME, tf32) if parse_mnemonic(n).atype and "m8n8k4" not in n):
        subject = of(name)[-1]
        batch = cases.build(subject, DEVICE, 2, 20)
        want = compare.model(batch, DEVICE)
        matrix = compare.fragment(subject.form, "d").to_matrix(want)
        rng = random.Random(name)
        for n in range(batch.count):
            row, column = (rng.randrange(x) for x in matrix.shape[1:])
            a, b, c = compare.element_operands(batch, n, row, column)
            signs = {k: v for k, v in subject.immediates if k.startswith("imm_scale")}
            got = dot(dot_key(subject.form), DEVICE, a, b, c, **signs)
            assert got == int(matrix[n, row, column]), (name, n, row, column)


CHANGES: tuple[tuple[str, tuple[dict[str, int], ...]], ...] = (
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", ({"chunk": 8}, {"floor": -132}, {"floor": -134})),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", ({"chunk": 8}, {"floor": -20}, {"floor": -22})),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", ({"chunk": 4}, {"floor": -132}, {"floor": -134})),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", ()),
    ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e5m2.e4m3", ({"chunk": 16}, {"keep": 12}, {"keep": 14})),
    ("wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e4m3", ({"chunk": 16},)),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", ({"chunk": 8},)),
)


@pytest.mark.parametrize(("name", "changes"), CHANGES, ids=lambda x: x if isinstance(x, str) else "")
def test_another_arithmetic_does_not_pass(name: str, changes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty executions of each kind tell F from F - 1 and F + 1, L from half of it, the floor from its neighbours."""
    form = parse_mnemonic(name)
    key, p = dot_key(form), problem(form, DEVICE)
    right = profile_for(key, DEVICE)
    for change in (*changes, {"fraction": right.fraction - 1}, {"fraction": right.fraction + 1}):
        found = {}
        for kind_ in ("align", "floor", "ties", "near"):
            a, b, c = (x[:, :16] if x.shape[1] == 64 else x for x in values.operands(RandomStream(kind_), kind_, p, 40))
            want = model_matmul(key, DEVICE, a, b, c)
            for module in ("mmulator.matrix.numerics.dot", "tests.support.matrix_model"):
                monkeypatch.setattr(f"{module}.profile_for", lambda *_, c=change: replace(right, **c))
            found[kind_] = int((model_matmul(key, DEVICE, a, b, c) != want).sum())
            monkeypatch.undo()
        assert sum(found.values()) > 0, change


def test_a_failing_kernel_is_a_row_not_the_end() -> None:
    class Broken(Cpu):
        def launch(self, *args: Any, **more: Any) -> Ran:
            raise GpuError("the kernel failed: CUDA_ERROR_ILLEGAL_ADDRESS")

    row = run.check(run.WorkItem(SOME[0], "", SOME[0]), Broken(DEVICE), run.RunSettings(count=4))
    assert row.verdict == "error" and "ILLEGAL_ADDRESS" in row.error


@pytest.mark.parametrize("edge", probes.EDGES, ids=lambda e: e.name)
def test_edges_ask_some_form(edge: probes.Edge) -> None:
    asked = [f for f in forms(HOPPER)[0] if edge.asks(f)]
    assert asked
    form = min(asked, key=lambda f: f.m * f.n * f.k)
    item = run.WorkItem(f"edge {edge.name}", "", form.mnemonic, edge.name)
    found, only, wish = run.resolve(item, HOPPER)
    assert found and set(only) <= set(cases.kinds_of(form, DEVICE))
    batch = cases.build(found[0], DEVICE, 1, 16, only=only, wish=wish)
    if edge.name == "scale-d":
        assert {s.scalars["scale_d"] for s in batch.segments} == {0}
    if edge.name == "leading byte offset":
        assert len({s.scalars["b_desc"].leading_byte_offset for s in batch.segments}) > 1
    compare.model(batch, DEVICE)


# the suite ----------------------------------------------------------------------------------------------------------
FEW = run.RunSettings(count=8, machine=DEVICE, processes=1, filter=r"^(mov|ld)matrix.*b16|^mma.sync.*m16n8k16.*bf16")


def test_interrupted_runs_go_on(tmp_path: Path) -> None:
    state = tmp_path / "state.jsonl"
    seen: list[str] = []

    def stop(done: int, total: int, row: run.ItemResult | None) -> None:
        seen.extend([row.item.name] if row else [])
        if len(seen) == 3:
            raise KeyboardInterrupt

    first = run.run(FEW, state, stop)
    assert not first.complete and not first.ok and len(first.rows) == 3
    seen.append("again")
    second = run.run(FEW, state, stop)
    assert second.ok and len(second.rows) == 20 and len(set(seen)) == len(seen) == 21
    assert [r.item.name for r in second.rows] == [i.name for i in run.items(second.chip, FEW)[0]]
    state.write_text(state.read_text()[:-40])  # a line cut short
    assert run.run(FEW, state).ok
    other = run.run(replace(FEW, seed=9), state)  # another run's state is not its own
    assert other.ok and json.loads(state.read_text().splitlines()[0])["run"]["seed"] == 9


def test_a_part_has_forms_of_every_group_and_goes_on(tmp_path: Path) -> None:
    """A replay that a time limit ends, and another that takes what is left."""
    settings = run.RunSettings(replay=str(ROOT / "vectors" / DEVICE), processes=1, limit=1e-9)
    todo = run.stored_items(settings)[0]
    order, groups = run.in_turn(todo), {i.group for i in todo}
    assert {i.group for i in order[: len(groups)]} == groups and sorted(map(str, order)) == sorted(map(str, todo))
    state, few = tmp_path / "state.jsonl", replace(settings, filter="movmatrix|(ld|st)matrix.*x1")
    part = run.run(few, state)
    assert part.ok and len(part.rows) == 1 and part.left == 12 and list(report.lines(part, few))[-1].endswith(" s, 12 forms left")
    rest = run.run(replace(few, limit=0), state)
    assert rest.ok and len(rest.rows) == 13 and not rest.left and len(state.read_text().splitlines()) == 14
    head, *rows = state.read_text().splitlines()
    state.write_text("\n".join([json.dumps({**json.loads(head), "code": "other"}), *rows]))
    assert len(run.run(few, state).rows) == 1  # what other code did is done again


def test_reports(tmp_path: Path) -> None:
    outcome = run.run(FEW)
    bad = run.check(run.WorkItem(SOME[0], "mma <b>", SOME[0]), Wrong(0), FEW)
    outcome.rows.append(bad)
    for name in ("r.json", "r.html"):
        report.write(tmp_path / name, [(FEW, outcome)])
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["ok"] is False and data["runs"][0]["totals"]["wrong"] == 1
    assert len(data["runs"][0]["forms"]) == len(outcome.rows)
    page = (tmp_path / "r.html").read_text()
    assert "mma &lt;b&gt;" in page and "<b>" not in page and "16 products a chunk" in page
    text = list(report.lines(outcome, FEW))
    assert all(len(line) <= 80 for line in text if not line.startswith(("mma", "in ", "  "))), max(text, key=len)
    with pytest.raises(MmulatorError, match="must end in"):
        report.write(tmp_path / "r.txt", [])


def test_the_command_runs_without_rich() -> None:
    """For machines with a GPU and little else."""
    code = "import sys; sys.modules['rich'] = None; from mmulator.cli import main; main(sys.argv[1:])"
    words = ["conformance", "--device", "sm_90", "--processes", "1", "--filter", "^movmatrix|^ldm.*x1.b16", "--json"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0 and len(json.loads(done.stdout)["runs"][0]["forms"]) == 2, done.stderr


# vectors ------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    settings = replace(FEW, capture=True, filter=FEW.filter + "|^wgmma.mma_async.sp.*m64n8k32.f32.f16|wmma.store.*m8n8k4.f64")
    report.write_vectors(folder, run.run(settings), settings)
    return folder


def test_capture_and_replay(captured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(p.name for p in (captured / DEVICE).iterdir()) == [
        "matrix_move.npz", "mma.npz", "report.json", "wgmma.npz", "wmma.npz",
    ]  # fmt: skip
    assert mmulator(["conformance", "--vectors", str(captured), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert checked(data) == "conformance"
    assert data["ok"] and data["runs"][0]["totals"]["forms"] == 23 and data["runs"][0]["totals"]["wrong"] == 0
    assert data["runs"][0]["run"]["seed"] == 1
    assert mmulator(["conformance", "--vectors", str(captured), "--filter", "no such form"]) == 1


def test_a_clone_has_the_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package finds those of the folder that it is run in."""
    installed = tmp_path / "lib/python3/site-packages/mmulator/evaluation/conformance/vectors.py"
    monkeypatch.setattr(vectors, "__file__", str(installed))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vectors").mkdir()
    with pytest.raises(MmulatorError, match=r"and not in \./vectors"):
        vectors.default_folder()
    (tmp_path / "vectors" / "sm_90").symlink_to(ROOT / "vectors" / "sm_90")
    assert vectors.default_folder() == Path("vectors")
    executions, words, stored = vectors.extent(ROOT / "vectors")
    assert f"{words:,}" in (ROOT / "docs/explanation/fidelity.md").read_text() and stored < words and executions > 20_000


def test_replay_finds_a_wrong_vector(captured: Path) -> None:
    _, stored = vectors.read(captured / DEVICE / "mma.npz")
    (v,) = next(iter(stored.values()))
    words, digests = v.words.copy(), v.digests.copy()
    words[7] ^= 1
    digests[0] ^= np.uint64(1)
    found = vectors.replay(replace(v, words=words, digests=digests), DEVICE)
    assert found.wrong == 1 and found.first is not None and (found.first.lane, found.first.register) == (1, 3)
    found = vectors.replay(replace(v, digests=digests), DEVICE)
    assert found.wrong == 1 and "not stored" in found.error
    assert "not those" in vectors.replay(replace(v, inputs=v.inputs ^ 1), DEVICE).error


def test_errors_of_files(tmp_path: Path) -> None:
    with pytest.raises(MmulatorError, match="no vectors"):
        vectors.files(tmp_path)
    (tmp_path / "x.npz").write_bytes(b"nonsense")
    with pytest.raises(MmulatorError, match="cannot read"):
        vectors.read(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--device", "sm_90", "--gpu"], "--device goes with a replay"),
        (["--capture", "x"], "--capture goes with --gpu"),
        (["--report", "x.txt"], "must end in .json or .html"),
        (["--filter", "("], "--filter ("),
    ],
)
def test_errors_of_the_command(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mmulator(["conformance", *arguments]) == 1
    assert text in capsys.readouterr().err


def test_without_a_gpu_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def refuse(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("cuda"):
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UnsupportedError, match="bindings are not installed"):
        Gpu()


# the driver --------------------------------------------------------------------------------------------------------
class Driver:
    """cuda.bindings.driver as far as a Gpu uses it, on host memory; kernels run on the model."""

    class CUresult(IntEnum):
        CUDA_SUCCESS = 0
        CUDA_ERROR_INVALID_PTX = 218
        CUDA_ERROR_NOT_READY = 600
        CUDA_ERROR_ILLEGAL_ADDRESS = 700

    CUjit_option = SimpleNamespace(CU_JIT_ERROR_LOG_BUFFER=5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES=6)
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=75, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=76
    )

    def __init__(self) -> None:
        self.memory: dict[int, np.ndarray] = {}
        self.status = [self.CUresult.CUDA_ERROR_NOT_READY, self.CUresult.CUDA_SUCCESS]
        self.modules, self.resets = 0, 0

    def __getattr__(self, name: str) -> Any:
        answers = {"cuDeviceGetCount": 1, "cuDriverGetVersion": 13000, "cuDeviceGetName": b"Model\0\0"}
        return lambda *args: (self.CUresult.CUDA_SUCCESS, answers.get(name, 7))

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> Any:
        return self.CUresult.CUDA_SUCCESS, 9 if attribute == 75 else 0

    def cuModuleLoadDataEx(self, text: bytes, count: int, options: Any, values: Any) -> Any:
        assert text.endswith(b"\0") and len(options) == len(values) == count
        if b".entry" not in text:
            return self.CUresult.CUDA_ERROR_INVALID_PTX, None
        self.modules += 1
        return self.CUresult.CUDA_SUCCESS, Module.load(text[:-1].decode())

    def cuModuleUnload(self, module: Any) -> Any:
        self.modules -= 1
        return (self.CUresult.CUDA_SUCCESS,)

    def cuModuleGetFunction(self, module: Any, entry: bytes) -> Any:
        return self.CUresult.CUDA_SUCCESS, module[entry.decode()]

    def cuModuleGetGlobal(self, module: Any, name: bytes) -> Any:
        cell = module.variables[name.decode()].reshape(-1).view(np.uint8)
        self.memory[cell.ctypes.data] = cell
        return self.CUresult.CUDA_SUCCESS, cell.ctypes.data, cell.nbytes

    def cuMemAlloc(self, size: int) -> Any:
        place = np.zeros(size, np.uint8)
        self.memory[place.ctypes.data] = place
        return self.CUresult.CUDA_SUCCESS, place.ctypes.data

    def cuMemcpyHtoD(self, to: int, source: int, size: int) -> Any:
        assert size <= self.memory[to].size
        ctypes.memmove(to, source, size)
        return (self.CUresult.CUDA_SUCCESS,)

    def cuMemcpyDtoH(self, to: int, source: int, size: int) -> Any:
        ctypes.memmove(to, source, size)
        return (self.CUresult.CUDA_SUCCESS,)

    def cuStreamQuery(self, stream: int) -> Any:
        return (self.status[0] if len(self.status) == 1 else self.status.pop(0),)

    def cuDevicePrimaryCtxReset(self, device: int) -> Any:
        self.resets += 1
        return (self.CUresult.CUDA_SUCCESS,)

    def _argument(self, p: Parameter, place: int) -> Any:
        raw = ctypes.string_at(place, p.size)
        words = np.frombuffer(raw, "<u8").tolist() if p.size % 8 == 0 else []
        pointers = {8 * n: self.memory[w] for n, w in enumerate(words) if w in self.memory}
        if p.shape:
            return Aggregate(raw, pointers)
        return pointers.get(0, np.frombuffer(raw, f"<{p.type[0]}{p.size}")[0])

    def cuLaunchKernel(self, function: Any, *args: Any) -> Any:
        grid, block, (shared, _, table, _) = args[:3], args[3:6], args[6:]
        params = function.function.params
        places = (ctypes.c_void_p * len(params)).from_address(table)
        values = [self._argument(p, at) for p, at in zip(params, places)]
        function.launch(list(grid), list(block), values, shared, device=DEVICE)
        self.status = [self.CUresult.CUDA_ERROR_NOT_READY, *self.status[-1:]]
        return (self.CUresult.CUDA_SUCCESS,)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()
    monkeypatch.setattr("mmulator.evaluation.conformance.gpu._bindings", lambda: found)
    return found


def test_the_driver_is_used_as_it_wants(driver: Driver) -> None:
    gpu = Gpu()
    assert (gpu.chip.name, gpu.chip.device, str(gpu.chip.target), gpu.chip.cuda) == ("Model", DEVICE, "sm_90a", "13.0")
    for name in (SOME[0], SOME[3], SOME[13], SOME[-2]):
        row = run.check(run.WorkItem(name, "", name), gpu, run.RunSettings(count=20))
        assert (row.verdict, row.error) == ("same", ""), row
    assert driver.modules == 0 and driver.resets == 0
    with pytest.raises(GpuError, match="INVALID_PTX"):
        gpu.load("nonsense")
    driver.status = [driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    row = run.check(run.WorkItem(SOME[0], "", SOME[0]), gpu, run.RunSettings(count=20))
    assert row.verdict == "error" and "ILLEGAL_ADDRESS" in row.error and driver.resets == 1
    with pytest.raises(UnsupportedError, match="there is no GPU 3"):
        Gpu(3)


def test_probes_name_what_came_out() -> None:
    seen = {p.name: probes.observe(p, Cpu(DEVICE)) for p in probes.PROBES}
    assert {k: v for k, v in seen["early read"].answer.items() if v} == {"old D": 64 * 128 * 32}
    assert {k: v for k, v in seen["missing fence"].answer.items() if v} == {"C as changed": 64 * 128 * 32}
    assert "selector 2" in seen["selector 2"].error


# whole launches -----------------------------------------------------------------------------------------------------
KERNEL = stored("scaled")
LAUNCH = """ptx = "k.ptx"
grid = 1
block = 64
[[arg]]
name = "out"
type = "f32"
shape = [8, 8]
zeros = true
[[arg]]
type = "i32"
value = 40
[[arg]]
value = 1.5
[[arg]]
name = "s"
struct = [{ name = "last", type = "u32", shape = [2], zeros = true }, { type = "u32", value = 7 }]
[variables]
scale = { type = "f32", value = 3.0 }
"""


@pytest.mark.parametrize("kind", [Cpu, Gpu])
def test_backends_do_the_same(kind: type[Backend], driver: Driver) -> None:
    backend = kind()
    out, last = np.zeros(64, np.float32), np.zeros(2, np.uint32)
    kernel = Module.load(KERNEL)["k"]
    prepared = kernel.prepared(1, 64, [out, 40, 1.5, mm.struct(last, np.uint32(7))], 0, DEVICE)
    module = backend.load(KERNEL)
    backend.write(module, "scale", np.float32(3).tobytes())
    compiled = backend.compile(module, "k", DEVICE)
    for _ in range(2):
        assert backend.launch(replace(prepared, kernel=compiled)).seconds > 0
    assert (out == np.where(np.arange(64) < 40, np.float32(4.5), 0)).all() and last.tolist() == [7, 0]
    assert int.from_bytes(backend.read(module, "count"), "little") == 5 + 128
    with pytest.raises(LaunchError, match="bytes"):
        backend.write(module, "scale", b"123")
    backend.close(module)


def test_a_gpu_runs_its_own_arithmetic_as_its_driver_compiles(driver: Driver) -> None:
    gpu = Gpu()
    module = gpu.load(KERNEL)
    with pytest.raises(LaunchError, match="asks for sm_80, the GPU is sm_90"):
        gpu.compile(module, "k", "sm_80")
    with pytest.raises(UnsupportedError, match="step=True"):
        gpu.compile(module, "k", DEVICE, CompileOptions(step=True))


class Corrupting(Gpu):
    """Some elements of the first array are changed."""

    change: Sequence[tuple[int, float]] = ()

    def launch(self, launch: Launch, how: How = HOW, observers: Sequence[Observer] = ()) -> Ran:
        ran = super().launch(launch, how, observers)
        for at, value in self.change:
            launch.arguments.values[0].reshape(-1)[at] = value
        return ran


def test_launch_compared(tmp_path: Path, driver: Driver) -> None:
    (tmp_path / "k.ptx").write_text(KERNEL)
    (tmp_path / "launch.toml").write_text(LAUNCH)
    gpu = Corrupting()
    _, same = compare_launch(load_job(tmp_path / "launch.toml"), gpu)
    assert [(c.name, c.size, c.wrong) for c in same] == [("out", 64, 0), ("last", 2, 0), ("count", 1, 0)]
    assert same[0].lines(gpu.chip) == [f"out: the same bits on {gpu.chip.name}: yes (64 elements)"] and driver.modules == 0
    gpu.change = ((11, 2.0), (50, -1.0))
    _, (c, *_) = compare_launch(load_job(tmp_path / "launch.toml"), gpu)
    assert (c.wrong, c.first, c.model, c.gpu) == (2, (1, 3), "4.5 (0x40900000)", "2.0 (0x40000000)")
    (store,) = c.stores
    assert store.startswith("block (0, 0, 0), thread (11, 0, 0): st.global.f32 at") and "k.ptx:13," in store
    gpu.change = ((50, -1.0),)
    _, (c, *_) = compare_launch(load_job(tmp_path / "launch.toml"), gpu)
    assert c.lines(gpu.chip, "sm_90")[-1] == "  no thread of the model stored to it"
    assert c.lines(gpu.chip, "sm_80")[-2] == "  the model adds up as sm_80: --device sm_90 adds up as this GPU"




# sequences ----------------------------------------------------------------------------------------------------------
def test_a_suite_is_an_item(tmp_path: Path) -> None:
    """mbarrier sequences run as a form does, go into reports, and a difference is told."""
    few = replace(FEW, filter="mbarrier sequences$", count=60)
    outcome = run.run(few)
    assert outcome.ok and [r.item.group for r in outcome.rows] == ["mbarrier: states and words"]
    assert outcome.rows[0].executions > 400 and outcome.rows[0].words > outcome.rows[0].executions
    report.write(tmp_path / "r.json", [(few, outcome)])
    wrong = run.check(outcome.rows[0].item, Wrong(3, 40), few)
    assert wrong.verdict == "different" and wrong.wrong == 1 and "init" in wrong.error and "want 0x" in wrong.error
    assert not [i for i in run.items(Chip("A100", (8, 0), "none"), few)[0] if i.suite]
