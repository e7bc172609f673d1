"""Commands in the console of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmulator.debug.dap.messages import CompletionItem
from mmulator.debug.dap.variables import evaluated

if TYPE_CHECKING:
    from mmulator.debug.dap.standing import Frame, Standing


def command(at: Standing, text: str, frame: Frame | None) -> dict[str, Any]:
    """What a line in the console gives: a command of the terminal's, or an expression."""
    word, _, rest = text.strip().partition(" ")
    if word == "why" and rest:
        return {"result": at.session.why(rest.strip()), "variablesReference": 0}
    shown = evaluated(at, text, frame).shown(at)
    return {"result": shown["value"], **{k: v for k, v in shown.items() if k not in ("name", "value", "evaluateName")}}


def completions(at: Standing, text: str, column: int, frame: Frame | None) -> list[CompletionItem]:
    """Names that begin as the word before a column does."""
    word = text[: max(0, column - 1)].split(" ")[-1]
    names = [*at.machine.types(frame.warp, frame.at.frame)] if frame is not None else []
    names += [a.name for a in at.session.names.arrays] + list(at.machine.kernel.shared.addresses) + ["why"]
    start = max(0, column - 1) - len(word)
    found = [name for name in dict.fromkeys(names) if word and name.startswith(word)]
    return [CompletionItem(label=name, start=start, length=len(word)) for name in found[:100]]
