"""`Instruction`, the object that users hold: it parses a name, multiplies matrices, executes on registers, and tells
layouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError, UnsupportedError, short_traceback, shown
from mmulator.base.floating import in_plain_floats
from mmulator.base.interop import is_lazy
from mmulator.base.lazy import cached_property
from mmulator.base.tables import element, html_table
from mmulator.isa.form import Form
from mmulator.isa.names.instruction import parse_instruction
from mmulator.isa.targets import Target, as_pair
from mmulator.isa.types import ElementType
from mmulator.matrix.instruction import chunks, execution, tcgen05
from mmulator.matrix.instruction.operands import check_signs, sparse_a, words
from mmulator.matrix.layouts import Fragment, element_of, fragment, sparse
from mmulator.matrix.numerics.formats import from_raw, to_raw
from mmulator.matrix.numerics.profiles import dot_key

Array = NDArray[Any]


@dataclass(frozen=True)
class OperandLayout:
    """The layout of an operand's matrix in registers.

    name: the operand.
    element_type: type of the matrix elements.
    fragment: the rule itself, on raw bits.

    Rows and columns are those of the matrix; for sparse A, those of the compressed matrix [M, K / 2].
    """

    name: str
    element_type: ElementType
    fragment: Fragment

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, columns); (copies, rows, columns) for m8n8k4 with .f16, which multiplies four pairs of matrices."""
        return self.fragment.matrix_shape

    @short_traceback
    def locate(self, row: Any, col: Any, copy: Any = 0) -> tuple[Any, Any, Any]:
        """(lane, register, index) of an element; arrays give arrays. Raises OperandError outside the matrix."""
        return _plain(*self.fragment.locate(row, col, copy))

    @short_traceback
    def element(self, lane: Any, register: Any, index: Any = 0) -> tuple[Any, Any]:
        """(row, column) of the element at a lane, register and index within the register, where index 0 is the lowest bits."""
        return _plain(*self.fragment.element(lane, register, index))

    @short_traceback
    def to_registers(self, matrix: Any) -> Array:
        """Registers [..., lanes, registers] of a matrix [..., rows, columns] (the type's NumPy dtype, or raw unsigned
        integers).
        """
        return self.fragment.to_registers(to_raw(self.element_type, matrix, self.name))

    @short_traceback
    def to_matrix(self, registers: Any) -> Array:
        """The matrix [..., rows, columns] in registers [..., lanes, registers] (uint32; uint64 for .f64)."""
        given = words(self.name, registers, self.fragment.register_bits)
        return from_raw(self.element_type, self.fragment.to_matrix(given))


def _plain(*parts: Any) -> tuple[Any, ...]:
    return tuple(int(p) if np.ndim(p) == 0 else p for p in parts)


@dataclass(frozen=True)
class Instruction:
    """One matrix instruction.

    form: the instruction itself.
    target, ptx: the target and PTX version against which it was checked, or None.
    """

    form: Form
    target: Target | None = None
    ptx: tuple[int, int] | None = None

    @classmethod
    @short_traceback
    def parse(
        cls,
        text: str,
        target: str | Target | None = None,
        ptx: str | tuple[int, int] | None = None,
        *,
        m: int | None = None,
        n: int | None = None,
        k: int | None = None,
        dtype: str | None = None,
        atype: str | None = None,
        btype: str | None = None,
        stype: str | None = None,
        saturate: bool | None = None,
    ) -> Instruction:
        """The instruction with a name such as `wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16`, or described by words
        such as `wgmma m64n128 bf16`.

        text: the name or the words. Words may omit what has a default: f32 (s32) accumulators, rows times columns, no other
            qualifiers. They must give family, shape and input types.
        target, ptx: `.target` and `.version` that must have the instruction (`"sm_90a"`, `"8.7"`); None skips this check.
        m, n, k: shape of tcgen05.mma, whose name has none: by default 128 (256 for a pair of CTAs), 64, and the kind's only K.
        dtype, atype, btype, stype: types of tcgen05.mma's D (f32, s32), A, B (that of A) and scale factors.
        saturate: whether s32 results of tcgen05.mma saturate.

        Raises InvalidInstructionError that points at the wrong qualifier and names the rule and the alternatives, or that lists
        the instructions among which the words do not decide; OperandError for an unknown target or version.
        """
        if not isinstance(text, str):
            raise OperandError(f"an instruction is a string, not {type(text).__name__}")
        if not isinstance(target, str | Target | None):
            raise OperandError(f"target is {shown(target)}: a string is needed", hint='such as "sm_90a"')
        wanted, version = as_pair(target, ptx)
        given = {"m": m, "n": n, "k": k, "dtype": dtype, "atype": atype, "btype": btype, "stype": stype, "saturate": saturate}
        if tcgen05.is_named(text):
            return cls(tcgen05.parse(text, wanted, version, given), wanted, version)
        named = [name for name, value in given.items() if value is not None]
        if named:
            raise OperandError(f"`{text}` has {named[0]} in its name", hint="only tcgen05.mma needs shape and types besides")
        return cls(parse_instruction(text, wanted, version), wanted, version)

    def __str__(self) -> str:
        return tcgen05.text_of(self.form) if self.form.effects.tensor else self.form.mnemonic

    def __repr__(self) -> str:
        return f"Instruction({str(self)!r})"

    def _repr_html_(self) -> str:
        shape = " x ".join(str(n) for n in (self.form.m, self.form.n, self.form.k) if n)
        rows = [("section", self.form.section), ("shape", shape), ("operands of execute", ", ".join(self.operands)),
                ("targets", self.form.requires.describe_targets())]  # fmt: skip
        return f"<p>{element('code', str(self))}</p>" + html_table(("", ""), [row for row in rows if row[1]])

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Names of the keywords that `execute` takes."""
        return execution.keywords(self.form)

    @short_traceback
    def layout(self, name: str) -> OperandLayout:
        """The layout of the elements of register operand `a`, `b`, `c`, `d` (or `r` of a load or store).

        Raises OperandError for an operand that is not a fragment, such as one in memory, or metadata.
        """
        if not isinstance(name, str):
            raise OperandError(f"an operand is named by a string, not {type(name).__name__}", hint="such as layout('a')")
        return _layout(self.form, name)

    @short_traceback
    @in_plain_floats
    def compute(
        self,
        A: Any,
        B: Any,
        C: Any = None,
        *,
        device: str | None = None,
        imm_scale_a: int = 1,
        imm_scale_b: int = 1,
        scale_a: Any = None,
        scale_b: Any = None,
        metadata: Any = None,
    ) -> Array:
        """D = A B + C with a device's bits. The result has the NumPy dtype of the instruction's D.

        A: [..., M, K]. Sparse instructions take a dense A with the zeros that their granularity requires, or a result of
            `sparse.compress`, or the elements that are kept, [..., M, K / 2], with `metadata`.
        B: [..., K, N].
        C: [..., M, N]; None is zero.
        device: name of a device or chip, such as "sm_90" or "H100"; None is sm_90, and the target's chip for tcgen05.
        imm_scale_a, imm_scale_b: 1 or -1, for wgmma and tcgen05 on float types.
        scale_a: [..., M, S], for block scaling, where S is the number of factors of a row: the scale_vec size.
        scale_b: [..., S, N].
        metadata: nibbles [..., M, chunks] that say which elements of a sparse A are kept, as `sparse.compress` gives them.

        Elements are NumPy or ml_dtypes values of the instruction's types (tensors of torch and similar libraries too), or raw
        unsigned integers of their size (at least 8 bits; b1 as 0 and 1). Leading dimensions broadcast. If an operand is a Dask
        array, the result is one too: it has chunks of the leading dimensions and is computed on demand.
        Raises OperandError for wrong shapes or dtypes, UnsupportedError where a device lacks the instruction.
        """
        form = self.form
        if not form.atype:
            raise OperandError(
                f"{form} multiplies no matrices", hint="use `execute`, or a kernel for instructions that order others"
            )
        device = execution.check_device(form, execution.default_chip(form, self.target) if device is None else device)
        check_signs(form, imm_scale_a, imm_scale_b)
        A = sparse_a(form, A, metadata)
        operands = {"A": A, "B": B, "C": C, "scale_a": scale_a, "scale_b": scale_b}
        if any(map(is_lazy, operands.values())):
            signs = {"imm_scale_a": imm_scale_a, "imm_scale_b": imm_scale_b}
            return chunks.batch(partial(_compute, instruction=str(self), device=device, **signs), form, operands)
        key = dot_key(form)
        indices = None
        b = _matrix("B", form.btype, B, (form.k, form.n))
        if form.sparse:
            if not isinstance(A, sparse.Compressed):
                to_raw(form.atype, A, "A")  # raises for elements that are none, before zeros are looked for
            kept = sparse.operand(A, form)
            if kept.shape[-2:] != (form.m, form.k):
                raise OperandError(
                    f"A of shape {kept.shape}: [..., {form.m}, {form.k}] is needed",
                    hint="`matmul` takes whole matrices, `tiles()` cuts a compressed one",
                )
            a = _matrix("A", form.atype, kept.values, (form.m, form.k // 2))
            indices = sparse.indices(kept.metadata, form)
        else:
            a = _matrix("A", form.atype, A, (form.m, form.k))
        c = None if C is None else _matrix("C", form.ctype or form.dtype, C, (form.m, form.n))
        if form.block_scale:
            scale_a = _matrix("scale_a", form.stype, scale_a, (form.m, key.scale_blocks))
            scale_b = _matrix("scale_b", form.stype, scale_b, (key.scale_blocks, form.n))
        elif scale_a is not None or scale_b is not None:
            raise OperandError(f"{form} takes no scale_a or scale_b")
        from mmulator.matrix.twin.matrices import twin_matmul

        d = twin_matmul(
            key, device, a, b, c, imm_scale_a=imm_scale_a, imm_scale_b=imm_scale_b, indices=indices,
            scale_a=scale_a, scale_b=scale_b,
        )  # fmt: skip
        return from_raw(form.dtype, d)

    @short_traceback
    @in_plain_floats
    def execute(self, device: str = "sm_90", *, strict: bool = True, **operands: Any) -> Array:
        """Run the instruction on registers: uint32 [..., lanes, registers] in and out (uint64 for .f64), with 32 lanes, or 128
        for wgmma.

        Operands have the specification's names, with `_` for `-`:
          mma                 a b c, sparse also e [..., lanes] and f (0..3); block scaling also scale_a_data [..., 32]
                              byte_id_a thread_id_a scale_b_data byte_id_b thread_id_b. Returns d.
          wgmma.mma_async     d (input, unless scale_d is 0), a or a_desc, b_desc, shared (uint8 [..., bytes]: an image
                              of shared memory), shared_base (address of its first byte, 0), sp_meta [..., 128], sp_sel,
                              scale_d (1), imm_scale_a imm_scale_b (1), imm_trans_a imm_trans_b (0). Returns d.
          wmma.mma            a b c. Returns d.
          wmma.load           memory (uint8 [..., bytes]), p (byte offset), stride (elements). Returns r.
          wmma.store          memory, p, stride, r. Writes and returns memory.
          ldmatrix, stmatrix  memory, p [lanes] (byte offsets of the rows), stmatrix also r. Results as for wmma.
          movmatrix           a. Returns d.
        Leading dimensions broadcast; a batch runs on all cores. Nothing is written before everything has been checked.
        strict: False accepts sparsity metadata that the specification leaves undefined, and interprets it as hardware does.
        Raises OperandError for a missing, unknown or misshapen operand, a misaligned p or stride, a selector outside its range,
        or undefined metadata, ExecutionFault for an address outside `shared` or `memory`, UnsupportedError if a device lacks
        the instruction.
        """
        return execution.execute(self.form, device, operands, strict=strict)


def _compute(A: Any, B: Any, C: Any, instruction: str, **more: Any) -> Array:
    """`Instruction.compute` for chunks, in any process. instruction: its name."""
    return Instruction.parse(instruction).compute(A, B, C, **more)


@lru_cache(maxsize=1024)
def _layout(form: Form, name: str) -> OperandLayout:
    rule = fragment(form, name)
    element = element_of(form, name)
    if not element:
        raise UnsupportedError(f"operand {name} of {form} has no element type")
    return OperandLayout(name, element, rule)


def _matrix(name: str, element: ElementType, value: Any, shape: tuple[int, int]) -> Array:
    if value is None:
        raise OperandError(f"{name} is missing: .{element} [..., {shape[0]}, {shape[1]}] is needed")
    raw = to_raw(element, value, name)
    if raw.shape[-2:] != shape:
        raise OperandError(f"{name} of shape {raw.shape}: [..., {shape[0]}, {shape[1]}] is needed")
    return raw
