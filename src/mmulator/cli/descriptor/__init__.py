"""`mmulator descriptor`: matrix descriptors of wgmma, in four commands, a file each."""

from collections.abc import Sequence
from shlex import join

from mmulator.cli.descriptor.check import check
from mmulator.cli.descriptor.decode import decode
from mmulator.cli.descriptor.encode import encode
from mmulator.cli.descriptor.from_cute import from_cute
from mmulator.cli.output import WrongUsage
from mmulator.cli.parser import Group, phrase

_CHECKS = ("--access", "--at", "--shared", "--shared-base")
_FLAGS = ("--cute", "--json")


def _otherwise(words: Sequence[str]) -> None:
    """Answer a word, an instruction or an option in place of a command with the command that takes it."""
    if _names_none(words[0]):
        commands = "encode, decode, check and from-cute"
        before = [*words][: [*words, "--for"].index("--for") + 1]
        after = [*words][len(before) :]
        hint = f"mmulator descriptor {join(with_command([*before, *([phrase(after)] if after else []), *after]))}"
        raise WrongUsage(f"`descriptor` is four commands: {commands}", hint=hint)


def _names_none(first: str) -> bool:
    """Whether the first word describes a descriptor, and is neither a command nor a misspelt one."""
    from mmulator.isa.names.words import is_word

    if first.startswith("-"):
        return first not in ("--help", "-h")
    return first[:1].isdigit() or is_word(first)


def with_command(args: list[str]) -> list[str]:
    """Arguments with the command that takes them before them."""
    names = [a.partition("=")[0] for a in args]
    if "--from-cute" in names:
        at = names.index("--from-cute")
        _, equals, layout = args[at].partition("=")
        taken = 1 if equals else 2
        return ["from-cute", layout if equals else "".join(args[at + 1 : at + 2]), *args[:at], *args[at + taken :]]
    if set(_CHECKS) & set(names):
        return ["check", *args]
    fields = {"--start-address", "--lbo", "--sbo", "--base-offset", "--swizzle"} & set(names)
    alone = [a for before, a in zip(("", *args), args) if not a.startswith("-") and not _takes_next(before)]
    return ["decode" if alone and alone[0][:1].isdigit() and not fields else "encode", *args]


def _takes_next(option: str) -> bool:
    return option.startswith("--") and "=" not in option and option not in _FLAGS


descriptor = Group(
    "Encode, decode, check and draw matrix descriptors of wgmma; derive them from CuTe layouts.",
    {"encode": encode, "decode": decode, "check": check, "from-cute": from_cute}, otherwise=_otherwise,
)
