"""Kernels that are right, and changes of a line or two that break a rule: the sanitizer's corpus.

A file of tests/sanitizer/kernels/TOPIC/ is a clean module with comments that say the launch and the changes:

    //! grid=1, block=128, args=["f16[64,16]", "f32[64,8] 0", "u32 16"], shared=4096
    fence.proxy.async;               //@ no_fence[proxy-fence-missing]:
    wgmma.wait_group.sync.aligned 0; //@ late[wgmma-read-early]: wgmma.wait_group.sync.aligned 1;

A change has a name and the rules that it breaks, all of them; its lines are replaced by what follows the colon, or removed. One
line may belong to several changes (`//@ a[..]: .. //@ b[..]: ..`), one change to several lines. Arrays: type[shape] and a
constant, or random numbers; `u32 16`: a scalar; `f16[64,64] box=64,32 swizzle=64B`: a tensor map of an array; `u32[9] filled=8`:
memory of the driver's, of which the host has written so many bytes (the other arrays are then the driver's, too, and filled).
habits=["proxy-fence-missing-refill"]: notes that the kernel has, as what compilers make has, whatever is changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import mmulator as mm
from mmulator.driver import Driver, Settings
from mmulator.rules import RULES, Severity
from tests.support import places

ROOT = places.ROOT / "tests" / "sanitizer" / "kernels"
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
_CHANGE = re.compile(r"//@ (\w+)\[([\w, -]*)\]:((?:(?!//@).)*)")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?: (\S+))?")
_FILLED = re.compile(r"(.*) filled=(\d+)")
_MAP = re.compile(r"(.*) box=([\d,]+) swizzle=(\w+)")
_TYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    **{f"{s}{b}": np.dtype(f"{n}{b}").type for s, n in (("s", "int"), ("u", "uint")) for b in (8, 16, 32, 64)},
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A way to break a kernel. rules: what the sanitizer must find, no more and no less."""

    file: Path
    name: str
    rules: frozenset[str]

    def __str__(self) -> str:
        return f"{self.file.parent.name}/{self.file.stem}: {self.name}"


@cache
def files(topic: str) -> tuple[Path, ...]:
    return tuple(sorted((ROOT / topic).glob("*.ptx")))


def changes(file: Path) -> list[Change]:
    found: dict[str, frozenset[str]] = {}
    for name, rules, _ in _CHANGE.findall(file.read_text()):
        said = frozenset(r.strip() for r in rules.split(",") if r.strip())
        found[name] = found.get(name, frozenset()) | said
    return [Change(file, name, rules) for name, rules in found.items()]


def text(file: Path, change: str | None = None) -> str:
    """The module, clean or with a change. Lines keep their numbers."""
    lines = []
    for line in file.read_text().splitlines():
        code, _, _ = line.partition("//@")
        for name, _, instead in _CHANGE.findall(line):
            if name == change:
                code = instead.strip()
        lines.append(code)
    return "\n".join(lines) + "\n"


def launch_of(file: Path) -> dict[str, Any]:
    head = next(line for line in file.read_text().splitlines() if line.startswith("//!"))
    return eval(f"dict({head[3:]})", {"__builtins__": {"dict": dict}})


def _argument(said: str, chance: np.random.Generator) -> Any:
    if found := _MAP.fullmatch(said):
        box = tuple(int(n) for n in found[2].split(","))
        return mm.TensorMap.tiled(_argument(found[1], chance), box, swizzle=found[3])
    if found := _ARRAY.fullmatch(said):
        kind, shape, constant = found.groups()
        extents = tuple(int(n) for n in shape.split(",") if n)
        dtype = np.dtype(_TYPES[kind])
        if constant is not None:
            return np.full(extents, float(constant) if "." in constant else int(constant, 0)).astype(dtype)
        return chance.integers(-3, 4, extents).astype(dtype) if kind[0] != "u" else chance.integers(0, 8, extents).astype(dtype)
    kind, _, value = said.partition(" ")
    return float(value) if kind[0] in "fb" else int(value, 0)


@lru_cache(maxsize=1)
def _loaded(file: Path, change: str | None) -> mm.Module:
    return mm.Module.load(text(file, change))


def module_of(file: Path, change: str | None) -> mm.Module:
    """One for several seeds, unless it has variables, which launches leave as they are."""
    found = _loaded(file, change)
    return mm.Module.load(text(file, change)) if found.variables else found


def launch(file: Path, change: str | None = None, seed: int = 0, **more: Any) -> Any:
    """The report of a sanitized launch; of one that faults, the error, which has its findings."""
    said = launch_of(file) | more
    if any(_FILLED.fullmatch(a) for a in said.get("args", [])):
        return on_the_driver(file, change, seed, said)
    chance = np.random.default_rng(0)
    args = [_argument(a, chance) for a in said.pop("args", [])]
    module, habits = module_of(file, change), said.pop("habits", ())
    try:
        result = module[said.pop("entry", next(iter(module)))].launch(args=args, sanitize="strict", seed=seed, timeout=60, **said)
    except mm.errors.ExecutionFault as fault:
        result = fault
    return without(result, habits) if habits else result


def on_the_driver(file: Path, change: str | None, seed: int, said: dict[str, Any]) -> Any:
    """Run a text on arrays that a driver has allocated and the host has filled, or a part of them."""
    driver = Driver(Settings(sanitize="strict", seed=seed, timeout=60, threads=said.get("threads")))
    driver.readers.clear()
    chance, params = np.random.default_rng(0), b""
    for one in said["args"]:
        found = _FILLED.fullmatch(one)
        value = _argument(found[1] if found else one, chance)
        if isinstance(value, np.ndarray):
            memory = driver.memory.allocate(value.nbytes, "device memory", watched=True)
            size = int(found[2]) if found else value.nbytes
            memory.bytes()[:size] = value.view(np.uint8).ravel()[:size]
            driver.memory.wrote(memory.address, size)
            value, size = memory.address, 8
        else:
            size = 8 if value >> 32 else 4
        params += bytes(-len(params) % size) + value.to_bytes(size, "little")
    loaded = driver.load(text(file, change))
    extents = [((said[name], 1, 1) if isinstance(said[name], int) else tuple(said[name])) for name in ("grid", "block")]
    return driver.launch(loaded.function(next(iter(loaded.module))), *extents, params, shared=said.get("shared", 0))


def without(result: Any, habits: Sequence[str]) -> Any:
    """A report, or the error of a fault, that says nothing of some rules of severity note."""
    assert all(RULES[habit].severity is Severity.NOTE for habit in habits)
    kept = tuple(f for f in result.findings if f.rule not in habits)
    if isinstance(result, mm.errors.ExecutionFault):
        result.findings = kept
        return result
    return replace(result, findings=kept)


def rules_found(result: Any) -> frozenset[str]:
    return frozenset(f.rule for f in result.findings)
