"""Questions that the specification leaves open, each a named group of cases that stays in the suite."""

from collections.abc import Callable
from dataclasses import dataclass

from mmulator.conformance.cases import Wish
from mmulator.conformance.subjects import Subject
from mmulator.isa.form import Form

_SOME_N = (8, 24, 64, 256)  # of wgmma, where the question does not depend on n


@dataclass(frozen=True)
class Edge:
    """A question to the hardware, as a group of cases.

    question: the question in words.
    forms, subjects: the instructions that are asked.
    kinds: of operands; () is all.
    wish: properties of all executions.
    """

    name: str
    question: str
    forms: Callable[[Form], bool]
    kinds: tuple[str, ...] = ()
    subjects: Callable[[Subject], bool] = lambda s: True
    wish: Wish | None = None

    def asks(self, form: Form) -> bool:
        """Whether a form is among those asked."""
        return self.forms(form) and (form.family != "wgmma" or form.n in _SOME_N)


def _float(form: Form) -> bool:
    return form.atype.is_float and form.atype.name != "f64"


def _wgmma(form: Form) -> bool:
    return form.family == "wgmma" and bool(form.atype)


def _fp8(form: Form) -> bool:
    return form.atype.name in ("e4m3", "e5m2")


def _result(form: Form, name: str) -> bool:
    return form.dtype.name == name


EDGES: tuple[Edge, ...] = (
    Edge("scale-d", "is D read when scale-d is 0 (Inf and NaN in it)?", _wgmma, wish=Wish(scale_d=0)),
    Edge(
        "imm-scale", "imm-scale -1 with zeros, Inf and NaN",
        lambda f: _wgmma(f) and _float(f), ("zeros", "special", "nans"),
        lambda s: -1 in (s.fixed["imm_scale_a"], s.fixed["imm_scale_b"]),
    ),
    Edge("floor", "the least exponent that terms are aligned to", _float, ("floor", "subnormal")),
    Edge(
        "floor of FP8 with f16 results", "the same for wgmma of FP8 to f16",
        lambda f: _wgmma(f) and _fp8(f) and _result(f, "f16"), ("floor", "subnormal", "ties"),
    ),
    Edge("alignment", "terms F bits below the largest, one more and one less", _float, ("align",)),
    Edge("f16 ties", "sums halfway between two f16", lambda f: _float(f) and _result(f, "f16"), ("ties", "align")),
    Edge("NaN payloads", "which NaN comes out of f64", lambda f: f.atype.name == "f64",
         ("nans", "special")),
    Edge(
        "saturation", "integer sums around the ends of s32",
        lambda f: f.atype.is_integer, ("saturate", "largest", "extremes"),
    ),
    Edge("metadata", "nibbles that the specification calls invalid", lambda f: f.sparse, ("metadata",)),
    Edge(
        "leading byte offset", "K-major B that spans more than the swizzle width",
        lambda f: _wgmma(f) and f.sparse,
        subjects=lambda s: not s.fixed.get("imm_trans_b"),
        wish=Wish(swizzle="32B", leading=(0, 16, 32, 64, 80, 512, 1024), odd=True),
    ),
    Edge("descriptors", "starts inside the swizzle pattern, base offsets, offsets that overlap", _wgmma, wish=Wish(odd=True)),
    Edge(
        "MN-major sparse", "wgmma.sp with the transposes", lambda f: _wgmma(f) and f.sparse and f.row is not None
        and f.atype.bits == 16,
        subjects=lambda s: bool(s.fixed.get("imm_trans_a") or s.fixed.get("imm_trans_b")),
    ),
    Edge("FP8 mma.sync", "all shapes and mixes of FP8 outside wgmma", lambda f: f.family == "mma" and _fp8(f)),
    Edge("wmma", "mixed types, tf32, every layout and stride", lambda f: f.family == "wmma"),
)  # fmt: skip
