"""Some of the rules, as people name them: `races,wgmma-*,-wgmma-unwaited`."""

from __future__ import annotations

from fnmatch import fnmatchcase

from mmulator.rules import RULES, TOPICS, Severity

NOTES = frozenset(name for name, rule in RULES.items() if rule.severity is Severity.NOTE)


def chosen(text: str, strict: bool = False) -> frozenset[str]:
    """Names of the rules that a text means: words with commas, each a rule, a topic (a file of rules/) or a pattern with `*`; one
    that begins with `-` takes away. Where nothing is taken before, all are there to be taken away from; "" is all. Rules of
    severity note are among all, and in a topic, only if that is `strict`.

    Raises ValueError for a word that means no rule.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    quiet = frozenset() if strict else NOTES
    found = set() if words and not words[0].startswith("-") else set(RULES) - quiet
    for word in words:
        if word.startswith("-"):
            found -= meant(word[1:])
        else:
            found |= meant(word) - (quiet if word in TOPICS else frozenset())
    return frozenset(found)


def meant(word: str) -> frozenset[str]:
    """Of one word, which may have a `*`. Raises ValueError for none."""
    if word in TOPICS:
        return frozenset(rule.name for rule in TOPICS[word])
    found = frozenset(name for name in RULES if fnmatchcase(name, word))
    if not found:
        near = like(word)
        meant = f": did you mean {' or '.join(near)}?" if near else ";"
        raise ValueError(f"there is no rule {word!r}{meant} `mmulator explain rules` lists all")
    return found


def like(word: str, count: int = 3) -> list[str]:
    """Rules and topics with such a name: those that are spelt like it, and rules that have all its words."""
    from difflib import get_close_matches

    word = word.strip().lower().replace("_", "-").replace(" ", "-")
    if not word or len(word) > 64:
        return []
    parts = word.split("-")
    whole = [name for name in RULES if all(part in name.split("-") for part in parts)]
    return list(dict.fromkeys([*get_close_matches(word, (*TOPICS, *RULES), count, 0.66), *whole]))[:count]
