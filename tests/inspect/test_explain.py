"""`explain` and `list`: laws over every form; the text to paste is verified and assembled; what the commands say."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from mmulator.base.rules import RULES, TOPICS
from mmulator.base.source import Source, Span
from mmulator.cli.app import run
from mmulator.cli.output import print_error
from mmulator.errors import InvalidInstructionError, MmulatorError, OperandError, UnsupportedError
from mmulator.inspect import Explanation, explain, find_forms, group
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.form import Form
from mmulator.isa.matrix import FAMILIES, matrix_forms
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.isa.targets import DEVICES, TARGETS, Target
from mmulator.matrix.inspect.explanation import topics
from mmulator.matrix.inspect.explanation.arithmetic import runs_on
from mmulator.matrix.inspect.explanation.explain import explain_form
from mmulator.matrix.inspect.explanation.paste import function_name, nvcc_options, paste_target, ptx_text, signatures
from mmulator.matrix.inspect.listing import shape_set
from mmulator.matrix.instruction.instruction import Instruction
from mmulator.matrix.layouts import fragment
from mmulator.matrix.numerics.profiles import dot_key, profile_for
from mmulator.ptx.parser import parse_module
from mmulator.ptx.verify import verify
from tests.support.places import ROOT

FORMS = list(dict.fromkeys(matrix_forms()))


@pytest.fixture(scope="module")
def explained() -> dict[str, tuple[Form, Explanation]]:
    return {form.mnemonic: (form, explain_form(form)) for form in FORMS}


Explained = dict[str, tuple[Form, Explanation]]


# laws over all forms ------------------------------------------------------------------------------------------------
def test_operands_are_those_of_execute(explained: Explained) -> None:
    """Register counts, lanes and elements per register are the fragments' that `execute` uses."""
    for form, e in explained.values():
        fragments = [o for o in e.operands if o.element]
        assert {o.name for o in e.operands} >= {s.name for signature in form.signatures for s in signature if not s.parts}
        for o in fragments:
            rule = fragment(form, o.name)
            assert (o.registers, o.lanes, o.per_register) == (rule.registers, rule.lanes, rule.per_register), (e.mnemonic, o)
            assert (o.rows, o.columns) == (rule.rows, rule.columns)
            assert str(Instruction(form).layout(o.name).element_type) == o.element
        if form.atype:
            assert {o.name for o in fragments} >= {"d", "a"}


def ptx_module(form: Form, target: Target | None = None) -> str:
    """A whole module, one kernel for each way to write the statement: for ptxas, and for `mmulator check`."""
    chosen, version = paste_target(form, target)
    out = f".version {version[0]}.{version[1]}\n.target {chosen}\n.address_size 64\n"
    for way in range(len(signatures(form))):
        body = "".join(f"    {line}\n" for line in ptx_text(form, way).splitlines())
        out += f"\n.visible .entry kernel{way}()\n{{\n{body}    ret;\n}}\n"
    return out


def test_every_paste_verifies(explained: Explained) -> None:
    """On the lowest target and on the highest that has the form; the statement names the form and nothing else does."""
    for form, e in explained.values():
        for target in {form.requires.targets()[0], form.requires.targets()[-1]}:
            module = parse_module(Source(e.mnemonic, ptx_module(form, target)))
            assert verify(module) == (), e.mnemonic
            for kernel in module.entries:
                names = [i.mnemonic for i in kernel.instructions]
                assert names.count(e.mnemonic) == 1
        assert e.snippets[0].ptx in e.ptx and e.mnemonic in e.ptx


PTXAS = shutil.which("ptxas")


@pytest.mark.skipif(PTXAS is None, reason="ptxas is not on PATH: the sample of pasted statements is not assembled")
def test_a_sample_assembles(tmp_path: Path) -> None:
    """Every seventeenth form and the first of each group, by ptxas; for a target that ptxas still has."""
    assert PTXAS
    options = subprocess.run([PTXAS, "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"'(sm_\d+[af]?)'", options.partition("--gpu-name")[2].partition("\n\n")[0]))
    sample = {*FORMS[::17], *(parse_mnemonic(g.mnemonics[0]) for g in group(FORMS))}
    batches: dict[tuple[Target, tuple[int, int]], list[Form]] = {}
    for form in sorted(sample, key=str):
        target = next((t for t in form.requires.targets() if str(t) in known), None)
        if target is not None:
            batches.setdefault((target, paste_target(form, target)[1]), []).append(form)
    assembled = 0
    for (target, version), forms in batches.items():
        text = f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n"
        for n, form in enumerate(forms):
            text += ptx_module(form, target).partition("\n\n")[2].replace("kernel", f"k{n}_") + "\n"
        file = tmp_path / "sample.ptx"
        file.write_text(text)
        command = [PTXAS, f"-arch={target}", "-O0", "-o", str(tmp_path / "out.cubin"), str(file)]
        done = subprocess.run(command, capture_output=True, text=True)
        if "Unsupported .version" not in done.stderr:  # this ptxas is older than the form
            assert done.returncode == 0, (target, forms[0].mnemonic, done.stderr)
            assembled += len(forms)
    assert assembled > 150


NVCC = shutil.which("nvcc")
CALLED = ("wgmma m64n16 f16", "wgmma.fence", "wmma load f16", "mma m8n8k4 f16 f32", "mma mxf4nvf4", "ldmatrix x4 trans")


def kernel_that_calls(e: Explanation) -> str:
    """CUDA source: the paste, and kernels that call its functions with members of a struct."""
    out = e.cuda
    for way, snippet in enumerate(e.snippets):
        head = re.search(r"void (\w+)\(([^{]*)\) \{", snippet.cuda)
        assert head is not None
        parameters = [p.strip() for p in head[2].split(",") if p.strip()]
        members = "".join(f" {re.sub(r'const|&|[()]', '', p)};" for p in parameters)
        names = ", ".join(f"s->{name}" for p in parameters for name in re.findall(r"(\w+)\)?(?:\[\d+\])?$", p))
        out += f"struct S{way} {{{members} }};\n__global__ void kernel{way}(S{way} *s) {{ {head[1]}({names}); }}\n"
    return out


@pytest.mark.skipif(NVCC is None, reason="nvcc is not on PATH: no kernel that calls a pasted function is compiled")
@pytest.mark.parametrize("words", CALLED)
def test_kernels_that_call_the_paste_compile_as_it_says(words: str, tmp_path: Path) -> None:
    assert NVCC
    e = explain(words)
    text = kernel_that_calls(e)
    (tmp_path / "paste.cu").write_text(text)
    options = text.partition("// nvcc ")[2].partition("\n")[0].split()
    command = [NVCC, *options, "-cubin", "-o", str(tmp_path / "out"), str(tmp_path / "paste.cu")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{options}\n{done.stderr}\n{text}"
    assert e.mnemonic in text


def test_nvcc_is_told_a_target_that_it_compiles_for() -> None:
    assert "// nvcc -gencode arch=compute_90a,code=sm_90a\n" in explain("wgmma").cuda
    assert "// nvcc -arch=sm_75\n" in explain("wmma load f16").cuda
    assert "// nvcc -arch=sm_70 (CUDA 12)\n" in explain("wmma load f16", "sm_70").cuda
    for form in FORMS:
        assert "CUDA 12" not in nvcc_options(form), form.mnemonic


def test_cuda_functions_fit_their_statement(explained: Explained) -> None:
    """Placeholders are numbered without gaps, as many as there are constraints; names are C identifiers, one a form."""
    names = {}
    for form, e in explained.values():
        name = function_name(form)
        assert re.fullmatch(r"[a-z]\w*", name) and names.setdefault(name, e.mnemonic) == e.mnemonic
        for snippet, (_, operands) in zip(e.snippets, signatures(form), strict=True):
            text = snippet.cuda
            used = {int(n) for n in re.findall(r"%(\d+)", text)}
            constraints = re.findall(r'"([=+]?[frldn])"\(', text)
            assert used == set(range(len(constraints))), text
            written = sum(s.count if s.kind == "registers" else 1 for s in operands if s.access != "r")
            assert [c[0] in "=+" for c in constraints] == [True] * written + [False] * (len(constraints) - written)
            assert text.count("(") == text.count(")") and e.mnemonic in text
            between_registers = form.is_move and form.effects.memory is MemoryEffect.NONE
            assert ('"memory"' in text) == (form.op != "mma" and not between_registers)


def test_targets_arithmetic_and_rules(explained: Explained) -> None:
    for form, e in explained.values():
        assert [Target.parse(name) for name, _ in e.targets] == [t for t in sorted(TARGETS) if form.requires.admits(t)]
        assert [a.device for a in e.arithmetic] == [d for d in DEVICES if form.atype and runs_on(form, d)]
        for a in e.arithmetic:
            p = profile_for(dot_key(form), a.device)
            assert a.confidence == p.confidence and a.method == p.method
            if a.chunk is not None:
                assert (a.chunk, a.fraction, a.floor) == (p.chunk, p.fraction, p.floor)
                assert f"{p.fraction} bits below" in a.words and f"({'at least'} {p.floor})" in a.words
        assert e.rules[0].undefined and all(r.section and r.text.endswith(".") for r in e.rules)
        assert len(set(e.rules)) == len(e.rules)


def test_related_instructions_exist(explained: Explained) -> None:
    for form, e in explained.values():
        for r in e.related:
            other = parse_mnemonic(r.instruction)
            assert other.mnemonic == r.instruction != e.mnemonic
            if "counterpart" in r.relation:
                assert other.sparse != form.sparse and (other.m, other.n) == (form.m, form.n)
                back = explained[r.instruction][1].related
                assert any("counterpart" in b.relation for b in back)


def test_json_round_trip(explained: Explained) -> None:
    keys = None
    for _, e in list(explained.values())[::29]:
        data = json.loads(json.dumps(e.to_dict()))
        keys = keys or set(data)
        assert set(data) == keys >= {"mnemonic", "operands", "arithmetic", "rules", "ptx", "cuda", "related", "targets"}
        assert data["operands"] == json.loads(json.dumps([vars(o) for o in e.operands]))


def test_wmma_alignment_and_stride_are_what_execute_asks() -> None:
    """The numbers in the rules are the smallest that `execute` takes."""
    for form in FORMS:
        if not form.op.startswith(("load", "store")) or form.space:
            continue
        e = explain_form(form)
        texts = " ".join(r.text for r in e.rules)
        align, stride = int(re.findall(r"aligned to (\d+) bytes", texts)[0]), int(re.findall(r"at least (\d+)", texts)[0])
        i = Instruction(form)
        rule = fragment(form, "r")
        operands = {"memory": np.zeros(1 << 16, np.uint8)}
        if form.op == "store.d":
            operands["r"] = np.zeros((32, rule.registers), f"u{rule.register_bits // 8}")
        i.execute(p=align, stride=stride, **operands)
        for wrong in ({"p": align // 2, "stride": stride}, {"p": 0, "stride": stride - 1}):
            with pytest.raises(OperandError):
                i.execute(**wrong, **operands)


# finding -------------------------------------------------------------------------------------------------------------
def test_every_name_finds_itself() -> None:
    """A mnemonic is found whole, and with its parts in disorder as the first or among the matches."""
    for form in FORMS[::7]:
        assert explain_first(form.mnemonic) == form.mnemonic
        words = form.mnemonic.replace(".", " ")
        assert form in find_forms(words), words


def explain_first(text: str) -> str:
    return explain(text).mnemonic


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("wgmma m64n128 bf16", "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"),
        ("wgmma sparse fp8 n64", "wgmma.mma_async.sp.sync.aligned.m64n64k64.f32.e4m3.e4m3"),
        ("mma.sp f8f6f4 e2m1", "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32"),
        ("nvfp4", "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"),
        ("ldmatrix x4 trans", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
        ("stmatrix", "stmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("mma 16x8x16 half", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("mma bf16, f32", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        ("WMMA load b", "wmma.load.b.sync.aligned.row.m16n16k16.f16"),
        ("load a bf16", "wmma.load.a.sync.aligned.row.m16n16k16.bf16"),
        ("mma col row", "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32"),
        ("xor popc b1", "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc"),
        ("wgmma wait", "wgmma.wait_group.sync.aligned"),
        ("mma s8 satfinite", "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%d0,%d1,%d2,%d3}, {%a0};",
         "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
    ],
)  # fmt: skip
def test_words_find_what_people_mean(text: str, name: str) -> None:
    assert explain_first(text) == name


def test_target_and_version_narrow() -> None:
    assert all(f.requires.admits(Target(80)) for f in find_forms("bf16", "sm_80"))
    assert {f.requires.ptx for f in find_forms("mma", ptx="6.5")} <= {(6, 4), (6, 5)}
    assert explain("mma fp8", "sm_120a", device="sm_120").arithmetic[0].device == "sm_120"


@pytest.mark.parametrize(
    ("text", "options", "error", "words"),
    [
        ("wgma m64", {}, InvalidInstructionError, "did you mean wgmma"),
        ("mma bfloat1", {}, InvalidInstructionError, "did you mean bfloat16"),
        ("", {}, InvalidInstructionError, "for example"),
        ("wgmma f64", {}, InvalidInstructionError, "without `wgmma`: mma.sync"),
        ("mma m16n8k12 f16", {}, InvalidInstructionError, "nearest shape: mma.sync.aligned.m16n8k16"),
        ("wgmma bf16", {"target": "sm_80"}, InvalidInstructionError, "sm_90a and PTX 8.0"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.bf16", {}, InvalidInstructionError, "cannot be the ctype"),
        ("add.f32", {}, UnsupportedError, "Floating-Point Instructions: add"),
        ("mbarrier.init", {}, UnsupportedError, "mbarrier"),
        ("mma", {"target": "sm_1"}, OperandError, "not a known target"),
        ("mma", {"ptx": "9"}, OperandError, "not a PTX version"),
        ("wgmma", {"device": "sm_80"}, UnsupportedError, "devices that have it: sm_90"),
        ("mma", {"device": "sm_1"}, UnsupportedError, "known devices"),
    ],
)  # fmt: skip
def test_errors_say_what_is_near(text: str, options: dict[str, str], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        explain(text, **options)  # type: ignore[arg-type]


# groups ---------------------------------------------------------------------------------------------------------------
def test_groups_hold_every_form_once() -> None:
    """A group stands for exactly the product of its choices, and all groups together for all forms."""
    groups = group(FORMS)
    names = [m for g in groups for m in g.mnemonics]
    assert sorted(names) == sorted(f.mnemonic for f in FORMS)
    for g in groups:
        count = 1
        for _, texts in g.choices:
            count *= len(texts)
        assert count == len(g.mnemonics), g.pattern


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ([f"m64n{n}k16" for n in range(8, 257, 8)], "m64n{8..256}k16"),
        ([f"m64n{n}k32" for n in (8, 16, 24, *range(32, 257, 16))], "m64n{8..32,48..256}k32"),
        (["m16n8k8", "m16n8k16"], "m16n8k{8,16}"),
        (["m16n16k16", "m8n32k16", "m32n8k16"], "m16n16k16 m8n32k16 m32n8k16"),
        (["m8n8"], "m8n8"),
    ],
)
def test_shape_sets(shapes: list[str], text: str) -> None:
    assert shape_set(shapes) == text


# commands -------------------------------------------------------------------------------------------------------------
def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run([*arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("family", FAMILIES)
def test_explain_fits_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    """No line is longer than 80 columns, but for one that is a single name."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for form in [f for f in FORMS if f.family == family][::23]:
        code, out, err = said(capsys, "explain", form.mnemonic)
        assert code == 0 and err == "" and "\x1b[1m" in out
        for line in re.sub(r"\x1b\[\d+m", "", out).split("\n"):
            assert len(line) <= 80 or len(line.split()) == 1 or form.mnemonic in line or function_name(form) in line, line


def test_list_fits_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert max(map(len, said(capsys, "list")[1].splitlines())) > 80  # whole lines for other programs
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = said(capsys, "list")
    assert code == 0 and max(map(len, out.splitlines())) <= 80


def test_errors_fit_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Folded there, the lines of the source cut around the caret; whole elsewhere."""
    source = Source("x.ptx", f"    mma{' ' * 90}.oops;")
    error = MmulatorError("what is wrong " * 9, span=Span(source, 97, 102), rule="which rule " * 9, hint="what to do " * 9)
    print_error(error, as_json=False)
    assert capsys.readouterr().err == f"error: {error}\n"
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    print_error(error, as_json=False)
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 60
    at = next(n for n, line in enumerate(lines) if line.strip() == "^" * 5)
    assert lines[at - 1][lines[at].index("^") :].startswith(".oops")
    words = " ".join(" ".join(lines[: at - 1] + lines[at + 1 :]).split())
    assert words == " ".join(f"error: {error}".replace(f"  mma{' ' * 90}.oops;", "").replace("^", "").split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full: a full disk is not tried")
@pytest.mark.parametrize("words", [("list", "wgmma"), ("layout", "wgmma m64n256 bf16", "d", "--json")])
def test_a_full_disk_is_no_bug(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "mmulator", *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: cannot write the output: No space left on device\n")


def test_targets_and_devices_without_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "list", "--target", "sm_50")
    assert (code, out) == (1, "") and "no matrix instructions for .target sm_50" in err and "sm_70" in err
    for words in (("explain", "mma"), ("list",), ("layout", "mma", "a")):
        assert "unsupported: unknown device 'sm_1'" in said(capsys, *words, "--device", "sm_1")[2]


@pytest.mark.parametrize("version", ["99.0", "8.9"])
def test_versions_that_do_not_exist(capsys: pytest.CaptureFixture[str], version: str) -> None:
    for name in ("explain", "list"):
        code, out, err = said(capsys, name, "mma", "--ptx", version)
        assert (code, out) == (1, "") and f"PTX ISA {version} is not known" in err


def test_only_what_is_to_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    e = explain("wgmma m64n16 f16")
    assert said(capsys, "explain", "wgmma", "m64n16", "f16", "--ptx-only") == (0, e.ptx, "")
    assert said(capsys, "explain", "wgmma m64n16 f16", "--cuda-only") == (0, e.cuda, "")
    assert said(capsys, "explain", "wgmma", "--cuda-only", "--json")[0] == 2


def test_json_of_both(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "explain", "mma", "tf32", "--json", "--device", "sm_90")
    data = json.loads(out)
    assert code == 0 and data["ok"] and [a["device"] for a in data["arithmetic"]] == ["sm_90"]
    code, out, _ = said(capsys, "list", "--type", "bf16", "--target", "sm_90a", "--json")
    data = json.loads(out)
    assert code == 0 and data["forms"] == sum(g["forms"] for g in data["groups"]) == len(find_forms("bf16", "sm_90a"))
    code, out, _ = said(capsys, "explain", "nonsense", "--json")
    assert code == 1 and not json.loads(out)["ok"]
    code, out, _ = said(capsys, "list", "--family", "tcgen", "--json")
    assert code == 1 and "no such family" in json.loads(out)["errors"][0]["message"]


def listed(capsys: pytest.CaptureFixture[str], *options: str) -> set[str]:
    code, out, _ = said(capsys, "list", "--full", *options)
    assert code == 0
    return set(out.split())


def test_list_filters(capsys: pytest.CaptureFixture[str]) -> None:
    every = {f.mnemonic for f in FORMS}
    assert listed(capsys) == every
    where = {f.mnemonic for f in FORMS if f.requires.admits(Target(90, "a"))}
    assert listed(capsys, "--target", "sm_90a") == where
    assert listed(capsys, "--target", "sm_90a", "--ptx", "8.0") < where
    assert listed(capsys, "--family", "wgmma", "--shape", "n128", "--sparse") == {
        f.mnemonic for f in FORMS if f.family == "wgmma" and f.n == 128 and f.sparse
    }
    assert listed(capsys, "--device", "sm_70") == {f.mnemonic for f in FORMS if runs_on(f, "sm_70")}
    assert listed(capsys, "wgmma", "fp8", "--dense") == {
        f.mnemonic for f in FORMS if f.family == "wgmma" and not f.sparse and str(f.atype) in ("e4m3", "e5m2")
    }
    code, out, _ = said(capsys, "list", "--target", "sm_90a", "--type", "bf16")
    assert code == 0 and "wgmma.mma_async.m64n{8..256}k16.f32.bf16.bf16" in out


def process(*arguments: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    program = f"{sys.executable} -m mmulator {' '.join(arguments)} {shell}"
    return subprocess.run(["bash", "-c", program], capture_output=True, text=True, env={**os.environ, **environment})


@pytest.mark.parametrize("arguments", [("explain", "wgmma"), ("list", "--full"), ("list", "--json")])
def test_a_reader_that_leaves_is_no_error(arguments: tuple[str, ...]) -> None:
    done = process(*arguments, shell="| head -n 1")
    assert done.returncode == 0 and done.stderr == "" and len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    code, out, err = said(capsys, "--show-completion", shell)
    assert code == 0 and err == "" and "_MMULATOR_COMPLETE=complete_" + shell in out


def completed(line: str) -> Iterator[str]:
    """What bash is offered for the last word of a line."""
    words = line.split(" ")
    program = "import sys; from mmulator.cli import main; sys.argv = ['mmulator']; main([])"
    import os

    environment = {
        **os.environ, "_MMULATOR_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stderr == ""
    yield from done.stdout.split()


def test_completion_offers_words_that_fit() -> None:
    assert [*completed("mmulator expla")] == ["explain"]
    assert [*completed("mmulator explain wgmma bf")] == ["bf16"]
    assert "sm_90a" in completed("mmulator list --target sm_9")
    assert [*completed("mmulator explain wgmma.mm")] == ["wgmma.mma_async"]


def test_explain_imports_no_compiler() -> None:
    code = (
        "import sys; from mmulator.cli import main\n"
        "try: main(['explain', 'wgmma', 'bf16'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'llvmlite', 'rich', 'ml_dtypes'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


# notebooks ------------------------------------------------------------------------------------------------------------
class Balanced(HTMLParser):
    """Fails where an element is not closed, or something is loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert not {"src", "href", "onclick"} & {name for name, _ in attributes} and tag != "script"
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("family", FAMILIES)
def test_html(family: str) -> None:
    e = explain(family)
    page = e._repr_html_()
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert not parser.open and e.mnemonic in page and "<table>" in page


def test_concepts_are_words_of_their_own_and_lead_on(capsys: pytest.CaptureFixture[str]) -> None:
    """No rule has such a name; pages are there, and commands are legal, which are not asked for a launch file."""
    assert not set(topics.WORDS) & ({*RULES} | {*TOPICS})
    for word, topic in topics.WORDS.items():
        assert topics.topic_of([word.upper().replace("-", "_")]) is topic and (ROOT / "docs" / topic.page).exists()
    for topic in topics.TOPICS:
        code, out, _ = said(capsys, "explain", topic.name)
        assert code == 0 and all(line in out for line in topic.picture) and len(out.splitlines()) < 40
        for _, command in topic.commands:
            assert said(capsys, *shlex.split(command.partition("   ")[0])[1:])[0] == 0, command
    assert said(capsys, "explain", "swizle")[2].endswith("\n  hint: did you mean the concept swizzle?\n")
