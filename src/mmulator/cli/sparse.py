"""`mmulator sparse`: prune, compress and check matrices for sparse instructions; read and explain their metadata."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mmulator.base.errors import MmulatorError, OperandError
from mmulator.cli.output import misused, print_json, print_line, print_table
from mmulator.cli.parser import Group, Json, Option, Positional
from mmulator.host.settings.readers import one_of, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mmulator.isa.form import Form
    from mmulator.isa.types import ElementType
    from mmulator.matrix.inspect.sparse import MetadataWord, Nibble
    from mmulator.matrix.layouts.sparse import Compressed

_BACKENDS = one_of("cutlass or cusparselt", {name: name for name in ("cutlass", "cusparselt")})
Matrix = Annotated[Path, Positional("Matrix [..., M, K] (.npy).")]
For = Annotated[str, Option("The sparse instruction, such as `mma.sp m16n8k32 f16`.", "INSTRUCTION", names="--for", phrase=True)]
Type = Annotated[
    str | None,
    Option(
        "Element type, such as bf16 or e4m3: of raw bits, or to round to. Opaque elements, as NumPy saves these types, are taken "
        "as the instruction's.", "TYPE", names="--type",
    ),
]  # fmt: skip
Output = Annotated[Path, Option("Where to write.", "FILE", names="-o --output")]
Selector = Annotated[int, Option("Sparsity selector.", read=whole(0))]


def check(file: Matrix, instruction: For, type: Type = None, json: Json = False) -> None:
    """Whether a matrix fits the pattern, and where not.

    Examples:
        mmulator sparse check A.npy --for "mma.sp m16n8k32 f16"

    The exit code is 0 only if no chunk has more non-zeros than are kept.
    """
    from mmulator.matrix.inspect.sparse import pattern_report

    form = _form(instruction)
    report = pattern_report(_matrix(file, form, type), form)
    if json:
        print_json("sparse-check", report.to_dict())
    else:
        print(f"{file}: {report.dtype} {list(report.shape)}, {report.zeros:.1%} zeros")
        print(f"{form}\n{report.rule}")
        print(f"{report.chunks:,} chunks, {report.too_dense:,} too dense" + (", of which the first:" if report.first else ""))
        rows = [(*c.batch, c.row, c.chunk, _range(c.columns), "  ".join(c.values)) for c in report.first]
        batch = [f"matrix {n}" for n in range(len(report.shape) - 2)]
        print_table("", (*batch, "row", "chunk", "columns", "values"), rows)
    if not report.ok:
        raise SystemExit(1)


def prune(file: Matrix, instruction: For, output: Output, type: Type = None, json: Json = False) -> None:
    """Keep the largest elements of every chunk, and set the others to zero.

    Examples:
        mmulator sparse prune A.npy --for "mma.sp m16n8k32 f16" -o P.npy
    """
    from mmulator.matrix.layouts import sparse as tools

    form = _form(instruction)
    dense = _matrix(file, form, type)
    pruned = tools.prune(dense, form)
    save_file(output, matrix=pruned)
    lost = int(((dense != 0) & (pruned == 0)).sum())
    _written(json, output, f"{lost:,} of {dense.size:,} elements set to zero", matrix=pruned, set_to_zero=lost)


def compress(
    file: Matrix,
    instruction: For,
    output: Output,
    prune: Annotated[bool, Option("Prune first.")] = False,
    pytorch: Annotated[str | None, Option("Write what PyTorch's tensors hold.", "cutlass|cusparselt", read=_BACKENDS)] = None,
    type: Type = None,
    json: Json = False,
) -> None:
    """Write what a sparse instruction keeps of a matrix, and its metadata.

    The .npz has `values` and `metadata` (a nibble for each chunk), with --pytorch `packed` and `meta`; and `instruction`.

    Examples:
        mmulator sparse compress A.npy --for "mma.sp m16n8k32 f16" --prune -o out.npz
    """
    from mmulator.matrix.layouts import sparse as tools

    form = _form(instruction)
    dense = _matrix(file, form, type)
    s = tools.compress(tools.prune(dense, form) if prune else dense, form)
    arrays: dict[str, Any] = {"values": s.values, "metadata": s.metadata}
    if pytorch is not None:
        packed, meta = tools.to_torch(s, pytorch)
        arrays = {"packed": packed} if meta is None else {"packed": packed, "meta": meta}
    # NumPy saves the dtypes of ml_dtypes without their names
    save_file(output, **arrays, shape=s.shape, dtype=str(dense.dtype), instruction=str(form))
    _written(json, output, "", **arrays)


def expand(
    file: Annotated[Path, Positional("What `compress` wrote, or .npz with `packed` (and `meta`) of PyTorch.")],
    output: Output,
    instruction: Annotated[
        str | None, Option("The instruction, if the file does not say it.", "INSTRUCTION", names="--for", phrase=True)
    ] = None,
    shape: Annotated[str | None, Option("Of A, if a cuSPARSELt buffer does not say it.", "M,K")] = None,
    json: Json = False,
) -> None:
    """Write the dense matrix of a compressed one.

    Examples:
        mmulator sparse expand out.npz -o A.npy
    """
    from mmulator.matrix.layouts import sparse as tools

    dense = tools.expand(_compressed(file, instruction, shape))
    save_file(output, matrix=dense)
    _written(json, output, "", matrix=dense)


def lanes(
    instruction: For,
    file: Annotated[Path | None, Positional("Matrix (.npy), or what `compress` wrote (.npz).")] = None,
    lane: Annotated[int | None, Option("Only this lane, nibble by nibble.", read=whole(0))] = None,
    selector: Selector = 0,
    tile: Annotated[str | None, Option("Which of the matrix's tiles. Default: 0,0.", "ROW,COLUMN")] = None,
    type: Type = None,
    json: Json = False,
) -> None:
    """The metadata operand of every lane: where its nibbles lie, with a matrix what they are.

    Examples:
        mmulator sparse lanes --for "mma.sp m16n8k32 f16" --selector 1
        mmulator sparse lanes A.npy --for "mma.sp m16n8k32 f16" --tile 0,1 --lane 4
    """
    from mmulator.matrix.inspect.sparse import metadata_word, metadata_words
    from mmulator.matrix.layouts import sparse as tools

    form = _form(instruction)
    one = None
    for name, value in (("--tile", tile), ("--type", type)):
        if file is None and value is not None:
            raise misused("it is of a matrix, and none is given", name)
    tile = tile or "0,0"
    if file is not None:
        if file.suffix == ".npz":
            one = _tile(_compressed(file, instruction, None), tile)
        else:
            one = _tile(tools.compress(_matrix(file, form, type), form), tile)
    words = metadata_words(form, one, selector)
    if lane is not None:
        words = tuple(w for w in words if w.lane == lane) or (metadata_word(form, lane, selector),)
    if json:
        print_json("sparse-lanes", {"ok": True, "instruction": str(form), "lanes": [w.to_dict() for w in words]})
        return
    _heading(form, selector, f"tile {tile} of {file}; rows and columns are the tile's" if one is not None else "")
    if lane is None:
        _print_lanes(words)
    else:
        _print_word(words[0])


def decode(
    word: Annotated[str, Positional("A metadata register: 0xe4e4e4e4, decimal, or 0b...")],
    instruction: For,
    lane: Annotated[int | None, Option("Lane that holds it. Default: the first that contributes.", read=whole(0))] = None,
    selector: Selector = 0,
    json: Json = False,
) -> None:
    """The meaning of every nibble of a metadata register.

    Examples:
        mmulator sparse decode 0xe9c84eed --for "mma.sp m16n8k32 f16" --lane 5

    The exit code is 0 only if the specification defines all of them.
    """
    from mmulator.matrix.inspect.sparse import metadata_word

    form = _form(instruction)
    try:
        value = int(word, 0)
    except ValueError:
        raise OperandError(f"{word!r} is no number", hint="0xe4e4e4e4, or decimal, or 0b...") from None
    found = metadata_word(form, lane, selector, value)
    if json:
        print_json("sparse-word", {"ok": found.defined, **found.to_dict()})
    else:
        _heading(form, selector, "")
        _print_word(found)
    if not found.defined:
        raise SystemExit(1)


sparse = Group(
    "Matrices for sparse instructions: check, prune, compress, expand, lanes, decode.\n\nFiles are .npy, or the .npz that "
    '`compress` writes. --for names the instruction, in full or in words that leave no doubt: "mma.sp m16n8k32 f16".',
    {"check": check, "prune": prune, "compress": compress, "expand": expand, "lanes": lanes, "decode": decode},
)


# files --------------------------------------------------------------------------------------------------------------
def typed(array: NDArray[Any], element: ElementType, convert: bool) -> NDArray[Any]:
    """An array of an element type.

    Opaque elements, as NumPy saves bf16 and the like, are read as that type. With `convert`, numbers of another dtype are
    rounded to the type, and unsigned integers of its size are its raw bits; without it they stay what they are. Raises
    OperandError if the sizes do not fit.
    """
    import numpy as np

    from mmulator.matrix.numerics.formats import numpy_dtype

    want: np.dtype[Any] = numpy_dtype(element)
    opaque = array.dtype.kind == "V"
    if opaque and array.dtype.itemsize != want.itemsize:
        raise OperandError(
            f"elements of {array.dtype.itemsize} bytes without a type; .{element} has {want.itemsize}",
            hint="--type says what they are",
        )
    if opaque or (convert and array.dtype == np.dtype(f"u{want.itemsize}") and element.name != f"u{8 * want.itemsize}"):
        return np.ascontiguousarray(array).view(want)
    return array.astype(want) if convert else array


def save_file(path: Path, **arrays: Any) -> None:
    """Write a .npz of arrays by name, or a .npy of the only one. Raises MmulatorError for another name, or no place."""
    import numpy as np

    from mmulator.base.files import replacing

    want = ".npy" if len(arrays) == 1 else ".npz"
    if path.suffix != want:
        raise MmulatorError(f"cannot write {path}: the name must end in {want}")
    with replacing(path) as file:
        if want == ".npy":
            np.save(file, next(iter(arrays.values())))
        else:
            np.savez(file, **arrays)


def _form(text: str) -> Form:
    """The sparse instruction of a full name, or of words that fix A's type, M and K: `mma.sp m16n8k32 f16`."""
    from mmulator.isa.names.words import parse_query, split
    from mmulator.matrix.inspect.search import forms_of, name_in
    from mmulator.matrix.layouts.sparse import form_of

    fitting = forms_of(text)
    if name_in(text):
        return form_of(fitting[0])
    found = [form for form in fitting if form.sparse]
    if not found:
        form_of(fitting[0])
    for choices in parse_query(split(text)).types:  # the first type that is one of A is A's
        named = [form for form in found if str(form.atype) in choices]
        if named:
            found = named
            break
    kinds = {(f.family, f.m, f.k, f.atype): f for f in reversed(found)}
    if len(kinds) > 1:
        names = [f"{f.family} {f.shape} .{f.atype}" for f in kinds.values()]
        raise OperandError(
            f"`{text}` fits several sparse instructions: {', '.join(reversed(names[-6:]))}{', ...' * (len(names) > 6)}",
            hint="say family, shape and type of A, as in `mma.sp m16n8k32 f16`",
        )
    return found[0]


def _matrix(file: Path, form: Form, type: str | None) -> NDArray[Any]:
    from mmulator.host.jobs.inputs import load_arrays
    from mmulator.matrix.numerics.formats import element_type

    found = load_arrays(file)
    if isinstance(found, dict):
        raise MmulatorError(f"{file} holds {', '.join(found) or 'no arrays'}: a .npy of one matrix is needed")
    element = form.atype if type is None else element_type(type.removeprefix("."))
    return typed(found, element, convert=type is not None)


def _compressed(file: Path, instruction: str | None, shape: str | None) -> Compressed:
    from mmulator.host.jobs.inputs import load_arrays
    from mmulator.matrix.layouts import sparse as tools

    found = load_arrays(file)
    if not isinstance(found, dict) or not ({"values", "metadata"} <= set(found) or "packed" in found):
        raise MmulatorError(f"{file} has no `values` and `metadata`, and no `packed`", hint="`compress` writes such files")
    text = instruction or str(found.get("instruction", ""))
    if not text:
        raise MmulatorError(f"{file} does not say its instruction", hint="give --for")
    form = _form(text)
    if "values" in found:
        values = found["values"]
        return tools.Compressed(typed(values, form.atype, convert=False), found["metadata"], form)
    packed = typed(found["packed"], form.atype, convert=False)
    size = _pair(shape, "--shape") if shape else tuple(map(int, found["shape"])) if "shape" in found else None
    return tools.from_torch(packed, found.get("meta"), instruction=form, shape=size)  # type: ignore[arg-type]


def _pair(text: str, option: str) -> tuple[int, int]:
    try:
        first, second = (int(part) for part in text.split(","))
    except ValueError:
        raise OperandError(f"{option} {text!r}: two numbers are needed, such as 0,1") from None
    return first, second


def _tile(s: Compressed, text: str) -> Compressed:
    from mmulator.matrix.layouts.sparse import Compressed

    tiles = s.tiles()
    at = _pair(text, "--tile")
    down, across = tiles.values.shape[-4:-2]
    if tiles.values.ndim != 4:
        raise OperandError(f"a matrix of shape {s.shape}: one matrix [M, K] is needed")
    if not (0 <= at[0] < down and 0 <= at[1] < across):
        raise OperandError(f"no tile {text}: there are {down} x {across}, the first is 0,0")
    return Compressed(tiles.values[at], tiles.metadata[at], s.form)


# print --------------------------------------------------------------------------------------------------------------
def _written(json: bool, output: Path, remark: str, **arrays: Any) -> None:
    about = {k: {"dtype": str(a.dtype), "shape": list(a.shape)} for k, a in arrays.items() if hasattr(a, "dtype")}
    rest = {k: v for k, v in arrays.items() if k not in about}
    if json:
        print_json("sparse-file", {"ok": True, "file": str(output), "arrays": about, **rest})
        return
    print(f"{output}: " + ", ".join(f"{k} {a['dtype']} {a['shape']}" for k, a in about.items()))
    if remark:
        print(remark)


def _heading(form: Form, selector: int, what: str) -> None:
    from mmulator.matrix.layouts.sparse import granularity

    g = granularity(form)
    print(f"{form}" + (f"\n{what}" if what else ""))
    pairs = " in pairs" if g.group == 2 else ""
    print(f"selector {selector}; a nibble for {g.chunk} columns, {g.kept} kept{pairs}")


def _print_lanes(words: tuple[MetadataWord, ...]) -> None:
    known = words[0].word is not None
    rows = []
    for w in words:
        for n, run in enumerate(w.runs()):
            low, high = run[0], run[-1]
            bits = f"T{w.lane}:[{low.bits[0]}..{high.bits[1]}]"
            value = (f"0x{w.word:08x}" if n == 0 else "", " ".join(f"{x.value:04b}" for x in run)) if known else ()
            rows.append((bits, low.row, f"{low.columns[0]}..{high.columns[1]}", *value))
    print_table("", ("bits", "row", "columns", *(("word", "nibbles, low bits first") if known else ())), rows)


def _print_word(w: MetadataWord) -> None:
    if not w.contributes:
        print_line(f"lane {w.lane} does not contribute with selector {w.selector}: its register is not read")
        others = _selectors(w)
        if others:
            print_line(f"it does with --selector {' or '.join(map(str, others))}")
        return
    print(f"lane {w.lane}" + ("" if w.word is None else f": 0x{w.word:08x}"))
    known = w.word is not None
    names = ("bits", "row", "columns", *(("nibble", "columns kept") if known else ()))
    print_table("", names, [(_range(n.bits), n.row, _range(n.columns), *(_said(n) if known else ())) for n in w.nibbles])


def _selectors(w: MetadataWord) -> list[int]:
    """Selectors with which the lane contributes."""
    from mmulator.matrix.inspect.sparse import metadata_word

    found = []
    for selector in range(4):
        try:
            if metadata_word(w.instruction, w.lane, selector).contributes:
                found.append(selector)
        except OperandError:  # no such selector
            break
    return found


def _said(n: Nibble) -> tuple[str, str]:
    kept = ", ".join(map(str, n.keeps)) if n.defined else f"undefined: {n.meaning}"
    return f"{n.value:04b}", kept


def _range(ends: tuple[int, int]) -> str:
    return f"{ends[0]}..{ends[1]}"
