"""A choice of rules from a text as users write it: `races,wgmma-*,-wgmma-unwaited`."""

from fnmatch import fnmatchcase

from mmulator.base.rules import RULES, TOPICS, Severity

NOTES = frozenset(name for name, rule in RULES.items() if rule.severity is Severity.NOTE)


def chosen(text: str, strict: bool = False) -> frozenset[str]:
    """Names of the rules that a text selects.

    text: words separated by commas. A word is a rule, a topic (a file of base/rules/) or a pattern with `*`; a leading `-`
    removes
        rules. A text that begins with a removal starts from all rules; an empty text selects all.
    strict: whether "all rules" and topics include the rules of severity note.

    Raises ValueError for a word that matches no rule.
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
    """Names of the rules that one word selects; the word is a topic, a rule or a pattern with `*`. Raises ValueError if no rule
    matches.
    """
    if word in TOPICS:
        return frozenset(rule.name for rule in TOPICS[word])
    found = frozenset(name for name in RULES if fnmatchcase(name, word))
    if not found:
        near = like(word)
        meant = f": did you mean {' or '.join(near)}?" if near else ";"
        raise ValueError(f"there is no rule {word!r}{meant} `mmulator explain rules` lists all")
    return found


def like(word: str, count: int = 3) -> list[str]:
    """Names of at most `count` rules and topics that resemble a word: similar spelling first, then rules that contain all its
    parts.
    """
    from difflib import get_close_matches

    word = word.strip().lower().replace("_", "-").replace(" ", "-")
    if not word or len(word) > 64:
        return []
    parts = word.split("-")
    whole = [name for name in RULES if all(part in name.split("-") for part in parts)]
    return list(dict.fromkeys([*get_close_matches(word, (*TOPICS, *RULES), count, 0.66), *whole]))[:count]
