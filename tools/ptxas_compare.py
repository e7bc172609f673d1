"""Compare verdicts on matrix instructions with an installed ptxas: legal statements, and mutations of them.

    python tools/ptxas_compare.py --ptxas /usr/local/cuda/bin/ptxas --mutants 3000 --seed 1

Statements are made from the tables of mmulator.isa, so every form is tried on a target and version that has it, in
each of its operand lists; mutants change one thing of such a statement. A disagreement is printed with what either
side says. Exit code 0 if there is none.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mmulator.errors import MmulatorError
from mmulator.isa.forms import MatrixForm, OperandSpec
from mmulator.isa.tables import FAMILIES, all_forms
from mmulator.isa.targets import PTX_VERSIONS, TARGETS, Target
from mmulator.isa.types import TYPES
from mmulator.ptx import parse_module
from mmulator.ptx.verify import verify
from mmulator.source import Source

BANKS = ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "f16x2", "b64", "u64", "s64", "f64")
BANK_SIZE = 140
DECLARATIONS = (
    "".join(f".reg .{t} %{t}_<{BANK_SIZE}>; " for t in BANKS) + ".reg .pred %p<4>; .shared .align 1024 .b8 smem[4096];"
)


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
        return f"{self.mnemonic} {', '.join(self.operands)};"


# Making statements --------------------------------------------------------------------------------------------------
def registers(bank: str, start: int, count: int) -> str:
    return "{" + ", ".join(f"%{bank}_{start + i}" for i in range(count)) + "}"


def operand(spec: OperandSpec, form: MatrixForm, start: int, chance: random.Random) -> str:
    """A legal operand; register vectors begin at `start`, so that operands do not overlap where that matters."""
    if spec.kind == "registers":
        return registers(chance.choice(spec.types), start if spec.count + start <= BANK_SIZE else 0, spec.count)
    if spec.kind == "register":
        return f"%{chance.choice(spec.types)}_{start}"
    if spec.kind == "address":
        return "[smem]" if form.space.startswith("shared") else f"[%b64_{start}]"
    if spec.kind == "descriptor":
        return f"%{chance.choice(spec.types)}_{start}"
    if spec.kind == "predicate":
        return chance.choice(("%p1", "!%p1", "0", "1"))
    if spec.kind == "integer":
        return chance.choice((f"%{chance.choice(spec.types)}_{start}", str(chance.choice(spec.values or range(8, 17)))))
    if spec.kind == "group":
        return "{" + ", ".join(operand(p, form, start, chance) for p in spec.parts) + "}"
    return str(chance.choice(spec.values[:8] if spec.values is not None else range(8)))


def written(form: MatrixForm, signature: tuple[OperandSpec, ...], chance: random.Random) -> tuple[str, ...]:
    return tuple(operand(spec, form, (1, 129, 133, 137)[i % 4], chance) for i, spec in enumerate(signature))


def legal(
    families: list[str], targets: list[Target], newest: tuple[int, int], chance: random.Random
) -> Iterator[Statement]:
    """Every form in each of its operand lists, once, on a random target that has it and in its first version."""
    for family in families:
        for form in all_forms(family):
            able = [t for t in targets if form.requires.admits(t) and form.requires.first_ptx(t) <= newest]
            if not able:
                continue
            for signature in form.signatures:
                target = chance.choice(able)
                ptx = form.requires.first_ptx(target)
                if family == "wmma":
                    ptx = max(ptx, (6, 3))
                yield Statement(form.mnemonic, written(form, signature, chance), target, ptx)


# Changing one thing -------------------------------------------------------------------------------------------------
Way = Callable[[Statement, list[Target], list[tuple[int, int]], random.Random], Statement]


def mutant(
    s: Statement,
    targets: list[Target],
    versions: list[tuple[int, int]],
    chance: random.Random,
    ways: Sequence[Way] | None = None,
) -> Statement:
    """The statement with one thing changed."""
    way = chance.choice(ways or WAYS)
    return replace(way(s, targets, versions, chance), what=way.__name__.strip("_"))


def _words(s: Statement) -> list[str]:
    return s.mnemonic.split(".")


def _opcode_length(words: list[str]) -> int:
    return {"wgmma": 2, "wmma": 3 if words[1] in ("load", "store") else 2}.get(words[0], 1)


def _swapped_qualifier(
    s: Statement, targets: list[Target], versions: list[tuple[int, int]], chance: random.Random
) -> Statement:
    words = _words(s)
    vocabulary = sorted({c for row in FAMILIES[words[0]] for slot in row.slots for c in slot.choices if c})
    at = chance.randrange(_opcode_length(words), len(words))
    old = words[at]
    like = [v for v in vocabulary if _kind_of(v) == _kind_of(old)] if chance.random() < 0.7 else vocabulary
    words[at] = chance.choice(like)
    return replace(s, mnemonic=".".join(words))


def _kind_of(word: str) -> str:
    return re.sub(r"\d+", "0", word)


def _dropped_qualifier(
    s: Statement, targets: list[Target], versions: list[tuple[int, int]], chance: random.Random
) -> Statement:
    words = _words(s)
    del words[chance.randrange(_opcode_length(words), len(words))]
    return replace(s, mnemonic=".".join(words))


def _added_qualifier(
    s: Statement, targets: list[Target], versions: list[tuple[int, int]], chance: random.Random
) -> Statement:
    # not a type: ptxas overlooks some surplus types (`.f64.f64.f64.u4.f64`), and is not to be followed there
    words = _words(s)
    vocabulary = sorted({c for row in FAMILIES[words[0]] for slot in row.slots for c in slot.choices} - {"", *TYPES})
    words.insert(chance.randrange(_opcode_length(words), len(words) + 1), chance.choice(vocabulary))
    return replace(s, mnemonic=".".join(words))


def _moved_qualifier(
    s: Statement, targets: list[Target], versions: list[tuple[int, int]], chance: random.Random
) -> Statement:
    words = _words(s)
    first = _opcode_length(words)
    word = words.pop(chance.randrange(first, len(words)))
    words.insert(chance.randrange(first, len(words) + 1), word)
    return replace(s, mnemonic=".".join(words))


def _changed_count(
    s: Statement, targets: list[Target], versions: list[tuple[int, int]], chance: random.Random
) -> Statement:
    operands = list(s.operands)
    vectors = [i for i, o in enumerate(operands) if o.startswith("{%")]
    if not vectors:
        return s
    at = chance.choice(vectors)
    inside = operands[at].strip("{}").split(", ")
    inside = inside[:-1] if chance.random() < 0.5 and len(inside) > 1 else [*inside, inside[-1]]
    operands[at] = "{" + ", ".join(inside) + "}"
    return replace(s, operands=tuple(operands))


def _changed_type(
    s: Statement, targets: list[Target], versions: list[tuple[int, int]], chance: random.Random
) -> Statement:
    operands = list(s.operands)
    typed = [i for i, o in enumerate(operands) if re.search(r"%(\w+)_\d", o)]
    if not typed:
        return s
    at = chance.choice(typed)
    bank = chance.choice(BANKS)
    operands[at] = re.sub(r"%\w+?_(\d)", rf"%{bank}_\1", operands[at])
    return replace(s, operands=tuple(operands))


def _changed_constant(
    s: Statement, targets: list[Target], versions: list[tuple[int, int]], chance: random.Random
) -> Statement:
    operands = list(s.operands)
    constants = [i for i, o in enumerate(operands) if re.fullmatch(r"-?\d+", o)]
    if not constants:
        return s
    operands[chance.choice(constants)] = str(chance.choice((-2, -1, 0, 1, 2, 3, 4, 5, 8, 255, 65536)))
    return replace(s, operands=tuple(operands))


def _changed_operands(
    s: Statement, targets: list[Target], versions: list[tuple[int, int]], chance: random.Random
) -> Statement:
    operands = list(s.operands)
    if not operands:
        return s
    at = chance.randrange(len(operands))
    if chance.random() < 0.5:
        del operands[at]
    else:
        operands.insert(at, chance.choice((operands[at], "%b32_5", "1", "%p0", "%b64_3")))
    return replace(s, operands=tuple(operands))


def _elsewhere(
    s: Statement, targets: list[Target], versions: list[tuple[int, int]], chance: random.Random
) -> Statement:
    target = chance.choice(targets)
    able = [v for v in versions if v >= TARGETS[target]]
    return replace(s, target=target, ptx=chance.choice(able))


WAYS: tuple[Way, ...] = (
    _swapped_qualifier, _dropped_qualifier, _added_qualifier, _moved_qualifier, _changed_count, _changed_type,
    _changed_constant, _changed_operands, _elsewhere,
)  # fmt: skip


# Verdicts -----------------------------------------------------------------------------------------------------------
def module(statements: list[Statement]) -> tuple[str, int]:
    """A module with one statement a line, and the line of the first."""
    first = statements[0]
    head = (
        f".version {first.ptx[0]}.{first.ptx[1]}\n.target {first.target}\n.address_size 64\n"
        f".visible .entry kernel()\n{{\n{DECLARATIONS}\n"
    )
    return head + "\n".join(s.text for s in statements) + "\nret;\n}\n", head.count("\n") + 1


def ours(statement: Statement) -> str | None:
    """None if accepted, else the error."""
    try:
        errors = verify(parse_module(Source("statement.ptx", module([statement])[0])))
    except MmulatorError as error:
        return error.message
    return errors[0].message if errors else None


class Ptxas:
    """An installed ptxas, asked with many statements at once."""

    def __init__(self, path: str, folder: Path) -> None:
        self.path, self.folder = path, folder

    def run(self, text: str, target: Target) -> tuple[int, str]:
        file = self.folder / "x.ptx"
        file.write_text(text)
        command = [self.path, f"-arch={target}", str(file), "-o", str(self.folder / "x.cubin"), "-O0"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr + done.stdout

    def knows(self, target: Target, ptx: tuple[int, int]) -> bool:
        text = f".version {ptx[0]}.{ptx[1]}\n.target {target}\n.visible .entry k() {{ ret; }}\n"
        return self.run(text, target)[0] == 0

    def verdicts(self, statements: list[Statement]) -> list[str | None]:
        """For statements of one target and version: None where accepted, else the message."""
        out: list[str | None] = [None] * len(statements)
        alive = list(range(len(statements)))
        while alive:
            text, first = module([statements[i] for i in alive])
            code, messages = self.run(text, statements[0].target)
            if code == 0:
                break
            bad: dict[int, str] = {}
            for line, kind, message in re.findall(r"x\.ptx, line (\d+); (\w+)\s*: (.*)", messages):
                if kind in ("error", "fatal") and 0 <= int(line) - first < len(alive):
                    bad.setdefault(alive[int(line) - first], message)
            if not bad:
                if len(alive) == 1:
                    out[alive[0]] = messages.strip()[:200]
                    break
                half = len(alive) // 2
                for part in (alive[:half], alive[half:]):
                    for i, verdict in zip(part, self.verdicts([statements[i] for i in part])):
                        out[i] = verdict
                break
            for i, message in bad.items():
                out[i] = message
            alive = [i for i in alive if i not in bad]
        return out


def compare(statements: list[Statement], ptxas: Ptxas) -> list[tuple[Statement, str | None, str | None]]:
    """Statements on which the verdicts differ: (statement, ours, that of ptxas)."""
    groups: dict[tuple[Target, tuple[int, int]], list[Statement]] = defaultdict(list)
    for s in statements:
        groups[s.target, s.ptx].append(s)
    different = []
    for group in groups.values():
        for start in range(0, len(group), 300):
            part = group[start : start + 300]
            for s, theirs in zip(part, ptxas.verdicts(part)):
                mine = ours(s)
                if (mine is None) != (theirs is None):
                    different.append((s, mine, theirs))
    return different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--ptxas", default="ptxas")
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), help="default: all")
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=40, help="disagreements to print")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        ptxas = Ptxas(options.ptxas, Path(folder))
        targets = [t for t in sorted(TARGETS) if t.number >= 70 and ptxas.knows(t, max(TARGETS[t], (8, 6)))]
        targets += [t for t in sorted(TARGETS) if t.number >= 70 and t not in targets and ptxas.knows(t, TARGETS[t])]
        if not targets:
            print(f"{options.ptxas} knows none of the targets", file=sys.stderr)
            return 2
        versions = [v for v in PTX_VERSIONS if ptxas.knows(targets[-1], v) or v < TARGETS[targets[-1]]]
        originals = list(legal(options.family or list(FAMILIES), targets, versions[-1], chance))
        mutants = [mutant(chance.choice(originals), targets, versions, chance) for _ in range(options.mutants)]
        different = compare(originals + mutants, ptxas)
    for s, mine, theirs in different[: options.show]:
        print(f"[{s.what}] {s.target}, PTX {s.ptx[0]}.{s.ptx[1]}: {s.text}")
        print(f"    here:  {mine or 'accepted'}\n    ptxas: {theirs or 'accepted'}")
    print(f"{len(originals)} legal statements, {len(mutants)} mutants: {len(different)} disagreements")
    for what, count in Counter(s.what for s, _, _ in different).most_common():
        print(f"  {count:5} {what}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
