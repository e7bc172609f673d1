"""The explorer as data: an index with the choices of every view, documents, and all of it as static files."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from mmulator import __version__
from mmulator.base.errors import MmulatorError, OperandError
from mmulator.base.files import write
from mmulator.isa.chips import CHIPS
from mmulator.isa.targets import DEVICES
from mmulator.matrix.explore import formats, fragments, memory, products, sparsity
from mmulator.matrix.explore.view import Choices, Document, View
from mmulator.matrix.inspect.views.svg import COLOURS

VIEWS: dict[str, View] = {
    view.name: view
    for view in (fragments.VIEW, memory.SWIZZLE, memory.DESCRIPTOR, memory.TENSOR_MAP, sparsity.VIEW, formats.VIEW, products.VIEW)
}
PARTS = ("page.css", "page.js")  # beside index.html
Said: TypeAlias = Callable[[str, int, int], object]
_PACKED = 64  # documents of a file
_LARGE = 2000  # bytes; a larger block has a file of its own, which documents share


@cache
def part(name: str) -> str:
    """A file of the page; the style sheet with the colours of the drawings."""
    found = files("mmulator.matrix.explore").joinpath("page", name).read_text()
    return colours() + found if name == "page.css" else found


def page(tables: str) -> str:
    """The page. tables: `server` or `files`, where it finds its tables."""
    return part("index.html").replace('data-tables=""', f'data-tables="{tables}"')


def colours() -> str:
    """Colours of the drawings as variables of CSS, light and dark."""
    light, dark = ("".join(f"--{name}:{pair[n]};" for name, (_, *pair) in COLOURS.items()) for n in (0, 1))
    lanes = "".join(f".l{n}{{background:var(--l{n})}}" for n in range(32))
    return (
        f":root{{color-scheme:light;{light}}}\n@media(prefers-color-scheme:dark){{:root{{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=light]{{color-scheme:light;{light}}}\n:root[data-theme=dark]{{color-scheme:dark;{dark}}}\n{lanes}\n"
    )


def index() -> dict[str, Any]:
    """The index, which the page loads first: devices, and the views with their parameters and choices."""
    views = [
        {
            "name": v.name, "title": v.title, "about": v.about, "parameters": v.parameters, "free": v.free,
            "choices": v.choices(), "chips": v.chips(),
        }
        for v in VIEWS.values()
    ]  # fmt: skip
    return {"version": __version__, "devices": [[d, CHIPS[d]] for d in DEVICES], "views": views}


def document(name: str, given: Mapping[str, str]) -> Document:
    """The document of a choice.

    name: of the view.
    given: the values of its parameters, and of its free ones if they are given.

    Raises OperandError for an unknown view or choice; others as the functions of `inspect` do.
    """
    view = VIEWS.get(name)
    if view is None:
        raise OperandError(f"no view {name!r}", hint=f"views: {', '.join(VIEWS)}")
    names = [p for p, _ in view.parameters]
    rest: Any = view.choices()
    for p in names:
        value = given.get(p, "")
        if value not in rest:
            raise OperandError(f"{p} is {value!r}: there is no such choice", hint=f"one of: {', '.join([*rest][:20])}")
        rest = rest[value]
    free = {p: given[p] for p, _, _ in view.free if given.get(p, "").strip()}
    if unknown := given.keys() - {*names} - {p for p, _, _ in view.free}:
        raise OperandError(f"{name} has no parameter {sorted(unknown)[0]!r}", hint=f"parameters: {', '.join(names)}")
    return view.document(*(given[p] for p in names), **free)


def answer(name: str, given: Mapping[str, str]) -> dict[str, Any]:
    """`document` as a server sends it: `blocks`, or what is wrong as `error` and `hint`."""
    try:
        return {"blocks": document(name, given)}
    except MmulatorError as error:
        return {"error": error.message, "hint": error.hint or ""}
    except (ValueError, OverflowError):  # of Python's and NumPy's own limits
        return {"error": "a number is too large, or a list too long", "hint": ""}


def _quiet(*_: object) -> None: ...


# Static files ---------------------------------------------------------------------------------------------------------
def static(said: Said = _quiet) -> Iterator[tuple[str, str]]:
    """(name, text) of every file of the explorer without a server; index.html is the last. said: is called with each view.

    Tables are scripts that hand over their value, since a page that was opened from a folder may not read other files.
    Documents that are equal are one, and so are large blocks that are equal.
    """
    yield from ((name, part(name)) for name in PARTS)
    blocks: dict[str, int] = {}
    documents: dict[str, int] = {}
    contents = index()
    for done, (view, data) in enumerate(zip(VIEWS.values(), contents["views"])):
        said("views", done, len(VIEWS))
        known: dict[object, int] = {}

        def number(*values: str, view: View = view, known: dict[object, int] = known) -> int:
            key = view.same(*values)
            if key not in known:
                parts = []
                for block in view.document(*values):
                    written = _json(block)
                    large = len(written) > _LARGE
                    parts.append(f'{{"file":{blocks.setdefault(written, len(blocks))}}}' if large else written)
                known[key] = documents.setdefault(f"[{','.join(parts)}]", len(documents))
            return known[key]

        data["choices"] = _numbered(data["choices"], number)
        data["free"] = []
    packs = [*documents]
    yield from ((f"data/{name}.js", _script(name, text)) for text, name in ((t, f"block-{n}") for t, n in blocks.items()))
    for n in range(0, len(packs), _PACKED):
        name = f"documents-{n // _PACKED}"
        yield f"data/{name}.js", _script(name, f"[{','.join(packs[n : n + _PACKED])}]")
    yield "data/index.js", _script("index", _json(contents | {"packed": _PACKED}))
    yield "index.html", page("files")


def _numbered(choices: Choices, number: Any, *before: str) -> Choices:
    """Choices with the numbers of their documents."""
    return {
        value: number(*before, value) if rest is None else _numbered(rest, number, *before, value)
        for value, rest in choices.items()
    }


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def _script(name: str, text: str) -> str:
    return f"table({_json(name)},{text})\n"


def export(folder: Path, said: Said = _quiet) -> tuple[int, int]:
    """Write the explorer without a server; returns the number of files and of bytes. Raises OSError.

    A new index.html comes last, so that it stands only where all other files are in place.
    """
    count = size = 0
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for name, text in static(said):
        write(folder / name, data := text.encode())
        size += len(data)
        count += 1
    return count, size
