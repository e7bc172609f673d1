"""Command lines, read by argparse as the commands declare them.

The words of a command line come in; the parameters of the command's function go out. A parameter says by its annotation which
option or argument it is; it may also be a dataclass of several, or get all rows of the table of settings that a door takes.
"""

import argparse
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from mmulator.base.errors import MmulatorError
from mmulator.cli.output import WrongUsage, width
from mmulator.host.settings import COMPARING, FINDING, RESULTS, WHAT, Setting, taken
from mmulator.host.settings.readers import decimal, whole

Given = argparse.Namespace  # values of the rows of a door, by name
_READERS: dict[Any, Callable[[str], Any]] = {int: whole(), float: decimal(), str: str, Path: Path}
MISSING = "the following arguments are required: "  # argparse's words


class Option:
    """An option of a command: the annotation of a parameter, which has its name and its type.

    help: a sentence.
    metavar: the word for a value in help; "": the parameter's name in capitals, N for a number.
    names: with their hyphens, apart by blanks; "": the parameter's.
    phrase: whether words of an instruction after the value belong to it, without quotes.
    said: other attributes of the row (settings.Setting).
    """

    positional = False

    def __init__(self, help: str = "", metavar: str = "", names: str = "", phrase: bool = False, **said: Any) -> None:
        self.metavar, self.names, self.phrase, self.said = metavar, (*names.split(),), phrase, {"help": help, **said}


class Positional(Option):
    """An argument of a command."""

    positional = True


class ProgramWords(Positional):
    """A program and its arguments: the words from the first on that is no option. whole: even options are the program's."""

    def __init__(self, help: str, metavar: str, whole: bool = False) -> None:
        super().__init__(help, metavar)
        self.whole = whole


class RowsOf:
    """The annotation of a parameter of type Given: all rows of a door."""

    def __init__(self, door: str) -> None:
        self.door = door


Json = Annotated[bool, Option("Print JSON.")]


def grouped(title: str) -> Callable[..., Option]:
    """A maker of options with a heading in help."""
    return partial(Option, group=title)


class Group:
    """A command that is made of commands.

    about: its help.
    commands: by name.
    alone: the function that runs without one of them; None: help is shown.
    otherwise: called with words that begin with none of them. Raises WrongUsage with what is meant, or returns.
    """

    def __init__(
        self, about: str, commands: Mapping[str, Any], alone: Callable[..., None] | None = None,
        otherwise: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.about, self.commands, self.alone, self.otherwise = about, commands, alone, otherwise


# what a command declares -----------------------------------------------------------------------------------------------
class DeclaredWord(NamedTuple):
    """An option or an argument of a command.

    row: what it is.
    option: how it is declared.
    owner: the parameter that gets it.
    maker: what makes the parameter of several arguments; None where it gets this alone.
    switch: whether it has no value.
    required: whether it has to be given.
    """

    row: Setting
    option: Option
    owner: str
    maker: Callable[..., Any] | None
    switch: bool
    required: bool


def declared(command: Any, owner: str = "", maker: Any = None) -> Iterator[DeclaredWord]:
    """The options and arguments that parameters of a function, or fields of a dataclass, declare."""
    own = {f.name for f in fields(command)} if is_dataclass(command) else _with_default(command)
    parts: list[tuple[str, Any, Any]] = []
    for name, hint in get_type_hints(command, include_extras=True).items():
        parts.append((name, *(get_args(hint) if get_origin(hint) is Annotated else (hint, None))))
    for name, kind, option in sorted(parts, key=lambda part: isinstance(part[2], RowsOf)):  # a command's own first
        if is_dataclass(kind):
            yield from declared(kind, name, kind)
        elif isinstance(option, RowsOf):
            for setting in taken(option.door):
                yield DeclaredWord(setting, Option(), name, Given, not setting.metavar, False)
        elif isinstance(option, Option):
            kinds = [*_kinds(kind)]
            names = () if option.positional else option.names or (f"--{name.rstrip('_').replace('_', '-')}",)
            read = next((_READERS[k] for k in kinds if k in _READERS), str)
            metavar = option.metavar or ("N" if int in kinds else name.upper() + "..." * (option.positional and list in kinds))
            metavar = "" if kind is bool else metavar
            row = Setting(name, names=names, **{"read": read, "several": list in kinds, "metavar": metavar, **option.said})
            yield DeclaredWord(row, option, owner or name, maker, kind is bool, name not in own)


def _with_default(command: Any) -> set[str]:
    code = command.__code__
    names = code.co_varnames[: code.co_argcount]
    return {*names[len(names) - len(command.__defaults__ or ()) :]}


def _kinds(kind: Any) -> Iterator[Any]:
    """A type without its parameters, and the types that it is made of."""
    yield get_origin(kind) or kind
    for part in get_args(kind):
        yield from _kinds(part)


# reading --------------------------------------------------------------------------------------------------------------
def parameters(command: Callable[..., Any], path: Sequence[str], words: Sequence[str]) -> dict[str, Any]:
    """The parameters that a command line gives to a command. Raises WrongUsage; help ends the process.

    path: the words that name the command.
    words: those after them.
    """
    arguments = [*declared(command)]
    parser = parser_of(command, path, arguments)
    options, others = _parted(arguments, words)
    program = next((a for a in arguments if isinstance(a.option, ProgramWords)), None)
    names = [name for a in arguments for name in a.row.names]
    for word in options:
        if word[:2] == "--" and word.partition("=")[0] not in (*names, "--help"):
            parser.refuse(word, names)
    found, extra = parser.parse_known_args([*options, *(["--", *others] if others and not program else [])])
    if extra := [word for word in extra if word != "--"]:
        parser.refuse(extra[0], names)
    if program and program.required and not others:
        parser.error(f"{MISSING}{program.row.metavar}")
    given: dict[str, Any] = {program.owner: others} if program and others else {}
    together: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {}
    for a in arguments:
        value = getattr(found, a.row.name)
        said = value is not False and value not in (None, [])
        if a.maker is not None:
            values = together.setdefault(a.owner, (a.maker, {}))[1]
            values |= {a.row.name: value} if said else {a.row.name: a.row.default or value} if a.maker is Given else {}
        elif said:
            given[a.owner] = value
    return given | {owner: maker(**values) for owner, (maker, values) in together.items()}


def program_at(arguments: Sequence[DeclaredWord], words: Sequence[str]) -> int:
    """The number of words before a program, all if there is none. A launch file is no program: options may stand after it."""
    program = next((a.option for a in arguments if isinstance(a.option, ProgramWords)), None)
    if program is None or program.whole:
        return len(words) if program is None or [*words] in (["-h"], ["--help"]) else 0
    names = {name: a.switch or a.row.bare is not None for a in arguments for name in a.row.names} | {"-h": True, "--help": True}
    at = 0
    while at < len(words) and words[at] != "--" and (words[at] in names or words[at][:2] == "--"):
        at += 1 if names.get(words[at], True) else 2
    return len(words) if at >= len(words) or words[at].endswith(".toml") else at


def _parted(arguments: Sequence[DeclaredWord], words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options, each with its value in one word, so that the value may begin with a hyphen; and all other words."""
    valued = {name: a for a in arguments if not a.switch and a.row.bare is None for name in a.row.names}
    end = program_at(arguments, words)
    options, others, rest = list[str](), list[str](), [*words[:end]]
    while rest and rest[0] != "--":
        word = rest.pop(0)
        if word in valued:
            if not rest:
                raise WrongUsage(f"{word} has no value", hint=f"{word} {valued[word].row.metavar}")
            options.append(f"{word}={phrase(rest) if valued[word].option.phrase else rest.pop(0)}")
        else:
            (options if word[:1] == "-" and word != "-" else others).append(word)
    return options, [*others, *rest[1:], *words[end:]]


def phrase(words: list[str]) -> str:
    """Take the first word off, with the words of an instruction after it."""
    from mmulator.isa.names.words import is_word

    end = next((n for n, word in enumerate(words) if n and not is_word(word)), len(words))
    taken_off, words[:] = words[:end], words[end:]
    return " ".join(taken_off)


class _CommandParser(argparse.ArgumentParser):
    """argparse's parser, whose errors are ours."""

    def error(self, message: str) -> NoReturn:
        said = f"{message.removeprefix(MISSING)} is missing" if message.startswith(MISSING) else message.removeprefix("argument ")
        said = said.replace(": ignored explicit argument", " takes no value, and not")
        raise WrongUsage(said, hint=f"{self.usage}; more: {self.prog} --help")

    def refuse(self, word: str, names: Iterable[str]) -> NoReturn:
        """Raise WrongUsage for an option that there is not, or for a word too many."""
        if word[:1] != "-" or word == "-":
            raise WrongUsage(f"{word} is a word too many", hint=f"{self.usage}; more: {self.prog} --help")
        word = word.partition("=")[0]
        from difflib import get_close_matches

        near = get_close_matches(word, [*names, "--help"], 2, 0.7)
        hint = f"did you mean {' or '.join(near)}?" if near else f"{self.prog} --help lists the options"
        raise WrongUsage(f"{self.prog} has no option {word}", hint=hint)


def _reader(a: DeclaredWord) -> Callable[[str], Any]:
    """The row's reader, with an error that says how the value should look."""

    def read(text: str) -> Any:
        try:
            return a.row.read(text)
        except ValueError as error:
            hint = f"{error.message}; {error.hint}" if isinstance(error, MmulatorError) else str(error)
            raise WrongUsage(f"{a.row.names[0] if a.row.names else a.row.metavar} {text}", hint=hint) from None

    return read


def parser_of(command: Callable[..., Any], path: Sequence[str], arguments: Sequence[DeclaredWord]) -> _CommandParser:
    """argparse's parser of a command."""
    shown = [a.row.metavar if a.required else f"[{a.row.metavar}]" for a in arguments if a.option.positional]
    prog = " ".join(("mmulator", *path))
    parser = _CommandParser(
        prog=prog, usage=" ".join((prog, "[OPTIONS]", *shown)), description=cleandoc(command.__doc__ or ""), add_help=False,
        allow_abbrev=False, formatter_class=HelpText,
    )  # fmt: skip
    groups = {title: parser.add_argument_group(title) for title in ("Arguments", "Options", WHAT, COMPARING, FINDING, RESULTS)}
    for a in arguments:
        title = "Arguments" if a.option.positional else a.row.group or "Options"
        group = groups[title] = groups.get(title) or parser.add_argument_group(title)
        more = " Required." if a.required and not a.option.positional else ""
        said: dict[str, Any] = {"help": (a.row.help + more).replace("%", "%%"), "default": False if a.switch else None}
        if not a.switch:
            said |= {"metavar": a.row.metavar, "type": _reader(a)}
            said |= {} if a.row.bare is None else {"nargs": "?", "const": a.row.bare}
        if a.option.positional:
            nargs = ("+" if a.required else "*") if a.row.several else None if a.required else "?"
            nargs = "*" if isinstance(a.option, ProgramWords) else nargs
            group.add_argument(a.row.name, nargs=nargs, **said)
        else:
            action = "store_true" if a.switch else "append" if a.row.several else "store"
            group.add_argument(*a.row.names, dest=a.row.name, required=a.required, action=action, **said)
    groups["Options"].add_argument("-h", "--help", action="help", help="Show this.")
    return parser


# help -----------------------------------------------------------------------------------------------------------------
class HelpText(argparse.HelpFormatter):
    """Help that fills the terminal: paragraphs are folded, indented lines stay as they are."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=width())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(_folded(p, width) for p in text.split("\n\n"))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def _folded(paragraph: str, width: int) -> str:
    """A paragraph in lines that fill a width. Indented lines stay, and have a backslash where they are folded."""
    lines = paragraph.split("\n")
    if not any(line.startswith(" ") for line in lines):
        return textwrap.fill(paragraph, width, break_on_hyphens=False)
    more: dict[str, Any] = {"subsequent_indent": " " * 8, "break_long_words": False, "break_on_hyphens": False}
    return "\n".join(" \\\n".join(textwrap.wrap(line, width - 2, **more)) if len(line) > width else line for line in lines)


def print_commands(prog: str, about: str, commands: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Print the help of a command that is made of commands. commands, options: what each is, by name."""
    usage = f"{prog} COMMAND [OPTIONS]"
    parser = argparse.ArgumentParser(prog=prog, usage=usage, description=about, add_help=False, formatter_class=HelpText)
    group = parser.add_argument_group("Commands")
    for name, said in commands.items():
        group.add_argument(name, help=said.replace("%", "%%"))
    group = parser.add_argument_group("Options")
    for name, said in options.items():
        group.add_argument(*name.split(", "), help=said, action="store_true")
    parser.print_help()


def first_paragraph(command: Any) -> str:
    """The first paragraph of a command's help, in one line."""
    text = command.about if isinstance(command, Group) else cleandoc(command.__doc__ or "")
    return " ".join(text.partition("\n\n")[0].split())
