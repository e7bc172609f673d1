"""Questions that the specification leaves open.

Probes: what a GPU does where the specification promises nothing; each counts the outcomes, and nothing is compared. Edges:
groups of cases that are compared, and stay in the suite.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import MmulatorError
from mmulator.evaluation.conformance import cases, compare, kernels
from mmulator.evaluation.conformance.cases import Wish
from mmulator.evaluation.conformance.subjects import Subject, subjects
from mmulator.host.backend import Backend
from mmulator.isa.form import Form
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.matrix.instruction import execution

Array = NDArray[Any]
Results = dict[str, Array]
_SEED = 1
_COUNT = 64


@dataclass(frozen=True)
class Observation:
    """The outcome of a probe. answer: in how many result words each possible value came. error: why there is no answer."""

    probe: str
    question: str
    answer: dict[str, int]
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def line(self) -> str:
        """The observation as a line for people."""
        if self.error:
            return f"{self.probe}: {self.question.rsplit(' ', 1)[0].rstrip(',')}: {self.error}"
        words = sum(self.answer.values())
        said = ", ".join(f"{what} ({n:,} of {words:,} words)" for what, n in self.answer.items() if n)
        return f"{self.probe}: {self.question} {said}"


@dataclass(frozen=True)
class Probe:
    """A question to a GPU.

    mnemonic: the instruction.
    could_be: function of the possible results by name; the first that fits counts.
    text: function that changes the kernel's text.
    selector: which sparsity selectors run.
    kinds: of operands.
    """

    name: str
    question: str
    mnemonic: str
    could_be: Callable[[Subject, cases.CaseBatch, str], Results]
    text: Callable[[str], str] = lambda text: text
    selector: int | None = None
    kinds: tuple[str, ...] = ("near",)


def _old_and_new(subject: Subject, batch: cases.CaseBatch, device: str) -> Results:
    """D before and after the instruction."""
    return {"old D": batch.registers["d"], "new D": compare.model(batch, device)}


def _by_selector(subject: Subject, batch: cases.CaseBatch, device: str) -> Results:
    """The result with each selector that the specification defines."""
    form = subject.form
    out = {}
    for other in subjects(form):
        given = compare.operands_of(batch, batch.segments[0], slice(0, batch.count)) | {"f": other.fixed["f"]}
        out[f"as with selector {other.fixed['f']}"] = execution.execute(form, device, given, strict=False)
    return out


def _changed_accumulators(subject: Subject, batch: cases.CaseBatch, device: str) -> Results:
    """C as loaded, and with the lowest bits that the kernel flips just before the instruction."""
    flipped = dict(batch.registers) | {"d": batch.registers["d"] ^ np.uint32(1)}
    other = cases.CaseBatch(batch.subject, batch.count, batch.segments, flipped, batch.image)
    return {"C as changed": compare.model(other, device), "C as it was": compare.model(batch, device)}


def _early(text: str) -> str:
    """The kernel with its stores of D before the wait."""
    wait = "wgmma.wait_group.sync.aligned 0;\n"
    return text.replace(wait, "").replace("\nret;", "\n" + wait + "ret;")


def _unfenced(text: str) -> str:
    """The kernel with accumulators that change just before the instruction, without a wgmma.fence."""
    count = text.count("st.global.b32")
    flips = "\n".join(f"xor.b32 %d{i}, %d{i}, 1;" for i in range(count))
    return text.replace("wgmma.fence.sync.aligned;", flips)


_WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"
_SP = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
PROBES: tuple[Probe, ...] = (
    Probe("early read", "D stored before wgmma.wait_group is", _WGMMA, _old_and_new, _early),
    Probe("missing fence", "accumulators written without wgmma.fence are", _WGMMA, _changed_accumulators, _unfenced),
    *(
        Probe(f"selector {f}", f"mma.sp with sparsity selector {f}, undefined there, is", _SP, _by_selector, selector=f)
        for f in (2, 3)
    ),
)


def observe(probe: Probe, backend: Backend) -> Observation:
    """Run a probe."""
    try:
        return Observation(probe.name, probe.question, _observe(probe, backend))
    except MmulatorError as error:
        return Observation(probe.name, probe.question, {}, error.message)


def _observe(probe: Probe, backend: Backend) -> dict[str, int]:
    device, target = backend.chip.device, backend.chip.target
    found = subjects(parse_mnemonic(probe.mnemonic, target=target))
    subject = found[0]
    batch = cases.build(subject, device, _SEED, _COUNT, only=probe.kinds, wish=cases.Wish(scale_d=1, odd=False))
    could_be = probe.could_be(subject, batch, device)
    written = subject
    if probe.selector is not None:
        written = Subject(subject.form, subject.signature, (("f", probe.selector),))
    module = backend.load(probe.text(kernels.module([written], target)))
    try:
        arrays, got = kernels.arguments(batch)
        kernels.launch(backend, module, "k0", batch, arrays, got)
    finally:
        backend.close(module)
    rest = np.ones(got.shape, bool)
    counts = {}
    for name, want in could_be.items():
        same = rest & (got == want)
        counts[name] = int(same.sum())
        rest &= ~same
    return counts | {"neither": int(rest.sum())}


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
