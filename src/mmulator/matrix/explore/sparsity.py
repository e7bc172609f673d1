"""The view of sparse metadata: what a nibble says, and which lane holds it."""

from functools import cache

import numpy as np

from mmulator.isa.form import Form
from mmulator.isa.names.words import legal_forms
from mmulator.matrix.explore.view import Block, Choices, Document, View, table, takes, text, tree_of, whole_number
from mmulator.matrix.inspect.sparse import MetadataWord, metadata_word, metadata_words
from mmulator.matrix.layouts import sparse


@cache
def forms() -> dict[str, Form]:
    """Sparse forms, one for each way in which metadata lies, by family, shape and types of A."""
    found: dict[object, list[Form]] = {}
    for form in legal_forms():
        if form.sparse and form.atype:
            places = tuple(p.tobytes() for p in sparse.places(form, 0))
            found.setdefault((form.family, form.m, form.k, sparse.granularity(form), places), []).append(form)
    return {_name(group): group[0] for group in found.values()}


def _name(group: list[Form]) -> str:
    types = ", ".join(dict.fromkeys(str(f.atype) for f in group))
    first = group[0]
    return f"{first.family}.sp m{first.m}k{first.k}: {types}"


@cache
def _choices() -> Choices:
    return tree_of((name, str(n)) for name, form in forms().items() for n in range(4) if takes(sparse.places, form, n))


def nibbles(form: Form) -> Block:
    """A table of the sixteen values of a nibble."""
    g = sparse.granularity(form)
    rows = []
    for value in range(16):
        defined = value in sparse.allowed(form)
        kept = sparse.indices(np.array([[value]], np.uint8), form)[0].tolist() if defined else []
        said = "yes" if defined else "no", ", ".join(map(str, kept)), sparse.meaning(value, form)
        rows.append((f"{value:04b}", f"{value:x}", *said))
    columns = ("nibble", "digit", "defined", f"kept of columns 0 to {g.chunk - 1}", "meaning")
    return table("what a nibble says", columns, rows)


def places(words: tuple[MetadataWord, ...]) -> Block:
    """A table of the nibbles of lanes."""
    rows = [
        (f"T{w.lane}", f"{n.bits[0]}..{n.bits[1]}", n.row, "{}..{}".format(*n.columns), *((n.text, n.meaning) if n.text else ()))
        for w in words for n in w.nibbles
    ]  # fmt: skip
    said = ("nibble", "meaning") if rows and len(rows[0]) > 4 else ()
    return table("where nibbles lie", ("lane", "bits of the register", "row of A", "columns of A", *said), rows)


def _document(instruction: str, selector: str, lane: str = "", word: str = "") -> Document:
    form = forms()[instruction]
    g = sparse.granularity(form)
    rule = f"Of every {g.chunk} columns of A {g.kept} are stored. A nibble of metadata says which."
    if lane or word:
        at, value = (whole_number(given, "0xe9c84eed") if given else None for given in (lane, word))
        words: tuple[MetadataWord, ...] = (metadata_word(form, at, int(selector), value),)
    else:
        words = metadata_words(form, None, int(selector))
    unused = [text("This lane holds no metadata with this selector.")] if not words[0].nibbles else []
    return [text(rule), nibbles(form), *unused, places(words)]


VIEW = View(
    "sparse", "Sparse metadata", "Which columns of a sparse A are kept, and where the bits lie that say so.",
    (("instruction", "Instruction"), ("selector", "Selector")), _choices, _document,
    (("lane", "A lane", "0"), ("word", "Its metadata", "0xe9c84eed")),
)  # fmt: skip
