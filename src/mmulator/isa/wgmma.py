"""`wgmma`: asynchronous warpgroup-level matrix multiply-accumulate, and the instructions that order it.

Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions (PTX ISA 9.1).
"""

from mmulator.isa.effects import ACTS, Ends, Flow, MemoryEffect, Queue, Step, Together
from mmulator.isa.form import Form
from mmulator.isa.mma import FP8, fragment
from mmulator.isa.row import OperandSpec, Requirement, Row, Section, Signature
from mmulator.isa.shapes import REGISTERS_ANY32, REGISTERS_F16, matrix_row, operand, optional, slots

DENSE = Section("Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async")
SPARSE = Section("Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async.sp")

N_FLOAT = tuple(range(8, 257, 8))
N_INTEGER = (8, 16, 24, *range(32, 257, 16))

_DESCRIPTOR = ("b64", "u64", "s64")
_SCALE_D = operand("scale-d", "predicate", ("pred",), values=range(2))
_SIGN = range(-1, 2, 2)


def _metadata(form: Form) -> Signature:
    selectors = range(1) if form.atype.bits == 8 else range(2)
    return (
        operand("sp-meta", "register", REGISTERS_ANY32),
        operand("sp-sel", "immediate", values=selectors, defined=selectors),
    )


def _mma_async(form: Form) -> tuple[Signature, ...]:
    """The signatures with A in shared memory and with A in registers."""
    d = fragment(form, "d", form.dtype, form.m * form.n // 4, "rw")
    types = REGISTERS_F16[::-1] if form.atype.is_float else REGISTERS_ANY32
    a = operand("a", "registers", REGISTERS_F16 if form.atype.name == "f16" else types, 4)
    a_desc = operand("a-desc", "descriptor", _DESCRIPTOR)
    b_desc = operand("b-desc", "descriptor", _DESCRIPTOR)
    rest: Signature = (*(_metadata(form) if form.sparse else ()), _SCALE_D)
    if form.atype.is_float:
        rest += tuple(operand(f"imm-scale-{x}", "immediate", values=_SIGN) for x in "ab")
    trans = form.atype.bits == 16
    trans_a = (operand("imm-trans-a", "immediate", values=range(2)),) if trans else ()
    trans_b = (operand("imm-trans-b", "immediate", values=range(2)),) if trans else ()
    return (d, a_desc, b_desc, *rest, *trans_a, *trans_b), (d, a, b_desc, *rest, *trans_b)


_WARPGROUP = ACTS.but(together=Together.WARPGROUP, queue=Queue.WGMMA)
# D is written when it is waited for; A in registers is read when the operation is done.
_ISSUES = _WARPGROUP.but(
    step=Step.ISSUE, memory=MemoryEffect.READ, multiplies=True, counted_as="wgmma", pinned=("d", "a", "a-desc"),
    flow=Flow.WGMMA,
)


def _row(
    types: tuple[str | tuple[str, ...], str | tuple[str, ...], str | tuple[str, ...]],
    ns: tuple[int, ...],
    k: int,
    sparse: bool,
    ptx: tuple[int, int] = (8, 0),
    **more: str | tuple[str, ...],
) -> Row:
    d, a, b = types
    choices: dict[str, str | tuple[str, ...]] = {"sparse": "sp"} if sparse else {}
    # ptxas does without .aligned here
    choices |= {"sync": "sync", "aligned": optional("aligned")}
    choices["shape"] = tuple(f"m64n{n}k{2 * k if sparse else k}" for n in ns)
    choices |= {"dtype": d, "atype": a, "btype": b, **more}
    requires = Requirement(max(ptx, (8, 2)) if sparse else ptx, 90, "a", (90,))
    return matrix_row("wgmma.mma_async", slots(**choices), requires, SPARSE if sparse else DENSE, _mma_async, _ISSUES)


def _mma_async_rows(sparse: bool) -> tuple[Row, ...]:
    sat = optional("satfinite")
    rows = (
        _row((("f16", "f32"), "f16", "f16"), N_FLOAT, 16, sparse),
        _row(("f32", "bf16", "bf16"), N_FLOAT, 16, sparse),
        _row(("f32", "tf32", "tf32"), N_FLOAT, 8, sparse),
        _row((("f16", "f32"), FP8, FP8), N_FLOAT, 32, sparse),
        _row(("s32", "s8", "s8"), N_INTEGER, 32, sparse, satfinite=sat),
        _row(("s32", "u8", "u8"), N_INTEGER, 32, sparse, satfinite=sat),
        _row(("s32", "s8", "u8"), N_INTEGER, 32, sparse, ptx=(8, 4), satfinite=sat),
        _row(("s32", "u8", "s8"), N_INTEGER, 32, sparse, ptx=(8, 4), satfinite=sat),
    )
    b1 = () if sparse else (_row(("s32", "b1", "b1"), N_INTEGER, 256, False, bit_op="and", popc="popc"),)
    return (*rows, *b1)


def _order(op: str, step: Step, *operands: OperandSpec, ends: Ends = Ends.NO) -> Row:
    title = f"Asynchronous Multiply-and-Accumulate Instruction: wgmma.{op}"
    return matrix_row(
        f"wgmma.{op}",
        slots(sync="sync", aligned=optional("aligned")),
        Requirement((8, 0), 90, "a", (90,)),
        Section(title),
        lambda form: (operands,),
        _WARPGROUP.but(step=step, ends=ends, counted_as=f"wgmma.{op}"),
    )


ROWS: tuple[Row, ...] = (
    *_mma_async_rows(sparse=False),
    *_mma_async_rows(sparse=True),
    _order("fence", Step.FENCE),
    _order("commit_group", Step.COMMIT),
    _order("wait_group", Step.WAIT, operand("N", "immediate", values=range((1 << 63) - 1)), ends=Ends.WAIT),
)
