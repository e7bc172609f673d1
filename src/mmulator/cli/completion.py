"""Words that shells may offer while a command line is typed, and the scripts by which shells ask for them.

A shell calls `mmulator` with the words of its command line in variables, and gets a word a line. It must be quick and never fail.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from mmulator.base.files import write
from mmulator.cli.commands import COMMANDS, command_of
from mmulator.cli.output import WrongUsage
from mmulator.cli.parser import Group, ProgramWords, declared, program_at

ASKED = "_MMULATOR_COMPLETE"  # variable of a process that a shell asks
# The script of each shell, the file that has it, and what that shell's own file needs to find it.
SCRIPTS = {
    "bash": ("""\
_mmulator_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _MMULATOR_COMPLETE=complete_bash $1 ) )
}
complete -o default -F _mmulator_completion mmulator
""", "~/.bash_completions/mmulator.sh", "~/.bashrc", "source '{}'\n"),
    "zsh": ("""\
#compdef mmulator
_mmulator_completion() {
    local -a found
    found=("${(@f)$(env COMP_WORDS="${(pj:\\n:)words}" COMP_CWORD=$((CURRENT - 1)) _MMULATOR_COMPLETE=complete_zsh mmulator)}")
    if [[ -n "$found" ]]; then compadd -Q -- $found; else _files; fi
}
compdef _mmulator_completion mmulator
""", "~/.zfunc/_mmulator", "~/.zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit\n"),
    "fish": ("""\
function _mmulator_completion
    set -l words (commandline -opc) (commandline -ct)
    env COMP_WORDS=(string join \\n -- $words | string collect) COMP_CWORD=(math (count $words) - 1) \\
        _MMULATOR_COMPLETE=complete_fish mmulator
end
complete --command mmulator --arguments "(_mmulator_completion)"
""", "~/.config/fish/completions/mmulator.fish", "", ""),
}  # fmt: skip


def script(shell: str | None) -> str:
    """The script of a shell. Raises WrongUsage for a shell that has none."""
    if shell not in SCRIPTS:
        raise WrongUsage(f"no completion for {shell}" if shell else "which shell?", hint=f"one of {', '.join(SCRIPTS)}")
    return SCRIPTS[shell][0]


def install(shell: str | None) -> str:
    """Write the script of a shell where it finds it; its path."""
    script(shell)
    text, name, own, line = SCRIPTS[str(shell)]
    place = Path(name).expanduser()
    place.parent.mkdir(parents=True, exist_ok=True)
    write(place, text)
    wanted = line.format(place)
    if own and (not (file := Path(own).expanduser()).exists() or wanted not in file.read_text()):
        write(file, f"{file.read_text() if file.exists() else ''}\n{wanted}")
    return str(place)


def answer() -> str:
    """The words that a shell is offered, one a line."""
    line, at = os.environ.get("COMP_WORDS", ""), os.environ.get("COMP_CWORD", "")
    words = line.split("\n" if "\n" in line else " ")
    before = [word.strip("'\"") for word in words[1 : int(at)]] if at.isdigit() else []
    typed = words[int(at)] if at.isdigit() and int(at) < len(words) else ""
    return "\n".join(offered(before, typed))


def offered(words: Sequence[str], typed: str) -> list[str]:
    """Words that may come next. words: those that stand there. typed: the beginning of the next one."""
    command, rest, known = None, [*words], dict[str, object](COMMANDS)
    while rest and rest[0] in known:
        name = rest.pop(0)
        command = command.commands[name] if isinstance(command, Group) else command_of(name)
        known = {**command.commands} if isinstance(command, Group) else {}
    found = [*known] if not rest else []
    if command is None:
        found += ["help", "--help", "--version", "--install-completion", "--show-completion"]
        found = [*SCRIPTS] if rest[-1:] in (["--install-completion"], ["--show-completion"]) else found
    elif isinstance(command, Group):
        found += ["--help"]
    else:
        found = [*_of_command(command, rest, typed)]
    return [word for word in found if word.startswith(typed)]


def _of_command(command: object, words: list[str], typed: str) -> Iterator[str]:
    arguments = [*declared(command)]
    if any(isinstance(a.option, ProgramWords) for a in arguments) and program_at(arguments, words) < len(words):
        return  # the program's own
    valued = {name: a for a in arguments if not a.switch for name in a.row.names}
    plain = [word for before, word in zip(("", *words), words) if word[:1] != "-" and before not in valued]
    if words[-1:] and words[-1] in valued:
        yield from _words(valued[words[-1]].row.offer, plain, typed)
    elif typed[:1] == "-":
        yield from (name for a in arguments for name in a.row.names)
        yield "--help"
    else:
        for a in arguments:
            if a.option.positional:
                yield from _words(a.row.offer, plain, typed)


def _words(offer: str, plain: list[str], typed: str) -> Sequence[str]:
    found = globals().get(offer)
    return found(plain, typed) if found else offer.split()


# words of options and arguments -----------------------------------------------------------------------------------------
def instruction_words(words: Sequence[str], typed: str) -> list[str]:
    """Words of an instruction that may come next, after those that stand there already."""
    from mmulator.isa.names.words import complete

    return complete([*words], typed)


def explained_words(words: Sequence[str], typed: str) -> list[str]:
    """Words of instructions, and where there is no word yet the rules of the sanitizer, too."""
    from mmulator.base.rules import RULES, TOPICS

    found = instruction_words(words, typed)
    return found if words else [*found, *(name for name in ("rules", *TOPICS, *RULES) if typed)]


def target_names(_: Sequence[str], typed: str) -> list[str]:
    """Targets."""
    from mmulator.isa.targets import TARGETS

    return [str(target) for target in sorted(TARGETS)]


def rule_choices(_: Sequence[str], typed: str) -> list[str]:
    """Rules and topics of --rules, after the last comma."""
    from mmulator.base.rules import RULES, TOPICS

    before, comma, last = typed.rpartition(",")
    minus = "-" * last.startswith("-")
    return [f"{before}{comma}{minus}{name}" for name in (*TOPICS, *RULES) if name.startswith(last.removeprefix("-"))]
