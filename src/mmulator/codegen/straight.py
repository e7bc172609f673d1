"""Better code's texts: native functions that have a straight path are inlined by it (lang.py: `Native.other`)."""

from collections.abc import Iterable

from mmulator.codegen.lang import Native
from mmulator.codegen.loading import text_of


def straightened(text: str, natives: Iterable[Native]) -> str:
    """A module's text in which native functions that have a straight path are defined, so that they are inlined. Those whose
    texts were not kept are called.
    """
    defined: dict[str, str] = {}
    declared: dict[str, None] = {}
    for function in natives:
        if function.other is not None and f"@{function.name}(" in text and (found := text_of(function.name)):
            heads, own, *inlined = found[0].split("\ndefine ")
            head, _, body = own.lstrip().partition(") ")
            definitions = [f"internal {head}) alwaysinline {body}", *inlined]
            defined |= {_named(definition): f"define {definition}" for definition in definitions}
            declared |= dict.fromkeys(heads.split("\n"))
    if not defined:
        return text
    lines = [line for line in text.split("\n") if not (line.startswith("declare ") and _named(line) in defined)]
    wanted = [line for line in declared if line and _named(line) not in defined and line not in lines]
    return "\n".join([*sorted(wanted), *lines, *defined.values()])


def _named(line: str) -> str:
    return line[line.index("@") + 1 : line.index("(")]
