"""What the documentation and `mmulator explain` say of the sanitizer's rules, made from base/rules/ and the programs of tests/ub.

    python -m tools.pages.spec_map        # writes docs/reference/rules.md, and the rules that pages show
    python -m tools.pages.rules           # writes src/mmulator/base/rules/examples.json
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from mmulator.base.rules import RULES, TOPICS
from tests.support import breaches

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "src" / "mmulator" / "base" / "rules" / "examples.json"
_STATEMENTS = re.compile(r"\S[^;]*;?(?: *//.*)?")  # of a line; a comment is of the statement before it
_AROUND = 2  # lines before and after what is changed
_LONGEST = 24  # lines of an example


# What shows a rule best, where that is not the smallest change.
PREFERRED = {
    "race-read-write": ("races/reverse", "no_barrier"), "proxy-fence-missing": ("proxies/wgmma_operands", "no_fence"),
    "cp-async-not-committed": ("static/copies", "uncommitted"), "cp-async-not-waited": ("static/copies", "unwaited"),
    "race-within-warp": ("words/cuda", "no_warp"), "store-lanes-differ": ("races/lanes", "one_place"),
    "wmma-fragment-reordered": ("operands/wmma_fragments", "rotated"),
    "wmma-fragment-uneven": ("operands/wmma_fragments", "own_factor"),
    "uninitialized-store": ("values/reduction", "last_warp_forgotten"),
    "uninitialized-branch": ("values/early_out", "half_decided"), "uninitialized-address": ("values/early_out", "no_default"),
    "uninitialized-global": ("values/device_scratch", "counter"),
}  # fmt: skip


def _sides(file: Path, name: str) -> tuple[list[str], list[str], list[int]]:
    """The lines of a kernel as it is right, with a change, and which lines that changes."""
    right, wrong, changed = [], [], []
    for n, line in enumerate(file.read_text().splitlines()):
        code = breaches.SAID.split(line)[0].rstrip()
        instead = next((text.strip() for found, text in breaches.CHANGE.findall(line) if name in found.split(", ")), None)
        right.append(code)
        own = code or next((r for r in reversed(right[:-1]) if r.strip()), "")
        lead = own[: len(own) - len(own.lstrip())]  # blanks or tabs
        wrong.append(code if instead is None else "\n".join(lead + s for s in _STATEMENTS.findall(instead)))
        if instead is not None:
            changed.append(n)
    return right, wrong, changed


def _shown(lines: list[str], changed: list[int]) -> list[str]:
    """What is changed and the lines around it, without the indentation that all have; `...` for what is left out."""
    near = sorted({n for at in changed for n in range(at - _AROUND, at + _AROUND + 1) if 0 <= n < len(lines)})
    out: list[str] = []
    for before, n in zip([None, *near], near):
        if before is not None and n != before + 1:
            out.append("...")
        if lines[n].strip() and not lines[n].startswith("//!"):
            out += lines[n].expandtabs(4).split("\n")
    lead = min((len(line) - len(line.lstrip()) for line in out if line != "..."), default=0)
    return [line if line == "..." else line[lead:] for line in out]


def _candidates(rule: str) -> Iterator[tuple[int, str, str, dict[str, object]]]:
    for file in sorted(breaches.ROOT.glob("*/*.ptx")):
        for name, broken in ((change.name, change.rules) for change in breaches.changes(file)):
            if rule not in broken:
                continue
            right, wrong, changed = _sides(file, name)
            sides = _shown(right, changed), _shown(wrong, changed)
            if changed and sum(map(len, sides)) <= 2 * _LONGEST:
                data = {"from": f"{file.parent.name}/{file.stem}", "change": name, "right": sides[0], "wrong": sides[1]}
                wanted = PREFERRED.get(rule) == (data["from"], name)
                yield -1 if wanted else len(broken) * 100 + len(changed) * 10 + len(sides[0]), file.stem, name, data


def examples() -> str:
    """The file: for each rule the smallest change of a kernel that breaks it."""
    found = {}
    for rule in RULES:
        best = min(_candidates(rule), key=lambda c: c[:3], default=None)
        if best is not None:
            found[rule] = best[3]
    return json.dumps(found, indent=1) + "\n"


def told(rule: str) -> str:
    """What a finding of a rule says in the rule's example (tests/ub)."""
    example = json.loads(EXAMPLES.read_text())[rule]
    text = breaches.texts(breaches.ROOT / f"{example['from']}.ptx")[example["change"]]
    paragraphs = re.split(r"\n(?=\S)", text.rstrip())
    named = re.compile(rf"\S+(?: \(\S+\))?: (?:error|warning|note):\s.*?\[(?:[\w-]+,\s+)*{rule}[\],]", re.DOTALL)
    return next(p for p in paragraphs if named.match(p))


def shown(rule: str) -> str:
    """What a page shows of a rule: the lines that break it, beside the right ones, and the finding."""
    example = json.loads(EXAMPLES.read_text())[rule]
    lines = [line for line in difflib.ndiff(example["right"], example["wrong"]) if line[0] != "?"]
    return "\n".join(["```diff", *lines, "```", "", "```", told(rule), "```", ""])


def page() -> str:
    """docs/reference/rules.md: every rule, topic by topic, and what a finding of the first rule of each says."""
    out = [f"# Rules of the sanitizer\n\nThe {len(RULES)} rules that the [sanitizer](../how-to/sanitizer.md) knows, by topic; "
           "`mmulator explain RULE` prints one whole, with right and wrong lines.\n"]  # fmt: skip
    for topic, rules in TOPICS.items():
        out.append(f"## {topic}\n")
        out.append("| rule | severity | what is wrong |\n| --- | --- | --- |")
        out += [f"| `{r.name}` | {r.severity} | {_cell(r.title)}{', seen by `check` too' if r.static else ''} |" for r in rules]
        out += ["", f"`{rules[0].name}`, broken and found:", "", shown(rules[0].name)]
    return "\n".join(out).rstrip() + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str]) -> int:
    text = examples()
    stale = not EXAMPLES.exists() or EXAMPLES.read_text() != text
    if stale:
        print(EXAMPLES.relative_to(ROOT), "is not up to date" if "--check" in arguments else "written")
        if "--check" not in arguments:
            EXAMPLES.write_text(text)
    return int(stale and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
