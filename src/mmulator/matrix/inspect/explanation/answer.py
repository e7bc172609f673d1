"""The answer to `explain`."""

from dataclasses import asdict, dataclass
from typing import Any

from mmulator.matrix.inspect.answer import Answer
from mmulator.matrix.inspect.explanation.arithmetic import Arithmetic
from mmulator.matrix.inspect.explanation.related import Related
from mmulator.matrix.inspect.explanation.rules import StatedRule


@dataclass(frozen=True)
class Operand:
    """An operand of the instruction.

    name, kind, direction: as in isa.row.OperandSpec.
    registers: number of registers a thread gives, 0 for a constant.
    type: of a register.
    types: all register types that are accepted.
    values: the constants that are allowed, None for any.
    what: in words.
    element: element type of a fragment; None for other operands.
    rows, columns: of a fragment's matrix (of sparse A the compressed one), else 0.
    lanes: lanes that hold the fragment.
    per_register: elements in a register.
    """

    name: str
    kind: str
    direction: str
    registers: int
    type: str
    types: tuple[str, ...]
    values: tuple[int, ...] | None
    what: str
    element: str | None = None
    rows: int = 0
    columns: int = 0
    lanes: int = 0
    per_register: int = 0


@dataclass(frozen=True)
class Snippet:
    """Text to paste.

    title: which way to write the instruction; empty if there is one way.
    ptx: declarations and statement.
    cuda: a `__device__` function.
    """

    title: str
    ptx: str
    cuda: str


@dataclass(frozen=True)
class Explanation(Answer):
    """The answer to `explain`.

    query: the question.
    mnemonic, family: of the instruction.
    section: title and version of its section.
    computes: the computation in words.
    shape: m, n, k; 0 where there is none.
    macs: multiply-accumulates (of sparse forms those that are done), 0 for an instruction that multiplies nothing.
    threads: number of threads that execute it together.
    requires: targets in words.
    ptx_version: first PTX version.
    targets: (target, first PTX version) of each.
    signatures: operand lists that are accepted.
    operands: all operands, each once.
    arithmetic: per device.
    snippets: text to paste.
    matches: what else fits the query, likeliest first.
    """

    query: str
    mnemonic: str
    family: str
    section: str
    computes: str
    shape: tuple[int, int, int]
    macs: int
    threads: int
    requires: str
    ptx_version: str
    targets: tuple[tuple[str, str], ...]
    signatures: tuple[str, ...]
    operands: tuple[Operand, ...]
    arithmetic: tuple[Arithmetic, ...]
    rules: tuple[StatedRule, ...]
    snippets: tuple[Snippet, ...]
    cuda_head: str
    related: tuple[Related, ...]
    matches: tuple[str, ...] = ()

    @property
    def ptx(self) -> str:
        """Declarations and statement; other ways to write the statement as comments."""
        first, *others = self.snippets
        out = first.ptx
        for other in others:
            out += f"\n// or, {other.title}:\n" + "".join(f"// {line}\n" for line in other.ptx.splitlines())
        return out

    @property
    def cuda(self) -> str:
        """`__device__` functions, one for each way to write the statement."""
        return self.cuda_head + "".join(f"\n{'// ' + s.title + chr(10) if s.title else ''}{s.cuda}" for s in self.snippets)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ptx": self.ptx, "cuda": self.cuda}
