"""Words that fit several forms: whether another of them has another layout of the operand."""

from collections.abc import Callable, Iterator

from mmulator.errors import MmulatorError, OperandError
from mmulator.inspect.layouts.answer import Element, Layout
from mmulator.inspect.layouts.layout import layout, operand_of
from mmulator.inspect.search import form_of, is_tcgen05, name_in
from mmulator.isa.form import Form
from mmulator.isa.names.words import find_forms, parse_query, split
from mmulator.layouts import fragment


def _others(text: str, found: Layout) -> Iterator[Layout]:
    """Layouts of the other forms that the words fit, where they differ; the likeliest first."""
    if name_in(text) or is_tcgen05(text):
        return
    seen = {found.maps[0].shape: [found]}
    selector = next((int(n.split(":")[0].split()[1]) for n in found.notes if n.startswith("Selector")), 0)
    keys = {_layout_key(form_of(found.instruction), found.operand)}
    named = {t for choices in parse_query(split(text)).types for t in choices}
    for form in find_forms(text):
        try:
            name = operand_of(form, found.operand)
        except OperandError:
            continue
        key = _layout_key(form, name)
        if key in keys:
            continue
        keys.add(key)
        try:
            other = layout(form, name, selector=selector, device=found.device)
        except MmulatorError:
            continue
        if found.type in named and other.type not in named:  # the words say the type of this operand
            continue
        known = seen.setdefault(other.maps[0].shape, [])
        if not any(_same(other, k) for k in known):
            known.append(other)
            yield other


def _layout_key(form: Form, name: str) -> object:
    """Key of a form's layout: forms of one key have one layout."""
    if name in ("e", "sp_meta") or name.startswith("scale"):
        return form.family, form.m, form.n, form.k, form.atype, form.btype, form.scale_vec, name
    return fragment(form, name), form.sparse and name == "a"


def _same(a: Layout, b: Layout) -> bool:
    alike = (a.room, a.shift, a.width, a.spans) == (b.room, b.shift, b.width, b.spans)
    return alike and all(x.shape == y.shape and bool((x == y).all()) for x, y in zip(a.maps, b.maps))


def other_form(text: str, found: Layout) -> str:
    """The first of the other forms that the words fit whose layout of the operand differs; empty if there is none."""
    return next((other.instruction for other in _others(text, found)), "")


def other_answer(
    text: str, found: Layout, ask: Callable[[Layout], list[Element]]
) -> tuple[Layout, list[Element]] | None:
    """(layout, elements) of the first other form that the words fit and that answers a question differently."""
    own = ask(found)
    for other in _others(text, found):
        try:
            answer = ask(other)
        except OperandError:  # the other form has no such element
            continue
        if answer != own or any(h.low != k.low or h.high != k.high for e, f in zip(own, answer)
                                for h, k in zip(e.holders, f.holders)):  # fmt: skip
            return other, answer
    return None
