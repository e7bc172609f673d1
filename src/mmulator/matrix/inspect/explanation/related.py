"""Instructions that go with one: its dense or sparse counterpart, other shapes, loads and stores, the other families."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mmulator.isa.effects import MemoryEffect
from mmulator.isa.form import Form, forms_of
from mmulator.isa.matrix import FAMILIES
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.isa.names.words import select
from mmulator.isa.types import ElementType
from mmulator.matrix.inspect.listing import shape_set


@dataclass(frozen=True)
class Related:
    """An instruction that goes with another.

    relation: to the other, in words.
    instruction: a mnemonic.
    also: a remark, or a list of shapes.
    """

    relation: str
    instruction: str
    also: str = ""


def _same_types(form: Form, family: str, keep: Callable[[Form], bool]) -> list[Form]:
    """Forms of a family with the form's element types (an accumulator c where the family has one)."""
    choices = {"atype": str(form.atype), "btype": str(form.btype), "dtype": str(form.dtype)}

    def fits(other: Form) -> bool:
        c = other.ctype or other.dtype
        return c is (form.ctype or form.dtype) and other.stype is form.stype and keep(other)

    return list(dict.fromkeys(select(family, fits, **choices)))


def _plain(form: Form, other: Form) -> bool:
    """Whether two forms have the same qualifiers, shape and sparsity aside."""
    names = ("kind", "block_scale", "scale_vec", "satfinite", "bit_op", "rounding", "alayout", "blayout")
    return all(getattr(form, n) == getattr(other, n) for n in names)


def _products(form: Form) -> Iterator[Related]:
    """Instructions that go with one that multiplies."""
    family = _same_types(form, form.family, lambda o: _plain(form, o))
    other = "dense" if form.sparse else "sparse"
    k = form.k // 2 if form.sparse else 2 * form.k
    counterparts = [o for o in family if o.sparse != form.sparse and (o.m, o.n, o.k) == (form.m, form.n, k)]
    counterparts.sort(key=lambda o: not o.ordered_metadata)
    if counterparts:
        yield Related(f"{other} counterpart", counterparts[0].mnemonic)
    alike = [o for o in family if o.sparse == form.sparse and o.ordered_metadata == form.ordered_metadata]
    shapes = dict.fromkeys(o.shape for o in alike)
    if len(shapes) > 1:
        near = min((o for o in alike if o.shape != form.shape), key=lambda o: (abs(o.n - form.n), abs(o.k - form.k)))
        yield Related("other shapes", near.mnemonic, shape_set(shapes))
    yield from _other_accumulators(form)


def _other_accumulators(form: Form) -> Iterator[Related]:
    choices = {"atype": str(form.atype), "btype": str(form.btype)}

    def keep(o: Form) -> bool:
        same = (o.shape, o.sparse, o.ordered_metadata) == (form.shape, form.sparse, form.ordered_metadata)
        return same and _plain(form, o) and (o.dtype, o.ctype) != (form.dtype, form.ctype) and o.stype is form.stype

    for o in dict.fromkeys(select(form.family, keep, **choices)):
        yield Related("other accumulators", o.mnemonic)


def _across_families(form: Form, families: tuple[str, ...]) -> Iterator[Related]:
    for family in families:
        found = _same_types(form, family, lambda o: o.sparse == form.sparse and not o.kind and _satisfied(form, o))
        if found:
            best = min(found, key=lambda o: (abs(o.k - form.k), o.sparse and not o.ordered_metadata, o.m not in (16, 64),
                                             abs(o.n - (form.n if family == "wgmma" else 8))))  # fmt: skip
            shapes = shape_set(dict.fromkeys(o.shape for o in found if o.k == best.k))
            who = {"mma": "by one warp", "wgmma": "by a warpgroup", "wmma": "by one warp, opaque fragments"}[family]
            yield Related(who, best.mnemonic, shapes if shapes != best.shape else "")


def _satisfied(form: Form, other: Form) -> bool:
    names = ("satfinite", "bit_op", "rounding")
    layouts = other.alayout in ("", "row") and other.blayout in ("", "col")
    return layouts and all(getattr(form, n) == getattr(other, n) for n in names)


# Companions ----------------------------------------------------------------------------------------------------------
def _loads(form: Form) -> Iterator[Related]:
    """Instructions that bring fragments of mma (and A of wgmma) to registers and take them away."""
    for name, element, rows in (("a", form.atype, form.m), ("b", form.btype, form.n)):
        if not element or (form.lanes > 32 and name == "b"):
            continue
        registers = next((s.count for signature in form.signatures for s in signature if s.name == name), 0)
        if element.bits > 16 or registers not in (1, 2, 4) or rows < 8 or form.shape == "m8n8k4":
            continue
        move = parse_mnemonic(f"ldmatrix.sync.aligned.m8n8.x{registers}.shared.b16")
        yield Related(f"loads {name}", move.mnemonic, _orientation(name, element))
    d = form.dtype
    if d.bits == 16 and form.m in (16, 64):
        count = next(s.count for s in form.operands if s.name == "d")
        number = 4 if count >= 4 else 2
        yield Related("stores d", parse_mnemonic(f"stmatrix.sync.aligned.m8n8.x{number}.shared.b16").mnemonic,
                      "sm_90 or higher" + ("" if count == number else f"; {number} of {count} registers at a time"))  # fmt: skip


def _orientation(name: str, element: ElementType) -> str:
    major = "row by row" if name == "a" else "column by column"
    return f"from a matrix stored {major}" + (
        "; with .trans from one stored the other way" if element.bits == 16 else "; elements in pairs or more count as .b16"
    )


def _order(form: Form) -> Iterator[Related]:
    when = {
        "fence": "before the first wgmma.mma_async, and after registers were touched",
        "mma_async": "", "commit_group": "puts what was issued into a group", "wait_group": "before d is read",
    }  # fmt: skip
    for row in FAMILIES["wgmma"]:
        if row.op != form.op and row.op != "mma_async":
            yield Related("orders wgmma", next(forms_of(row)).mnemonic, when[row.op])


def _wmma_companions(form: Form) -> Iterator[Related]:
    for op, element, layout in (
        ("load.a", form.atype, form.alayout), ("load.b", form.btype, form.blayout), ("load.c", form.ctype, "row"),
        ("store.d", form.dtype, "row"),
    ):  # fmt: skip
        verb, name = op.split(".")
        yield Related(f"{verb}s {name}", f"wmma.{op}.sync.aligned.{layout}.{form.shape}.{element}")


def _wmma_users(form: Form) -> Iterator[Related]:
    matrix = form.op[-1]
    name = f"{matrix}type"

    def keep(o: Form) -> bool:
        layout = {"a": o.alayout, "b": o.blayout}.get(matrix, form.layout)
        same = o.effects.multiplies and o.shape == form.shape and getattr(o, name) is form.type and layout == form.layout
        return same and not o.satfinite and o.rounding in ("", "rn") and o.dtype is o.ctype

    found = list(dict.fromkeys(select("wmma", keep)))
    if found:
        found.sort(key=lambda o: (o.alayout == "col", o.blayout == "row", str(o.dtype) == "f16"))
        yield Related("used by" if form.op.startswith("load") else "result of", found[0].mnemonic)


def _moves(form: Form) -> Iterator[Related]:
    pair = "stmatrix" if form.effects.memory is MemoryEffect.READ else "ldmatrix"
    same = [o for o in dict.fromkeys(select(pair, lambda o: o.trans == form.trans))
            if (o.shape == form.shape or form.m != 8) and o.num == max(1, form.num)]  # fmt: skip
    space = form.space or "shared"
    same.sort(key=lambda o: (o.shape != form.shape, o.space != space))
    if same:
        does = "stores" if pair == "stmatrix" else "loads"
        what = "the same" if form.effects.memory is not MemoryEffect.NONE else "transposed" if form.trans else "such a matrix"
        yield Related(f"{does} {what}", same[0].mnemonic)

    def other_count(o: Form) -> bool:
        alike = (o.shape, o.trans, o.space, o.src_fmt) == (form.shape, form.trans, form.space, form.src_fmt)
        return alike and o.num != form.num

    for o in dict.fromkeys(select(form.family, other_count)):
        yield Related("other counts", o.mnemonic)
    users = {"b16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"}
    if str(form.type) in users and form.effects.memory is MemoryEffect.READ:
        yield Related("used by", parse_mnemonic(users[str(form.type)]).mnemonic, "and every mma of types up to 16 bits")


_SOURCES: dict[str, Callable[[Form], tuple[Iterator[Related], ...]]] = {
    "mma": lambda f: (_products(f), _loads(f), _across_families(f, ("wgmma", "wmma"))),
    "wgmma.mma_async": lambda f: (_products(f), _order(f), _loads(f), _across_families(f, ("mma",))),
    "wgmma": lambda f: (_order(f),),
    "wmma.mma": lambda f: (_products(f), _wmma_companions(f), _across_families(f, ("mma", "wgmma"))),
    "wmma": lambda f: (_wmma_users(f),),
}


def related(form: Form) -> tuple[Related, ...]:
    """All instructions that go with a form; every one named exists."""
    sources = _SOURCES.get(f"{form.family}.{form.op}") or _SOURCES.get(form.family, lambda f: (_moves(f),))
    return tuple(dict.fromkeys(r for source in sources(form) for r in source if r.instruction != form.mnemonic))
