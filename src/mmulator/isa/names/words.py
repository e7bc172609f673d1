"""Instructions from a few words: `wgmma m64n128 bf16`, `mma.sp f8f6f4 e2m1`, `ldmatrix x4 trans`.

Every word restricts the result: a family, a part of the opcode, a shape or a part of it, an element type, any qualifier, or a
common name for one of these (`fp8`, `sparse`). The remaining forms are ranked, so that the most likely form comes first: no
unrequested qualifiers, f32 accumulators, the common shape.
"""

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cache, lru_cache
from itertools import product
from typing import Any

from mmulator.base.classes import dataclass
from mmulator.base.errors import InvalidInstructionError, OperandError
from mmulator.isa.chips import DEVICE_WORDS, device_of
from mmulator.isa.form import Form, form_of, forms_of
from mmulator.isa.matrix import FAMILIES, MATRIX_ROWS
from mmulator.isa.names.cutlass import atom_words
from mmulator.isa.row import Row
from mmulator.isa.targets import TARGETS, Target, as_pair
from mmulator.isa.types import TYPES

# Names that people use, and the words of the tables that they stand for (any of several).
ALIASES: dict[str, tuple[str, ...]] = {
    "fp16": ("f16",), "half": ("f16",), "bfloat16": ("bf16",), "fp32": ("f32",), "float": ("f32",),
    "fp64": ("f64",), "double": ("f64",), "fp8": ("e4m3", "e5m2"), "fp6": ("e3m2", "e2m3"), "fp4": ("e2m1",),
    "int8": ("s8",), "uint8": ("u8",), "int4": ("s4",), "uint4": ("u4",), "int32": ("s32",), "bit": ("b1",),
    "binary": ("b1",), "transpose": ("trans",), "transposed": ("trans",), "commit": ("commit_group",),
    "wait": ("wait_group",), "f8f6f4": ("kind::f8f6f4",), "mxf8f6f4": ("kind::mxf8f6f4",),
    "mxf4": ("kind::mxf4",), "mxf4nvf4": ("kind::mxf4nvf4",), "ordered": ("sp::ordered_metadata",),
    "ordered_metadata": ("sp::ordered_metadata",), "1x": ("scale_vec::1X",), "2x": ("scale_vec::2X",),
    "4x": ("scale_vec::4X",), "block": ("block_scale",), "mx": ("block_scale",), "async": ("mma_async",),
}  # fmt: skip
# Names of several words.
PHRASES: dict[str, str] = {
    "mxfp8": "mxf8f6f4 fp8", "mxfp6": "mxf8f6f4 fp6", "mxfp4": "mxf4 e2m1", "nvfp4": "mxf4nvf4 4x ue4m3",
}  # fmt: skip
SPARSITY = {"sp": True, "sparse": True, "dense": False}
_IGNORED = frozenset(("sync", "aligned", "popc"))
_SHAPE = re.compile(r"(?:m(\d+))?(?:n(\d+))?(?:k(\d+))?")
_BY = re.compile(r"(\d+)x(\d+)(?:x(\d+))?")
_TYPE_SLOTS = ("dtype", "atype", "btype", "ctype", "stype", "type")


@dataclass
class Query:
    """The request that a text makes.

    family, op: family and parts of the opcode.
    shape: (m, n, k), 0 for any.
    types: element types; each is a tuple of alternatives.
    words: other qualifiers, each a tuple of alternatives.
    sparse: whether A is sparse; None for both.
    """

    family: str = ""
    op: list[str] = field(default_factory=list)
    shape: tuple[int, int, int] = (0, 0, 0)
    types: list[tuple[str, ...]] = field(default_factory=list)
    words: list[tuple[str, ...]] = field(default_factory=list)
    sparse: bool | None = None


@cache
def _ops() -> frozenset[str]:
    """Parts of opcodes after the family."""
    return frozenset(part for row in MATRIX_ROWS if row.op != row.opcode for part in row.op.split(".")) - {*"abcd", "mma"}


@cache
def vocabulary() -> tuple[str, ...]:
    """Every word that a query may contain, shapes aside."""
    choices = {c for row in MATRIX_ROWS for s in row.slots if s.name != "shape" for c in s.choices}
    return tuple(dict.fromkeys((*FAMILIES, *sorted(_ops()), *sorted(choices), *SPARSITY, *ALIASES, *PHRASES, *DEVICE_WORDS)))


def is_word(text: str) -> bool:
    """Whether a text consists only of words of instructions, and is thus neither a file nor a number."""
    words = split(text)
    if words[:1] == ["tcgen05"]:  # whose shape and types are no part of its name
        return True
    known = all(w in vocabulary() or device_of(w) or (_shape_of(w) is not None and not w.startswith("0x")) for w in words)
    return bool(words) and not text.startswith("-") and known


def split(text: str) -> list[str]:
    """The words of a query, separated by blanks, commas and dots. Raises OperandError if the query is not a string."""
    if not isinstance(text, str):
        raise OperandError(f"an instruction is named by a string, not {type(text).__name__}", hint="such as 'mma m16n8k16 f16'")
    words = [w for w in re.split(r"[\s,.;]+", atom_words(text).strip().lower()) if w]
    return [w for word in words for w in PHRASES.get(word, word).split()]


def _shape_of(word: str) -> tuple[int, int, int] | None:
    found = _BY.fullmatch(word) or _SHAPE.fullmatch(word)
    if not word or found is None:
        return None
    m, n, k = (int(x or 0) for x in found.groups())
    return m, n, k


def parse_query(words: list[str]) -> Query:
    """The request that words make. Raises InvalidInstructionError for an unknown word, with similar known words."""
    query = Query()
    wmma = not {"wmma", "load", "store"}.isdisjoint(words)  # then a, b, c, d may be parts of the opcode
    exact = {c.lower(): c for row in MATRIX_ROWS for s in row.slots for c in s.choices if s.name != "shape"}
    for word in words:
        choices = ALIASES.get(word, (exact.get(word, word),))
        if word in FAMILIES and not query.family:
            query.family = word
        elif (word in (*"abcd", "mma") and wmma) or choices[0] in _ops():
            query.op.append(choices[0])
        elif word in FAMILIES:
            if word != query.family:
                raise InvalidInstructionError(f"`{query.family}` and `{word}` are two families: one instruction has one")
        elif word in SPARSITY:
            query.sparse = SPARSITY[word]
        elif choices[0] in TYPES:
            query.types.append(choices)
        elif word in _IGNORED or device_of(word):
            continue
        elif choices[0] in exact.values():
            query.words.append(choices)
        elif (shape := _shape_of(word)) is not None:
            if any(new and old and new != old for new, old in zip(shape, query.shape)):
                raise InvalidInstructionError(f"`{word}` contradicts the shape that is named before it")
            m, n, k = (new or old for new, old in zip(shape, query.shape))
            query.shape = m, n, k
        else:
            near = difflib.get_close_matches(word, [*vocabulary(), "m16n8k16", "m64n128k16"], 3, 0.6)
            raise InvalidInstructionError(
                f"`{word}` is no part of a matrix instruction",
                hint=f"did you mean {' or '.join(near)}?" if near else "words: a family ("
                + ", ".join(FAMILIES) + "), a shape or part of one (m64n128), types, qualifiers",
            )  # fmt: skip
    return query


# Matching ------------------------------------------------------------------------------------------------------------
def _row_may_match(row: Row, query: Query) -> bool:
    if query.family and row.opcode != query.family:
        return False
    if not set(query.op) <= set(row.op.split(".")):
        return False
    have = {c for s in row.slots for c in s.choices} | {text for _, text in row.implied}
    return all(have.intersection(wanted) for wanted in (*query.types, *query.words))


def element_types(form: Form) -> tuple[str, ...]:
    """Names of the form's element types, in the order of the mnemonic; for wmma.mma with f16 also the implied types."""
    return tuple(str(t) for name in _TYPE_SLOTS if (t := getattr(form, name)))


def _is_subset(wanted: list[tuple[str, ...]], have: tuple[str, ...]) -> bool:
    """Whether each wanted type (a tuple of alternatives) matches a different type of `have`."""
    left = [*have]
    for choices in sorted(wanted, key=len):
        found = next((t for t in left if t in choices), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _matches(form: Form, query: Query) -> bool:
    if query.sparse is not None and form.sparse != query.sparse:
        return False
    if any(wanted and wanted != own for wanted, own in zip(query.shape, (form.m, form.n, form.k))):
        return False
    if not _is_subset(query.types, (*element_types(form), *(str(t) for t in (form.dst_fmt, form.src_fmt) if t))):
        return False
    parts = form.mnemonic.split(".")
    if form.block_scale:  # without .scale_vec a form has the one size that its kind allows
        parts.append(f"scale_vec::{form.scale_vec}X")
    return all(any(c in parts for c in choices) for choices in query.words)


def _in_order(wanted: list[tuple[str, ...]], have: tuple[str, ...]) -> bool:
    rest = iter(have)
    return all(any(t in choices for t in rest) for choices in wanted)


_COMMON = ("f16", "bf16", "e4m3", "s8", "tf32", "f64", "e5m2", "u8", "e2m1", "s4", "u4", "b1")
_FAMILY_RANK = {family: i for i, family in enumerate(FAMILIES)}


def rank(form: Form, query: Query) -> tuple[Any, ...]:
    """Sort key for the forms of a query: the most likely form first."""
    asked = {c for choices in query.words for c in choices}
    first = str(form.atype or form.type or "")
    unasked = (
        form.satfinite + (form.rounding not in ("", "rn")) + (form.bit_op == "and" and form.family != "wgmma")
        + (form.trans and form.m == 8) + ((form.alayout == "col") + (form.blayout == "row") + (form.layout == "col"))
        * ({"row", "col"}.isdisjoint(asked))
        + form.ordered_metadata * (query.sparse is None) + bool(form.kind) + 2 * form.block_scale
    ) - sum(w in asked for w in form.mnemonic.split(".") if w not in ("row", "col"))  # fmt: skip
    types = element_types(form)
    wanted = {t for choices in query.types for t in choices}
    inputs = sum(str(t) not in wanted for t in (form.atype, form.btype, form.type) if t) if wanted else 0
    return (
        form.op in ("fence", "commit_group", "wait_group"),
        form.sparse and not query.sparse,
        form.sparse and not form.ordered_metadata and form.family == "mma",
        unasked,
        inputs,
        form.atype is not form.btype,
        not _in_order(query.types, types),
        not _in_order([w for w in query.words if w[0] in ("row", "col")], (form.alayout, form.blayout, form.layout)),
        str(form.dtype) == "f16",
        str(form.ctype) != str(form.dtype) if form.ctype else False,
        _FAMILY_RANK[form.family],
        form.space not in ("shared" if "matrix" in form.family else "",),
        _COMMON.index(first) if first in _COMMON else len(_COMMON),
        "matrix" in form.family and form.m != 8,
        -form.num,
        abs(form.n - 128) if form.family == "wgmma" else 0,
        form.m not in (16, 64) or (form.family == "wmma" and form.n != 16),
        -form.k,
    )


def available(row: Row, target: Target | None, ptx: tuple[int, int] | None) -> bool:
    """Whether a target and a PTX version have a row; None is not checked."""
    requires = row.requires
    if target is not None:
        return requires.admits(target) and (ptx is None or requires.first_ptx(target) <= ptx)
    return ptx is None or requires.ptx <= ptx


def search(query: Query, target: Target | None = None, ptx: tuple[int, int] | None = None) -> tuple[Form, ...]:
    """The forms of a query, ranked."""
    found: dict[Form, None] = {}
    for row in MATRIX_ROWS:
        if _row_may_match(row, query) and available(row, target, ptx):
            found.update((form, None) for form in forms_of(row) if _matches(form, query))
    return tuple(sorted(found, key=lambda form: rank(form, query)))


def legal_forms(target: str | Target | None = None, ptx: str | tuple[int, int] | None = None) -> tuple[Form, ...]:
    """Every form that `.target` and `.version` have, in the order of the tables. Raises errors like find_forms."""
    wanted, version = as_pair(target, ptx)
    return tuple(dict.fromkeys(form for row in MATRIX_ROWS if available(row, wanted, version) for form in forms_of(row)))


def find_forms(text: str, target: str | Target | None = None, ptx: str | tuple[int, int] | None = None) -> tuple[Form, ...]:
    """Every form that matches a text such as `wgmma m64n128 bf16`, the most likely first.

    target, ptx: only forms that `.target` and `.version` have. Raises InvalidInstructionError for an unknown word, with similar
        known words, or if no form matches, with the nearest forms; OperandError for an unknown target or version.
    """
    wanted, version = as_pair(target, ptx)
    words = split(text)
    if wanted is None:
        words, wanted = _chip(words)
    if not words and wanted is not None:  # a chip alone
        return tuple(sorted(legal_forms(wanted, version), key=lambda form: rank(form, Query())))
    if not words:
        raise InvalidInstructionError("no instruction is named", hint="for example: wgmma m64n128 bf16")
    found = search(parse_query(words), wanted, version)
    if not found:
        raise _nothing(words, wanted, version)
    return found


def _chip(words: list[str]) -> tuple[list[str], Target | None]:
    """(words without the names of chips and architectures, the target with all features of the last named chip)."""
    named = [device for w in words if (device := device_of(w))]
    if not named:
        return words, None
    number = int(named[-1][3:])
    own = [t for t in TARGETS if t.number == number]
    return [w for w in words if not device_of(w)], max(own, key=lambda t: t.suffix == "a") if own else Target(number)


def _nothing(words: list[str], target: Target | None, ptx: tuple[int, int] | None) -> InvalidInstructionError:
    """The error if no form matches all words; it suggests forms without one of the words, or for another target."""
    text = " ".join(words)
    elsewhere = search(parse_query(words))
    if elsewhere:
        first: dict[str, tuple[int, int]] = {}
        for form in elsewhere:
            name = form.requires.describe_targets()
            first[name] = min(form.requires.ptx, first.get(name, form.requires.ptx))
        needs = [f"{name} and PTX {_dotted(version)}" for name, version in first.items()]
        where = " and ".join(filter(None, (f".target {target}" if target else "", f"PTX {_dotted(ptx)}" if ptx else "")))
        return InvalidInstructionError(
            f"nothing that fits `{text}` is available for {where}", rule=f"{elsewhere[0].section}, Target ISA Notes",
            hint=f"such instructions need {', or '.join(needs[:3])}; nearest: {elsewhere[0].mnemonic}",
        )  # fmt: skip
    near: list[str] = []
    for i in reversed(range(len(words))):
        rest = words[:i] + words[i + 1 :]
        if rest and (found := search(parse_query(rest), target, ptx)):
            near.append(f"without `{words[i]}`: {found[0].mnemonic}")
    shapes = _nearest_shapes(words, target, ptx)
    hint = "; ".join((*shapes, *near)[:3]) or "`mmulator list` shows all forms"
    return InvalidInstructionError(f"no matrix instruction fits `{text}`", hint=hint)


def _nearest_shapes(words: list[str], target: Target | None, ptx: tuple[int, int] | None) -> list[str]:
    """A hint with the form whose shape is nearest to the requested one."""
    query = parse_query(words)
    wanted, query.shape = query.shape, (0, 0, 0)
    if not any(wanted):
        return []

    def away(form: Form) -> int:
        return sum(abs(a - b) for a, b in zip(wanted, (form.m, form.n, form.k)) if a)

    found = sorted((form for form in search(query, target, ptx) if form.m), key=away)
    return [f"nearest shape: {found[0].mnemonic}"] if found else []


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


# Forms by their fields -----------------------------------------------------------------------------------------------
def select(family: str, keep: Callable[[Form], bool], **choices: str) -> Iterator[Form]:
    """Forms of a family for which `keep` is true. choices: modifiers for slots; rows without such a slot or modifier are left
    out.

    Faster than generating every form: `select("wgmma", keep, dtype="f32", atype="bf16")`.
    """
    return filter(keep, _chosen(family, tuple(choices.items())))


@lru_cache(maxsize=256)
def _chosen(family: str, choices: tuple[tuple[str, str], ...]) -> tuple[Form, ...]:
    out: dict[Form, None] = {}
    for row in FAMILIES[family]:
        implied = dict(row.implied)
        slots = {s.name: s.meant for s in row.slots}
        if any(text not in slots.get(name, (implied.get(name, ""),)) for name, text in choices):
            continue
        slots |= {name: (text,) for name, text in choices if name in slots}
        out.update((form_of(row, dict(zip(slots, values))), None) for values in product(*slots.values()))
    return tuple(out)


def complete(words: list[str], incomplete: str) -> list[str]:
    """Words that may follow, for completion in a shell: the words of all forms that match so far."""
    try:
        query = parse_query([w for word in words for w in split(word)])
    except InvalidInstructionError:
        return []
    head, dot, last = incomplete.rpartition(".")
    if head:
        try:
            query = parse_query([w for word in (*words, head) for w in split(word)])
        except InvalidInstructionError:
            return []
    out: dict[str, None] = {}
    for row in MATRIX_ROWS:
        if not _row_may_match(row, query):
            continue
        names = (row.opcode, *(() if row.op == row.opcode else row.op.split(".")))
        for word in (*(() if query.family else names[:1]), *names[1:], *(c for s in row.slots for c in s.choices)):
            if word and word.startswith(last):
                out[head + dot + word] = None
    return [*out]
