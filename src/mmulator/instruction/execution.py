"""What matrix instructions do to registers and memory images: fragments in, arithmetic, fragments out.

One file a family; `execute` checks that the operands are the instruction's and hands them on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module

from mmulator.errors import OperandError, UnsupportedError
from mmulator.instruction.operands import Array, Operands
from mmulator.isa.forms import MatrixForm
from mmulator.isa.targets import DEVICES, check_known

_BLOCK_SCALE = ("scale_a_data", "byte_id_a", "thread_id_a", "scale_b_data", "byte_id_b", "thread_id_b")
_WGMMA_DEFAULTS: Operands = {
    "shared_base": 0, "scale_d": 1, "imm_scale_a": 1, "imm_scale_b": 1, "imm_trans_a": 0, "imm_trans_b": 0,
    "a": None, "a_desc": None, "d": None,
}  # fmt: skip
_DEFAULTS: dict[str, Operands] = {"wgmma": _WGMMA_DEFAULTS, "wmma": {"stride": None}}


@lru_cache(maxsize=1024)
def keywords(form: MatrixForm) -> tuple[str, ...]:
    """Keywords that `execute` takes for a form."""
    if form.family == "wgmma":
        sp = ("sp_meta", "sp_sel") if form.sparse else ()
        rest = {s.key: None for signature in form.signatures for s in signature}
        return tuple(dict.fromkeys(("d", "a", "a_desc", "b_desc", "shared", "shared_base", *sp, *rest)))
    if form.family == "mma":
        sp = ("e", "f") if form.sparse else ()
        return ("a", "b", "c", *sp, *(_BLOCK_SCALE if form.block_scale else ()))
    if form.family == "wmma":
        if form.op == "mma":
            return ("a", "b", "c")
        return ("memory", "p", "stride", *(("r",) if form.op == "store.d" else ()))
    return {"ldmatrix": ("memory", "p"), "stmatrix": ("memory", "p", "r"), "movmatrix": ("a",)}[form.family]


def execute(form: MatrixForm, device: str, operands: Operands, *, strict: bool = True) -> Array:
    """Run one instruction; see `Instruction.execute`."""
    run = _function(form)
    known = keywords(form)
    defaults = _DEFAULTS.get(form.family, {})
    for name in operands:
        if name not in known:
            raise OperandError(f"{form} has no operand {name}", hint=f"operands: {', '.join(known)}")
    for name in known:
        if name not in operands and name not in defaults:
            raise OperandError(f"operand {name} is missing", hint=f"operands of {form}: {', '.join(known)}")
    check_device(form, device)
    given = {name: operands.get(name, defaults.get(name)) for name in known}
    return run(form, device, given | {"strict": strict})


def check_device(form: MatrixForm, device: str) -> None:
    """Raises UnsupportedError for a device that is not known, or for which no target has the instruction."""
    if not isinstance(device, str):
        check_known(device)
    _check_device(form, device)


@lru_cache(maxsize=1024)
def _check_device(form: MatrixForm, device: str) -> None:
    check_known(device)
    requires = form.row.requires
    having = [d for d in DEVICES if any(target.runs_on(d) for target in requires.targets())]
    if device not in having:
        raise UnsupportedError(
            f"{device} has no {form}",
            rule=f"{form.section}, Target ISA Notes: requires {requires.describe_targets()}",
            hint=f"devices that have it: {', '.join(having)}" if having else None,
        )


# Of each family and operation the function that runs it; its file is read at the first use.
_RUN = {
    ("mma", "mma"): "mma.mma",
    ("wmma", "mma"): "mma.mma",
    ("wgmma", "mma_async"): "wgmma.wgmma",
    **{("wmma", f"load.{x}"): "wmma.load" for x in "abc"},
    ("wmma", "store.d"): "wmma.store",
    **{(x, x): f"matrix_move.{x}" for x in ("ldmatrix", "stmatrix", "movmatrix")},
}


@lru_cache(maxsize=1024)
def _function(form: MatrixForm) -> Callable[[MatrixForm, str, Operands], Array]:
    place = _RUN.get((form.family, form.op))
    if place is None:
        raise UnsupportedError(
            f"{form} orders other instructions and has no result", hint="run a kernel that contains it"
        )
    file, _, name = place.partition(".")
    return getattr(import_module(f"mmulator.instruction.{file}"), name)
