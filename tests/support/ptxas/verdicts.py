"""Verdicts on single statements: those of an installed ptxas, and ours, many statements at a time."""

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mmulator.base.lazy import cached_property
from mmulator.base.source import Source
from mmulator.errors import MmulatorError
from mmulator.isa.targets import PTX_VERSIONS, TARGETS, Target, parse_ptx_version
from mmulator.ptx.parser import parse_module
from mmulator.ptx.verify import check_instruction

BANKS = ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "f16x2", "b64", "u64", "s64", "f64", "f16", "b8", "u8", "pred")
BANK_SIZE = 160
# .b8 and .f16 registers, predicates: enough of them for a short vector
_FEW = {"f16": 160, "b8": 160, "u8": 160, "pred": 160}
HEAD = """.version {version}
.target {target}
.address_size 64
.global .align 128 .b8 gvar[4096];
.const .align 128 .b8 cvar[4096];
.visible .entry kernel(.param .align 128 .b8 pvar[4096])
{{
"""
DECLARATIONS = (
    "".join(f".reg .{t} %{t}_<{_FEW.get(t, BANK_SIZE)}>; " for t in BANKS)
    + ".shared .align 128 .b8 smem[4096]; .local .align 128 .b8 lvar[4096];"
)
# An error that keeps ptxas from compiling what it has read and found good
SENTINEL = "mov.b32 %b64_0, %b32_0;"


@dataclass(frozen=True)
class Statement:
    """One instruction for one target and version. what: how it was made."""

    mnemonic: str
    operands: tuple[str, ...]
    target: Target
    ptx: tuple[int, int]
    what: str = "legal"

    @property
    def text(self) -> str:
        return f"{self.mnemonic} {', '.join(self.operands)};" if self.operands else f"{self.mnemonic};"


def module(statements: Sequence[Statement], last: str = "ret;") -> tuple[str, int]:
    """A module with one statement a line, and the line of the first."""
    first = statements[0]
    wide = " .reg .b128 %b128_<16>;" if first.ptx >= (8, 3) else ""
    head = HEAD.format(version="{}.{}".format(*first.ptx), target=first.target) + DECLARATIONS + wide + "\n"
    return head + "\n".join(s.text for s in statements) + f"\n{last}\n}}\n", head.count("\n") + 1


_RUN = re.compile(r"%(\w+)_(\d+)(?:, %\1_\d+)+")


def packed(text: str) -> str:
    """`{%r_1, %r_2, %r_3}` as `{%r_1..3}`."""

    def short(m: re.Match[str]) -> str:
        numbers = [int(n) for n in re.findall(r"_(\d+)", m[0])]
        if len(numbers) < 3 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            return m[0]
        return f"%{m[1]}_{numbers[0]}..{numbers[-1]}"

    return _RUN.sub(short, text)


def unpacked(text: str) -> str:
    def long(m: re.Match[str]) -> str:
        return ", ".join(f"%{m[1]}_{i}" for i in range(int(m[2]), int(m[3]) + 1))

    return re.sub(r"%(\w+)_(\d+)\.\.(\d+)", long, text)


def recorded(file: Path) -> Iterator[tuple[Statement, bool]]:
    """Statements of a file of verdicts, and whether ptxas accepts them."""
    target, ptx = Target(90), (9, 0)
    for line in file.read_text().splitlines():
        mark, _, rest = line.partition(" ")
        if mark == "#":
            name, _, version = rest.partition(" ")
            target, ptx = Target.parse(name), parse_ptx_version(version)
        else:
            mnemonic, _, operands = unpacked(rest).removesuffix(";").partition(" ")
            yield Statement(mnemonic, (operands,) if operands else (), target, ptx), mark == "+"


def ours(statements: Sequence[Statement]) -> list[str | None]:
    """For statements of one target and version: None where accepted, else the error."""
    return [verdict for i in range(0, len(statements), 100) for verdict in _ours(statements[i : i + 100])]


def judged(file: Path) -> Iterator[tuple[Statement, bool, str | None]]:
    """Statements of a file of verdicts, whether ptxas accepts them, and what is said here."""
    groups: dict[object, list[tuple[Statement, bool]]] = defaultdict(list)
    for statement, accepted in recorded(file):
        groups[statement.target, statement.ptx].append((statement, accepted))
    for group in groups.values():
        for (statement, accepted), mine in zip(group, ours([s for s, _ in group])):
            yield statement, accepted, mine


def _ours(statements: Sequence[Statement]) -> list[str | None]:
    out: list[str | None] = [None] * len(statements)
    readable: list[int] = []
    start = 0
    while start < len(statements):  # what cannot be read ends the parser: go on after it
        text, first = module(statements[start:])
        try:
            parse_module(Source("statements.ptx", text))
        except MmulatorError as error:
            at = start + max(error.span.line - first, 0) if error.span else start
            out[at] = error.message
            readable += range(start, at)
            start = at + 1
            continue
        readable += range(start, len(statements))
        break
    if readable:
        tree = parse_module(Source("statements.ptx", module([statements[i] for i in readable])[0]))
        (function,) = tree.functions
        for i, instruction in zip(readable, function.instructions):
            out[i] = next((e.message for e in check_instruction(tree, function, instruction)), None)
    return out


class Ptxas:
    """An installed ptxas, asked with many statements at once. folder: for its files."""

    def __init__(self, path: str, folder: Path) -> None:
        self.path, self.folder = path, folder

    @cached_property
    def release(self) -> str:
        """As `13.5`."""
        said = subprocess.run([self.path, "--version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"release (\d+\.\d+)", said)
        return found[1] if found else ""

    def run(self, text: str, target: Target, *more: str) -> tuple[int, str]:
        file = self.folder / "x.ptx"
        file.write_text(text)
        command = [self.path, f"-arch={target}", str(file), "-o", str(self.folder / "x.cubin"), "-O0", *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr + done.stdout

    def knows(self, target: Target, ptx: tuple[int, int]) -> bool:
        text = f".version {ptx[0]}.{ptx[1]}\n.target {target}\n.visible .entry k() {{ ret; }}\n"
        return self.run(text, target)[0] == 0

    def knows_version(self, ptx: tuple[int, int]) -> bool:
        """Whether any target will do with it."""
        return any(self.knows(t, ptx) for t in sorted(TARGETS, reverse=True) if TARGETS[t] <= ptx)

    def verdicts(self, statements: Sequence[Statement], compiled: bool = False) -> list[str | None]:
        """For statements of one target and version: None where accepted, else the message.

        compiled: what is well-formed is compiled as well, which takes long and hardly ever finds anything more.
        """
        out: list[str | None] = [None] * len(statements)
        alive = list(range(len(statements)))
        while alive:
            text, first = module([statements[i] for i in alive], "ret;" if compiled else SENTINEL)
            code, messages = self.run(text, statements[0].target)
            if code == 0:
                break
            bad: dict[int, str] = {}
            ended = False
            for line, kind, message in re.findall(r"x\.ptx, line (\d+); (\w+)\s*: (.*)", messages):
                if kind in ("error", "fatal"):
                    at = int(line) - first
                    if 0 <= at < len(alive):
                        bad.setdefault(alive[at], message)
                    ended |= at == len(alive)
            if not bad:
                if ended and not compiled:
                    break
                if len(alive) == 1:
                    out[alive[0]] = messages.strip()[:200]
                    break
                half = len(alive) // 2
                for part in (alive[:half], alive[half:]):
                    for i, verdict in zip(part, self.verdicts([statements[i] for i in part], compiled)):
                        out[i] = verdict
                break
            for i, message in bad.items():
                out[i] = message
            alive = [i for i in alive if i not in bad]
        return out


def compare(
    statements: Sequence[Statement], ptxas: Ptxas, compiled: bool = False
) -> Iterator[tuple[Statement, str | None, str | None]]:
    """(statement, our error, that of ptxas) for every statement."""
    groups: dict[tuple[Target, tuple[int, int]], list[Statement]] = defaultdict(list)
    for s in statements:
        groups[s.target, s.ptx].append(s)
    for group in groups.values():
        for start in range(0, len(group), 400):
            part = group[start : start + 400]
            yield from zip(part, ours(part), ptxas.verdicts(part, compiled))


def known(ptxas: Ptxas, lowest: int = 70, highest: int = 999) -> tuple[list[Target], list[tuple[int, int]]]:
    """Targets and versions that this ptxas and our tables have."""
    versions = [v for v in PTX_VERSIONS if v >= (6, 0) and ptxas.knows_version(v)]
    able = [t for t in sorted(TARGETS) if lowest <= t.number <= highest and TARGETS[t] <= versions[-1]]
    return [t for t in able if ptxas.knows(t, max(TARGETS[t], (6, 0)))], versions
