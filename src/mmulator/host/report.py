"""Reports of launches."""

from __future__ import annotations

from dataclasses import asdict, field, fields
from typing import TYPE_CHECKING, Any

from mmulator.base.classes import dataclass
from mmulator.base.tables import element, html_table, text_table
from mmulator.host import entries

if TYPE_CHECKING:
    from mmulator.base.findings import Finding
    from mmulator.host.certificate import Certificate
    from mmulator.runtime.launch.launch import Ran
    from mmulator.runtime.launch.shape import LaunchShape
    from mmulator.runtime.launch.work import Work
    from mmulator.sanitizer.diagnostics.watch import WatchedStore

_FINDINGS = 8  # lines of a program of which a report tells in full
_COLUMNS = ("instructions of warps", "executed")


@dataclass(repr=False)
class Report:
    """Result of a launch. `print(report)` gives it as a table.

    instructions: executed warp instructions by class. macs: multiply-accumulates of matrix instructions. seconds: of
    parse, compile and run. cached: the machine code came from the disk cache. notes: what a reader should know of the
    fidelity, such as functions that are not modelled to the bit on this device. output: what the kernel printed.
    stores: to the elements that the launch watched, in order. why: answers about elements that the launch was asked for.
    cluster: blocks of a cluster. findings: rules that the kernel broke, where the launch was sanitized. profile: what each line
    did, where the launch was profiled. held: notes of the sanitizer that were not asked for. refused: what was asked of the
    launch and not done, and why: findings that had no room. certificate: what holds in every schedule, where that was asked.
    """

    kernel: str
    device: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    seed: int
    threads: int
    instructions: dict[str, int]
    macs: int
    seconds: dict[str, float]
    cached: bool
    notes: list[str] = field(default_factory=list)
    output: str = ""
    stores: list[WatchedStore] = field(default_factory=list)
    why: list[Any] = field(default_factory=list)
    cluster: tuple[int, int, int] = (1, 1, 1)
    findings: tuple[Finding, ...] = ()
    profile: entries.LaunchProfile | None = field(default_factory=lambda: None)
    held: tuple[Finding, ...] = ()
    refused: tuple[str, ...] = ()
    certificate: Certificate | None = None

    @classmethod
    def of(
        cls, kernel: str, device: str, static_shared: int, shape: LaunchShape, seed: int, ran: Ran, parse_seconds: float,
        compile_seconds: float,
    ) -> Report:  # fmt: skip
        """The report of a launch on the CPU. static_shared: bytes of shared memory that the kernel declares."""
        report = cls.__new__(cls)
        report.__dict__.update(
            kernel=kernel, device=device, grid=shape.grid, block=shape.block, shared=static_shared + shape.shared,
            seed=seed, threads=ran.threads, cached=ran.cached, notes=ran.notes, output=ran.output, stores=ran.stores,
            cluster=shape.cluster, _work=ran.work, findings=ran.findings, why=[], counts=ran.profile, held=ran.held,
            refused=ran.refused, evidence=ran.evidence, certificate=None,
            seconds={"parse": parse_seconds, "compile": compile_seconds, "run": ran.seconds},
        )  # fmt: skip
        return report

    def __getattr__(self, name: str) -> Any:
        """`instructions`, `macs` and `profile` of such a report, when they are asked for."""
        if name == "profile" and "counts" in self.__dict__:
            return self.__dict__.setdefault(name, self._profile())
        if name not in ("instructions", "macs") or "_work" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.__dict__.setdefault(name, getattr(self.__dict__["_work"], name))

    def _profile(self) -> entries.LaunchProfile | None:
        counts = self.__dict__["counts"]
        return None if counts is None else entries.profile_of(self.kernel, self.device, counts)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def total_instructions(self) -> int:
        work: Work | None = self.__dict__.get("_work")
        return sum(self.instructions.values()) if work is None else work.total

    def same_work(self, other: Report) -> bool:
        """Whether another launch was of this shape, and executed the same."""
        mine, its = self.__dict__.get("_work"), other.__dict__.get("_work")
        shape = (self.device, self.grid, self.block, self.shared, self.cluster) == (
            other.device, other.grid, other.block, other.shared, other.cluster)  # fmt: skip
        return shape and mine is not None and its is not None and mine.same(its)

    @property
    def head(self) -> str:
        """Kernel, device and the shape of the launch, in a line."""
        from mmulator.base.demangle import demangle

        kernel, grid, block = demangle(self.kernel), _size(self.grid), _size(self.block)
        clusters = f", clusters of {_size(self.cluster)}" * (self.cluster != (1, 1, 1))
        return f"{kernel} on {self.device}: grid {grid}, block {block}{clusters}, {self.shared} bytes of shared memory"

    @property
    def costs(self) -> list[str]:
        """Multiply-accumulates, where there are any, and times: a line each."""
        s = self.seconds
        rate = self.macs / max(s["run"], 1e-9)
        cached = " (from the cache)" if self.cached else ""
        return [
            *([f"multiply-accumulates: {self.macs:,} ({_rate(rate)})"] if self.macs else []),
            f"time: parse {s['parse']:.2f} s, compile {s['compile']:.2f} s{cached}, run {s['run']:.3f} s "
            f"on {self.threads} thread{'s' * (self.threads != 1)}",
        ]

    def _tail(self) -> list[str]:
        return [
            *self.costs,
            *(f"store: {store}" for store in self.stores[-8:]),
            *(f"note: {note}" for note in self.notes),
            *(f"why {answer}" for answer in self.why),
            *(self.certificate.lines() if self.certificate else ()),
        ]

    def _found(self) -> list[str]:
        """Paragraphs of findings, and how many there are."""
        from mmulator.base.findings import WIDTH, counted, paragraphs

        told = ["\n".join(lines) for lines in paragraphs(self.findings, WIDTH, most=_FINDINGS)]
        return [*told, counted(self.findings)] if told else []

    def __str__(self) -> str:
        rows = [(name, f"{count:,}") for name, count in self.instructions.items()]
        output = [self.output.removesuffix("\n")] if self.output else []
        return "\n".join([*output, self.head, *text_table(_COLUMNS, rows), *self._tail(), *self._found()])

    def __repr__(self) -> str:
        return f"<Report {self.head}, {self.total_instructions:,} instructions>"

    def _repr_html_(self) -> str:
        rows = [(name, f"{count:,}") for name, count in self.instructions.items()]
        output = element("pre", self.output) if self.output else ""
        tail = "".join(element("p", x) for x in self._tail()) + "".join(element("pre", x) for x in self._found())
        return element("p", self.head) + output + html_table(_COLUMNS, rows) + tail

    def as_dict(self, profile: bool = True) -> dict[str, Any]:
        """The report as JSON data. profile: whether with the profile, if there is one; it is long."""
        from mmulator.base.schemas import document

        return document("report", {
            "kernel": self.kernel, "device": self.device, "grid": list(self.grid), "block": list(self.block),
            "cluster": list(self.cluster), "shared": self.shared, "seed": self.seed, "threads": self.threads,
            "instructions": self.instructions, "macs": self.macs, "seconds": self.seconds, "cached": self.cached,
            "notes": self.notes, "output": self.output, "stores": [{**asdict(s), "value": s.value.item()} for s in self.stores],
            "findings": [f.as_dict() for f in self.findings], "why": [a.as_dict() for a in self.why],
            "refused": list(self.refused),
            **({"certificate": self.certificate.as_dict()} if self.certificate else {}),
            **({"profile": self.profile.as_dict()} if profile and self.profile else {}),
        })  # fmt: skip


def _size(shape: tuple[int, int, int]) -> str:
    """`4 x 2`: without the extents of 1 at the end."""
    extents = [n for n, rest in zip(shape, (True, shape[1:] != (1, 1), shape[2] != 1)) if rest]
    return " x ".join(map(str, extents))


def _rate(per_second: float) -> str:
    unit, size = next(((u, s) for u, s in (("G", 1e9), ("M", 1e6)) if per_second >= s), ("k", 1e3))
    return f"{per_second / size:.1f} {unit}/s"
