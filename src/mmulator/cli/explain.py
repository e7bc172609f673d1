"""`mmulator explain`: an instruction's operands, rules, arithmetic and text to paste; rules of the sanitizer; concepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from mmulator.cli.output import exclude, print_columns, print_heading, print_json, print_text
from mmulator.cli.parser import Json, Option, Positional

if TYPE_CHECKING:
    from mmulator.inspect import Explanation
    from mmulator.matrix.inspect.explanation.topics import Topic

_OTHERS = 12  # other matches that are named


def explain(
    instruction: Annotated[
        list[str], Positional("A name, a pasted statement, words; a rule of the sanitizer; or a concept, such as swizzle.",
                   offer="explained_words")
    ],
    target: Annotated[str | None, Option("Only what this .target has, such as sm_90a.", "sm_NN", offer="target_names")] = None,
    ptx: Annotated[str | None, Option("Only what this .version has, such as 8.0.", "VERSION")] = None,
    device: Annotated[str | None, Option("The arithmetic of one device, such as sm_90. Default: all.")] = None,
    brief: Annotated[bool, Option("Without the text to paste: the default.")] = False,
    full: Annotated[bool, Option("With PTX and a CUDA function to paste.")] = False,
    ptx_only: Annotated[bool, Option("Print the PTX to paste, nothing else.")] = False,
    cuda_only: Annotated[bool, Option("Print the CUDA function, nothing else.")] = False,
    json: Json = False,
) -> None:
    """Explain a matrix instruction: operands, legal targets, each device's arithmetic, rules, text to paste. Or a rule of the
    sanitizer (`run --sanitize`): what must hold, and an example; `explain rules` lists them. Or one of the words swizzle,
    descriptor, fragment, proxy-fence, mbarrier, sparsity, bank.

    Words narrow: a family, a shape or part of one, types, qualifiers. The likeliest form is explained, others are named.

    Examples:
        mmulator explain wgmma m64n128 bf16
        mmulator explain mma.sp f8f6f4 e2m1 --full
        mmulator explain mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --device sm_90
        mmulator explain ldmatrix x4 trans --cuda-only > ldmatrix.cuh
        mmulator explain wgmma-fence-missing
        mmulator explain swizzle
    """
    from mmulator.cli import rules

    forms = {"--brief": brief, "--full": full, "--ptx-only": ptx_only, "--cuda-only": cuda_only, "--json": json}
    exclude(forms, "one form of output")
    named = rules.named(instruction)
    if named:
        exclude({"a rule": True, "--target": target, "--ptx": ptx, "--device": device}, "that is of instructions")
        exclude({"a rule": True, **{o: given for o, given in forms.items() if o != "--json"}}, "that is of instructions")
        rules.tell(named, several=named != ("-".join(instruction).lower().replace("_", "-"),), json=json)
        return
    from mmulator.base.errors import MmulatorError, UnsupportedError
    from mmulator.inspect import explain as answer
    from mmulator.matrix.inspect.explanation import topics

    topic = topics.topic_of(instruction)
    if topic is not None:
        exclude({"a concept": True, "--target": target, "--ptx": ptx, "--device": device}, "that is of instructions")
        exclude({"a concept": True, **{o: given for o, given in forms.items() if o != "--json"}}, "that is of instructions")
        _of_topic(topic, json)
        return
    try:
        found = answer(" ".join(instruction), target, ptx, device=device)
    except MmulatorError as error:
        near = {"the rule of the sanitizer": rules.similar(instruction), "the concept": topics.similar(instruction)}
        meant = (f"did you mean {what} {' or '.join(names)}?" for what, names in near.items() if names)
        error.hint = " ".join(meant) or error.hint
        raise
    if json:
        print_json("explain", {"ok": True, **found.to_dict()})
    elif cuda_only and not any(snippet.cuda for snippet in found.snippets):
        raise UnsupportedError(f"there is no CUDA function for {found.mnemonic}", hint="--ptx-only prints a statement")
    elif ptx_only or cuda_only:
        print(found.ptx if ptx_only else found.cuda, end="")
    else:
        _as_text(found, full)


def _of_topic(topic: Topic, json: bool) -> None:
    if json:
        print_json("topic", {"ok": True, **topic.to_dict()})
        return
    print_heading(topic.name)
    for paragraph in topic.text:
        print_text(paragraph)
    print()
    for line in topic.picture:
        print(f"  {line}")
    print()
    for what, command in topic.commands:
        print_text(f"{what}: {command}", hang=2)
    print_text(f"Section: {topic.section} (PTX ISA 9.1). More: docs/{topic.page}")


def _as_text(e: Explanation, full: bool) -> None:
    print_heading(e.mnemonic)
    if e.matches:
        print_text(f"{len(e.matches) + 1} forms fit `{e.query}`; this is the likeliest, the others are named below.")
    print_text(e.computes)
    print_text(f"Target: {e.requires}; PTX {e.ptx_version} or higher.")
    if e.macs:
        print_text(f"{e.macs:,} multiply-accumulates by {e.threads} thread{'s' * (e.threads > 1)}.")
    print_text(f"Section: {e.section}.")
    _operands(e)
    _arithmetic(e)
    _rules(e)
    _related(e)
    in_cuda = any(snippet.cuda for snippet in e.snippets)
    for title, text in (("PTX", e.ptx), *([("CUDA", e.cuda)] if in_cuda else [])) if full else ():
        print()
        print_heading(title)
        print(text, end="")
    if not full:
        print()
        what, also = (" and a CUDA function", ", --cuda-only") if in_cuda else ("", "")
        print_text(f"PTX{what} to paste: --full, or --ptx-only{also}")


def _operands(e: Explanation) -> None:
    if not e.operands:
        return
    print()
    rows = [
        (o.name, o.direction, f"{o.registers} x .{o.type}" if o.registers else _constants(o.values), o.what) for o in e.operands
    ]
    print_heading("Operands, per thread")
    print_columns(("name", "", "registers", "holds"), rows, breaks=" ")
    for signature in e.signatures:
        print_text(f"as written: {signature}", hang=2)


def _constants(values: tuple[int, ...] | None) -> str:
    if values and len(values) > 8 and values == tuple(range(values[0], values[-1] + 1)):
        return f"constant {values[0]} to {values[-1]}"
    return "constant" if values is None else "constant " + ", ".join(map(str, values))


def _arithmetic(e: Explanation) -> None:
    from mmulator.matrix.inspect.explanation.arithmetic import by_devices, numbers

    groups = by_devices(e.arithmetic)
    if not groups:
        return
    print()
    print_heading("Arithmetic")
    columns = ("device", "L", "F", "floor", "rounding", "NaN", "confidence")
    rows: list[tuple[str, ...]] = []
    for names, a in groups:
        first, *others = names.split(", ") if len(names) > 30 else [names]
        rows += [(first, *numbers(a)), *((name, *[""] * (len(columns) - 1)) for name in others)]
    print_columns(columns, rows, breaks=" ")
    if any(a.chunk for _, a in groups):
        print_text("L: products added in one step. F: bits kept below the largest exponent, which is at least the floor.")
    said: dict[str, list[str]] = {}
    for names, a in groups:
        said.setdefault(a.words + (f" ({a.note})" if a.note else ""), []).append(names)
    for words, devices in said.items():
        print_text(f"{', '.join(devices)}: {words}", hang=2)


def _rules(e: Explanation) -> None:
    print()
    print_heading("Rules")
    own = e.section.partition(" (PTX")[0]
    for rule in e.rules:
        where = f" [{rule.section}]" if rule.section != own else ""
        print_text(f"- {rule.text}{' Otherwise undefined.' if rule.undefined else ''}{where}", hang=2)


def _commands(e: Explanation) -> list[str]:
    """Other commands that say more about the instruction."""
    from mmulator.matrix.inspect.layouts.layout import operands
    from mmulator.matrix.inspect.search import form_of

    form = form_of(e.mnemonic)
    held = operands(form)
    where = "lanes and columns of tensor memory" if form.effects.tensor and form.atype else "lanes and registers"
    out = [f"{where}: mmulator layout {e.mnemonic} {'|'.join(held)}"] if held else []
    if form.effects.tensor and form.atype:
        out.append(f"instruction descriptor: mmulator descriptor encode {e.mnemonic} --operand idesc")
    if (form.lanes > 32 or form.effects.tensor) and form.atype:
        out.append(f"matrices in shared memory: mmulator descriptor encode {e.mnemonic}")
    if form.sparse and not form.effects.tensor:
        out.append(f"metadata: mmulator sparse lanes --for {e.mnemonic}")
    return out


def _related(e: Explanation) -> None:
    lines = [f"{r.relation}: {r.instruction}" + (f" ({r.also})" if r.also else "") for r in e.related] + _commands(e)
    if lines:
        print()
        print_heading("Related")
    for text in lines:
        print_text(text, hang=2)
    if e.matches:
        print()
        print_heading(f"Others that fit `{e.query}`")
        for mnemonic in e.matches[:_OTHERS]:
            print(mnemonic)
        if len(e.matches) > _OTHERS:
            print(f"and {len(e.matches) - _OTHERS} more: mmulator list {e.query} --full")
