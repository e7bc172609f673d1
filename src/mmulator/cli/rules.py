"""`mmulator explain RULE`: the sanitizer's rules with examples, and their list."""

from difflib import SequenceMatcher
from typing import Any

from mmulator.base.rules import RULES, TOPICS, Rule
from mmulator.base.rules.examples import example
from mmulator.cli.output import narrow, print_columns, print_heading, print_json, print_line, print_text, width

ALL = "rules"  # the word that asks for the list


def named(words: list[str]) -> tuple[str, ...]:
    """The rules that words name: `rules`, a topic, or a rule, whose hyphens may be underscores or blanks."""
    word = "-".join(words).lower().replace("_", "-")
    if word == ALL:
        return tuple(RULES)
    if word in TOPICS:
        return tuple(rule.name for rule in TOPICS[word])
    return (word,) if word in RULES else ()


def similar(words: list[str]) -> list[str]:
    """Rules that may be meant by words that name neither a rule nor an instruction."""
    from mmulator.base.rules.choice import like

    word = "-".join(words).replace("_", "-")
    return like(word) if "-" in word or word.isalpha() else []


def tell(names: tuple[str, ...], several: bool, json: bool) -> None:
    """Print everything about one rule, or a list of several."""
    if json:
        data = [_data(RULES[name]) for name in names]
        print_json("rules" if several else "rule", {"ok": True, **({"rules": data} if several else data[0])})
    elif several:
        _list(names)
    else:
        _one(RULES[names[0]])


def _data(rule: Rule) -> dict[str, Any]:
    shown = example(rule.name)
    return {
        "name": rule.name, "number": rule.number, "topic": topic_of(rule), "severity": str(rule.severity), "title": rule.title,
        "section": rule.section, "text": rule.text, "hint": rule.hint, "static": rule.static,
        "right": list(shown.right) if shown else None, "wrong": list(shown.wrong) if shown else None,
    }  # fmt: skip


def topic_of(rule: Rule) -> str:
    return next(topic for topic, rules in TOPICS.items() if rule in rules)


def _list(names: tuple[str, ...]) -> None:
    for topic, rules in TOPICS.items():
        rows = [(rule.name, str(rule.severity), rule.title) for rule in rules if rule.name in names]
        if rows:
            print_heading(topic)
            print_columns(("  rule", "severity", "what is wrong"), [(f"  {name}", *rest) for name, *rest in rows], breaks=" ")
            print()
    print_line(f"{len(names)} rules; `mmulator explain RULE` says more of one, `mmulator run --sanitize` looks for them")


def _one(rule: Rule) -> None:
    print_heading(f"{rule.name}: {rule.severity}")
    print_text(f"{rule.title[:1].upper()}{rule.title[1:]}." if "." not in rule.title.split()[0] else f"{rule.title}.")
    print()
    print_text(rule.text)
    print_text(f"Section: {rule.section}.")
    found = "while a kernel runs (`mmulator run --sanitize`)"
    print_text(f"Found {found}{', and in the text alone (`mmulator check`)' if rule.static else ''}.")
    print()
    print_heading("What to do")
    print_text(f"{rule.hint[:1].upper()}{rule.hint[1:]}.")
    shown = example(rule.name)
    if shown is None:
        return
    room = width() if narrow() else 1 << 30
    same = SequenceMatcher(None, shown.right, shown.wrong, autojunk=False).get_matching_blocks()
    for side, (title, lines) in enumerate((("Right", shown.right), ("Wrong", shown.wrong))):
        alike = {block[side] + n for block in same for n in range(block.size)}
        print()
        print_heading(title)
        for n, line in enumerate(lines):
            text = f"{' ' if n in alike else '>'} {line}"
            print(text[: room - 3] + "..." if len(text) > room else text)
