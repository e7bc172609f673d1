"""Compare verdicts on matrix instructions with an installed ptxas: legal statements, and mutations of them.

    python -m tools.ptxas.compare --ptxas /usr/local/cuda/bin/ptxas --mutants 20000 --seed 1

Statements are made from the tables of mmulator.isa, so every form is tried on a target and version that has it, in
each of its operand lists; mutants change one thing of such a statement. A disagreement is printed with what either
side says. Exit code 0 if there is none.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

from mmulator.isa.tables import FAMILIES, all_forms
from mmulator.isa.targets import PTX_VERSIONS, TARGETS, Target
from tools.ptxas.differences import refused
from tools.ptxas.mutants import World, mutant
from tools.ptxas.statements import legal
from tools.ptxas.verdicts import Ptxas, Statement, compare, packed

Version = tuple[int, int]


def known(ptxas: Ptxas, lowest: int = 70, highest: int = 999) -> tuple[list[Target], list[Version]]:
    """Targets and versions that this ptxas and our tables have."""
    versions = [v for v in PTX_VERSIONS if v >= (6, 0) and ptxas.knows_version(v)]
    able = [t for t in sorted(TARGETS) if lowest <= t.number <= highest and TARGETS[t] <= versions[-1]]
    return [t for t in able if ptxas.knows(t, max(TARGETS[t], (6, 0)))], versions


def statements(
    families: list[str], targets: list[Target], versions: list[Version], mutants: int, seed: int
) -> tuple[list[Statement], list[Statement]]:
    """Legal statements, and mutants of them."""
    chance = random.Random(seed)
    originals = list(legal(families, targets, versions[-1], chance))
    forms = [form for family in families for form in all_forms(family)]
    world = World(targets, versions, forms, chance)
    # half of the mutants in the first version that has the form, half in any later one
    out = []
    for _ in range(mutants):
        s = chance.choice(originals)
        later = [v for v in versions if v >= max(s.ptx, (6, 3))]
        if later and chance.random() < 0.5 and (s.ptx >= (6, 3) or not s.mnemonic.startswith("wmma")):
            s = replace(s, ptx=chance.choice(later))
        out.append(mutant(s, world))
    return originals, out


def record(file: Path, count: int, verdicts: list[tuple[Statement, str | None, str | None]], chance: random.Random) -> None:
    """Adds a choice of verdicts of ptxas, all families and ways alike, as many accepted as rejected."""
    groups: dict[tuple[str, str, bool], list[Statement]] = defaultdict(list)
    for s, mine, theirs in verdicts:
        if (mine is None) == (theirs is None) and len(packed(s.text)) < 400:
            groups[s.mnemonic.partition(".")[0], s.what.partition("+")[0], theirs is None].append(s)
    for group in groups.values():
        chance.shuffle(group)
    chosen: list[tuple[Statement, bool]] = []
    while len(chosen) < count and any(groups.values()):
        for (_, _, legal_here), group in groups.items():
            if group and len(chosen) < count:
                chosen.append((group.pop(), legal_here))
    sections: dict[str, list[str]] = defaultdict(list)
    for s, accepted in chosen:
        sections[f"# {s.target} {s.ptx[0]}.{s.ptx[1]}"].append(f"{'+' if accepted else '-'} {packed(s.text)}")
    with file.open("a") as out:
        for head, lines in sorted(sections.items()):
            out.write("\n".join((head, *sorted(lines))) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--ptxas", default="ptxas")
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), help="default: all")
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lowest", type=int, default=70, help="lowest target, as 75")
    parser.add_argument("--highest", type=int, default=999, help="highest target")
    parser.add_argument("--compiled", action="store_true", help="have ptxas compile what it takes (slow)")
    parser.add_argument("--record", type=Path, help="add verdicts to this file")
    parser.add_argument("--count", type=int, default=2000, help="verdicts to record")
    parser.add_argument("--show", type=int, default=40, help="disagreements to print")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ptxas = Ptxas(options.ptxas, Path(folder))
        targets, versions = known(ptxas, options.lowest, options.highest)
        if not targets:
            print(f"{options.ptxas} knows none of the targets", file=sys.stderr)
            return 2
        originals, mutants = statements(options.family or list(FAMILIES), targets, versions, options.mutants, options.seed)
        verdicts = list(compare([*originals, *mutants], ptxas, options.compiled))
    if options.record:
        record(options.record, options.count, verdicts, random.Random(options.seed))
    different = [v for v in verdicts if (v[1] is None) != (v[2] is None)]
    listed = [v for v in different if v[2] is None and refused(v[0])]
    different = [v for v in different if v not in listed]
    for s, mine, theirs in different[: options.show]:
        print(f"[{s.what}] {s.target}, PTX {s.ptx[0]}.{s.ptx[1]}: {s.text}")
        print(f"    here:  {mine or 'accepted'}\n    ptxas: {theirs or 'accepted'}")
    accepted = sum(theirs is None for s, _, theirs in verdicts if s.what != "legal")
    print(
        f"{len(originals)} legal statements, {len(mutants)} mutants ({accepted} of them legal): {len(different)} "
        f"disagreements; {len(listed)} more are refused as docs/legality.md says"
    )
    for what, count in Counter(s.what for s, _, _ in different).most_common():
        print(f"  {count:5} {what}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
