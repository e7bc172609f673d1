"""Small programs that are wrong, with what is said of them: tests/ub.

A file TOPIC/NAME.ptx has comments that say the launch, its revisions, and which line a finding points at; programs/NAME.cu and
NAME.py are whole programs, for `mmulator exec --sanitize`:

    //! grid=1, block=128, args=["f16[64,16]", "f32[64,8] 0", "u32 16"], shared=4096
    fence.proxy.async;               //@ no_fence:
    wgmma.wait_group.sync.aligned 0; //@ late: wgmma.wait_group.sync.aligned 1;
    mov.f32 %f0, %f8;                //~[late] wgmma-read-early
    trap;                            //~ TRAP

A revision is the program with its lines replaced by what follows the colon, or removed: `//@ a: .. //@ b, c: ..` for several, on
several lines for one. `//~[a, b] rule, other`: so are the rules of the findings at this line, for these revisions; without
brackets for the program as it stands. A fault without findings is named by its kind (TRAP, DEADLOCK), another error by its class;
what points at no line is marked at the line of the launch. NAME.txt has the whole text that a user reads, for each revision;
`python -m tests.ub --bless` writes it.

Of the launch: keywords of Kernel.launch, and sanitize="strict" (False: without the sanitizer; "static": no launch, the text is
judged). args: type[shape] and a constant, or random numbers; `u32 16`: a scalar; `null`: a null pointer; `f16[64,64] box=64,32
swizzle=64B`: a tensor map of an array; `u32[9] filled=8`: memory of the driver's, of which the host has written so many bytes
(the other arrays are then the driver's, too, and filled); a map's, too, behind its swizzle. entry="name": of several kernels.
seeds=3: what so many seeds find, told as one, and counted; of arrays that are filled, whether they leave one result, too.
habits=["a-rule"]: notes that the kernel has, as what compilers make has, whatever is changed. memory=[(0x700000000000, "u32[64]
0", "a table")]: arrays at these addresses. host=[(0x5000, 0x6000, "the heap")]: memory of a program of C++ that no kernel may
use. freed=[(0x5000, 0x6000, "device memory", "main at a.cu:7")]: memory that was freed. `//! a, b: grid=2`: what the launch has
instead for these revisions. What a host program does with several kernels stands in lines that begin with `//>`
(tests/support/steps.py). A line `// nvcc -g` of a NAME.cu names more options of nvcc.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

import mmulator as mm
from mmulator.base.findings import WIDTH, counted, paragraphs, union
from mmulator.base.rules import RULES, Severity
from mmulator.host.driver import Driver, Region, Settings
from mmulator.ptx.program.static import static_findings
from mmulator.runtime.launch.regions import FREED
from mmulator.runtime.options import CompileOptions
from mmulator.sanitizer.diagnostics.faults.memory import host_memory
from tests.support import forks, places, steps
from tests.support.nvcc import nvcc
from tests.support.waiting import PATIENCE

ROOT = places.ROOT / "tests" / "ub"
# The body of a kernel with one finding, of this rule (tests/support/ptx_text.py: kernel).
RULE = "mbarrier-init-in-use"
TWICE = """
  .shared .align 8 .b64 bar;
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra done;
  mbarrier.init.shared.b64 [bar], 1;
  mbarrier.init.shared.b64 [bar], 1;
done:
"""
SAID = re.compile("//[@~]")
CHANGE = re.compile(r"//@ (\w+(?:, \w+)*):((?:(?!//[@~]).)*)")
_LAUNCH = re.compile(r"//!(?: (\w+(?:, \w+)*):)? (.*)")
_MARK = re.compile(r"(?://|#)~(?:\[([\w, ]+)\])? ([\w-]+(?:, [\w-]+)*)")
Mark = tuple[int, str]  # a line of the program, and the rule that is broken there
_SECTION = re.compile(r"^== ?(\w*)\n", re.M)
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?: (\S+))?")
_FILLED = re.compile(r"(.*) filled=(\d+)")
_MAP = re.compile(r"(.*) box=([\d,]+) swizzle=(\w+)")
_TYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "c128": np.complex128,
    **{f"{s}{b}": np.dtype(f"{n}{b}").type for s, n in (("s", "int"), ("u", "uint")) for b in (8, 16, 32, 64)},
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A revision of a program. name: "" for the program as it stands. marks: what must be found, no more and no less."""

    file: Path
    name: str
    marks: frozenset[Mark]

    @property
    def rules(self) -> frozenset[str]:
        return frozenset(rule for _, rule in self.marks)

    def __str__(self) -> str:
        return f"{self.file.parent.name}/{self.file.stem}" + (f": {self.name}" if self.name else "")


@cache
def files(topic: str) -> tuple[Path, ...]:
    return tuple(sorted((ROOT / topic).glob("*.ptx")))


def every() -> list[Path]:
    return sorted(file for ending in ("ptx", "cu", "py") for file in ROOT.glob(f"*/*.{ending}"))


def changes(file: Path) -> list[Change]:
    """The revisions of a program, without the program as it stands."""
    return revisions(file)[1:]


@cache
def revisions(file: Path) -> list[Change]:
    found: dict[str, set[Mark]] = {"": set()}
    lines = file.read_text().splitlines()
    for line in lines:
        names = ", ".join(names for names, _ in (*_LAUNCH.findall(line), *CHANGE.findall(line)) if names)
        found |= {name: set() for name in names.split(", ") if name not in found}
    for n, line in enumerate(lines, 1):
        for names, rules in _MARK.findall(line):
            for name in names.split(","):
                found[name.strip()] |= {(n, rule) for rule in rules.split(", ")}
    return [Change(file, name, frozenset(marks)) for name, marks in found.items()]


def text(file: Path, change: str | None = None) -> str:
    """The program as it stands or a revision of it. Lines keep their numbers."""
    lines = []
    for line in file.read_text().splitlines():
        code = SAID.split(line)[0]
        for names, instead in CHANGE.findall(line):
            if change in names.split(", "):
                code = instead.strip()
        lines.append(code)
    return "\n".join(lines) + "\n"


def launch_of(file: Path, change: str | None = None) -> dict[str, Any]:
    said = (_LAUNCH.fullmatch(SAID.split(line)[0]) for line in file.read_text().splitlines())
    own = [found[2] for found in said if found and (not found[1] or change in found[1].split(", "))]
    return {key: value for one in own for key, value in eval(f"dict({one})", {"__builtins__": {"dict": dict}}).items()}


def _map(array: np.ndarray, said: re.Match[str]) -> mm.TensorMap:
    return mm.TensorMap.tiled(array, tuple(int(n) for n in said[2].split(",")), swizzle=said[3])


def _argument(said: str, chance: np.random.Generator) -> Any:
    if found := _MAP.fullmatch(said):
        return _map(_argument(found[1], chance), found)
    if found := _ARRAY.fullmatch(said):
        kind, shape, constant = found.groups()
        extents = tuple(int(n) for n in shape.split(",") if n)
        dtype = np.dtype(_TYPES[kind])
        if constant is not None:
            return np.full(extents, float(constant) if {*".n"} & {*constant} else int(constant, 0)).astype(dtype)
        return chance.integers(-3, 4, extents).astype(dtype) if kind[0] != "u" else chance.integers(0, 8, extents).astype(dtype)
    if said == "null":
        return None
    kind, _, value = said.partition(" ")
    return float(value) if kind[0] in "fb" else int(value, 0)


@lru_cache(maxsize=1)
def _loaded(ptx: str, name: str) -> mm.Module:
    return mm.Module.load(ptx, name=name)


def module_of(file: Path, change: str | None) -> mm.Module:
    """One for several seeds, unless it has variables, which launches leave as they are."""
    ptx = text(file, change)
    found = _loaded(ptx, file.name)
    return mm.Module.load(ptx, name=file.name) if found.variables else found


def launch(file: Path, change: str | None = None, seed: int = 0, **more: Any) -> Any:
    """The report of a launch; of one that is refused or faults, the error, which has its findings."""
    said: dict[str, Any] = {"sanitize": "strict", "seed": seed, "timeout": PATIENCE, "args": []} | launch_of(file, change) | more
    habits, own, seeds = said.pop("habits", ()), said.pop("host", ()), said.pop("seeds", 0)
    FREED.clear()
    FREED.extend((range(a, b), name, partial(str, by)) for a, b, name, by in said.pop("freed", ()))
    filled = any(_FILLED.fullmatch(a) for a in said["args"])
    if seeds and not filled:
        runs = [launch(file, change, n, **more, seeds=0) for n in range(seed, seed + seeds)]
        return SimpleNamespace(findings=union(run.findings for run in runs), runs=seeds)
    host_memory[:] = [lambda at: next(((range(a, b), name) for a, b, name in own if a <= at < b), None)] if own else []
    try:
        if steps.is_program(file):
            settings = {name: said[name] for name in ("sanitize", "seed", "timeout", "threads") if name in said}
            return steps.run(text(file, change), file.name, **settings)
        if said["sanitize"] == "static":
            return SimpleNamespace(findings=static_findings(module_of(file, change).tree))
        if filled:
            result = on_the_driver(file, change, said | {"seeds": max(seeds, 1)})
        else:
            chance = np.random.default_rng(0)
            module, args = module_of(file, change), [_argument(a, chance) for a in said.pop("args")]
            said["memory"] = [Region.of(at, _argument(array, chance), name) for at, array, name in said.get("memory", ())]
            kernel = module[said.pop("entry", next(iter(module)))]
            if not said["timeout"]:
                kernel.compile(options=CompileOptions(clusters="cluster" in said))  # which takes longer
            result = kernel.launch(args=args, **said)
    except mm.errors.MmulatorError as error:
        result = error
    return without(result, habits) if habits else result


def on_the_driver(file: Path, change: str | None, said: dict[str, Any]) -> Any:
    """Run a text on arrays that a driver has allocated and the host has filled, or a part of them."""
    kind = {"device": said["device"]} if "device" in said else {}
    kind |= {"sanitize": said["sanitize"], "seed": said["seed"], "timeout": said["timeout"], "threads": said.get("threads")}
    kind["seeds"] = said["seeds"]
    driver = Driver(Settings(**kind))
    driver.readers.clear()
    chance, params = np.random.default_rng(0), b""
    for one in said["args"]:
        found = _FILLED.fullmatch(one)
        one = found[1] if found else one
        mapped = _MAP.fullmatch(one)
        value = _argument(mapped[1] if mapped else one, chance)
        if isinstance(value, np.ndarray):
            memory = driver.memory.allocate(value.nbytes, "device memory", watched=True)
            size = int(found[2]) if found else value.nbytes
            memory.bytes()[:size] = value.view(np.uint8).ravel()[:size]
            driver.memory.wrote(memory.address, size)
            if mapped:
                there = memory.bytes().view(value.dtype).reshape(value.shape)
                params += bytes(-len(params) % 64) + _map(there, mapped).encode(memory.address)
                continue
            value, size = memory.address, 8
        else:
            size = 8 if value >> 32 else 4
        params += bytes(-len(params) % size) + value.to_bytes(size, "little")
    loaded = driver.load(text(file, change), file.name)
    extents = [((said[name], 1, 1) if isinstance(said[name], int) else tuple(said[name])) for name in ("grid", "block")]
    return driver.launch(loaded.function(next(iter(loaded.module))), *extents, params, shared=said.get("shared", 0))


def without(result: Any, habits: Sequence[str]) -> Any:
    """A report, or the error of a fault, that says nothing of some rules of severity note."""
    assert all(RULES[habit].severity is Severity.NOTE for habit in habits)
    kept = tuple(f for f in result.findings if f.rule not in habits)
    if isinstance(result, mm.errors.MmulatorError):
        result.findings = kept
        return result
    return replace(result, findings=kept)


def rules_found(result: Any) -> frozenset[str]:
    return frozenset(f.rule for f in result.findings)


# what is said -----------------------------------------------------------------------------------------------------------
def marks_found(file: Path, result: Any) -> frozenset[Mark]:
    """The lines that findings point at, with their rules; without findings that of an error, with its kind."""
    found = {(steps.line_of(f), f.rule) for f in result.findings}
    if isinstance(result, mm.errors.MmulatorError) and not found:
        kind = getattr(result, "fault", "") or type(result).__name__
        head = next(n for n, line in enumerate(file.read_text().splitlines(), 1) if line.startswith("//!"))
        found.add((result.span.line if result.span else head, kind))
    return frozenset(found)


def said(result: Any) -> str:
    """What a user reads of a launch: the error that ended it, the findings, and the sanitizer's notes."""
    runs = getattr(result, "runs", 1)
    whole = [*getattr(result, "asserted", ()), str(result)] if isinstance(result, mm.errors.MmulatorError) else []
    whole += ["\n".join(lines) for lines in paragraphs(result.findings, WIDTH, runs)]
    whole += [note for note in getattr(result, "notes", ()) if note.startswith("sanitizer: ")]
    return "".join(f"{text}\n" for text in (*whole, *([counted(result.findings)] if runs > 1 else [])))


@cache
def output(file: Path) -> tuple[str, frozenset[Mark]]:
    """What a user reads who runs a program of CUDA C++ or Python under `mmulator exec --sanitize`, and the lines that it names.

    Addresses and lines of PTX are left out: an allocator and a compiler choose them.
    """
    environment = {"COLUMNS": f"{WIDTH}", "PYTHONWARNINGS": "ignore", "TRITON_DEFAULT_FP_FUSION": "1"}
    with TemporaryDirectory() as folder:
        environment["TRITON_CACHE_DIR"] = f"{folder}/.triton"  # a kernel of another folder's file names lines that are gone
        copy(file, folder)
        command = [sys.executable, file.name]
        if file.suffix == ".cu":
            target = "-gencode", "arch=compute_90a,code=[compute_90a,sm_90a]"
            more = re.findall(r"^// nvcc (.*)", file.read_text(), re.M)
            nvcc(*target, *more, "-lineinfo", "-cudart", "shared", "-o", file.stem, file.name, cwd=folder, check=True)
            command = [str(Path(folder, file.stem))]
        command = ["-m", "mmulator", "exec", "--sanitize", *command]
        done = forks.run(command, Path(folder), os.environ | environment, together=True)
    text = re.sub(rf"/\S*/(?={file.name})", "", re.sub(r"\b0x[0-9a-f]{9,}", "0x...", done.stdout))
    told = re.findall(rf"(?:\(|^){file.name}:(\d+)\)?: (?:error|warning|note): (?:(?!\n\n)[^\[])*\[([\w,\s-]+)\]", text, re.M)
    marks = frozenset((int(line), rule) for line, rules in told for rule in re.split(r",\s+", rules))
    return re.sub(r"(\.ptx|<ptx>):\d+((:|, )\d+)*", r"\1:N", text), marks


def golden_of(file: Path) -> Path:
    return file.with_suffix(".txt" if file.suffix == ".ptx" else f"{file.suffix}.txt")


def texts(file: Path) -> dict[str, str]:
    """The texts of NAME.txt, by revision; an empty one is left out."""
    golden = golden_of(file)
    found = _SECTION.split(golden.read_text())[1:] if golden.exists() else []
    return dict(zip(found[::2], found[1::2]))


def bless(file: Path) -> bool:
    """Write NAME.txt anew. Returns whether it was another text."""
    if file.suffix == ".ptx":
        new = {c.name: said(launch(file, c.name, threads=1)) for c in revisions(file)}
    else:
        new = {"": output(file)[0]}
    golden, whole = golden_of(file), "".join(f"== {name}\n{text}" for name, text in new.items() if text)
    if whole == (golden.read_text() if golden.exists() else ""):
        return False
    golden.write_text(whole)
    return True
