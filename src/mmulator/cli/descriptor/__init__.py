"""`mmulator descriptor`: matrix descriptors of wgmma, in four commands, a file each."""

from __future__ import annotations

from shlex import join
from typing import Any

import typer
from typer.core import TyperGroup

from mmulator.cli.descriptor.check import check
from mmulator.cli.descriptor.decode import decode
from mmulator.cli.descriptor.encode import encode
from mmulator.cli.descriptor.from_cute import from_cute
from mmulator.cli.output import WrongUsage

_CHECKS = ("--access", "--at", "--shared", "--shared-base")
_FLAGS = ("--cute", "--json")


class _Commands(TyperGroup):
    """The four commands. A word, an instruction or an option in place of a command is answered with the command that takes it.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing and args and _names_none(args[0]):
            commands = "encode, decode, check and from-cute"
            raise WrongUsage(
                f"`descriptor` is four commands: {commands}", hint=f"mmulator descriptor {join(with_command(args))}"
            )
        return super().parse_args(ctx, args)


descriptor = typer.Typer(no_args_is_help=True, cls=_Commands)


@descriptor.callback()
def _about() -> None:
    """Encode, decode, check and draw matrix descriptors of wgmma; derive them from CuTe layouts."""


descriptor.command()(encode)
descriptor.command()(decode)
descriptor.command()(check)
descriptor.command("from-cute")(from_cute)


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
