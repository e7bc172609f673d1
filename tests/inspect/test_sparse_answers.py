"""mmulator sparse, and mmulator.inspect for sparse operands: they say what `execute` uses."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mmulator as mm
from mmulator.cli.app import run
from mmulator.errors import OperandError
from mmulator.inspect import metadata_word, metadata_words, pattern_report
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.matrix.layouts import sparse

F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
BF16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32"
S4 = "mma.sp.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32"
KINDS: list[Form] = list({(f.family, f.k, f.atype, f.kind, f.ordered_metadata): f for f in matrix_forms() if f.sparse}.values())


def seeded(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape)


# data ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", KINDS, ids=str)
def test_words_say_what_the_instruction_keeps(form: Form) -> None:
    """All lanes together tell every kept column of every row once, for every selector, from the registers alone."""
    i = mm.Instruction(form)
    g = sparse.granularity(form)
    nibbles = np.random.default_rng(1).choice(np.array(g.nibbles, np.uint8), (form.m, form.k // g.chunk))
    values = np.zeros((form.m, form.k // 2), np.int8)
    s = sparse.Compressed(values, nibbles, form)
    columns = sparse.indices(nibbles, form)
    for selector in sparse.selectors(form):
        told: dict[int, list[int]] = {row: [] for row in range(form.m)}
        for word in metadata_words(i, s, selector):
            assert word.contributes and word.defined and word.word == s.registers(selector)[word.lane]
            for n in word.nibbles:
                assert n.value == nibbles[n.row, n.chunk] == word.word >> n.bits[0] & 15
                told[n.row] += n.keeps
        assert all(sorted(told[row]) == columns[row].tolist() for row in told)


@pytest.mark.parametrize("form", KINDS, ids=str)
def test_every_nibble_value_is_explained_as_the_specification_has_it(form: Form) -> None:
    for value in range(16):
        n = metadata_word(mm.Instruction(form), word=value).nibbles[0]
        assert n.defined == (not sparse.undefined(np.array(value), form))
        assert n.keeps == (tuple(sparse.indices(np.array([[value]]), form)[0].tolist()) if n.defined else ())
        assert n.meaning.startswith("keeps") == n.defined


def test_words_of_single_lanes() -> None:
    i = mm.Instruction.parse(F16)
    word = metadata_word(i, 5, 0, 0xE9C84EED)
    assert [n.keeps for n in word.nibbles[:2]] == [(17, 19), (22, 23)]
    assert [[n.row for n in run] for run in word.runs()] == [[1] * 4, [9] * 4]
    assert not metadata_word(i, 6, 0).contributes and metadata_word(i, 6, 1).contributes
    assert word.to_dict()["hex"] == "0xe9c84eed" and "<td>16..19</td>" in word._repr_html_()
    json.dumps(word.to_dict())
    for bad in ((32, 0, 0), (0, 2, 0), (0, 0, 1 << 32)):
        with pytest.raises(OperandError):
            metadata_word(i, *bad)


def test_pattern_report_counts_and_places() -> None:
    i = mm.Instruction.parse(F16)
    a = sparse.prune(seeded(2, 40, 64).astype(np.float16), i)
    assert pattern_report(a, i).ok
    a[1, 37, 12:16] = [1, 2, 0, 3]
    report = pattern_report(a, i)
    (first,) = report.first
    assert (report.too_dense, report.chunks, first.batch, first.row, first.columns) == (1, 1280, (1,), 37, (12, 15))
    assert first.values == ("1.0", "2.0", "0.0", "3.0") and not report.to_dict()["ok"]
    assert "<td>37</td>" in report._repr_html_() and "1 of 1,280 chunks" in report._repr_html_()


# command line -------------------------------------------------------------------------------------------------------
@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = run(["sparse", *words])
    out = capsys.readouterr()
    return code, out.out + out.err


MATRICES = {
    F16: seeded(40, 96).astype(np.float16),
    BF16: seeded(40, 96).astype(ml_dtypes.bfloat16),
    S4: np.random.default_rng(2).integers(-8, 8, (20, 256)).astype(ml_dtypes.int4),
    "mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32": seeded(16, 64).astype(ml_dtypes.float8_e4m3fn),
    "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32": seeded(64, 16).astype(np.float32),
}


@pytest.mark.parametrize("text", MATRICES)
def test_files_there_and_back(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Types that NumPy saves without a name too."""
    a = MATRICES[text]
    i = mm.Instruction.parse(text)
    np.save("A.npy", a)
    assert call(capsys, "check", "A.npy", "--for", text)[0] == 1
    assert call(capsys, "prune", "A.npy", "--for", text, "-o", "P.npy")[0] == 0
    assert call(capsys, "check", "P.npy", "--for", text)[0] == 0
    assert call(capsys, "compress", "A.npy", "--for", text, "--prune", "-o", "S.npz")[0] == 0
    assert call(capsys, "expand", "S.npz", "-o", "Q.npy")[0] == 0
    assert Path("P.npy").read_bytes() == Path("Q.npy").read_bytes()
    assert np.load("P.npy").tobytes() == sparse.prune(a, i).tobytes()
    t = sparse.compress(sparse.prune(a, i), i).tiles()
    code, out = call(capsys, "lanes", "S.npz", "--for", text, "--json")
    assert code == 0
    words = {w["lane"]: int(w["hex"], 16) for w in json.loads(out)["lanes"]}
    assert words == {lane: t.registers()[0, 0, lane] for lane in words} and len(words) * 8 == t.metadata[0, 0].size


@pytest.mark.parametrize("backend", ["cutlass", "cusparselt"])
def test_files_of_pytorch(backend: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    i = mm.Instruction.parse(BF16)
    a = sparse.prune(seeded(128, 128).astype(ml_dtypes.bfloat16), i)
    np.save("A.npy", a)
    assert call(capsys, "compress", "A.npy", "--for", BF16, "--pytorch", backend, "-o", "T.npz")[0] == 0
    assert call(capsys, "expand", "T.npz", "-o", "Q.npy")[0] == 0
    assert np.load("Q.npy").tobytes() == a.tobytes()
    packed, meta = sparse.to_torch(sparse.compress(a, i), backend)
    np.savez("foreign.npz", packed=packed.view(np.uint16), **({} if meta is None else {"meta": meta}))
    assert call(capsys, "expand", "foreign.npz", "--for", BF16, "--shape", "128,128", "-o", "R.npy")[0] == 0
    assert np.load("R.npy").tobytes() == a.tobytes()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("mma.sp m16n8k32 f16", F16.replace("mma.sp", "mma.sp::ordered_metadata")),
        (
            "mma.sp m16n8k64 f16 e5m2 e4m3",
            "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f16.e5m2.e4m3.f16",
        ),
        ("wgmma sp bf16", "wgmma.mma_async.sp.sync.aligned.m64n128k32.f32.bf16.bf16"),
    ],
)
def test_an_instruction_in_a_few_words(words: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(call(capsys, "lanes", "--for", words, "--json")[1])["instruction"] == text


def test_type_reads_raw_bits_and_rounds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = seeded(16, 32).astype(np.float32)
    want = sparse.prune(a.astype(ml_dtypes.bfloat16), mm.Instruction.parse(BF16)).tobytes()
    np.save("wide.npy", a)
    np.save("raw.npy", a.astype(ml_dtypes.bfloat16).view(np.uint16))
    for name in ("wide.npy", "raw.npy"):
        assert call(capsys, "prune", name, "--for", BF16, "--type", "bf16", "-o", "P.npy")[0] == 0
        assert np.load("P.npy").tobytes() == want


def test_output_fits_eighty_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("A.npy", seeded(40, 96).astype(np.float16))
    np.save("P.npy", sparse.prune(np.load("A.npy"), mm.Instruction.parse(F16)))
    for words in (
        ("check", "A.npy", "--for", F16),
        ("lanes", "--for", F16, "--selector", "1"),
        ("lanes", "P.npy", "--for", F16),
        ("lanes", "P.npy", "--for", F16, "--lane", "4", "--tile", "1,2"),
        ("decode", "0xe9c84e06", "--for", F16),
    ):
        _, out = call(capsys, *words)
        assert len(out.splitlines()) > 8 and max(len(line.rstrip()) for line in out.splitlines()) <= 80, out


def test_undefined_nibbles_are_said_and_end_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = call(capsys, "decode", "0xe9c84e05", "--for", F16, "--lane", "4")
    assert code == 1 and "undefined: names element 1 twice" in out and "15, 15" not in out
    code, out = call(capsys, "decode", "0xe9c84e05", "--for", F16, "--json")
    assert code == 1 and [n["defined"] for n in json.loads(out)["nibbles"]] == [False, False, *[True] * 6]
    assert call(capsys, "decode", "0xe9c84e6e", "--for", F16)[0] == 0
    ordered = F16.replace("mma.sp", "mma.sp::ordered_metadata")
    code, out = call(capsys, "decode", "0xe9c84e6e", "--for", ordered)
    assert code == 1 and "out of order" in out
    assert "does not contribute" in call(capsys, "lanes", "--for", F16, "--lane", "2")[1]


def test_refusals(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = np.zeros((16, 32), np.float16)
    a[3, 8:12] = 1
    np.save("A.npy", a)
    np.save("three.npy", np.zeros((2, 16, 32), np.float16))
    np.save("opaque.npy", np.zeros((16, 32), "V4"))
    Path("text.npy").write_text("no array")
    Path("damaged.npz").write_bytes(b"PK\3\4zzzz")
    Path("short.npy").write_bytes(Path("A.npy").read_bytes()[:200])
    np.savez("other.npz", x=a)
    dense = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    for words, text in (
        (("compress", "A.npy", "--for", F16, "-o", "S.npz"), "row 3, columns 8 to 11 (chunk 2)"),
        (("compress", "A.npy", "--for", F16, "--prune", "--pytorch", "cusparselt", "-o", "S.npz"), "does not document"),
        (("check", "missing.npy", "--for", F16), "cannot read missing.npy: No such file"),
        (("check", "text.npy", "--for", F16), "no .npy or .npz"),
        (("check", "damaged.npz", "--for", F16), "cannot read damaged.npz: it is damaged"),
        (("check", "short.npy", "--for", F16), "cannot read short.npy: it is damaged"),
        (("compress", "A.npy", "--for", F16, "-o", "S.npz"), "--prune"),
        (("check", "other.npz", "--for", F16), "a .npy of one matrix"),
        (("check", "opaque.npy", "--for", F16), "--type says"),
        (("check", "A.npy", "--for", F16, "--type", "f17"), "'f17' is no element type"),
        (("check", "A.npy", "--for", dense), "no sparse operand"),
        (("check", "A.npy", "--for", "mma f64"), "no sparse operand"),
        (("check", "A.npy", "--for", "mma.sp f16"), "several sparse instructions: mma m16n8k32 .f16, mma m16n8k16 .f16"),
        (("check", "A.npy", "--for", "wgmma sp m16"), "no matrix instruction fits"),
        (("check", "A.npy", "--for", "mma.sp.nonsense"), "invalid instruction"),
        (("prune", "A.npy", "--for", F16, "-o", "P.txt"), "must end in .npy"),
        (("prune", "A.npy", "--for", F16, "-o", "none/P.npy"), "cannot write none/P.npy: No such"),
        (("expand", "other.npz", "-o", "P.npy"), "no `values`"),
        (("lanes", "three.npy", "--for", F16), "one matrix [M, K]"),
        (("lanes", "three.npy", "--for", F16, "--tile", "x"), "two numbers"),
        (("lanes", "--for", F16, "--selector", "2"), "selector 2"),
        (("lanes", "--for", F16, "--lane", "32"), "lanes 0 to 31"),
        (("decode", "0x123456789", "--for", F16), "32 bits"),
        (("decode", "e4", "--for", F16), "'e4' is no number"),
    ):
        code, out = call(capsys, *words)
        assert code == 1 and text in out and "bug" not in out, (words, out)
        code, out = call(capsys, *words, "--json")
        assert code == 1 and not json.loads(out)["ok"]
    assert not list(Path().glob("[PS].*"))
    assert call(capsys, "decode", "1")[0] == 2
