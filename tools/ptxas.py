"""Compare verdicts on instructions with an installed ptxas: legal statements, and mutations of them.

    python -m tools.ptxas matrix --ptxas /usr/local/cuda/bin/ptxas --mutants 20000 --seed 1
    python -m tools.ptxas rows --ptxas /usr/local/cuda/bin/ptxas --mutants 20000 --seed 1
    python -m tools.ptxas tcgen05 --ptxas /usr/local/cuda/bin/ptxas --mutants 20000 --seed 1

matrix: every form of the matrix instructions, in each of its operand lists, on a target and version that has it. rows: some
forms of every row of mbarriers, copies, clusters, multimem, fences, barriers and tensor memory (tests/support/ptxas/rows.py).
Mutants change one thing of such a statement. tcgen05: rows of tensor memory alone, and any modifiers of its instructions
together (tests/support/ptxas/tensor_memory.py). A disagreement is printed with what either side says. Exit code 0 if there is
none but those that docs/reference/legality.md lists.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from mmulator.isa.matrix import FAMILIES
from mmulator.isa.targets import parse_ptx_version
from tests.support.ptxas import row_differences, rows, tensor_memory
from tests.support.ptxas.differences import refused
from tests.support.ptxas.mutants import World, matrix_statements
from tests.support.ptxas.verdicts import Ptxas, Statement, compare, known, packed


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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("matrix", "rows", "tcgen05"))
    parser.add_argument("--ptxas", default="ptxas")
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), help="matrix: default all")
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lowest", type=int, help="lowest target, as 75 (default: matrix 70, rows 80)")
    parser.add_argument("--highest", type=int, default=999, help="highest target")
    parser.add_argument("--since", type=parse_ptx_version, default=(1, 0), help="rows: only forms that came with it or later")
    parser.add_argument("--compiled", action="store_true", help="have ptxas compile what it takes (slow)")
    parser.add_argument("--record", type=Path, help="add verdicts to this file")
    parser.add_argument("--count", type=int, default=2000, help="verdicts to record")
    parser.add_argument("--show", type=int, default=40, help="disagreements to print")
    return parser.parse_args()


def reason(what: str, s: Statement, accepted: bool) -> str:
    """Why ptxas' verdict on a statement is another than ours; empty if no table says it."""
    if what != "matrix":
        return row_differences.listed(s, accepted)
    return "refused as docs/reference/legality.md says" if accepted and refused(s) else ""


def main() -> int:
    options = arguments()
    matrix, chance = options.what == "matrix", random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        ptxas = Ptxas(options.ptxas, Path(folder))
        targets, versions = known(ptxas, options.lowest or (70 if matrix else 80), options.highest)
        if not targets:
            print(f"{options.ptxas} knows none of the targets", file=sys.stderr)
            return 2
        if matrix:
            families = options.family or list(FAMILIES)
            originals, mutants = matrix_statements(families, targets, versions, options.mutants, options.seed)
        else:
            originals = list(rows.legal(targets, versions[-1], chance, since=options.since))
            wild = options.mutants // 2 if options.what == "tcgen05" else 0
            if wild:
                originals = [s for s in originals if s.mnemonic.startswith("tcgen05.")]
            mutants = list(rows.mutants(originals, options.mutants - wild, World(targets, versions, (), chance)))
            mutants += tensor_memory.statements(targets, versions, wild, options.seed)
        verdicts = list(compare([*originals, *mutants], ptxas, options.compiled))
    if options.record:
        record(options.record, options.count, verdicts, random.Random(options.seed))
    reasons = [(reason(options.what, s, theirs is None), s, mine, theirs)
               for s, mine, theirs in verdicts if (mine is None) != (theirs is None)]  # fmt: skip
    different = [(s, mine, theirs) for why, s, mine, theirs in reasons if not why]
    for s, mine, theirs in different[: options.show]:
        print(f"[{s.what}] {s.target}, PTX {s.ptx[0]}.{s.ptx[1]}: {s.text}")
        print(f"    here:  {mine or 'accepted'}\n    ptxas: {theirs or 'accepted'}")
    accepted = sum(theirs is None for s, _, theirs in verdicts if s.what != "legal")
    print(f"{len(originals)} legal statements, {len(mutants)} mutants ({accepted} of them legal): {len(different)} disagreements")
    for what, count in Counter(s.what for s, _, _ in different).most_common():
        print(f"  {count:5} {what}")
    for why, count in Counter(why for why, *_ in reasons if why).most_common():
        print(f"  {count:5} listed: {why}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
