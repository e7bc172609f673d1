"""Second starts: a kernel that was compiled before is neither parsed nor lowered, and is the same kernel."""

import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import mmulator as mm
from mmulator.base.codegen import references
from mmulator.base.codegen.engine import _quick
from mmulator.base.codegen.store import _HEADER, _MAGIC, store
from mmulator.base.codegen.types import Struct, i64, ptr, u64
from mmulator.base.source import Source
from mmulator.compiler import warm
from mmulator.compiler.kernel import Jit
from mmulator.host.cpu import Cpu
from mmulator.host.text import Text, _key, verified
from mmulator.ptx.program.outline import as_data, of_data
from mmulator.runtime import code
from mmulator.runtime.compiled import CompiledKernel
from mmulator.runtime.native.hooks.steps import STEPS
from mmulator.runtime.native.hooks.touched import WATCH
from mmulator.runtime.options import DEFAULT, CompileOptions
from mmulator.sanitizer.instrument import SANITIZE
from tests.support import corpus
from tests.support.places import ROOT
from tests.support.ptx_text import STORE_R1, kernel
from tests.support.waiting import wait_until

# Of each kind of table, operation, variable and call some: products one by one and as one, sparse and scaled ones, wgmma, copies,
# bulk operations, tensor maps, clusters, indirect branches and calls, device printf, variables with addresses in them.
KERNELS = (
    "gemm_f16_odd_sm90", "gemm_f16_odd_sm80", "gemm_descriptor_bf16_sm90", "attention_causal_sm90", "gemm_s8_sm80",
    "pipeline_roles", "barrier_bulk", "boxes_nan", "cluster_sums", "gemm_tma_300x264x200", "made_here", "block_scan", "warp_lock",
)  # fmt: skip
UNLOWERED = "import sys; sys.modules['mmulator.compiler.kernel'] = None\n"
KNOWING = (
    "ptx.parser", "ptx.tree", "isa.table", "isa.effects", "ptx.program.blocks", "base.codegen.lang", "base.codegen.values",
    "matrix.layouts", "matrix.twin",
)  # fmt: skip
UNPARSED = UNLOWERED + (
    f"sys.modules.update(dict.fromkeys(('mmulator.' + n for n in {KNOWING}), None), **{{'llvmlite.binding': None}})\n"
)
RUN = """
import os, sys
import numpy as np, mmulator as mm
out = np.zeros(32, np.uint32)
report = mm.Module.load(sys.argv[1])["k"].launch(1, 32, [out])
assert (out == np.arange(32) + int(sys.argv[2])).all()
print(report.cached, report.instructions, report.notes)
"""


def start(program: str, *arguments: object, cache: Path) -> str:
    environment = {**os.environ, "MMULATOR_CACHE": str(cache)}
    words = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def ptx(tmp_path: Path) -> Path:
    path = tmp_path / "k.ptx"
    other = time.time_ns() & 0xFFFFFF  # so that nobody has compiled it
    path.write_text(kernel(f"mov.u32 %r2, %laneid; mov.u32 %r3, {other}; add.u32 %r1, %r2, {os.getpid()};" + STORE_R1))
    return path


@pytest.mark.full
def test_kernels_of_another_process_have_the_bits_of_an_h200(tmp_path: Path) -> None:
    program = "import sys\nfrom tests.support import corpus\nfor n in sys.argv[1:]: assert not corpus.launch(n).differences, n"
    assert set(KERNELS) <= set(corpus.manifest())
    for before in ("", UNLOWERED):
        start(before + program, *KERNELS, cache=tmp_path / "cache")


def test_a_second_start_knows_no_instruction(tmp_path: Path, ptx: Path) -> None:
    first, second = (start(before + RUN, ptx, os.getpid(), cache=tmp_path / "cache") for before in ("", UNPARSED))
    assert first.startswith("False") and second == first.replace("False", "True")


@pytest.mark.full
def test_kernels_that_other_processes_compile_at_once(tmp_path: Path, ptx: Path) -> None:
    environment = {**os.environ, "MMULATOR_CACHE": str(tmp_path / "cache")}
    words = [sys.executable, "-c", RUN, str(ptx), str(os.getpid())]
    running = [subprocess.Popen(words, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [process.wait() for process in running] == [0] * 4
    assert start(UNPARSED + RUN, ptx, os.getpid(), cache=tmp_path / "cache").startswith("True")


FAULT = """
import sys
import numpy as np, mmulator as mm
try:
    mm.Module.load(sys.argv[1])["k"].launch(1, 32, [np.zeros(4, np.uint32)])
except mm.errors.ExecutionFault as fault:
    print(fault)
    print("mmulator.ptx.parser" in sys.modules)
"""


def test_a_fault_of_a_second_start_says_the_same(tmp_path: Path, ptx: Path) -> None:
    first, second = (start(FAULT, ptx, cache=tmp_path / "cache") for _ in range(2))
    assert "st.global" in first and second == first


# entries ----------------------------------------------------------------------------------------------------------------
def run(text: str) -> CompiledKernel:
    loaded, out = mm.Module.load(text)["k"], np.zeros(32, np.uint32)
    loaded.launch(1, 32, [out], device="sm_90")
    assert (out == np.arange(32) + os.getpid()).all()
    return loaded.compile("sm_90")


def place(key: str | None) -> Path:
    kept = store()
    assert kept is not None and key is not None
    return kept.path / f"{key}.o"


def broken(data: bytes) -> dict[str, bytes]:
    middle, head = len(data) // 2, _HEADER.size
    body = data[head:]
    return {
        "empty": b"", "short": data[:middle], "no head": data[:20], "longer": data + b"x",
        "of another": data[:8] + bytes(32) + data[40:],
        "changed": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        **{how: signed(data[8:40], other) for how, other in {
            "no JSON": body[3:], "a list": b"[]\n", "a number": b"1", "nothing": b"{}\n",
            "other code": body.replace(b'"run_clusters"', b'"walk_clusters"'),
            "no code": body.replace(b'"code":["', b'"code":["0'),
        }.items()},
    }  # fmt: skip


def signed(key: bytes, code: bytes) -> bytes:
    """An entry that proves itself, whatever is in it."""
    return _HEADER.pack(_MAGIC, key, hashlib.sha256(code).digest(), len(code)) + code


def test_a_kernel_whose_entry_does_not_fit_is_compiled_as_if_there_were_none(ptx: Path) -> None:
    text = ptx.read_text()
    first = run(text)
    entry = place(warm.key(text, "k", "sm_90", DEFAULT))
    assert not first.from_cache
    again = run(text)
    assert again.from_cache and asdict(again.facts) == json.loads(json.dumps(asdict(first.facts)))
    whole = entry.read_bytes()
    for how, data in broken(whole).items():
        entry.write_bytes(data)
        assert isinstance(run(text).lower, warm._Again) == (data == whole), how
        assert entry.read_bytes() == whole, how
    for key in first.blocks.keys:  # the code is not there any more
        for path in (place(key), place(_quick(key))):
            path.unlink(missing_ok=True)
    place(code._key_of_records(first.blocks.keys)).unlink()
    assert not run(text).from_cache and run(text).from_cache


def test_a_text_whose_outline_does_not_fit_is_parsed_as_if_there_were_none(ptx: Path) -> None:
    source = Source("k.ptx", ptx.read_text())
    assert Text.load(source)._tree is not None and Text.load(source)._tree is None
    entry = place(_key(source))
    whole = entry.read_bytes()
    for how, data in broken(whole).items():
        entry.write_bytes(data)
        assert (Text.load(source)._tree is not None) == (data != whole), how


def test_a_text_is_read_once_for_all_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    other = time.time_ns() & 0xFFFFFF  # so that no earlier run has kept the outline
    kernels = "".join(f".visible .entry several{n}() {{ .reg .b32 %r; mov.b32 %r, {other + n}; ret; }}\n" for n in range(3))
    read: list[Source] = []
    monkeypatch.setattr("mmulator.host.text.verified", lambda source: read.append(source) or verified(source))
    module = mm.Module.load(f".version 8.0\n.target sm_80\n.address_size 64\n{kernels}")
    for n, one in enumerate(module.values()):
        assert module.text._tree is not None, n
        one.compile()
        one.compile()
    assert len(read) == 1 and module.text._tree is None


def test_an_outline_is_what_the_tree_says(tmp_path: Path) -> None:
    for path in sorted(corpus.FOLDER.glob("*/*.ptx")):
        text = Text.of(verified(Source(path.name, path.read_text())))
        data = json.loads(json.dumps(as_data(text.outline)))
        assert of_data(data, text.source) == text.outline, path.name


def test_what_is_compiled_otherwise_has_another_entry(ptx: Path) -> None:
    ways = [CompileOptions(contract=a, step=b, waits=c, clusters=d) for a, b, c, d in product((False, True), repeat=4)]
    keys = {warm.key("text", entry, device, way) for entry in ("k", "l") for device in ("sm_80", "sm_90") for way in ways}
    assert len(keys) == 64 and None not in keys and warm.key("text ", "k", "sm_90", DEFAULT) not in keys
    also = product((WATCH, STEPS), (False, True), (False, True))
    watched = [CompileOptions(events=i, keep_going=a, watched=b) for i, a, b in also]
    assert len({warm.key("text", "k", "sm_90", way) for way in watched} - keys - {None}) == 8


@pytest.mark.parametrize("options", [DEFAULT, CompileOptions(events=SANITIZE, waits=True)], ids=["plain", "sanitized"])
def test_places_name_the_instructions_of_the_sites(options: CompileOptions) -> None:
    for name in KERNELS[:4]:
        path = next(corpus.FOLDER.glob(f"*/{name}.ptx"))
        tree = verified(Source(path.name, path.read_text()))
        kernel = Cpu().compile(Cpu().load(tree), tree.entries[0].name, "sm_90", options)
        image = kernel.image
        jits = [Jit(tree, tree.entries[0], image, "sm_90", options) for _ in range(2)]
        written, located = jits[0].written(), jits[1].located(kernel.facts.places)
        assert len(located.sites) == len(written.sites) > 0, name
        for mine, theirs in ((located.sites, written.sites), (located.executed, written.executed)):
            assert [(i.span.start, i.mnemonic) for i in mine] == [(i.span.start, i.mnemonic) for i in theirs], name


def test_an_answer_that_takes_the_source_is_stored(ptx: Path) -> None:
    def lines(kernel: CompiledKernel, *given: str) -> tuple[object, ...]:
        asked.append(given)
        return tuple((i.mnemonic, i.span.line) for i in kernel.sites), (), None

    def numbers(kernel: CompiledKernel) -> np.ndarray:
        asked.append(())
        return np.arange(len(kernel.sites), dtype=np.uint32)

    asked: list[tuple[str, ...]] = []
    text = ptx.read_text()
    first = run(text)
    known = first.once_stored(lines, "a"), first.once_stored(lines, "b"), first.once_stored(numbers)
    assert first.once_stored(lines, "a") is known[0] and len(asked) == 3
    again = run(text)
    assert again is not first and again.from_cache
    assert (again.once_stored(lines, "a"), again.once_stored(lines, "b")) == known[:2]
    assert (again.once_stored(numbers) == known[2]).all() and again.once_stored(numbers).dtype == np.uint32
    assert len(asked) == 3 and "_lowered" not in vars(again)


def test_a_tree_that_somebody_made_is_no_text(ptx: Path) -> None:
    """Its source may say something else."""
    tree = verified(Source("k.ptx", ptx.read_text()))
    cpu = Cpu()
    for _ in range(2):
        loaded = cpu.load(tree)
        assert not isinstance(cpu.compile(loaded, "k", "sm_90").lower, warm._Again)


def test_a_second_start_takes_the_better_code_and_makes_it_if_there_is_none(ptx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ptx.read_text()
    assert not run(text).blocks.best  # quick code
    again = run(text)
    assert again.from_cache and not again.blocks.best
    first = again.code.tolist()
    monkeypatch.setattr(code, "LONG", 0.0)
    monkeypatch.setattr(code, "LONG_WORD", 0.0)
    again.blocks.improve()
    wait_until(lambda: again.blocks.best, "better code")
    assert not set(first) & set(again.code.tolist())
    third = run(text)
    assert third.from_cache and third.blocks.best


# addresses --------------------------------------------------------------------------------------------------------------
INNER = Struct("TestInner", [("count", i64), ("values", ptr)])
OUTER = Struct("TestOuter", [("code", u64), ("number", u64), ("inner", ptr), ("nothing", ptr)], functions=("code",))


def test_arrays_keep_what_they_refer_to() -> None:
    values = np.arange(7, dtype=np.int32)
    inner, outer = np.zeros(1, INNER.numpy_dtype()), np.zeros(2, OUTER.numpy_dtype())
    inner["count"], inner["values"] = 7, values.ctypes.data
    outer["inner"], outer["number"], outer["code"] = inner.ctypes.data, 5, 0x7F00_0000_1000
    written = references.LinkedArrays([values, inner, outer], {0x7F00_0000_1000: "f"}.get)
    at = written.add(outer)
    assert written.add(outer) == at
    memory = references.memory_of(written.data, written.references, {"f": 0x7EEE_0000_2000})
    found = memory[at : at + outer.nbytes].view(OUTER.numpy_dtype())
    assert found["code"].tolist() == [0x7EEE_0000_2000] * 2 and found["number"].tolist() == [5, 5] and not found["nothing"].any()
    inside = (int(n) - memory.ctypes.data for n in found["inner"])
    for place in inside:
        copy = memory[place : place + inner.nbytes].view(INNER.numpy_dtype())
        start = int(copy["values"][0]) - memory.ctypes.data
        assert memory[start : start + 28].view(np.int32).tolist() == values.tolist() and copy["count"][0] == 7


@pytest.mark.parametrize(("field", "value"), [("code", 0x7F00_0000_1008), ("inner", 8), ("number", 0x7F00_0000_1000)])
def test_an_address_without_a_name_is_not_kept(field: str, value: int) -> None:
    outer = np.zeros(1, OUTER.numpy_dtype())
    outer[field] = value
    with pytest.raises(references.Unknown):
        references.LinkedArrays([outer], {0x7F00_0000_1000: "f"}.get).add(outer)
    with pytest.raises(references.Unknown):
        references.LinkedArrays([], {}.get).add(np.array([0x7F00_0000_1000]))
