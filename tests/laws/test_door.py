"""Memory has one door: nothing else makes a pointer of an address, and who subscribes there sees every access."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator.base.codegen.lang import Hook, Native
from mmulator.base.codegen.values import Builder
from mmulator.compiler import warm
from mmulator.compiler.kernel import Jit
from mmulator.host.module import Module
from mmulator.runtime.native.hooks import blocks, events, moves, operands, tensor
from mmulator.runtime.native.hooks.events import Access, Proxy
from mmulator.runtime.native.hooks.profile import PROFILE
from mmulator.runtime.native.hooks.steps import DETOURS, STEPS
from mmulator.runtime.native.hooks.timeline import TIMELINE
from mmulator.runtime.native.threads.turns import TAKES, TURNS
from mmulator.sanitizer.checks.footprint import DEPENDENT_LAUNCH
from mmulator.sanitizer.instrument import SANITIZE
from tests.support import sources
from tests.support.memory_ways import READS, WRITES, Walk, statements
from tests.support.ptx_text import stored
from tests.support.tracing import MEMORY, REGISTER, REGISTERS, TRACE, Event, traced

PACKAGE = sources.SOURCE
HOUSES = ("runtime/native/**", "runtime", "sanitizer/**", "compiler/**", "host")  # patterns of folders
NATIVE = sorted(p for p in (PACKAGE / "runtime" / "native").rglob("*.py") if p.stem != "__init__")
DOOR = "windows", "shapes"  # its files
FIELDS = {"shared", "local", "windows", "host", "params"}  # of structs: where the memory behind a kernel's addresses lies
READERS = {"field", "field_address", "warp", "launch_field"}  # that read a field by its name


def natives() -> list[Native]:
    """All of the native run time: functions of its files, and those that its factories have made for other tests."""
    found = {}
    for path in NATIVE:
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for value in vars(importlib.import_module(name)).values():
            for one in value.values() if isinstance(value, dict) else [value]:
                if isinstance(one, Native) and not isinstance(one, Hook):
                    found[one.name] = one
    return list(found.values())


def made_pointers(text: str) -> list[str]:
    """Pointers made of integers, but for those to functions, which are called and nothing else."""
    names = re.findall(r"(%\w+) = inttoptr ", text)
    return [n for n in names if re.search(rf"{n}\b(?! = inttoptr|\()", text)]


# the law ------------------------------------------------------------------------------------------------------------
def test_only_the_door_makes_pointers_of_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """In LLVM text: of the run time, of whatever kernels with every way into memory call, and of their blocks."""
    called: dict[str, Native] = {f.name: f for f in natives()}
    blocks: list[Builder] = []
    write = Jit._write

    def keep(jit: Jit, block: Any, natives: dict[str, Native]) -> Builder:
        blocks.append(builder := write(jit, block, natives))
        called.update(natives)
        return builder

    monkeypatch.setattr(Jit, "_write", keep)
    monkeypatch.setattr(warm, "key", lambda *_: None)  # nothing that an earlier process kept
    Module.load(walk().text)["k"].compile()
    Module.load(PIPELINE)["k"].compile()
    assert len(called) > 100 and blocks
    waiting, texts = list(called.values()), {}
    while waiting:
        one = waiting.pop()
        if one.name not in texts:
            builder, calls = one.build()
            texts[one.name] = builder.text()
            waiting += calls
            called[one.name] = one
    for name, text in texts.items():
        module = getattr(called[name], "function", natives).__module__
        if made_pointers(text):
            assert module in [f"mmulator.runtime.native.memory.{file}" for file in DOOR], f"{name} makes a pointer of an integer"
    for b in blocks:
        assert not made_pointers(b.text()), b.name


def test_only_the_door_knows_where_memory_lies() -> None:
    """runtime/launch/, which places memory and passes it on, is Python, and not looked at."""
    for path in sorted(p for house in HOUSES for p in PACKAGE.glob(f"{house}/*.py")):
        _knows_not_where_memory_lies(path)


def _knows_not_where_memory_lies(path: Path) -> None:
    text = sources.text(path)
    if not re.search("call_pointer|ptr|POINTERS|" + "|".join(FIELDS), text):
        return
    made = re.findall(r"(?<!call_pointer\()\b(?:ptr|POINTERS|ptr\.vec\(\d+\))\([^)]*\)", text)
    assert not made or path.stem in DOOR, f"{made}: pointers are made at the door"
    for node in ast.walk(sources.tree(path)):
        name = node.attr if isinstance(node, ast.Attribute) and "native" in path.parts else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS:
            first = node.args[0] if node.args else None
            name = first.value if isinstance(first, ast.Constant) else None
        if name in FIELDS:
            assert path.stem in DOOR, f"{ast.unparse(node)}: {name} is the door's"


# observers ----------------------------------------------------------------------------------------------------------
@cache
def walk() -> Walk:
    return Walk(statements())


@pytest.mark.full
def test_every_way_into_memory_passes_the_door() -> None:
    """Of each row the bytes that it accesses, all of them and no others, and what it does there."""
    w = walk()
    for number, s in enumerate(w.statements):
        address = w.base(s.space)
        if w.allowed(number, address) is False:
            continue  # parameters and constants cannot be written
        found = [e for e in w.trace(number, address) if e.kind == MEMORY and w.is_statement(number, e.instruction)]
        wanted = Access(0)
        if s.access in READS:
            wanted |= Access.READ
        if s.access in WRITES:
            wanted |= Access.WRITE
        ends = s.name.startswith(("mbarrier.init", "mbarrier.inval"))  # they write, and are no operations of a phase
        wanted = Access.WRITE if ends else wanted
        window, offset = w.place(s, address) or ("", 0)
        start = w.windows[window][0] + offset if window else 0
        seen = [e for e in found if e.access & (Access.READ | Access.WRITE) == wanted]  # of a copy one side
        if s.access in ("none", "aligned", "first"):
            assert not found, s.name
            continue
        touched = set().union(*(e.touched for e in seen))
        assert touched == set(range(start, start + s.size)), f"{s.name}: {sorted(touched)[:4]} ... of {start}"
        later = Access.LATER if s.later else Access(0)
        assert {e.access & (Access.READ | Access.WRITE | Access.LATER) for e in seen} == {wanted | later}, s.name
        assert (s.access == "both" and not ends) == any(e.access & Access.ATOMIC for e in seen), s.name


PIPELINE = stored("ways_into_memory")
SHARED, LOCAL, PARAM = 1 << 32, 2 << 32, 4 << 32


def test_asynchronous_operations_parameters_and_frames() -> None:
    """What has no address of its own in the text: operands of wgmma, a kernel's parameters, frames, registers in flight."""
    module = Module.load(PIPELINE)
    out = np.zeros(128 * 4, np.uint32)
    first = module.image.next_slot << 32
    found = traced(module["k"], 1, 128, [out, 5], seed=3)
    memory = [e for e in found if e.kind == MEMORY]

    def of(name: str) -> list[Event]:
        return [e for e in memory if e.instruction is not None and re.match(name, e.instruction.mnemonic)]

    def bytes_of(name: str, access: Access = Access.READ | Access.WRITE) -> set[int]:
        return set().union(*(e.touched for e in of(name) if e.access & access))

    assert bytes_of(r"ld\.param\.u64") == set(range(PARAM, PARAM + 8))
    assert {m for e in of(r"ld\.param\.u32") for m in [e.mask]} == {0xFFFFFFFF} and len(of(r"ld\.param\.u32")) == 4
    assert bytes_of("cp.async", Access.READ) == set(range(first, first + 2048))
    assert bytes_of("cp.async", Access.WRITE) == set(range(SHARED + 1024, SHARED + 1024 + 2048))
    operands = of("wgmma")
    assert {e.proxy for e in operands} == {Proxy.ASYNC} and {e.proxy for e in memory if e not in operands} == {Proxy.GENERIC}
    assert sum(len(e.touched) for e in operands) == 64 * 16 * 2 + 2 * 8 * 16 * 2  # A once, B twice
    assert bytes_of("wgmma") == set(range(SHARED + 1024, SHARED + 3072)) | set(range(SHARED + 3072, SHARED + 3328))
    own = bytes_of(r"st\.local")
    assert len(own) == 4 and own == bytes_of(r"ld\.local") and min(own) >> 32 == LOCAL >> 32
    assert {a >> 32 for e in of("call|st\\.param|ld\\.param\\.b32|ret") for a in e.touched} == {LOCAL >> 32}
    assert {e.access & Access.WRITE for e in of("call")} == {Access(0), Access.WRITE}  # arguments to the frame, and the results
    assert bytes_of(r"st\.global", Access.WRITE) == {first + 16 * n + i for n in range(128) for i in range(4)}

    registers = [(e.instruction.opcode, e.access & Access.WRITE, e.count) for e in found if e.kind == REGISTERS and e.instruction]
    assert registers.count(("wgmma", Access.WRITE, 4)) == 4  # D, of four warps, at the wait
    assert registers.count(("wgmma", Access(0), 4)) == 8  # D before, and A
    one = [e.instruction.mnemonic for e in found if e.kind == REGISTER and e.instruction and e.access == Access.READ]
    assert one.count("add.f32") == 8 and one.count("mov.f32") == 12  # two registers, and three, of four warps


def test_events_of_several_workers_are_all_there() -> None:
    text = PIPELINE[: PIPELINE.index(".func")] + """
.visible .entry k(.param .u64 out) { .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p;
  ld.param.u64 %rd0, [out]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, 0;
L: red.global.add.u32 [%rd0], 1; add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 100; @%p bra L; ret; }
"""
    out = np.zeros(1, np.uint32)
    found = [e for e in traced(Module.load(text)["k"], 16, 32, [out], threads=4) if e.access & Access.ATOMIC]
    assert out[0] == 16 * 32 * 100
    assert np.bincount([e.cta for e in found]).tolist() == [100] * 16


def test_without_an_observer_nothing_is_there() -> None:
    """A hook leaves no trace in the code of the run time; with one, only what reaches a hook is another function."""
    files = blocks, events, moves, operands, tensor
    hooks = {name for file in files for name, value in vars(file).items() if isinstance(value, Hook)}
    heard = TRACE, SANITIZE, DEPENDENT_LAUNCH, PROFILE, TIMELINE, STEPS, DETOURS, TURNS, TAKES
    assert hooks == {hook for instrument in heard for hook in instrument.hooks}
    for function in natives():
        text = "".join(b.text() for b in [function.build()[0]])
        assert not any(f"@{h}(" in text for h in hooks) and "trace" not in text, function.name
        for instrument in (TRACE, SANITIZE):
            other = function.under(instrument)
            called = {f.name for f in instrument.hooks.values()}
            found = re.findall(r"@([\w.]+)\(", other.build()[0].text()) if other else []
            assert other is function or any(n in called or n.endswith(f".{instrument.name}") for n in found[1:]), function.name
