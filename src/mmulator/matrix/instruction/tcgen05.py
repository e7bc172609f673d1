"""tcgen05.mma as one instruction: its name, with the shape and the types that a kernel gives in an instruction descriptor."""

import re
from collections.abc import Mapping
from typing import Any

from mmulator.base.errors import InvalidInstructionError, OperandError
from mmulator.base.source import Source, Span
from mmulator.isa.fit import NoForm
from mmulator.isa.form import Form
from mmulator.isa.match import match, unavailable
from mmulator.isa.names.words import ALIASES, SPARSITY, split
from mmulator.isa.targets import Target
from mmulator.isa.types import TYPES
from mmulator.matrix.layouts.instruction_descriptor import KINDS, SCALED, InstructionDescriptor, check_scales

FAMILY = "tcgen05"
_SCALES, _RESULTS = ("ue8m0", "ue4m3"), ("f32", "s32")
_QUALIFIERS = ("ws", "sp", "cta_group::1", "cta_group::2", *(f"scale_vec::{n}X" for n in (1, 2, 4)), "block16", "block32")
_EXACT = {text.lower(): text for text in _QUALIFIERS}
_OF_TYPES = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "s8": "i8", "u8": "i8"}  # others: f8f6f4
_ONE_TYPE = {"tf32": "tf32", "mxf4": "e2m1", "mxf4nvf4": "e2m1"}
_SHAPE = re.compile(r"(?:m(?P<m>\d+))?(?:n(?P<n>\d+))?(?:k(?P<k>\d+))?")


def is_named(text: str) -> bool:
    """Whether a text names an instruction of this family."""
    return re.split(r"[\s.,]", text.strip(), maxsplit=1)[0] == FAMILY


def parse(text: str, target: Target | None, ptx: tuple[int, int] | None, given: Mapping[str, Any]) -> Form:
    """The form of a name or of words such as `tcgen05 m128n64 f16`; slots that its row lacks have the shape and the types.

    text: the name, and words: a shape, types (of A; of A and B; of D, A and B; of scale factors), qualifiers.
    target, ptx: None is not checked.
    given: m, n, k, dtype, atype, btype, stype, saturate, which come before words; None for what is not given.

    Raises InvalidInstructionError and OperandError.
    """
    name, *rest = text.strip().rstrip(";").split(maxsplit=1)
    words = split(" ".join(rest))
    if "kind::" not in name and name.split(".")[1:2] in ([], ["mma"]):
        words, name = [*split(name), *words], ""
    qualifiers, found = _read(words)
    found |= {field: value for field, value in given.items() if value is not None}
    if name and qualifiers:
        raise InvalidInstructionError(f"`{' '.join(qualifiers)}` stands behind a name, which has all qualifiers")
    name = name or _name(qualifiers, found)
    modifiers = tuple(name.split(".")[1:])
    form = match(FAMILY, modifiers)
    missing = form if isinstance(form, NoForm) else unavailable(form, modifiers, target, ptx)
    if missing:
        raise missing.error(Span(Source("<instruction>", name), 0, len(name)))
    assert isinstance(form, Form)
    if not form.kind and found:
        raise OperandError(f"{form} multiplies no matrices", hint="tcgen05.mma does")
    return _described(form, found) if form.kind else form


def _read(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """(qualifiers, what other words say)."""
    qualifiers: list[str] = []
    types: list[str] = []
    found: dict[str, Any] = {}
    for word in words:
        shape = _SHAPE.fullmatch(word)
        choices = ALIASES.get(word, (word,))
        kind = choices[0].removeprefix("kind::")
        if word in (FAMILY, "mma", "block_scale", "dense"):
            continue
        if shape:
            found |= {axis: int(size) for axis, size in shape.groupdict().items() if size}
        elif word in _SCALES:
            found["stype"] = word
        elif word == "satfinite":
            found["saturate"] = True
        elif choices[0] in TYPES and len(choices) == 1:
            types.append(choices[0])
        elif kind in KINDS:
            qualifiers.append(f"kind::{kind}")
        elif exact := _EXACT.get("sp" if word in SPARSITY else choices[0].lower()):
            qualifiers.append(exact)
        else:
            hint = "words: a shape (m128n64), types, kind::, sp, ws, cta_group::2, 4X, block16, satfinite"
            raise InvalidInstructionError(f"`{word}` says nothing about tcgen05.mma", hint=hint)
    return qualifiers, found | _types(types)


def _types(types: list[str]) -> dict[str, str]:
    """Fields of types in the order of a name: D comes first if there are three, or if A could not have its type."""
    if len(types) > 3:
        raise InvalidInstructionError(f"`{' '.join(types)}`: there are types of D, A and B")
    first = len(types) == 3 or (len(types) == 2 and (types[0] in _RESULTS or _kind_of(types[0]) != _kind_of(types[1])))
    return dict(zip(("dtype", "atype", "btype") if first or types[:1] == ["f32"] else ("atype", "btype"), types))


def _kind_of(name: str) -> str:
    return _OF_TYPES.get(name, "f8f6f4")


def _name(qualifiers: list[str], found: dict[str, Any]) -> str:
    """The name of the instruction that words describe."""
    kinds = [q for q in qualifiers if q.startswith("kind::")]
    if not kinds and ("atype" not in found or "stype" in found):
        raise InvalidInstructionError("words must give the type of A, or .kind", hint="`tcgen05 m128n64 f16`, `tcgen05 mxf4`")
    kind = kinds[0] if kinds else f"kind::{_kind_of(found['atype'])}"
    group = [] if any(q.startswith("cta_group") for q in qualifiers) else [f"cta_group::{1 + (found.get('m') == 256)}"]
    scaled = ["block_scale"] if kind.removeprefix("kind::") in SCALED else []
    return ".".join((FAMILY, "mma", *(q for q in _QUALIFIERS[:4] if q in qualifiers), *group, kind, *scaled,
                     *(q for q in _QUALIFIERS[4:] if q in qualifiers)))  # fmt: skip


def _described(form: Form, found: Mapping[str, Any]) -> Form:
    """A form with the shape and the types of an instruction descriptor."""
    atype = found.get("atype") or _ONE_TYPE.get(form.kind)
    if not atype:
        raise OperandError(f"{form} leaves open the type of A", hint='such as atype="f16"')
    pair = form["cta_group"] == "cta_group::2"
    fields: dict[str, Any] = {
        "dtype": "s32" if form.kind == "i8" else "f32", "atype": atype, "btype": atype, "m": 128 << pair, **found,
    }  # fmt: skip
    if form.kind in SCALED:
        fields.setdefault("stype", "ue8m0" if form.kind != "mxf4nvf4" or form.scale_vec == 2 else "ue4m3")
    names: dict[str, Any] = {name: str(value) if name.endswith("type") else value for name, value in fields.items()}
    d = InstructionDescriptor(form.kind, pair=pair, ws=form.op == "mma.ws", sparse=form.sparse, **names)
    check_scales(d, form.scale_vec)
    more = {"shape": f"m{d.m}n{d.n}k{d.k}", "dtype": d.dtype, "atype": d.atype, "btype": d.btype, "stype": d.stype}
    return Form(form.row, (*form.modifiers, *((slot, text) for slot, text in more.items() if text),
                           *([("satfinite", "satfinite")] if d.saturate else [])))  # fmt: skip


def text_of(form: Form) -> str:
    """The name with words for all else that the form has: `parse` reads it."""
    types = ".".join(str(t) for t in (form.dtype, form.atype, form.btype, form.stype) if t)
    return " ".join(filter(None, (form.mnemonic, form.shape if form.atype else "", types, "satfinite" * form.satfinite)))
