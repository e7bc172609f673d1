"""Probes: what a GPU does where the specification promises nothing. Each counts the outcomes; nothing is compared."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.conformance import cases, compare, kernels
from mmulator.conformance.subjects import Subject, subjects
from mmulator.errors import MmulatorError
from mmulator.host.backend import Backend
from mmulator.instruction import execution
from mmulator.isa.names.mnemonic import parse_mnemonic

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
