"""Words that shells may offer while a command line is typed. Typer calls these functions; they must be quick and never fail."""

from __future__ import annotations

import typer


def instruction_words(context: typer.Context, incomplete: str) -> list[str]:
    """Words of an instruction that may come next, after those that stand there already."""
    from mmulator.isa.names.words import complete

    return complete([*(context.params.get("instruction") or context.params.get("words") or ())], incomplete)


def explained_words(context: typer.Context, incomplete: str) -> list[str]:
    """Words of instructions, and where there is no word yet the rules of the sanitizer, too."""
    from mmulator.rules import RULES, TOPICS

    words = instruction_words(context, incomplete)
    if context.params.get("instruction"):
        return words
    return [*words, *(name for name in ("rules", *TOPICS, *RULES) if incomplete and name.startswith(incomplete))]


def target_names(incomplete: str) -> list[str]:
    """Targets that begin so."""
    from mmulator.isa.targets import TARGETS

    return [name for target in sorted(TARGETS) if (name := str(target)).startswith(incomplete)]


def rule_choices(incomplete: str) -> list[str]:
    """Rules and topics of --rules, behind the last comma."""
    from mmulator.rules import RULES, TOPICS

    before, comma, last = incomplete.rpartition(",")
    minus = "-" * last.startswith("-")
    return [f"{before}{comma}{minus}{name}" for name in (*TOPICS, *RULES) if name.startswith(last.removeprefix("-"))]
